"""Energy scores of arms in published form, and their paired differences."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool
from rich.table import Table

from arflow_eval.reads.comparison import Finding, Paired, paired_findings
from arflow_eval.reads.delta import rounded
from arflow_eval.reads.quarters import decimals, rounded_or_none
from arflow_eval.reads.screen import columns
from arflow_eval.stats.energy import Energy
from arflow_eval.stats.ladder import pooled

ENERGY_PLACES: Final = 6
FORMS: Final[Mapping[str, str]] = {
    "energy_score": "plain: truth_term - interaction_term, of N draws; comparable at one N only",
    "truth_term": "mean distance of a single draw to the recorded chunk, (1/N) sum d(x_i, y)",
    "interaction_term": "sum_(i<j) d(x_i, x_j) / N^2, of the plain form; exactly 0 for N = 1",
    "fair_energy_score": "truth_term - sum_(i<j) d(x_i, x_j) / (N (N - 1)); unbiased in N,"
    " undefined for N = 1",
    "pooling": "over scored elements of core frames; d is the root mean square over them",
}
SIGN: Final = "core frames of equal weight (negative = the first has the better score)"


def pooled_energy(arm: xarray.Dataset, energy: Energy, rows: Bool[np.ndarray, "frame"]) -> Finding:
    """An arm's score and its terms, pooled by scored elements over some frames."""
    weight = energy.elements * rows
    columns_of = {
        "energy_score": energy.score,
        "truth_term": energy.truth,
        "interaction_term": energy.interaction,
        "fair_energy_score": energy.fair,
    }
    lone = bool((energy.draws[weight > 0] == 1).any())
    exact = {
        name: None if lone and name == "fair_energy_score" else pooled(column, weight)
        for name, column in columns_of.items()
    }
    shown = {name: rounded_or_none(value, places=ENERGY_PLACES) for name, value in exact.items()}
    draws, failed = energy.failed.shape[1], int(energy.failed[rows].sum())
    key = str(arm.attrs.get("pred_key", f"pred:{arm.attrs['arm']}"))
    return {**shown, "draws": draws, "pred_key": key}, {
        "arm": str(arm.attrs["arm"]),
        **exact,
        "failed_draws": failed,
    }


def energy_deltas(
    arms: Mapping[str, Energy],
    frames: xarray.Dataset,
    *,
    pairs: Sequence[tuple[str, str]],
    rows: Bool[np.ndarray, "frame"],
    **settings: Any,
) -> dict[str, Finding]:
    """Paired differences of the plain per-frame scores of each pair of arms, first - other."""
    measures = {
        f"{first}_{other}": Paired(
            arms[first].score - arms[other].score,
            rows & arms[other].scored,
            f"paired per-frame plain energy score, {first} - {other}, {SIGN}",
        )
        for first, other in pairs
    }
    return paired_findings(measures, frames, **settings)


def difference(pooled_arms: Mapping[str, Finding], *, first: str, other: str) -> Finding:
    """What one arm's pooled score gains on another's, other - first, of rounded values."""
    shown, exact = (
        {side: pooled_arms[side][number]["energy_score"] for side in (first, other)}
        for number in (0, 1)
    )
    gain = rounded(shown[other] - shown[first], places=ENERGY_PLACES)
    return {"energy_score_gain": gain}, {"energy_score_gain": exact[other] - exact[first]}


def energy_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    """Arms on the screen: the plain score with its two terms, and the fair one."""
    shown = columns(["role", "draws", "plain score", "truth", "interaction", "fair score"], words=1)
    for role, arm in arms.items():
        names = ("energy_score", "truth_term", "interaction_term", "fair_energy_score")
        shown.add_row(role, str(arm["draws"]), *(decimals(arm[name], places=4) for name in names))
    return shown
