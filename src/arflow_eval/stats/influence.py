"""Which groups of frames a mean hangs on: leave one group out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float64, Int

PLACES: Final = 5  # of published differences; means are ranked as published


@dataclass(frozen=True)
class Influence:
    """One group's code, its number of frames, and the rounded mean of all the others."""

    group: int
    frames: int
    mean_without: float


def most_influential(
    delta: Float64[np.ndarray, "frame"], group: Int[np.ndarray, "frame"], *, count: int = 5
) -> Sequence[Influence]:
    """The groups whose absence moves the mean furthest, furthest first.

    mean_without = (S - S_r) / max(n - n_r, 1), rounded to 5 places before groups are ranked
    by |mean_without - mean|; ties keep the order of the groups' codes. The divisor leaves a
    lone group with 0.
    """
    groups, code = np.unique(group, return_inverse=True)
    sizes = np.bincount(code)
    sums = np.bincount(code, weights=delta)
    rest = (delta.sum() - sums) / np.maximum(len(delta) - sizes, 1)
    without = [round(float(mean), PLACES) + 0.0 for mean in rest]
    mean = float(delta.mean())
    ranked = sorted(range(len(groups)), key=lambda row: -abs(without[row] - mean))
    return [
        Influence(group=int(groups[row]), frames=int(sizes[row]), mean_without=without[row])
        for row in ranked[:count]
    ]
