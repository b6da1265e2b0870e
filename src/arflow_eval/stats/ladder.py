"""Errors of single draws, and what choosing among them could gain: the best-of-K ladder.

A block of frames gives `DrawErrors`, one row a frame; blocks are joined, and a row never
depends on the block it was computed in. Differences and sums are float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from arflow_eval import refusal
from arflow_eval.stats import compiled
from arflow_eval.stats.errors import concatenated, failed_draws, kept_bits, mask, refuse_unusable


@dataclass(frozen=True)
class DrawErrors:
    """Absolute errors of every draw, one row a frame, in raw units; NaN for a failed draw.

    Attributes:
        total: sum of |draw - truth| over the frame's scored elements.
        elements: number of scored elements, 0 where no step is scored.
        first: mean of |draw - truth| over the action dimensions at step 0, 0 where
            `first_scored` does not hold.
        first_scored: whether step 0 is scored.
        failed: draws whose decode failed; they are never chosen.
    """

    total: Float64[np.ndarray, "frame draw"]
    elements: Int64[np.ndarray, "frame"]
    first: Float64[np.ndarray, "frame draw"]
    first_scored: Bool[np.ndarray, "frame"]
    failed: Bool[np.ndarray, "frame draw"]

    def __len__(self) -> int:
        return len(self.total)

    @property
    def scored(self) -> Bool[np.ndarray, "frame"]:
        """Frames with at least one scored step; the others are in no ladder."""
        return self.elements > 0

    @property
    def mae(self) -> Float64[np.ndarray, "frame draw"]:
        """Mean absolute error of each draw within its frame; NaN where no step is scored."""
        mae = np.full(self.total.shape, np.nan)
        np.divide(self.total, self.elements[:, None], out=mae, where=self.scored[:, None])
        return mae


def block_draw_errors(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> DrawErrors:
    """Errors of each draw over the leading `window` steps, to be passed through `joined`.

    What stands in an unscored step, NaN included, changes no bit. A draw with a scored
    prediction that is not finite is left with a `total` that is not finite.
    """
    failed = failed_draws(prediction)
    scored = mask(truth[:, :window], valid[:, :window])
    total, first = _draw_sums(prediction[:, :, :window], truth[:, :window], scored, failed)
    return DrawErrors(
        total=total,
        elements=scored.sum(axis=1, dtype=np.int64) * truth.shape[2],
        first=first / truth.shape[2],
        first_scored=scored[:, 0],
        failed=failed,
    )


def joined(blocks: Sequence[DrawErrors]) -> DrawErrors:
    """Blocks one after the other. Raises what `refuse_unusable` raises."""
    errors = DrawErrors(**concatenated(blocks))
    refuse_unusable(errors.failed, (np.isfinite(errors.total) | errors.failed).all(axis=1))
    return errors


def best_of(errors: Float64[np.ndarray, "frame draw"]) -> Float64[np.ndarray, "frame draw"]:
    """Expected error of the best of K random draws, exactly: column K - 1 is the best of K.

    With a frame's errors in order, e(1) <= ... <= e(N), the mean over all subsets of K draws
    of their least error is sum_i e(i) * C(N - i, K - 1) / C(N, K). It is computed as e(1) plus
    the weighted e(i) - e(1), so that draws of one error give that error to the bit.
    K = 1 is the average single draw and K = N the best draw.

    Args:
        errors: error of each draw; NaN where the draw failed. A frame with n draws left has
            the ladder of those, and past K = n their best. A frame of NaN stays NaN.

    Source: the order statistics of a simple random sample without replacement.
    """
    ordered = np.sort(errors, axis=1)  # NaN comes last
    left = (~np.isnan(ordered)).sum(axis=1)
    ladder = np.full(errors.shape, np.nan)
    for draws in np.unique(left[left > 0]):
        rows = left == draws
        ladder[rows] = ordered[rows, :1]
        ladder[rows, :draws] += _gains(ordered[rows, :draws])
    return ladder


def best_draw(errors: Float64[np.ndarray, "frame draw"]) -> Int64[np.ndarray, "frame"]:
    """The draw of least error in each frame, the first of them on a tie; a failed one is NaN.

    Raises:
        ValueError: a frame has no error at all, so no best draw; leave it out.
    """
    missing = np.isnan(errors)
    if missing.all(axis=1).any():
        raise ValueError("a frame without a scored draw has no best one")
    best: Int64[np.ndarray, "frame"] = np.where(missing, np.inf, errors).argmin(axis=1)
    return best


def best_draw_counts(errors: Float64[np.ndarray, "frame draw"]) -> Int64[np.ndarray, "draw"]:
    """How many frames each draw is the best of; raises what `best_draw` raises."""
    return np.bincount(best_draw(errors), minlength=errors.shape[1])


def pooled_ladder(
    ladder: Float64[np.ndarray, "frame draw"],
    weight: Int64[np.ndarray, "frame"] | Bool[np.ndarray, "frame"],
) -> Float64[np.ndarray, "draw"]:
    """`pooled`, one rung after the other.

    Weighted by scored elements, K = N is the chunk MAE of the composite of best draws. The
    ladder of first-step errors weighs by `first_scored`, and picks its own draws.
    """
    return np.array([pooled(rung, weight) for rung in ladder.T])


def pooled(
    values: Float64[np.ndarray, "frame"],
    weight: Int64[np.ndarray, "frame"] | Bool[np.ndarray, "frame"],
) -> float:
    """Mean over frames, sum(weight * value) / sum(weight); frames of weight 0 are not looked at.

    Raises:
        Refusal: a guard, where no frame has a weight.
    """
    rows = weight > 0
    if not rows.any():
        raise refusal.guard(
            f"none of {len(weight):,} frames has a scored step to pool",
            expected="frames with recorded actions inside the window",
            remedy="choose a longer window or another panel",
        )
    return float((values[rows] * weight[rows]).sum() / weight[rows].sum())


def _draw_sums(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
) -> tuple[Float64[np.ndarray, "frame draw"], Float64[np.ndarray, "frame draw"]]:
    """Sums of each draw's errors over the scored steps, and over the first of them."""
    found = compiled.kernels(prediction.size)
    if found is not None:
        return compiled.draw_sums(found, prediction, truth, scored, failed)
    frames, draws, _, actions = prediction.shape
    recorded = truth.reshape(frames, -1).astype(np.float64)
    kept = kept_bits(scored, actions=actions, dtype=np.int64)
    recorded.view(np.int64)[:] &= kept
    total, first = np.empty(failed.shape), np.empty(failed.shape)
    errors = np.empty(recorded.shape)  # a draw at a time, which a cache holds
    for draw in range(draws):
        errors[:] = prediction[:, draw].reshape(frames, -1)
        errors.view(np.int64)[:] &= kept
        errors -= recorded
        np.abs(errors, out=errors)
        # one contiguous row a frame, so that its sum does not depend on its neighbours
        errors.sum(axis=1, out=total[:, draw])
        errors[:, :actions].sum(axis=1, out=first[:, draw])
    total[failed] = first[failed] = np.nan
    return total, first


def _gains(ordered: Float64[np.ndarray, "frame draw"]) -> Float64[np.ndarray, "frame draw"]:
    """sum_i C(N - i, K - 1) / C(N, K) * (e(i) - e(1)), a column for each K."""
    draws = ordered.shape[1]
    gains = np.zeros(ordered.shape)
    for place in range(1, draws):  # of e(place + 1); a sum in one order, whatever the frames
        gap = ordered[:, place] - ordered[:, 0]
        for size in range(1, draws - place + 1):
            weight = comb(draws - place - 1, size - 1) / comb(draws, size)
            gains[:, size - 1] += gap * weight
    return gains
