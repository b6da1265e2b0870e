"""Oracles of the matched window: effects planted on a made candidate, by split."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray

from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.oracles import EXACT, Carry, Fired
from arflow_eval.reads.repos import frames_of
from arflow_eval.stats.scoring import arm_errors

FLOOR: Final = "state_copy"
DIRTY: Final = 3  # of the made repos one in so many is contaminated
WRAPPED: Final = 3141.0  # recorded actions of the excluded repo, in wrap-around units
CLASSES: Final = {-1: "BETTER", 0: "CI-SPANS-0", 1: "WORSE"}


def oracles(
    definition: Mapping[str, Any], carry: Carry, *, given: xarray.Dataset | None = None
) -> list[Fired]:
    """Every planted effect is classified as planted, in its split and to its size.

    One repo has wrap-around units: where its frames were scored, no effect would be exact. The
    whole-panel pins do not hold on made arms, so of the guards that of the horizon alone stands.
    """
    stated, window = definition["oracles"], int(definition["window"])
    base = made_arm(chunk_mae=float(stated["chunk_mae"])) if given is None else given
    repos = np.unique(base["repo_name"].to_numpy()).tolist()
    dirty, masked = repos[::DIRTY], repos[1]
    banked = _wrapped(base, masked)
    guards = {name: it for name, it in definition["guards"].items() if name == "fills_exactly"}
    fired = []
    for name, factors in stated["planted"].items():
        candidate = _candidate(banked, factors, dirty, window=window)
        arms = {"candidate": candidate, "made_arm": banked}
        report = carry(arms, contaminated=dirty, excluded=[masked], guards=guards)
        for split in ("clean", "contaminated"):
            chosen = frames_of(base, dirty) == (split == "contaminated")
            rows = chosen & base["core"].to_numpy() & ~frames_of(base, [masked])
            errors = arm_errors(banked, rows, window=window)
            error = float(errors.frame_mae[errors.scored].mean())
            fired.append(_judged(name, split, report, factor=float(factors[split]), error=error))
    return fired


def _wrapped(arm: xarray.Dataset, repo: str) -> xarray.Dataset:
    """An arm one of whose repos was recorded in other units."""
    truth = arm["truth"].to_numpy().copy()
    truth[frames_of(arm, [repo])] = WRAPPED
    return arm.assign(truth=(arm["truth"].dims, truth))


def _candidate(
    arm: xarray.Dataset, factors: Mapping[str, Any], dirty: list[str], *, window: int
) -> xarray.Dataset:
    """A candidate with an arm's errors times a factor by split, NaN after its window."""
    sides = {
        split: planted(
            arm, factor=float(factors[split]), draws=1, name="made@release", temperature=None
        )
        for split in ("clean", "contaminated")
    }
    inside = frames_of(arm, dirty)[:, None, None, None]
    chunks = {split: side["prediction"].to_numpy() for split, side in sides.items()}
    prediction = np.where(inside, chunks["contaminated"], chunks["clean"])
    prediction[:, :, window:] = np.nan
    found = sides["clean"].assign_attrs(horizon=window)
    return found.assign(prediction=(arm["prediction"].dims, prediction))


def _judged(
    name: str, split: str, report: Mapping[str, Any], *, factor: float, error: float
) -> Fired:
    """Whether a split has the planted class, and exactly the planted difference."""
    found = report["splits"][split]["paired"]["made_arm"]
    mean = report["extended"]["splits"][split]["paired"]["made_arm"]["chunk"]["mean"]
    exact = abs(mean - (factor - 1) * error) <= EXACT
    return Fired(
        name=f"{name}, {split}",
        passed=exact and found["class"] == CLASSES[int(np.sign(factor - 1))],
        planted=f"errors x {factor:g}",
        found=f"{mean:+.5f}: {found['class']}",
    )
