"""What lies beside a store and never inside its fingerprint: writers and seconds.

`writer.json` says what the first writer computed with; `timings/shard-N.jsonl` has a line a
block: seconds of prefill, auxiliary lines and draws for each of its frames.
"""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path

from arflow_eval import provenance, refusal
from arflow_eval.contracts import FrameDraws
from arflow_eval.settings import EvaluateSettings


def record_writer(folder: Path, settings: EvaluateSettings) -> None:
    """Record what this process computes with, or refuse to mix it with another's.

    Device, threads and versions decide the last bits of a prediction. At `fixed_shape` all
    writers of a store must agree in them.
    """
    environment = provenance.environment(threads=settings.threads)
    mine = {"device": settings.device, **environment}
    path = folder / "writer.json"
    whole = path.with_name(f".writer-{uuid.uuid4().hex}.tmp")
    whole.write_text(json.dumps(mine, indent=1) + "\n")
    try:
        path.hardlink_to(whole)  # whoever is first, the file is whole when it appears
    except FileExistsError:
        _check_writer(json.loads(path.read_text()), mine)
    finally:
        whole.unlink()


def record_seconds(folder: Path, rows: range, found: Sequence[FrameDraws], *, shard: int) -> None:
    """Append a block's seconds to this shard's timings."""
    seconds = {
        name: [round(frame.seconds[name], 6) for frame in found] for name in found[0].seconds
    }
    lines = folder / "timings" / f"shard-{shard}.jsonl"
    lines.parent.mkdir(exist_ok=True)
    with lines.open("a") as file:
        file.write(json.dumps({"rows": [rows.start, rows.stop], "seconds": seconds}) + "\n")


def _check_writer(first: dict[str, object], mine: dict[str, object]) -> None:
    """Compare what decides bits; the commit is recorded only, the code is in the digest."""
    differing = [
        name
        for name in ("device", "machine", "threads", "versions")
        if first.get(name) != mine[name]
    ]
    if differing:
        raise refusal.guard(
            f"this process differs from the store's first writer in {', '.join(differing)}",
            expected="one device, build and thread count a store, which decide the last bits",
            remedy="resume where the run began, or begin anew under another store.root",
        )
