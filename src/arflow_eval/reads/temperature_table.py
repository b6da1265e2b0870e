"""The temperature table: the error of the mean of draws by their temperature. Record-only."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.comparison import Finding, error_findings, pooled_errors
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.reads.planted_rungs import BASE, ERRORS, oracles
from arflow_eval.reads.screen import columns, compared, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

__all__ = ["oracles", "table", "temperature_table"]

RECORD_ONLY: Final = {
    "status": "record-only",
    "status_reason": "a diagnostic beside a registered study: it decides nothing, and no"
    " temperature is chosen by it",
}
SIGN: Final = "core frames of equal weight (negative = closer to the recorded actions)"


def temperature_table(
    t0_5: xarray.Dataset,
    t0_7: xarray.Dataset,
    t1_0: xarray.Dataset,
    t1_3: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    anchors: Mapping[str, Any],
    subset_mode: bool,
) -> dict[str, Any]:
    """Pooled errors of every rung on the same rows, and their differences to T = 1.0.

    Args:
        t0_5: the mean of draws at T = 0.5; frame i is one frame in every arm.
        t0_7: the mean of draws at T = 0.7.
        t1_0: the mean of draws at T = 1.0, on the rows of the others.
        t1_3: the mean of draws at T = 1.3.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        anchors: published numbers that stand beside the table, never estimated again.
        subset_mode: whether T = 1.0 was cut from a larger panel to the rows of the others.

    Returns:
        JSON values: `temperature_table` (differences of pooled errors, as published) and
        `paired_delta` (differences of per-frame errors, with intervals), by rung.

    Raises:
        Refusal: a guard, where a prediction is not finite or no frame is scored.
    """
    arms = {"t0_5": t0_5, "t0_7": t0_7, "t1_0": t1_0, "t1_3": t1_3}
    core = t0_5["core"].to_numpy()
    errors = {role: arm_errors(arm, core, window=window) for role, arm in arms.items()}
    pooled = {role: pooled_errors(arms[role], errors[role]) for role in arms}
    settings: dict[str, Any] = {
        "cluster": cluster,
        "resamples": resamples,
        "seed": seed,
        "confidence": confidence,
    }
    frames = t0_5.isel(frame=core)
    paired = {role: _paired(arms, errors, frames, role=role, **settings) for role in arms}
    return {
        "n_rows_paired": t0_5.sizes["frame"],
        "n_core": len(errors[BASE]),
        "subset_mode": subset_mode,
        "arms_pooled": {role: shown for role, (shown, _) in pooled.items()},
        "temperature_table": {role: _rung(arms[role], pooled, role=role) for role in arms},
        "paired_delta": _side(paired, 0),
        "anchors_record_only": dict(anchors),
        "extended": {
            **RECORD_ONLY,
            "arms_pooled": {role: more for role, (_, more) in pooled.items()},
            "paired_delta": _side(paired, 1),
            "units": str(t1_0.attrs["action_units"]),
            "window": window,
            "n_core_without_scored_step": int(np.sum(~errors[BASE].scored)),
            "rows_of_t1_0": "joined from a larger panel" if subset_mode else "as evaluated",
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """The rungs, their differences to T = 1.0, and that nothing follows from them."""
    about = report["extended"]
    rungs = columns(["T", "chunk MAE", "delta", "first MAE", "delta"], words=0)
    for rung in report["temperature_table"].values():
        figures = (
            f"{rung['chunk_mae']:.4f}",
            f"{rung['delta_chunk_mae']:+.4f}",
            f"{rung['first_mae']:.4f}",
            f"{rung['delta_first_mae']:+.4f}",
        )
        rungs.add_row(f"{rung['temperature']:g}", *figures)
    others = [role for role in report["paired_delta"] if role != BASE]
    paths = {f"chunk {role}": ("paired_delta", role, "chunk") for role in others}
    paths |= {f"first {role}": ("paired_delta", role, "first") for role in others}
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {about['window']} steps, errors in"
            f" {about['units']}; T = 1: {about['rows_of_t1_0']}"
        ),
        rungs,
        Text("differences of pooled errors to T = 1; below, paired by frame"),
        *compared(report, paths, units=about["units"]),
        *standing(report),
    )


def _paired(
    arms: Mapping[str, xarray.Dataset],
    errors: Mapping[str, Errors],
    frames: xarray.Dataset,
    *,
    role: str,
    **settings: Any,
) -> dict[str, Finding]:
    """The paired differences of one rung to T = 1.0."""
    said = f"T = {arms[role].attrs['temperature']:g} - T = {arms[BASE].attrs['temperature']:g}"
    chunk, first = error_findings(
        errors[role],
        errors[BASE],
        frames,
        chunk=f"paired per-frame chunk_mae, {said}, {SIGN}",
        first=f"paired per-frame first_mae, {said}, {SIGN}",
        **settings,
    )
    return {"chunk": chunk, "first": first}


def _side(paired: Mapping[str, Mapping[str, Finding]], side: int) -> dict[str, Any]:
    """Of every rung's findings what is published (0), or what we add (1)."""
    return {
        role: {name: finding[side] for name, finding in found.items()}
        for role, found in paired.items()
    }


def _rung(arm: xarray.Dataset, pooled: Mapping[str, Finding], *, role: str) -> dict[str, Any]:
    """One row of the published table: differences of pooled errors, rounded after subtraction."""
    (shown, exact), (_, base) = pooled[role], pooled[BASE]
    return {
        "temperature": float(arm.attrs["temperature"]),
        "sample_draws": arm.sizes["draw"],
        **{name: shown[name] for name in ERRORS},
        **{
            f"delta_{name}": rounded(exact[name] - base[name], places=RATE_PLACES)
            for name in ERRORS
        },
    }
