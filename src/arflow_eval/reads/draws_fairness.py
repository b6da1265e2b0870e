"""Two arms with draws by one instrument: their means, their best draws, where one falls behind."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Float64
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.comparison import Finding, Paired, paired_findings
from arflow_eval.reads.deficits import (
    deficits,
    difference,
    step_curves,
    step_table,
)
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.reads.planted_fairness import oracles
from arflow_eval.reads.quarters import quarter_table
from arflow_eval.reads.screen import columns, compared, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.reads.stacks import (
    NAMES,
    Stack,
    lone,
    matched,
    pooled_mean,
    stack_scores,
    weights,
)
from arflow_eval.stats.ladder import best_of, pooled

__all__ = ["draws_fairness", "oracles", "table"]

INSTRUMENTS: Final = {
    "mean_of_draws": "the mean of the draws",
    "best_of_n": "each frame's best draw",
}
SIGN: Final = (
    "core frames of equal weight, those without a scored step as zeros"
    " (negative = the treatment is closer)"
)
ROLES: Final = ("treatment", "control")
Columns = Mapping[str, Float64[np.ndarray, "frame"]]


def draws_fairness(
    treatment: xarray.Dataset,
    control: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    first_draws: int | None,
    subset_mode: bool,
) -> dict[str, Any]:
    """Mean-of-draws and best-of-N errors of both arms, by dispersion quartile and by step.

    Pooled errors weigh by scored element, paired differences weigh core frames equally. As
    published, core frames without a scored step stay in differences and quartiles as zeros;
    first-step differences are of the frames whose first step is scored.

    Args:
        treatment: the arm in question, its draws one by one, such as those of an AR policy.
        control: the arm it is measured against, such as a flow policy's draws.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        first_draws: take the first so many draws of both arms; null demands equal numbers.
        subset_mode: whether one arm was cut to the frames of the other.

    Raises:
        Refusal: a guard, where the arms have different numbers of draws, a prediction is not
            finite or no frame is scored.
    """
    arms = matched({"treatment": treatment, "control": control}, first_draws=first_draws)
    core = control["core"].to_numpy()
    stacks = {role: stack_scores(arm, core, window=window) for role, arm in arms.items()}
    found = {role: _pooled(arms[role], stack) for role, stack in stacks.items()}
    settings = {"cluster": cluster, "resamples": resamples, "seed": seed, "confidence": confidence}
    errors = {role: _errors(stack) for role, stack in stacks.items()}
    paired = _paired(errors, stacks["control"], control.isel(frame=core), **settings)
    by_quarter, by_quarter_more = deficits(
        {role: _as_zeros(stack.spread.mean, stack) for role, stack in stacks.items()},
        {role: each["mean_of_draws"]["chunk"] for role, each in errors.items()},
    )
    curves, curves_more = step_curves({role: stack.profile for role, stack in stacks.items()})
    scored = stacks["control"].draws.scored
    return {
        "arms_pooled": {role: shown["mean_of_draws"] for role, (shown, _) in found.items()},
        **{
            instrument: {role: shown[instrument] for role, (shown, _) in found.items()}
            for instrument in ("best_of_n", "single_draw")
        },
        "difference_of_pooled": difference({role: shown for role, (shown, _) in found.items()}),
        "sample_draws": arms["control"].sizes["draw"],
        "subset_mode": subset_mode,
        "n_rows_paired": control.sizes["frame"],
        "n_core": len(scored),
        "paired_delta": _side(paired, 0),
        "by_dispersion_quartile": by_quarter,
        "per_step": curves,
        "extended": {
            "arms_pooled": {role: more["mean_of_draws"] for role, (_, more) in found.items()},
            **{
                instrument: {role: more[instrument] for role, (_, more) in found.items()}
                for instrument in ("best_of_n", "single_draw")
            },
            "paired_delta": _side(paired, 1),
            "by_dispersion_quartile": by_quarter_more,
            "per_step": curves_more,
            "units": str(control.attrs["action_units"]),
            "window": window,
            "draws_held": {"treatment": treatment.sizes["draw"], "control": control.sizes["draw"]},
            "n_core_without_scored_step": int((~scored).sum()),
            "frames_without_scored_step": "stay in chunk differences and quartiles as zeros",
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """Both arms by every instrument, their differences, and where one falls behind."""
    about = report["extended"]
    draws = report["sample_draws"]
    pooled_errors = columns(["role", "errors of", "chunk MAE", "first MAE"], words=2)
    for role in ROLES:
        for heading, key in (("a single draw", "single_draw"), (f"best of {draws}", "best_of_n")):
            row = report[key][role]
            figures = (f"{row[f'{name}_mae']:.4f}" for name in NAMES)
            pooled_errors.add_row(role, heading, *figures)
    paths = {
        f"{name}, {short}": ("paired_delta", instrument, name)
        for instrument, short in (("mean_of_draws", "mean"), ("best_of_n", "best"))
        for name in NAMES
    }
    headings = {"treatment": "treatment", "control": "control", "deficit": "deficit"}
    quarters = [
        quarter_table(rows, of=f"quarter by spread of {role}", names=headings)
        for role, rows in report["by_dispersion_quartile"].items()
    ]
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {about['window']} steps, errors in"
            f" {about['units']}, {draws} draws of each arm;"
            f" {about['n_core_without_scored_step']:,} frames without a scored step as zeros"
        ),
        *compared(report, paths, units=about["units"]),
        Text("treatment - control; below 0 the treatment predicts the recorded actions better"),
        pooled_errors,
        *quarters,
        step_table(report["per_step"]),
        *standing(report),
    )


def _pooled(arm: xarray.Dataset, stack: Stack) -> Finding:
    """An arm's pooled errors by instrument: the mean of its draws, the best, a single one."""
    shown, exact = pooled_mean(arm, stack.mean, stack.draws)
    by = weights(stack.draws)
    ladders = {"chunk": best_of(stack.draws.mae), "first": best_of(stack.draws.first)}
    rungs = {
        instrument: {f"{name}_mae": pooled(ladders[name][:, rung], by[name]) for name in NAMES}
        for instrument, rung in (("best_of_n", -1), ("single_draw", 0))
    }
    rungs_shown = {
        instrument: {name: rounded(value, places=RATE_PLACES) for name, value in each.items()}
        for instrument, each in rungs.items()
    }
    return {"mean_of_draws": shown, **rungs_shown}, {"mean_of_draws": exact, **rungs}


