"""What lies beside the stores of a merge: writers and seconds go along, the rest is named.

Every machine may have called its shard 0, so shards are numbered anew where they collide:
`timings/shard-N.jsonl`, `timings/step-N.json` and `writers/shard-N.json` stay together.
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import beside, refusal
from arflow_eval.exchange.sources import Source
from arflow_eval.runs import STORE
from arflow_eval.store.disk import sync, writable

WRITER: Final = "writer.json"
POOLED: Final = "pooled.npy"
SHARD_FILES: Final = ("writers/shard-{}.json", "timings/shard-{}.jsonl", "timings/step-{}.json")
NUMBERED: Final = re.compile(r"(?:shard|step)-(\d{1,9})\.jsonl?")
LARGEST: Final = 2**20  # bytes of a writer.json

Shard = dict[str, bytes]  # content by its place in SHARD_FILES


def check_writers(sources: Sequence[Source]) -> None:
    """Raise a guard where writers differ in what decides bits, unless noise alone is promised.

    It is what evaluate asks of the processes that share one store; at `keyed` they may differ.
    """
    if sources[0].group.attrs.get("determinism") == "keyed":
        return
    known = [(each.folder, _writer(each.folder)) for each in sources]
    written = [(folder, writer) for folder, writer in known if writer is not None]
    for folder, writer in written[1:]:
        names = beside.differing(written[0][1], writer)
        if names:
            raise refusal.guard(
                f"{folder} and {written[0][0]} were written by machines that differ in"
                f" {', '.join(names)}",
                expected="one device, build and thread count a store, which decide the last bits",
                remedy="merge what like machines wrote, or evaluate with decode.determinism=keyed",
            )


def carry(sources: Sequence[Source], out: Path) -> list[str]:
    """Bring writers, seconds and a published mean along; returns what was left out, by name."""
    shards = _shards(out)
    left_out: set[str] = set()
    with writable(out):
        for each in sources:
            for number, shard in sorted(_shards(each.folder).items()):
                if shard not in shards.values():  # a merge that is run again
                    free = number if number not in shards else max(shards) + 1
                    shards[free] = shard
                    for place, content in shard.items():
                        _write(out / place.format(free), content)
            for name in (WRITER, POOLED):
                if (each.folder / name).is_file() and not (out / name).exists():
                    _write(out / name, (each.folder / name).read_bytes())
            left_out |= {f"{each.folder.name}/{name}" for name in _others(each.folder)}
    return sorted(left_out)


def _writer(folder: Path) -> Mapping[str, Any] | None:
    path = folder / WRITER
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes()[:LARGEST])
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, found=str(error)) from error
    if not isinstance(found, dict):
        raise _unreadable(path, found="no JSON object")
    return found


def _unreadable(path: Path, *, found: str) -> refusal.Refusal:
    return refusal.damage(
        f"{path} cannot be read ({found})",
        expected="what the first writer recorded",
        remedy="restore it from a copy",
    )


def _shards(folder: Path) -> dict[int, Shard]:
    """The files of every shard that left any beside a store, by its number."""
    matches = [NUMBERED.fullmatch(path.name) for path in folder.glob("*/s*-*.json*")]
    numbers = sorted({int(match[1]) for match in matches if match})
    found = {
        number: {
            place: (folder / place.format(number)).read_bytes()
            for place in SHARD_FILES
            if (folder / place.format(number)).is_file()
        }
        for number in numbers
    }
    return {number: shard for number, shard in found.items() if shard}


def _others(folder: Path) -> list[str]:
    known = {STORE, WRITER, POOLED, "writers", "timings"}
    return [
        path.name
        for path in folder.iterdir()
        if path.name not in known and not path.name.startswith(".")
    ]


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        temporary.write_bytes(content)
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
