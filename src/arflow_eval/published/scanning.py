"""One look through all values before a store is made: digests, the horizon, what must not be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float32, Int64

from arflow_eval import refusal
from arflow_eval.contracts import Family, Frames
from arflow_eval.published.columns import Block, Column, hashed, together
from arflow_eval.stats.errors import failed_draws, headline

PREDICTION, POOLED = "prediction", "pooled"
THEIRS: Final = {"draws_truth": "truth", "draws_valid": "valid"}  # of a draws file
# float32 sums of draws in any order, to their largest value and absolutely
RELATIVE, ABSOLUTE = 4e-6, 1e-4
BROKEN: Final = -1  # length of a draw with NaN among its values


@dataclass(frozen=True)
class Scan:
    """What all values together say.

    Attributes:
        digests: SHA-256 (hex) of every column but those of the draws file.
        horizon: leading steps that hold values.
        failed: draws that are NaN throughout.
    """

    digests: Mapping[str, str]
    horizon: int
    failed: int


@dataclass
class _Lengths:
    """How many draws have how many leading steps, and a row of the panel for each."""

    times: dict[int, int] = field(default_factory=dict)
    row: dict[int, int] = field(default_factory=dict)


def scan(
    columns: Mapping[str, Column],
    frames: Frames,
    ranges: Sequence[range],
    *,
    family: Family | None,
) -> Scan:
    """Read every column once.

    Args:
        columns: the store's, `prediction` with a draw axis; `pooled` where draws have a published
            mean; `draws_truth` and `draws_valid` where a draws file has its own.
        frames: the identity of every row.
        ranges: blocks that cover all rows.
        family: a flow policy has no failed draws.

    Raises:
        Refusal: a guard, where a value is infinite, a draw is NaN inside the horizon, a flow
            draw is NaN throughout, the mean of the draws is not the published prediction, or
            the draws file was scored against other truth; damage, where a mask is no bool.
    """
    states: dict[str, Any] = {}
    lengths = _Lengths()
    for rows, block in zip(ranges, together(columns, ranges), strict=True):
        _check_block(block, frames, rows)
        _count(block[PREDICTION], lengths, rows)
        for name in columns.keys() - THEIRS.keys():
            states[name] = hashed(states.get(name), block[name])
    horizon = _horizon(lengths, frames, family=family)
    digests = {name: state.hexdigest() for name, state in sorted(states.items())}
    return Scan(digests, horizon, failed=lengths.times.get(0, 0))


def _check_block(block: Mapping[str, Block], frames: Frames, rows: range) -> None:
    prediction = block[PREDICTION]
    infinite = np.isinf(prediction).any(axis=(1, 2, 3))
    if infinite.any():
        raise _wrong(frames, rows, infinite, found="a prediction is infinite", expected="finite")
    if (block["valid"].view(np.uint8) > 1).any():
        raise refusal.damage(
            "valid holds bytes other than 0 and 1",
            expected="bool",
            remedy="copy the file again from where it was made",
        )
    for theirs, ours in THEIRS.items():
        if theirs in block:
            differing = ~_same(block[theirs], block[ours])
            if differing.any():
                found = f"{ours} of the draws file differs from that of the predictions"
                raise _wrong(frames, rows, differing, found=found, expected="one recording")
    if POOLED in block:
        drifting = _drifting(block[POOLED], prediction)
        if drifting.any():
            found = "the mean of the draws is not the published prediction"
            expected = "the same within the rounding of float32"
            raise _wrong(frames, rows, drifting, found=found, expected=expected)


def _same(one: Block, other: Block) -> Bool[np.ndarray, "frame"]:
    equal = one == other
    if one.dtype.kind == "f":
        equal |= np.isnan(one) & np.isnan(other)
    same: Bool[np.ndarray, "frame"] = equal.reshape(len(equal), -1).all(axis=1)
    return same


def _drifting(
    pooled: Float32[np.ndarray, "frame step action"],
    draws: Float32[np.ndarray, "frame draw step action"],
) -> Bool[np.ndarray, "frame"]:
    mean = headline(draws, failed_draws(draws))
    largest = np.where(np.isnan(draws), 0, np.abs(draws)).max(axis=1)
    near = np.abs(mean - pooled) <= ABSOLUTE + RELATIVE * largest
    near |= np.isnan(mean) & np.isnan(pooled)
    drifting: Bool[np.ndarray, "frame"] = ~near.all(axis=(1, 2))
    return drifting


def _count(
    prediction: Float32[np.ndarray, "frame draw step action"], lengths: _Lengths, rows: range
) -> None:
    found = _leading_steps(prediction)
    for length in np.unique(found).tolist():
        hits = found == length
        lengths.times[length] = lengths.times.get(length, 0) + int(hits.sum())
        first = int(np.argmax(hits.any(axis=1)))
        lengths.row.setdefault(length, rows.start + first)


def _leading_steps(
    prediction: Float32[np.ndarray, "frame draw step action"],
) -> Int64[np.ndarray, "frame draw"]:
    """Leading steps without NaN; BROKEN where NaN stands among them or after them values do."""
    known = ~np.isnan(prediction)
    length = known.any(axis=3).sum(axis=2)
    inside = np.arange(prediction.shape[2]) < length[..., None]
    whole = (known == inside[..., None]).all(axis=(2, 3))
    steps: Int64[np.ndarray, "frame draw"] = np.where(whole, length, BROKEN).astype(np.int64)
    return steps


def _horizon(lengths: _Lengths, frames: Frames, *, family: Family | None) -> int:
    horizon = max(lengths.times)
    if horizon <= 0 and BROKEN not in lengths.times:
        raise refusal.guard(
            "every prediction is NaN throughout",
            expected="values in the leading steps",
            remedy="take the file of a run that decoded its frames",
        )
    allowed = {horizon} if family == "flow" else {horizon, 0}
    for length in sorted(lengths.times.keys() - allowed):
        row = lengths.row[length]
        part = {BROKEN: "NaN among its values", 0: "no value"}.get(length, f"{length} steps")
        tail = "" if family == "flow" else ", or NaN throughout for a failed decode"
        raise refusal.guard(
            f"a prediction of {_named(frames, row)} has {part}",
            expected=f"finite values in the leading {max(horizon, 1)} steps and NaN after"
            f" them{tail}",
            remedy="take the file of a run that decoded its frames",
        )
    return horizon


def _wrong(
    frames: Frames, rows: range, which: Bool[np.ndarray, "frame"], *, found: str, expected: str
) -> refusal.Refusal:
    row = rows.start + int(np.argmax(which))
    return refusal.guard(
        f"{found}, first at {_named(frames, row)}",
        expected=expected,
        remedy="take files that one run wrote together",
    )


def _named(frames: Frames, row: int) -> str:
    frame = frames.ids([row])[0]
    return f"{frame.repo} episode {frame.episode} frame {frame.frame_index}"