def _errors(stack: Stack) -> dict[str, Columns]:
    """Per-frame errors by instrument; the chunk's are 0 where no step is scored."""
    return {
        instrument: {"chunk": _as_zeros(errors["chunk"], stack), "first": errors["first"]}
        for instrument, errors in (("mean_of_draws", lone(stack.mean)), ("best_of_n", stack.best))
    }


def _as_zeros(values: Float64[np.ndarray, "frame"], stack: Stack) -> Float64[np.ndarray, "frame"]:
    return np.where(stack.draws.scored, values, 0.0)


def _paired(
    errors: Mapping[str, Mapping[str, Columns]],
    control: Stack,
    frames: xarray.Dataset,
    **settings: Any,
) -> dict[str, dict[str, Finding]]:
    """Paired differences by instrument, of the chunk over all frames and of the first step."""
    scored = {"chunk": np.ones_like(control.draws.scored), "first": control.draws.first_scored}
    measures = {
        f"{instrument} {name}": Paired(
            errors["treatment"][instrument][name] - errors["control"][instrument][name],
            scored[name],
            f"paired per-frame {name}_mae of {said}, treatment - control, {SIGN}",
        )
        for instrument, said in INSTRUMENTS.items()
        for name in NAMES
    }
    found = paired_findings(measures, frames, **settings)
    return {
        instrument: {name: found[f"{instrument} {name}"] for name in NAMES}
        for instrument in INSTRUMENTS
    }


def _side(paired: Mapping[str, Mapping[str, Finding]], side: int) -> dict[str, Any]:
    return {key: {name: it[side] for name, it in found.items()} for key, found in paired.items()}
