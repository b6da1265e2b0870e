"""The energy score of a frame's draws: near the truth, and not too sure of themselves.

A strictly proper score of a predicted distribution, lower is better. A block of frames gives
`Energy`, one row a frame; blocks are joined, and a row never depends on its block. All float64.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from arflow_eval.stats import compiled
from arflow_eval.stats.errors import concatenated, failed_draws, kept_bits, mask, refuse_unusable

VALUES: Final = 1 << 16  # coordinates of points held at once, which a cache holds: half a MB
LINE: Final = 64  # bytes of a cache line


@dataclass(frozen=True)
class Energy:
    """Both terms of the energy score, one row a frame, in raw units.

    With d(u, v) = ||(u - v) * mask||_2 / sqrt(m) over the frame's m scored elements and N draws
    x that did not fail:

    Attributes:
        truth: (1/N) sum_i d(x_i, truth), the mean distance of a single draw.
        interaction: sum_(i<j) d(x_i, x_j) / N^2, as published; exactly 0 for N = 1.
        elements: m. Where it is 0 both terms are 0, and pooling by m leaves the frame out.
        failed: draws whose decode failed; they are in no term.
    """

    truth: Float64[np.ndarray, "frame"]
    interaction: Float64[np.ndarray, "frame"]
    elements: Int64[np.ndarray, "frame"]
    failed: Bool[np.ndarray, "frame draw"]

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def scored(self) -> Bool[np.ndarray, "frame"]:
        """Frames with at least one scored step."""
        scored: Bool[np.ndarray, "frame"] = self.elements > 0
        return scored

    @property
    def draws(self) -> Int64[np.ndarray, "frame"]:
        """N of each frame. Plain scores compare only at one N: fewer draws score worse."""
        draws: Int64[np.ndarray, "frame"] = (~self.failed).sum(axis=1, dtype=np.int64)
        return draws

    @property
    def score(self) -> Float64[np.ndarray, "frame"]:
        """Plain energy score, truth - interaction; for N = 1 the distance to the truth."""
        score: Float64[np.ndarray, "frame"] = self.truth - self.interaction
        return score

    @property
    def fair(self) -> Float64[np.ndarray, "frame"]:
        """Fair energy score, truth - sum_(i<j) d(x_i, x_j) / (N (N - 1)): unbiased in N.

        NaN for N = 1, where it is undefined.
        """
        draws = self.draws
        factor = np.full(len(self), np.nan)
        np.divide(draws, draws - 1, out=factor, where=draws > 1)
        fair: Float64[np.ndarray, "frame"] = self.truth - self.interaction * factor
        return fair


def block_energy(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> Energy:
    """Energy terms over the leading `window` steps, to be passed through `joined`.

    What stands in an unscored step, NaN included, changes no bit. A scored prediction that is
    not finite leaves its frame's `truth` not finite.
    """
    failed = failed_draws(prediction)
    scored = mask(truth[:, :window], valid[:, :window])
    elements = scored.sum(axis=1, dtype=np.int64) * truth.shape[2]
    to_truth, between = _distance_sums(prediction[:, :, :window], truth[:, :window], scored, failed)
    draws = np.maximum((~failed).sum(axis=1), 1)
    root = np.sqrt(np.maximum(elements, 1))
    return Energy(
        truth=to_truth / draws / root,
        interaction=between / draws**2 / root,
        elements=elements,
        failed=failed,
    )


def joined(blocks: Sequence[Energy]) -> Energy:
    """Blocks one after the other. Raises what `errors.refuse_unusable` raises."""
    energy = Energy(**concatenated(blocks))
    refuse_unusable(energy.failed, np.isfinite(energy.truth))
    return energy


def _distance_sums(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """sum_i ||x_i - y||, and sum_(i<j) ||x_i - x_j||, over the draws that were decoded."""
    found = compiled.kernels(prediction.size)
    if found is not None:
        return compiled.distance_sums(found, prediction, truth, scored, failed)
    squares = _squared_distances(prediction, truth, scored)
    with np.errstate(invalid="ignore"):  # an infinite prediction turns NaN, and is refused
        distance = np.sqrt(squares, out=squares)
    draws = failed.shape[1]
    decoded = np.concatenate([~failed, np.ones((len(failed), 1), bool)], axis=1)
    to_truth, between = np.zeros(len(failed)), np.zeros(len(failed))
    for (one, other), row in zip(_pairs(draws + 1), distance, strict=True):
        sums = to_truth if draws in {one, other} else between
        sums += np.where(decoded[:, one] & decoded[:, other], row, 0)
    return to_truth, between


def _pairs(points: int) -> Iterator[tuple[int, int]]:
    """Every pair of points on a ring, neighbours first; the draws in order, and then the truth."""
    for apart in range(1, points // 2 + 1):
        # half way round, each pair would come twice
        for one in range(points // 2 if 2 * apart == points else points):
            yield one, (one + apart) % points


def _squared_distances(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
) -> Float64[np.ndarray, "... frame"]:
    """Squared distance of every pair of points, in the order of `_pairs`."""
    frames, draws, steps, actions = prediction.shape
    count, elements = draws + 1, steps * actions
    predicted = prediction.reshape(frames, draws, elements).swapaxes(0, 1)
    recorded = truth.reshape(frames, elements)
    kept = kept_bits(scored, actions=actions, dtype=np.int64)
    at_once = VALUES // (count * elements)
    at_once = max(at_once - at_once % 8, 1)  # points start with a cache line, as the first does
    ring = _aligned((count + count // 2, at_once, elements))  # the first points come again
    apart_by = _aligned((count, at_once, elements))
    squares = np.empty((count * draws // 2, frames))
    for start in range(0, frames, at_once):
        rows = slice(start, min(start + at_once, frames))
        held, square = ring[:, : rows.stop - start], apart_by[:, : rows.stop - start]
        held[:draws] = predicted[:, rows]
        held[draws] = recorded[rows]
        held[:count].view(np.int64)[:] &= kept[rows]
        held[count:] = held[: count // 2]
        _fill(held, square, squares[:, rows])
    return squares


def _fill(
    ring: Float64[np.ndarray, "... frame element"],
    square: Float64[np.ndarray, "... frame element"],
    squares: Float64[np.ndarray, "... frame"],
) -> None:
    """Squared distances of the points of a ring, the first of which come again at its end."""
    count = len(square)
    for place in range(0, len(squares), count):
        apart = place // count + 1
        pairs = min(count, len(squares) - place)
        with np.errstate(invalid="ignore"):
            np.subtract(ring[:pairs], ring[apart : apart + pairs], out=square[:pairs])
        np.square(square[:pairs], out=square[:pairs])
        square[:pairs].sum(axis=2, out=squares[place : place + pairs])


def _aligned(shape: tuple[int, ...]) -> Float64[np.ndarray, "..."]:
    """Uninitialised, from a cache line's start on: numpy subtracts in half the time there."""
    count = int(np.prod(shape))
    memory = np.empty(count + LINE // 8)
    start = -memory.ctypes.data % LINE // 8
    return memory[start : start + count].reshape(shape)
