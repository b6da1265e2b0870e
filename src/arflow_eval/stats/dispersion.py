"""How far a frame's draws spread, what that goes with, and where along a chunk errors lie.

A block of frames gives one row a frame; blocks are joined, and a row never depends on its
block. The spread is float64; `Profile` is of the headline prediction, in the panel's float32
differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.stats import rankdata

from arflow_eval.stats.errors import (
    Errors,
    concatenated,
    element_errors,
    failed_draws,
    mask,
    refuse_unusable,
    summed,
)


@dataclass(frozen=True)
class Dispersion:
    """Spread of the draws, one row a frame, in raw units.

    Attributes:
        total: sum over the frame's scored elements of the standard deviation across the draws
            that did not fail, ddof 0; exactly 0 for one draw.
        elements: number of scored elements, 0 where no step is scored.
        failed: draws whose decode failed.
    """

    total: Float64[np.ndarray, "frame"]
    elements: Int64[np.ndarray, "frame"]
    failed: Bool[np.ndarray, "frame draw"]

    @property
    def mean(self) -> Float64[np.ndarray, "frame"]:
        """Mean standard deviation over a frame's scored elements; NaN where no step is scored."""
        mean = np.full(len(self.total), np.nan)
        np.divide(self.total, self.elements, out=mean, where=self.elements > 0)
        return mean


@dataclass(frozen=True)
class Profile:
    """Absolute errors of the headline prediction by step and by joint, one row a frame.

    Attributes:
        by_step: mean of |prediction - truth| over the action dimensions, 0 at unscored steps.
        by_action: mean of |prediction - truth| over the scored steps, 0 where there are none.
        scored: the scored steps.
        failed: draws whose decode failed; they are not in the headline.
    """

    by_step: Float64[np.ndarray, "frame step"]
    by_action: Float64[np.ndarray, "frame action"]
    scored: Bool[np.ndarray, "frame step"]
    failed: Bool[np.ndarray, "frame draw"]

    @property
    def counts(self) -> Int64[np.ndarray, "step"]:
        """Frames in which each step is scored."""
        counts: Int64[np.ndarray, "step"] = self.scored.sum(axis=0, dtype=np.int64)
        return counts

    @property
    def curve(self) -> Float64[np.ndarray, "step"]:
        """Mean error at each step over the frames in which it is scored; NaN where in none."""
        curve = np.full(len(self.counts), np.nan)
        np.divide(self.by_step.sum(axis=0), self.counts, out=curve, where=self.counts > 0)
        return curve


def block_dispersion(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> Dispersion:
    """Spread over the leading `window` steps, to be passed through `joined_dispersion`.

    Of the truth only its mask counts. What stands in an unscored step changes no bit.
    """
    failed = failed_draws(prediction)
    scored = mask(truth[:, :window], valid[:, :window])
    draws = prediction[:, :, :window].astype(np.float64)
    frames, steps = np.nonzero(~scored)
    draws[frames, :, steps] = 0
    draws[failed] = 0
    decoded = np.maximum((~failed).sum(axis=1), 1)[:, None, None]
    with np.errstate(invalid="ignore"):  # an infinite prediction turns NaN, and is refused
        draws -= (draws.sum(axis=1) / decoded)[:, None]
    draws[failed] = 0
    np.square(draws, out=draws)
    deviation = np.sqrt(draws.sum(axis=1) / decoded)
    return Dispersion(
        total=deviation.reshape(len(deviation), -1).sum(axis=1),
        elements=scored.sum(axis=1, dtype=np.int64) * truth.shape[2],
        failed=failed,
    )


def block_profile(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> Profile:
    """Errors by step and by joint over the leading `window` steps, for `joined_profile`.

    What stands in an unscored step, NaN included, changes no bit.
    """
    return block_located(prediction, truth, valid, window=window)[1]


def block_located(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> tuple[Errors, Profile]:
    """The errors of `errors.block_errors`, to the bit, and where they lie."""
    failed = failed_draws(prediction)
    scored = mask(truth[:, :window], valid[:, :window])
    actions = truth.shape[2]
    found = element_errors(prediction[:, :, :window], truth[:, :window], scored, failed)
    total, first = found.sum(axis=1), found[:, :actions].sum(axis=1)
    placed = found.reshape(*scored.shape, actions)
    return summed(total, first, scored, failed, actions=actions), Profile(
        by_step=placed.sum(axis=2) / actions,
        by_action=placed.sum(axis=1) / np.maximum(scored.sum(axis=1), 1)[:, None],
        scored=scored,
        failed=failed,
    )


def joined_dispersion(blocks: Sequence[Dispersion]) -> Dispersion:
    """Blocks one after the other. Raises what `errors.refuse_unusable` raises."""
    dispersion = Dispersion(**concatenated(blocks))
    refuse_unusable(dispersion.failed, np.isfinite(dispersion.total))
    return dispersion


def joined_profile(blocks: Sequence[Profile]) -> Profile:
    """Blocks one after the other. Raises what `errors.refuse_unusable` raises."""
    profile = Profile(**concatenated(blocks))
    refuse_unusable(profile.failed, np.isfinite(profile.by_action).all(axis=1))
    return profile


def quartiles(
    values: Float64[np.ndarray, "frame"],
) -> tuple[Float64[np.ndarray, "3"], Int64[np.ndarray, "frame"]]:
    """The edges between the quarters of some frames, and each frame's quarter, 0 to 3.

    Edges are linear quantiles at 25, 50 and 75 % of the frames given (the kept ones); a value
    on an edge goes up.

    Raises:
        ValueError: there is no value, or one is NaN.
    """
    if len(values) == 0 or np.isnan(values).any():
        raise ValueError("quartiles are of the kept frames: at least one, and none without a value")
    edges: Float64[np.ndarray, "3"] = np.quantile(values, [0.25, 0.5, 0.75])
    return edges, np.searchsorted(edges, values, side="right").astype(np.int64)


def rank_correlation(
    first: Float64[np.ndarray, "frame"], second: Float64[np.ndarray, "frame"]
) -> float | None:
    """Spearman's correlation: Pearson's of the average ranks. None where either is constant.

    Raises:
        ValueError: a value is NaN; it has no rank.
    """
    if np.isnan(first).any() or np.isnan(second).any():
        raise ValueError("a value that is NaN has no rank: leave its frame out")
    if len(first) == 0 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    across = (ranks[0] * ranks[1]).sum()
    return float(across / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
