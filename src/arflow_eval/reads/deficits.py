"""Where one arm's error exceeds another's: by the spread of draws, and along the chunk."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from jaxtyping import Float64
from rich.table import Table

from arflow_eval.reads.comparison import Finding
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.reads.quarters import by_quarter, decimals, published_quarters, rounded_or_none
from arflow_eval.reads.screen import columns
from arflow_eval.stats.dispersion import Profile

SHOWN_STEPS: Final = 6  # on the screen


def difference(pooled: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Treatment - control of rounded pooled errors, by instrument."""
    treatment, control = pooled["treatment"], pooled["control"]
    return {
        instrument: {
            name: rounded(
                treatment[instrument][name] - control[instrument][name], places=RATE_PLACES
            )
            for name in ("chunk_mae", "first_mae")
        }
        for instrument in treatment
    }


def deficits(
    dispersion: Mapping[str, Float64[np.ndarray, "frame"]],
    error: Mapping[str, Float64[np.ndarray, "frame"]],
) -> Finding:
    """Both arms' errors by quarter of the frames, by the dispersion of each arm in turn.

    The deficit is treatment - control: of rounded errors as published, exactly beside.
    """
    values = {**error, "deficit": error["treatment"] - error["control"]}
    exact = {role: by_quarter(spread, values) for role, spread in dispersion.items()}
    shown = {role: [_rounded(row) for row in published_quarters(it)] for role, it in exact.items()}
    return shown, exact


def step_curves(profiles: Mapping[str, Profile]) -> Finding:
    """Both arms' mean errors at each step, over the frames in which it is scored; null in none."""
    exact = {
        role: [None if np.isnan(value) else value for value in profile.curve.tolist()]
        for role, profile in profiles.items()
    }
    shown: dict[str, Any] = {
        role: [rounded_or_none(value, places=RATE_PLACES) for value in curve]
        for role, curve in exact.items()
    }
    pairs = zip(shown["treatment"], shown["control"], strict=True)
    shown["difference"] = [_less(treatment, control) for treatment, control in pairs]
    return {**shown, "n_frames": profiles["control"].counts.tolist()}, exact


def step_table(curves: Mapping[str, Any]) -> Table:
    """Some steps of the curves on the screen, the first and the last among them."""
    steps = len(curves["n_frames"])
    shown = columns(["step", "frames", "treatment", "control", "difference"], words=0)
    for step in np.unique(np.linspace(0, steps - 1, SHOWN_STEPS).round().astype(int)).tolist():
        figures = (
            decimals(curves[name][step], places=4)
            for name in ("treatment", "control", "difference")
        )
        shown.add_row(str(step), f"{curves['n_frames'][step]:,}", *figures)
    return shown


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "deficit": _less(row["treatment"], row["control"])}


def _less(treatment: float | None, control: float | None) -> float | None:
    if treatment is None or control is None:
        return None
    return rounded(treatment - control, places=RATE_PLACES)
