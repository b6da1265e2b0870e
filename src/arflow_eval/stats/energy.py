"""The energy score of a frame's draws: near the truth, and not too sure of themselves.

A strictly proper score of a predicted distribution, lower is better. A block of frames gives
`Energy`, one row a frame; blocks are joined, and a row never depends on its block. All float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from arflow_eval.stats.errors import concatenated, failed_draws, mask, refuse_unusable

VALUES: Final = 1 << 18  # coordinates of points held at once: 2 MB, 79 frames of 10 draws x 300
CLOSE: Final = 1e-6  # squared distance over squared norms; closer pairs are subtracted directly


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
    to_truth, between = _distance_sums(
        prediction[:, :, :window], truth[:, :window], scored, ~failed
    )
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


def _pairs(draws: int) -> Int64[np.ndarray, "2 ..."]:
    """Every pair of draws, and after them each draw with the truth, which is point `draws`."""
    with_truth = np.arange(draws), np.full(draws, draws)
    return np.concatenate([np.triu_indices(draws, 1), with_truth], axis=1)


def _distance_sums(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    decoded: Bool[np.ndarray, "frame draw"],
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """sum_i ||x_i - y||, and sum_(i<j) ||x_i - x_j||, over the draws that were decoded."""
    frames, draws, steps, actions = prediction.shape
    pairs = _pairs(draws)
    at_once = max(VALUES // ((draws + 1) * steps * actions), 1)
    # one buffer throughout: memory fresh from the system costs a fifth of the time
    buffer = np.empty((min(at_once, frames), draws + 1, steps, actions))
    to_truth, between = np.empty(frames), np.empty(frames)
    for start in range(0, frames, at_once):
        rows = slice(start, min(start + at_once, frames))
        points = buffer[: rows.stop - start]
        _place(prediction[rows], truth[rows], scored[rows], out=points)
        distance = _distances(points.reshape(*points.shape[:2], -1), decoded[rows], pairs)
        to_truth[rows] = distance[:, -draws:].sum(axis=1)
        between[rows] = distance[:, :-draws].sum(axis=1)
    return to_truth, between


def _place(
    prediction: Float32[np.ndarray, "frame draw step action"],
    truth: Float32[np.ndarray, "frame step action"],
    scored: Bool[np.ndarray, "frame step"],
    *,
    out: Float64[np.ndarray, "frame ... step action"],
) -> None:
    """Write the draws and, after the last of them, the truth; 0 in the unscored steps."""
    out[:, :-1] = prediction
    out[:, -1] = truth
    if not scored.all():
        frame, step = np.nonzero(~scored)
        out[frame, :, step] = 0


def _distances(
    points: Float64[np.ndarray, "frame ... element"],
    decoded: Bool[np.ndarray, "frame draw"],
    pairs: Int64[np.ndarray, "2 ..."],
) -> Float64[np.ndarray, "frame ..."]:
    """Distance of each pair, 0 with a failed draw; `points` are moved, and overwritten.

    They are centred on the frame's first decoded draw: from their level, most pairs would cancel.
    """
    complete = decoded.all()
    centre = decoded.argmax(axis=1)
    if not complete:
        frame, draw = np.nonzero(~decoded)
        points[frame, draw] = points[frame, centre[frame]]  # any numbers will do: they weigh 0
    with np.errstate(invalid="ignore"):  # an infinite prediction turns NaN, and `joined` refuses
        points -= points[np.arange(len(points)), centre][:, None]
        distance: Float64[np.ndarray, "frame ..."] = np.sqrt(_squares(points, pairs))
    if not complete:
        there = np.concatenate([decoded, np.ones((len(points), 1), bool)], axis=1)
        distance *= there.take(pairs[0], axis=1) & there.take(pairs[1], axis=1)
    return distance


def _squares(
    points: Float64[np.ndarray, "frame ... element"], pairs: Int64[np.ndarray, "2 ..."]
) -> Float64[np.ndarray, "frame ..."]:
    """Squared distance of each pair, u.u + v.v - 2 u.v; where it cancels, from u - v."""
    frames, count, _ = points.shape
    left, right = pairs
    gram = (points @ points.transpose(0, 2, 1)).reshape(frames, count * count)
    norm = gram[:, :: count + 1]
    square: Float64[np.ndarray, "frame ..."] = gram.take(left * count + right, axis=1)
    square *= -2
    level = norm.take(left, axis=1)
    level += norm.take(right, axis=1)
    square += level
    frame, pair = np.nonzero(square < CLOSE * level)
    if len(frame):
        near = points[frame, left[pair]] - points[frame, right[pair]]
        square[frame, pair] = (near**2).sum(axis=1)
    return square
