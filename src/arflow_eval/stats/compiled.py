"""The one place that decides whether sums are taken by compiled loops: the extra `compiled`.

They give the bits of the numpy code that calls them, only sooner, so no report shows whether
they ran. They are used where numba is installed, `switch` has not turned them off, there is work
enough to pay for loading them, and they sum as the numpy of this process does.
"""

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt64

WORTH: Final = 1 << 27  # values; what numpy needs for them is what loading numba costs
PIECE: Final = 128  # values that numpy sums by eight running sums: its PW_BLOCKSIZE
MULTIPLIER: Final = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64
WHOLE: Final = (1 << 128) - 1
LOW: Final = (1 << 64) - 1
MODULES: Final = ("kernels", "kernels_resampled")
Order = Int64[np.ndarray, "2 block"]  # pieces: their sizes, and how often to add up after each
Predictions = Float32[np.ndarray, "frame draw step action"]
Truths = Float32[np.ndarray, "frame step action"]
Scored = Bool[np.ndarray, "frame step"]
Failed = Bool[np.ndarray, "frame draw"]

_state = {"allowed": True, "seen": 0}


def switch(*, on: bool) -> None:
    """Allow or forbid compiled loops in this process from here on. They move no bit."""
    _state["allowed"] = on


@dataclass(frozen=True)
class Kernels:
    """The modules of compiled loops: over blocks of frames, and over resamples."""

    blocks: ModuleType
    resamples: ModuleType


def kernels(values: int) -> Kernels | None:
    """The compiled loops for work on so many values, or None where numpy has to do it.

    They are loaded once the work of this process, as far as it is known, pays for that.
    """
    if not _state["allowed"]:
        return None
    _state["seen"] += values
    return _checked() if _state["seen"] >= WORTH else None


@functools.cache
def _checked() -> Kernels | None:
    """The loops where they can be loaded and sum as this numpy does. Loads numba."""
    if importlib.util.find_spec("numba") is None:
        return None
    try:
        found = Kernels(*(importlib.import_module(f"{__package__}.{name}") for name in MODULES))
    except ImportError:  # of a numba that cannot run beside this numpy
        return None
    values = np.random.default_rng(0).normal(size=1_029)
    chosen = np.random.default_rng(0).integers(0, 1_029, (2, 1_029))
    (resampled,) = resampled_sums(found, [values], resamples=2, seed=0)
    alike = np.array_equal(resampled, values.take(chosen).sum(axis=1))
    summed = found.blocks.row_sum(values, order(len(values)), np.empty(64))
    return found if alike and summed == values.sum() else None


@functools.cache
def order(count: int) -> Order:
    """The pieces in which numpy sums a contiguous row, and how many sums are added after each."""
    if count <= PIECE:
        return np.array([[count], [0]])
    half = count // 2
    half -= half % 8
    pieces = np.concatenate([order(half), order(count - half)], axis=1)
    pieces[1, -1] += 1
    return pieces


def headline_sums(
    found: Kernels, prediction: Predictions, truth: Truths, scored: Scored, failed: Failed
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """Sums over the scored steps, and over step 0, of the errors of the mean of draws."""
    orders = order(scored.shape[1] * truth.shape[2]), order(truth.shape[2])
    sums = np.empty((len(truth), 2))
    found.blocks.headline_errors(*_flat(prediction, truth), scored, failed, *orders, sums)
    return sums[:, 0], sums[:, 1]


def draw_sums(
    found: Kernels, prediction: Predictions, truth: Truths, scored: Scored, failed: Failed
) -> tuple[Float64[np.ndarray, "frame draw"], Float64[np.ndarray, "frame draw"]]:
    """Sums over the scored steps, and over step 0, of each draw's errors; NaN if it failed."""
    orders = order(scored.shape[1] * truth.shape[2]), order(truth.shape[2])
    sums = np.empty((*failed.shape, 2))
    found.blocks.draw_errors(*_flat(prediction, truth), scored, failed, *orders, sums)
    return sums[:, :, 0], sums[:, :, 1]


def distance_sums(
    found: Kernels, prediction: Predictions, truth: Truths, scored: Scored, failed: Failed
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """sum_i ||x_i - y|| and sum_(i<j) ||x_i - x_j|| over the draws that did not fail."""
    sums = np.empty((len(truth), 2))
    elements = order(scored.shape[1] * truth.shape[2])
    found.blocks.energy_sums(*_flat(prediction, truth), scored, failed, elements, sums)
    return sums[:, 0], sums[:, 1]


def resampled_sums(
    found: Kernels,
    columns: Sequence[Float64[np.ndarray, "cluster"]],
    *,
    resamples: int,
    seed: int,
) -> list[Float64[np.ndarray, "resample"]]:
    """Sum of each column over the rows of each resample, drawn as `intervals.resampled` draws."""
    sums: list[Float64[np.ndarray, "resample"]] = []
    for start in range(0, len(columns), found.resamples.COLUMNS):
        held = columns[start : start + found.resamples.COLUMNS]
        table = np.zeros((len(held[0]), found.resamples.COLUMNS))
        table[:, : len(held)] = np.stack(held, axis=1)
        if len(held) == 1:  # a fraction of the memory to go through
            table = np.ascontiguousarray(table[:, 0])
        summed = np.empty((resamples, found.resamples.COLUMNS))
        found.resamples.resampled_sums(
            table, *_states(seed, found.resamples.LANES), order(len(table)), summed
        )
        sums += list(np.ascontiguousarray(summed.T[: len(held)]))
    return sums


def _flat(prediction: Predictions, truth: Truths) -> tuple[Any, Any]:
    """Rows of elements, contiguous, as the kernels take them."""
    rows = prediction.reshape(*prediction.shape[:2], -1), truth.reshape(len(truth), -1)
    return np.ascontiguousarray(rows[0]), np.ascontiguousarray(rows[1])


def _states(seed: int, lanes: int) -> tuple[UInt64[np.ndarray, "..."], ...]:
    """PCG64's states after 1 to `lanes` steps, and the factor and increment of `lanes` steps."""
    seeded: Any = np.random.PCG64(seed).state["state"]
    state, increment = seeded["state"], seeded["inc"]
    states, factor, further = [], 1, 0
    for _ in range(lanes):
        state = (state * MULTIPLIER + increment) & WHOLE
        factor = factor * MULTIPLIER & WHOLE
        further = (further * MULTIPLIER + increment) & WHOLE
        states.append(state)
    jump = [factor >> 64, factor & LOW, further >> 64, further & LOW]
    halves = [state >> 64 for state in states], [state & LOW for state in states], jump
    return tuple(np.array(each, np.uint64) for each in halves)
