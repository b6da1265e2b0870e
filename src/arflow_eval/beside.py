"""What lies beside a store and never inside its fingerprint: writers and seconds.

`writer.json` says what the first writer computed with, `writers/shard-N.json` what the latest
process of each shard did, and what its start-up probe found. `timings/shard-N.jsonl` has a line
a block: seconds of prefill, auxiliary lines, draws, decode and reference for each of its frames;
`timings/step-N.json` the seconds of one decode step with one draw and with all.
"""

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from arflow_eval import provenance, refusal
from arflow_eval.contracts import FrameDraws
from arflow_eval.decode.probe import Probe
from arflow_eval.settings import EvaluateSettings
from arflow_eval.store.disk import put, replace_text, writable

DECIDES_BITS: Final = ("device", "build", "machine", "threads", "versions")


def record_writer(folder: Path, settings: EvaluateSettings, found: Probe | None) -> None:
    """Record what this process computes with, or refuse to mix it with another's.

    Device, build, threads and versions decide the last bits of a prediction. At `fixed_shape`
    and `exact` all writers of a store must agree in them; at `keyed` they are recorded only.
    """
    with writable(folder):
        _record_writer(folder, settings, found)


def _record_writer(folder: Path, settings: EvaluateSettings, found: Probe | None) -> None:
    environment = provenance.environment(threads=settings.threads)
    mine = {"device": settings.device, "build": _build(settings.device), **environment}
    path = folder / "writer.json"
    whole = path.with_name(f".writer-{uuid.uuid4().hex}.tmp")
    try:
        put(whole, _json(mine).encode())
        path.hardlink_to(whole)  # whoever is first, the file is whole when it appears
    except FileExistsError:
        if settings.decode.determinism != "keyed":
            _check_writer(json.loads(path.read_text()), mine)
    finally:
        whole.unlink(missing_ok=True)
    shard = settings.shard.index
    _replace(folder / "writers" / f"shard-{shard}.json", {**mine, "probe": found and asdict(found)})
    if found is not None:
        step = {"draws": settings.decode.draws, "first": found.first, "all": found.every}
        _replace(folder / "timings" / f"step-{shard}.json", step)


def check_probe(settings: EvaluateSettings, found: Probe | None) -> None:
    """At `exact`, refuse a policy whose rows do not keep their bits in any company."""
    if settings.decode.determinism == "exact" and found is not None and found.differing:
        raise refusal.guard(
            f"a draw of {settings.model.name} has other bits {found.differing[0]} than in a batch, "
            "on this machine and build",
            expected="equal bits in any grouping at decode.determinism=exact",
            remedy="set threads=1 on a CPU, or decode.determinism=fixed_shape",
        )


def _build(device: str) -> dict[str, str] | None:
    """What else of torch and its device decides bits, where torch is at work."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    capability: str = torch.backends.cpu.get_cpu_capability()
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    return {"capability": capability, "accelerator": name}


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


def _replace(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    replace_text(path, _json(value), temporary=temporary)


def record_seconds(folder: Path, rows: range, found: Sequence[FrameDraws], *, shard: int) -> None:
    """Append a block's seconds to this shard's timings."""
    seconds = {
        name: [round(frame.seconds[name], 6) for frame in found] for name in found[0].seconds
    }
    lines = folder / "timings" / f"shard-{shard}.jsonl"
    with writable(lines):
        lines.parent.mkdir(exist_ok=True)
        with lines.open("a") as file:
            file.write(json.dumps({"rows": [rows.start, rows.stop], "seconds": seconds}) + "\n")


def differing(first: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """What decides bits and differs between two writers; the commit does not, see the digest."""
    return [name for name in DECIDES_BITS if first.get(name) != other.get(name)]


def _check_writer(first: dict[str, object], mine: dict[str, object]) -> None:
    names = differing(first, mine)
    if names:
        raise refusal.guard(
            f"this process differs from the store's first writer in {', '.join(names)}",
            expected="one device, build and thread count a store, which decide the last bits",
            remedy="resume where the run began, or begin anew under another store.root",
        )
