"""What a run's frames cost: the seconds recorded beside a store, and what is counted from them.

`timings/shard-N.jsonl` has a line a block, `{"rows": [start, stop], "seconds": {part: [...]}}`;
`timings/step-N.json` has the seconds of one decode step with one draw of a frame (`first`) and
with all of them (`all`). One process is one device. Nothing of this is in a store's fingerprint.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float64, Int64

from arflow_eval import refusal

PARTS: Final = ("prefill", "lines", "draws", "decode", "reference")
SECONDS_AN_HOUR: Final = 3600
UNKNOWN: Final = (float("nan"), float("nan"))
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class Timings:
    """Seconds of every frame that was timed.

    Attributes:
        rows: panel rows timed, ascending.
        seconds: seconds of each row, by part, in the order of `PARTS`.
        first: share of a row's seconds of draws that its first draw takes; NaN where unknown.
        further: the share that each further draw takes; NaN where unknown.
    """

    rows: Int64[np.ndarray, "frame"]
    seconds: Mapping[str, Float64[np.ndarray, "frame"]]
    first: Float64[np.ndarray, "frame"]
    further: Float64[np.ndarray, "frame"]


@dataclass(frozen=True)
class Part:
    """One part of the cost: seconds in all, seconds a frame, and the share of everything."""

    total: float
    mean: float
    median: float
    share: float


@dataclass(frozen=True)
class Cost:
    """What a run's timed frames took, all processes together.

    The draws of a frame are split as its decode steps are: a step with one draw takes `first`, one
    with all N takes `all`, so of D seconds the first draw takes D x first / all, and each further
    one D x (all - first) / (all x (N - 1)). None where N = 1 or no step was measured.

    Attributes:
        frames: frames timed; a frame that was computed twice counts as it was the last time.
        device_hours: all seconds; one process is one device.
        frames_per_device_hour: None where no time passed.
        first_draw_seconds: mean seconds of a frame's first draw.
        further_draw_seconds: mean seconds of each draw after it.
    """

    frames: int
    parts: Mapping[str, Part]
    seconds_per_frame: float
    device_hours: float
    frames_per_device_hour: float | None
    first_draw_seconds: float | None
    further_draw_seconds: float | None
    further_to_first: float | None


def read_timings(folder: Path) -> Timings:
    """The timings of a run folder; of no rows where none were recorded.

    The last line of a row stands, that of the highest shard where two have it. A part that a
    line does not name took no time.

    Raises:
        Refusal: a file is damaged. A last line that a killed writer left unfinished is not.
    """
    found: dict[int, tuple[Mapping[str, float], tuple[float, float]]] = {}
    for number, path in _shards(folder / "timings"):
        shares = _shares(path.with_name(f"step-{number}.json"))
        for rows, seconds in _blocks(path):
            for place, row in enumerate(rows if seconds else ()):
                found[row] = ({name: column[place] for name, column in seconds.items()}, shares)
    timed = [found[row] for row in sorted(found)]
    names = {name for seconds, _ in timed for name in seconds}
    shares_by_row = np.array([shares for _, shares in timed], np.float64).reshape(-1, 2)
    return Timings(
        rows=np.array(sorted(found), dtype=np.int64),
        seconds={
            name: np.array([seconds.get(name, 0.0) for seconds, _ in timed], np.float64)
            for name in (*PARTS, *sorted(names - set(PARTS)))
            if name in names
        },
        first=shares_by_row[:, 0],
        further=shares_by_row[:, 1],
    )


def run_cost(timings: Timings) -> Cost | None:
    """What the timed frames cost, or None where there are none."""
    frames = len(timings.rows)
    if frames == 0:
        return None
    total = float(sum(column.sum() for column in timings.seconds.values()))
    first, further = _marginal(timings)
    return Cost(
        frames=frames,
        parts={name: _part(column, total=total) for name, column in timings.seconds.items()},
        seconds_per_frame=total / frames,
        device_hours=total / SECONDS_AN_HOUR,
        frames_per_device_hour=frames * SECONDS_AN_HOUR / total if total else None,
        first_draw_seconds=first,
        further_draw_seconds=further,
        further_to_first=further / first if first and further is not None else None,
    )


def _part(seconds: Float64[np.ndarray, "frame"], *, total: float) -> Part:
    part = float(seconds.sum())
    return Part(
        total=part,
        mean=float(seconds.mean()),
        median=float(np.median(seconds)),
        share=part / total if total else 0.0,
    )


def _marginal(timings: Timings) -> tuple[float | None, float | None]:
    """Mean seconds of a frame's first draw and of each further one, where a step was measured."""
    known = np.isfinite(timings.first)
    if "draws" not in timings.seconds or not known.any():
        return None, None
    draws = timings.seconds["draws"][known]
    first, further = (share[known] for share in (timings.first, timings.further))
    return float((draws * first).mean()), float((draws * further).mean())


def _shares(path: Path) -> tuple[float, float]:
    """The share of a frame's draws that its first one takes, and that each further one takes."""
    if not path.exists():
        return UNKNOWN
    try:
        step = json.loads(path.read_bytes())
        draws, first, every = step["draws"], float(step["first"]), float(step["all"])
        if not (first > 0 and every > 0 and np.isfinite(first + every) and draws >= 1):
            raise ValueError("its numbers are not positive")
    except UNREADABLE as error:
        raise _damage(f"{path}: {error!r}") from error
    if draws == 1:
        return UNKNOWN
    share = min(first / every, 1.0)  # all draws never take less than one; a measurement may
    return share, (1 - share) / (draws - 1)


def _shards(folder: Path) -> list[tuple[int, Path]]:
    named = ((re.fullmatch(r"shard-(\d+)\.jsonl", path.name), path) for path in folder.glob("*"))
    return sorted((int(match[1]), path) for match, path in named if match)


def _blocks(path: Path) -> Iterator[tuple[range, dict[str, list[float]]]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            # a writer that resumed may have gone on in the line that a killed one left unfinished
            block = _block(json.loads(line[max(line.rfind(b'{"rows"'), 0) :]))
        except UNREADABLE as error:
            if number == len(lines):
                return  # a line without its end
            raise _damage(f"line {number} of {path}: {error!r}") from error
        yield block


def _block(entry: Any) -> tuple[range, dict[str, list[float]]]:
    start, stop = entry["rows"]
    rows = range(start, stop)
    columns = {name: np.array(column, np.float64) for name, column in entry["seconds"].items()}
    if len(rows) == 0 or rows.start < 0:
        raise ValueError(f"rows {entry['rows']}")
    for name, column in columns.items():
        if column.shape != (len(rows),) or not (np.isfinite(column) & (column >= 0)).all():
            raise ValueError(f"seconds of {name}")
    return rows, {name: column.tolist() for name, column in columns.items()}


def _damage(found: str) -> refusal.Refusal:
    return refusal.damage(
        found,
        expected="seconds as evaluate records them",
        remedy="restore it from a copy, or remove the file; no prediction hangs on it",
    )
