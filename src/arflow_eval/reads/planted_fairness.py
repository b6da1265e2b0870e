"""Oracles of the fairness of draws: one stack twice, scaled errors, and a planted spread."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Float64

from arflow_eval.reads.made import made_arm
from arflow_eval.reads.oracles import EXACT, Carry, Fired
from arflow_eval.reads.planted_draws import scaled_draws, uneven

RELATIVE: Final = 1e-5  # of a curve planted in float32 and published to 4 places beside it
EMPTY: Final = 11  # of the made frames one in so many has no valid step


def oracles(
    definition: Mapping[str, Any], carry: Carry, *, given: xarray.Dataset | None = None
) -> list[Fired]:
    """Effects planted on a made arm, or on a given greedy one, come out as planted.

    `oracles` of the definition have the `chunk_mae` that the made arm is scaled to, the `draws`
    of a planted stack and the `factor` on the treatment's errors. A made arm has frames without
    a valid step, which stay as zeros.
    """
    stated = definition["oracles"]
    base = _made(float(stated["chunk_mae"])) if given is None else given
    base = base.assign_attrs(summary=None)
    factors = uneven(base.sizes["frame"], int(stated["draws"]))
    control = scaled_draws(base, factors, temperature=None)
    interval = f"ci{100 * definition['confidence']:g}"
    return [
        _self_fired(carry, control, interval=interval),
        _scaled_fired(carry, base, control, factors, factor=float(stated["factor"])),
        _spread_fired(carry, base, draws=int(stated["draws"])),
    ]


def _made(chunk_mae: float) -> xarray.Dataset:
    arm = made_arm(chunk_mae=chunk_mae)
    valid = arm["valid"].to_numpy().copy()
    valid[::EMPTY] = False
    return arm.assign(valid=(arm["valid"].dims, valid))


def _self_fired(carry: Carry, control: xarray.Dataset, *, interval: str) -> Fired:
    """Whether an arm measured against itself differs by exactly 0 everywhere."""
    report = carry({"treatment": control, "control": control})
    zero = all(
        (delta["mean"], *delta[interval]) == (0, 0, 0)
        for found in report["paired_delta"].values()
        for delta in found.values()
    )
    behind = [row["deficit"] for rows in report["by_dispersion_quartile"].values() for row in rows]
    behind += report["per_step"]["difference"]
    zero = zero and not any(behind)
    return Fired(
        name="self_pair",
        passed=zero,
        planted="one stack as both arms",
        found=f"differences, deficits and curve {'0' if zero else 'not 0'}",
    )


def _scaled_fired(
    carry: Carry,
    base: xarray.Dataset,
    control: xarray.Dataset,
    factors: Float64[np.ndarray, "frame draw"],
    *,
    factor: float,
) -> Fired:
    """Whether errors times a factor give that in every instrument, and frames without a step 0."""
    treatment = scaled_draws(base, factor * factors, temperature=1.0)
    report = carry({"treatment": treatment, "control": control})
    exact = report["extended"]
    ratios = [
        exact[key]["treatment"][name] / exact[key]["control"][name]
        for key in ("arms_pooled", "best_of_n", "single_draw")
        for name in ("chunk_mae", "first_mae")
    ]
    curves = exact["per_step"]
    ratios += [
        above / below
        for above, below in zip(curves["treatment"], curves["control"], strict=True)
        if below
    ]
    kept = report["by_dispersion_quartile"]["control"]
    frames = sum(row["n_frames"] for row in kept)
    exact_rows = exact["by_dispersion_quartile"]["control"]["quarters"]
    error = sum(row["n_frames"] * row["control"] for row in exact_rows if row["n_frames"]) / frames
    delta = exact["paired_delta"]["mean_of_draws"]["chunk"]["mean"]
    counted = report["paired_delta"]["mean_of_draws"]["chunk"]["n_frames"]
    whole = counted == frames == int(base["core"].sum())
    return Fired(
        name="scaled_errors",
        passed=whole
        and all(abs(ratio / factor - 1) <= RELATIVE for ratio in ratios)
        and abs(delta - (factor - 1) * error) <= EXACT,
        planted=f"errors x {factor:g}",
        found=f"mean x {ratios[0]:.6f}, best x {ratios[2]:.6f}, delta {delta:+.5f} on"
        f" {counted:,} frames",
    )


def _spread_fired(carry: Carry, base: xarray.Dataset, *, draws: int) -> Fired:
    """Whether a deficit planted where draws spread most is found in the last quarter alone.

    Draws lie in pairs around the greedy errors, so their spread moves no mean.
    """
    frames = base.sizes["frame"]
    error = np.abs(base["prediction"].to_numpy()[:, 0] - base["truth"].to_numpy())
    inside = base["valid"].to_numpy()[:, :, None]
    size = np.where(inside, error, 0).sum(axis=(1, 2), dtype=np.float64)
    size /= np.maximum(inside.sum(axis=(1, 2)) * error.shape[2], 1)
    wide = np.arange(frames) % 5 == 0  # a fifth, so within the last quarter
    spread = np.where(wide, 0.9, 0.01)[:, None] / np.maximum(size, 1e-9)[:, None]
    sides = np.resize([1.0, -1.0], draws)
    sides[draws - draws % 2 :] = 0  # the odd one out is greedy itself
    control = scaled_draws(base, 1 + spread * sides, temperature=None)
    behind = np.where(wide, 1.5, 1.0)[:, None]
    treatment = scaled_draws(base, behind * np.ones((1, draws)), temperature=1.0)
    report = carry({"treatment": treatment, "control": control})
    rows = report["extended"]["by_dispersion_quartile"]["control"]["quarters"]
    found = [row["deficit"] or 0.0 for row in rows]
    return Fired(
        name="deficit_where_draws_spread",
        passed=max(map(abs, found[:3])) <= RELATIVE * found[3],
        planted="errors x 1.5 where the control's draws spread",
        found=", ".join(f"{value:+.4f}" for value in found) + " by quarter",
    )
