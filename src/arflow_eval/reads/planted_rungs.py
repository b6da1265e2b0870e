"""Oracles of the temperature table: a slice that is the re-pool, and factors planted on rungs."""

from collections.abc import Mapping
from typing import Any, Final

import xarray

from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.oracles import EXACT, Carry, Fired
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

BASE: Final = "t1_0"  # the rung that the others are measured against
ERRORS: Final = ("chunk_mae", "first_mae")
RELATIVE: Final = 1e-6  # of pooled errors planted in float32


def oracles(
    definition: Mapping[str, Any], carry: Carry, *, given: xarray.Dataset | None = None
) -> list[Fired]:
    """A slice of T = 1.0 equals the re-pool exactly, and planted factors come out as planted.

    T = 1.0 stands on a full panel and the other rungs on every fourth of its frames, so that
    each oracle goes through the join.
    """
    stated = definition["oracles"]
    base = made_arm(chunk_mae=float(stated["chunk_mae"])) if given is None else given
    same = carry(_arms(definition, base, factors={}))
    moved = carry(_arms(definition, base, factors=stated["factors"]))
    pooled = _quarter(base)
    errors = arm_errors(pooled, pooled["core"].to_numpy(), window=same["extended"]["window"])
    interval = f"ci{100 * definition['confidence']:g}"
    fired = [_slice_fired(same, errors, interval=interval)]
    for role, factor in stated["factors"].items():
        fired.append(_factor_fired(moved, errors, role=role, factor=float(factor)))
    return fired


def _quarter(arm: xarray.Dataset) -> xarray.Dataset:
    """Every fourth row of an arm, as the quarter panel is of the full one."""
    return arm.isel(frame=slice(1, None, 4))


def _arms(
    definition: Mapping[str, Any], base: xarray.Dataset, *, factors: Mapping[str, Any]
) -> dict[str, xarray.Dataset]:
    """Rungs whose errors are those of T = 1.0 times a factor (1 where none is stated)."""
    guards = definition["guards"]
    return {
        role: planted(
            base if role == BASE else _quarter(base),
            factor=float(factors.get(role, 1)),
            draws=guards["draws"]["of"][role],
            name=base.attrs["arm"] + guards["names_end"]["of"][role],
            temperature=float(temperature),
        )
        for role, temperature in guards["temperatures"]["of"].items()
    }


def _slice_fired(report: Mapping[str, Any], errors: Errors, *, interval: str) -> Fired:
    """Whether a slice and the re-pool are one: equal pooled errors, and deltas of exactly 0."""
    exact = report["extended"]["arms_pooled"]
    wanted = (errors.chunk_mae, errors.first_mae)
    equal = all(tuple(arm[name] for name in ERRORS) == wanted for arm in exact.values())
    zero = all(
        (delta["mean"], *delta[interval]) == (0, 0, 0)
        for found in report["paired_delta"].values()
        for delta in found.values()
    )
    return Fired(
        name="slice_equals_repool",
        passed=equal and zero and report["subset_mode"] is True,
        planted="a T = 1 slice",
        found=f"chunk MAE {exact[BASE]['chunk_mae']:.4f}, {'equal' if equal else 'not equal'};"
        f" deltas {'0' if zero else 'not 0'}",
    )


def _factor_fired(report: Mapping[str, Any], errors: Errors, *, role: str, factor: float) -> Fired:
    """Whether a rung's errors are the re-pool's times its factor, and its delta with them."""
    found = report["extended"]["arms_pooled"][role]
    wanted = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    exact = all(abs(found[name] / wanted[name] - factor) <= RELATIVE for name in ERRORS)
    mean = (factor - 1) * float(errors.frame_mae[errors.scored].mean())
    delta = report["paired_delta"][role]["chunk"]["mean"]
    return Fired(
        name=role,
        passed=exact and abs(delta - mean) <= EXACT,
        planted=f"errors x {factor:g}",
        found=f"chunk MAE x {found['chunk_mae'] / wanted['chunk_mae']:.6f}, delta {delta:+.5f}",
    )
