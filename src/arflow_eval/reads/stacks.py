"""Arms with several draws a frame, scored block by block: each draw, their mean, their spread.

Float64 throughout, as the published reads of draw stacks are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float64

from arflow_eval import refusal
from arflow_eval.reads.comparison import Finding
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.stats import energy, ladder
from arflow_eval.stats.dispersion import (
    Dispersion,
    Profile,
    block_dispersion,
    block_profile,
    joined_dispersion,
    joined_profile,
)
from arflow_eval.stats.errors import failed_draws, headline
from arflow_eval.stats.ladder import DrawErrors, best_of, block_draw_errors, pooled
from arflow_eval.stats.scoring import Block, chosen_blocks

Rows = Bool[np.ndarray, "frame"]
NAMES = ("chunk", "first")


@dataclass(frozen=True)
class Stack:
    """What the draws of one arm are worth, one row a frame.

    Attributes:
        draws: errors of every draw.
        mean: errors of the headline prediction, the mean of the draws, as one draw.
        spread: dispersion of the draws.
        profile: the headline's errors by step and by joint.
    """

    draws: DrawErrors
    mean: DrawErrors
    spread: Dispersion
    profile: Profile

    @property
    def best(self) -> dict[str, Float64[np.ndarray, "frame"]]:
        """Errors of each frame's best draw; the first step picks its own. NaN if not scored."""
        return {"chunk": best_of(self.draws.mae)[:, -1], "first": best_of(self.draws.first)[:, -1]}


def stack_scores(arm: xarray.Dataset, rows: Rows, *, window: int) -> Stack:
    """The draws of the chosen frames in one pass; raises what `errors.refuse_unusable` raises."""
    scored = [_scores(block, window=window) for block in chosen_blocks(arm, rows)]
    draws, mean, spread, profile = zip(*scored, strict=True)
    return Stack(
        draws=ladder.joined(draws),
        mean=ladder.joined(mean),
        spread=joined_dispersion(spread),
        profile=joined_profile(profile),
    )


def draw_errors(arm: xarray.Dataset, rows: Rows, *, window: int) -> DrawErrors:
    """Errors of every draw of the chosen frames; raises what `ladder.joined` raises."""
    blocks = chosen_blocks(arm, rows)
    return ladder.joined([block_draw_errors(*block, window=window) for block in blocks])


def stack_energy(arm: xarray.Dataset, rows: Rows, *, window: int) -> energy.Energy:
    """Energy scores of the chosen frames; raises what `energy.joined` raises."""
    blocks = chosen_blocks(arm, rows)
    return energy.joined([energy.block_energy(*block, window=window) for block in blocks])


def lone(errors: DrawErrors) -> dict[str, Float64[np.ndarray, "frame"]]:
    """The chunk and first-step errors of an arm's only draw."""
    return {"chunk": errors.mae[:, 0], "first": errors.first[:, 0]}


def weights(errors: DrawErrors) -> dict[str, Any]:
    """What pools each kind of error: scored elements, and whether the first step is scored."""
    return {"chunk": errors.elements, "first": errors.first_scored}


def pooled_mean(arm: xarray.Dataset, mean: DrawErrors, draws: DrawErrors) -> Finding:
    """Pooled errors of an arm's headline, rounded as published; precision and counts beside."""
    found, by = lone(mean), weights(mean)
    exact = {f"{name}_mae": pooled(found[name], by[name]) for name in NAMES}
    shown = {name: rounded(value, places=RATE_PLACES) for name, value in exact.items()}
    key = {"pred_key": str(arm.attrs.get("pred_key", f"pred:{arm.attrs['arm']}"))}
    counts = {"draws": draws.failed.shape[1], "failed_draws": int(draws.failed.sum())}
    return {**shown, **key}, {"arm": str(arm.attrs["arm"]), **exact, **counts}


def matched(
    arms: Mapping[str, xarray.Dataset], *, first_draws: int | None
) -> dict[str, xarray.Dataset]:
    """Stacks with one number of draws: all of theirs, or the first so many of each.

    A draw does not depend on how many are asked for, so the first N are those of a run with N.

    Raises:
        Refusal: a guard, where the stacks have different numbers of draws and none is asked for,
            or where one has fewer than are.
    """
    held = {role: arm.sizes["draw"] for role, arm in arms.items()}
    said = ", ".join(f"{role} {draws}" for role, draws in held.items())
    if first_draws is None and len(set(held.values())) > 1:
        raise refusal.guard(
            f"the arms have different numbers of draws a frame ({said})",
            expected="one number of draws: fewer score worse",
            remedy=f"set read.first_draws to at most {min(held.values())}",
        )
    if first_draws is not None and first_draws > min(held.values()):
        raise refusal.guard(
            f"first_draws is {first_draws} (draws a frame: {said})",
            expected=f"2 to {min(held.values())} draws",
            remedy=f"set read.first_draws to at most {min(held.values())}",
        )
    return {role: arm.isel(draw=slice(first_draws)) for role, arm in arms.items()}


def _scores(block: Block, *, window: int) -> tuple[DrawErrors, DrawErrors, Dispersion, Profile]:
    prediction, truth, valid = block
    with np.errstate(invalid="ignore"):  # an infinite prediction turns NaN, and is refused
        mean = headline(prediction, failed_draws(prediction))
        return (
            block_draw_errors(prediction, truth, valid, window=window),
            block_draw_errors(mean[:, None], truth, valid, window=window),
            block_dispersion(prediction, truth, valid, window=window),
            block_profile(prediction, truth, valid, window=window),
        )
