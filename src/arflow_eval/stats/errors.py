"""Errors of predicted chunks against recorded ones, weighted as the published numbers are.

A block of frames gives `Errors`, one row a frame; blocks are joined, so that a row never
depends on the block it was computed in. Differences are float32, sums float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64

from arflow_eval import refusal
from arflow_eval.stats import compiled


def mask(
    truth: Float32[np.ndarray, "frame step action"], valid: Bool[np.ndarray, "frame step"]
) -> Bool[np.ndarray, "frame step"]:
    """The scored steps: valid, and with every action dimension of the truth finite."""
    finite = np.isfinite(truth)
    if finite.all():  # as a rule, and several times as fast
        return valid.copy()
    scored: Bool[np.ndarray, "frame step"] = valid & finite.all(axis=2)
    return scored


def kept_bits(
    scored: Bool[np.ndarray, "frame step"], *, actions: int, dtype: type[np.signedinteger[Any]]
) -> Int[np.ndarray, "frame element"]:
    """A word for every element: all bits set in the scored steps, none in the others.

    Numbers in memory `&` these words are 0 in unscored steps, whatever stood there, NaN
    included; and quickly so, in whole rows.
    """
    kept: Int[np.ndarray, "frame element"] = np.repeat(-scored.astype(dtype), actions, axis=1)
    return kept


def failed_draws(
    prediction: Float32[np.ndarray, "frame draw step action"],
) -> Bool[np.ndarray, "frame draw"]:
    """Draws whose decode failed: NaN at every step and action."""
    failed: Bool[np.ndarray, "frame draw"] = np.isnan(prediction[:, :, 0, 0])
    failed[failed] = np.isnan(prediction[failed]).all(axis=(1, 2))
    return failed


def headline(
    prediction: Float32[np.ndarray, "frame draw step action"],
    failed: Bool[np.ndarray, "frame draw"],
) -> Float32[np.ndarray, "frame step action"]:
    """The mean over the draws that did not fail, in the prediction's own (raw) units.

    Summed in float64 and rounded once to float32; one draw comes back as it is, and a frame
    whose draws all failed stays NaN, which `joined` refuses.
    """
    draws = (~failed).sum(axis=1)
    if failed.any():
        prediction = np.where(failed[:, :, None, None], np.float32(0), prediction)
    total = np.zeros((len(prediction), *prediction.shape[2:]))
    for draw in range(prediction.shape[1]):  # one after the other, whatever the shape
        total += prediction[:, draw]
    total[draws == 0] = np.nan
    mean: Float32[np.ndarray, "frame step action"] = (
        total / np.maximum(draws, 1)[:, None, None]
    ).astype(np.float32)
    return mean


@dataclass(frozen=True)
class Errors:
    """Absolute errors of one arm, one row a frame, in raw units.

    Attributes:
        total: sum of |prediction - truth| over the frame's scored elements.
        elements: number of scored elements, 0 where no step is scored.
        first: mean of |prediction - truth| over the action dimensions at step 0, 0 where
            `first_scored` does not hold.
        first_scored: whether step 0 is scored.
        failed: draws whose decode failed; they are in no mean.
    """

    total: Float64[np.ndarray, "frame"]
    elements: Int64[np.ndarray, "frame"]
    first: Float64[np.ndarray, "frame"]
    first_scored: Bool[np.ndarray, "frame"]
    failed: Bool[np.ndarray, "frame draw"]

    def __len__(self) -> int:
        return len(self.total)

    @property
    def scored(self) -> Bool[np.ndarray, "frame"]:
        """Frames with at least one scored step; the others are in no score."""
        return self.elements > 0

    @property
    def frame_mae(self) -> Float64[np.ndarray, "frame"]:
        """Mean absolute error within each frame; NaN where no step is scored."""
        mae = np.full(len(self), np.nan)
        mae[self.scored] = self.total[self.scored] / self.elements[self.scored]
        return mae

    @property
    def chunk_mae(self) -> float:
        """Pooled chunk MAE: sum of errors / number of scored elements, not a mean of means."""
        _require_any(self.scored, what="a scored step")
        return float(self.total.sum() / self.elements.sum())

    @property
    def first_mae(self) -> float:
        """Mean of the first-step errors over the frames whose step 0 is scored."""
        _require_any(self.first_scored, what="a scored first step")
        return float(self.first[self.first_scored].mean())


def block_errors(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> Errors:
    """Errors of some frames over their leading `window` steps, to be passed through `joined`.

    What stands in an unscored step, NaN included, changes no bit. A scored prediction that is
    not finite leaves its frame's `total` not finite.
    """
    failed = failed_draws(prediction)
    scored = mask(truth[:, :window], valid[:, :window])
    sums = _headline_sums(prediction[:, :, :window], truth[:, :window], scored, failed)
    return summed(*sums, scored, failed, actions=truth.shape[2])


def summed(
    total: Float64[np.ndarray, "frame"],
    first: Float64[np.ndarray, "frame"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
    *,
    actions: int,
) -> Errors:
    """Sums over the scored steps, and over the first of them, as errors."""
    return Errors(
        total=total,
        elements=scored.sum(axis=1, dtype=np.int64) * actions,
        first=first / actions,
        first_scored=scored[:, 0],
        failed=failed,
    )


def joined(blocks: Sequence[Errors]) -> Errors:
    """Blocks one after the other. Raises what `refuse_unusable` raises."""
    errors = Errors(**concatenated(blocks))
    refuse_unusable(errors.failed, np.isfinite(errors.total))
    return errors


def concatenated(blocks: Sequence[Any]) -> dict[str, Any]:
    """The columns of some blocks of one dataclass, each in one piece, by name."""
    names = type(blocks[0]).__annotations__
    return {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}


def refuse_unusable(
    failed: Bool[np.ndarray, "frame draw"], finite: Bool[np.ndarray, "frame"]
) -> None:
    """Whether a read may go on.

    Raises:
        Refusal: a guard, where a frame has no draw that did not fail, or where the prediction
            of a scored step is NaN or infinite. Neither is ever skipped.
    """
    drawless = failed.all(axis=1)
    if drawless.any():
        raise refusal.guard(
            f"{int(drawless.sum()):,} of {len(failed):,} frames have no draw that did not fail",
            expected="at least one decoded draw a frame",
            remedy="see the store's logs for the failed decodes and evaluate the arm again",
        )
    if not finite.all():
        raise refusal.guard(
            f"{int((~finite).sum()):,} of {len(failed):,} frames have a NaN or infinite"
            " prediction in a scored step",
            expected="a finite prediction wherever the recorded action is scored",
            remedy="choose a window inside the policy's horizon, or evaluate the arm again",
        )


def frame_errors(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    valid: Bool[np.ndarray, "frame step"],
    *,
    window: int,
) -> Errors:
    """Errors of frames that fit in memory; see `block_errors` and, for what it raises, `joined`."""
    return joined([block_errors(prediction, truth, valid, window=window)])


def _headline_sums(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """Sums of the headline's errors over the scored steps, and over the first of them."""
    found = compiled.kernels(prediction.size)
    if found is not None:
        return compiled.headline_sums(found, prediction, truth, scored, failed)
    errors = element_errors(prediction, truth, scored, failed)
    return errors.sum(axis=1), errors[:, : truth.shape[2]].sum(axis=1)


def element_errors(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
) -> Float64[np.ndarray, "frame element"]:
    """The headline's error at every step and action, 0 in the unscored steps.

    One contiguous row a frame, so that its sum does not depend on its neighbours.
    """
    chunk, recorded = (
        each.reshape(len(truth), -1) for each in (headline(prediction, failed), truth)
    )
    kept = kept_bits(scored, actions=truth.shape[2], dtype=np.int32)
    with np.errstate(over="ignore"):  # an overflow is infinite, and `joined` refuses it
        difference = (chunk.view(np.int32) & kept).view(np.float32)
        difference -= (recorded.view(np.int32) & kept).view(np.float32)
    errors: Float64[np.ndarray, "frame element"] = np.abs(difference, out=difference).astype(float)
    return errors


def _require_any(frames: Bool[np.ndarray, "frame"], *, what: str) -> None:
    if not frames.any():
        raise refusal.guard(
            f"none of {len(frames):,} frames has {what}",
            expected="frames with recorded actions inside the window",
            remedy="choose a longer window or another panel",
        )
