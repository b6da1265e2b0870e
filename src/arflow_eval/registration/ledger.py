"""What happened to a registration, line by line: appended only, each line chained to the last.

`ledger.jsonl` lies beside the lock. A line is the canonical JSON of `number`, `utc`, `kind`,
`what`, `previous` (the digest of the line before; of the first, the lock's) and `digest`.
Kinds: locked, amended, bound, begun, finished, explored, opened, reported.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from arflow_eval import provenance, refusal
from arflow_eval.registration import documents

NAME: Final = "ledger.jsonl"
SKEW: Final = 120.0  # seconds that the clocks of two machines may differ
Entry = Mapping[str, Any]


def entries(folder: Path, *, start: str) -> list[Entry]:
    """The lines of a ledger that begins at the digest `start`. Damage where one was changed."""
    path = folder / NAME
    if not path.is_file():
        raise refusal.damage(
            f"{folder.name} has a lock and no {NAME}",
            expected="the ledger that was begun with the lock",
            remedy="restore it from git",
        )
    found, problems = read(path.read_bytes(), start=start)
    if problems:
        raise refusal.damage(
            f"{folder.name}/{NAME}: {problems[0]}",
            expected="lines that only ever were appended",
            remedy="restore it from git",
        )
    return found


def read(raw: bytes, *, start: str) -> tuple[list[Entry], list[str]]:
    """The lines that can be read, and what is wrong with which line."""
    found: list[Entry] = []
    problems: list[str] = []
    previous = start
    *lines, rest = raw.split(b"\n")
    if rest:
        problems.append(f"line {len(lines) + 1} is cut short")
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line)
        if entry is None:
            problems.append(f"line {number} was changed")
            continue
        if entry.get("previous") != previous or entry.get("number") != number:
            problems.append(f"line {number} does not follow the line before it")
        previous = entry["digest"]
        found.append(entry)
    return found, problems


def _parsed(line: bytes) -> Entry | None:
    """A line as written, or None where its digest is not that of its words."""
    try:
        entry = json.loads(line)
        body = {key: value for key, value in entry.items() if key != "digest"}
        intact = provenance.canonical(entry) == line
    except (ValueError, AttributeError):
        return None
    return entry if intact and provenance.digest(body) == entry.get("digest") else None


@contextmanager
def held(folder: Path, *, start: str) -> Iterator[tuple[IO[bytes], list[Entry]]]:
    """The ledger, held by this process alone, and its lines. For `append`."""
    if not (folder / NAME).is_file():
        entries(folder, start=start)  # refuses
    with (folder / NAME).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        yield file, entries(folder, start=start)


def append(
    file: IO[bytes], known: Sequence[Entry], *, start: str, kind: str, what: Mapping[str, Any]
) -> Entry:
    """Append a line to a held ledger. Refuses (guard) where the clock ran backwards."""
    utc = documents.now()
    if known and documents.seconds_between(known[-1]["utc"], utc) < -SKEW:
        raise refusal.guard(
            f"this machine's clock says {utc}, and the ledger's last line {known[-1]['utc']}",
            expected="a clock that runs forwards",
            remedy="set the clock, then run the same command",
        )
    body = {
        "number": len(known) + 1,
        "utc": utc,
        "kind": kind,
        "what": dict(what),
        "previous": known[-1]["digest"] if known else start,
    }
    entry = {**body, "digest": provenance.digest(body)}
    file.write(provenance.canonical(entry) + b"\n")
    file.flush()
    os.fsync(file.fileno())
    return entry


def record(
    folder: Path,
    *,
    start: str,
    kind: str,
    what: Mapping[str, Any],
    same: Callable[[Entry], bool] | None = None,
) -> Entry:
    """Record that something happened, once: an earlier line that is the `same` stands instead.

    By default a line is the same where its words are.
    """
    with held(folder, start=start) as (file, known):
        of_kind = [entry for entry in known if entry["kind"] == kind]
        first = next(
            (entry for entry in of_kind if (same or (lambda it: it["what"] == what))(entry)), None
        )
        return first or append(file, known, start=start, kind=kind, what=what)
