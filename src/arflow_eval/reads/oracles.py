"""Oracles of reads: effects planted on made arms, and whether each comes out as planted.

A read's module has its oracles as `oracles(definition, carry, *, given) -> list[Fired]`, where
`carry` carries out the read on arms by role, with keys of the definition changed as its keyword
arguments say. `branches` is that of studies with a decision: its
definition's `oracles` have the `chunk_mae` that the made arm is scaled to and, by name, its
`branches`: the `factor` on the errors, and which comparisons it `holds`. On a given arm the
factors follow from its own errors: the stated one where it fires the branch, else the nearest
of a grid, else the branch is out of reach for that arm.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray

from arflow_eval.reads.expectations import at
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.stats.scoring import arm_errors

Carry = Callable[..., Mapping[str, Any]]
GRID: Final = np.round(np.arange(0.5, 1.3001, 0.01), 2)
EXACT: Final = 1e-5  # of planted deltas, published to 5 places


@dataclass(frozen=True)
class Fired:
    """One oracle and whether it came out as planted.

    `planted` is None where the effect is out of reach on a given arm; `found` is what came out.
    """

    name: str
    passed: bool
    planted: str | None
    found: str


def branches(
    definition: Mapping[str, Any], carry: Carry, *, given: xarray.Dataset | None = None
) -> list[Fired]:
    """Every branch of a study's decision, on a made greedy arm or on a given one."""
    oracles = definition["oracles"]
    base = made_arm(chunk_mae=float(oracles["chunk_mae"])) if given is None else given
    error = _mean_error(base)
    fired = []
    for name, branch in oracles["branches"].items():
        factors = _candidates(float(branch["factor"]), fixed=given is None)
        fired.append(_first(definition, carry, base, name, factors=factors, error=error))
    return fired


def _arms(
    definition: Mapping[str, Any], base: xarray.Dataset, *, factor: float
) -> dict[str, xarray.Dataset]:
    """The arms of a study of draws: the base as greedy, and its errors times a factor as draws."""
    guards = definition["guards"]
    extended = base.attrs["arm"] + guards["name_extends"]["by"]
    draws = planted(
        base,
        factor=factor,
        draws=guards["draws"]["of"]["draws"],
        name=extended,
        temperature=float(guards["temperatures"]["of"]["draws"]),
    )
    return {"greedy": base, "draws": draws}


def _holds(branch: Mapping[str, Any], report: Mapping[str, Any]) -> bool:
    return all(at(report, path) is wanted for path, wanted in branch["holds"].items())


def _judged(
    name: str, branch: Mapping[str, Any], report: Mapping[str, Any], *, factor: float, error: float
) -> Fired:
    """Whether a branch fired, and whether the delta is exactly what was planted."""
    found = report["read1_delta_ar"]
    exact = abs(found["mean"] - (factor - 1) * error) <= EXACT
    if factor == 1:
        exact = found["mean"] == 0 and found["ci95"] == [0, 0]
    said = "; ".join(line.partition(":")[0] for line in report["decision"]["assembly"])
    return Fired(
        name=name,
        passed=exact and _holds(branch, report),
        planted=f"errors x {factor:g}",
        found=f"{found['mean']:+.5f}: {said}",
    )


def _first(
    definition: Mapping[str, Any],
    carry: Carry,
    base: xarray.Dataset,
    name: str,
    *,
    factors: list[float],
    error: float,
) -> Fired:
    """The branch at the first of some factors that fires it; the stated one where none may move."""
    branch = definition["oracles"]["branches"][name]
    for factor in factors:
        report = carry(_arms(definition, base, factor=factor))
        if len(factors) == 1 or _holds(branch, report):
            return _judged(name, branch, report, factor=factor, error=error)
    return Fired(name, passed=True, planted=None, found="out of reach on this arm")


def _candidates(stated: float, *, fixed: bool) -> list[float]:
    """The stated factor alone, or it and then a grid, nearest first. 1 is never moved from."""
    if fixed or stated == 1:
        return [stated]
    side = [each for each in GRID.tolist() if (each < 1) == (stated < 1) and each != 1]
    return [stated, *sorted(side, key=lambda each: abs(each - stated))]


def _mean_error(arm: xarray.Dataset) -> float:
    """The mean frame MAE of an arm's scored core frames."""
    core = arm["core"].to_numpy()
    errors = arm_errors(arm, core, window=int(arm.attrs["horizon"]))
    return float(errors.frame_mae[errors.scored].mean())
