"""What choosing among a policy's draws could gain at most: the best of N by the recorded truth."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Float64
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.comparison import Finding, Paired, paired_findings
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.reads.gains import best_draws, gains, tied_best
from arflow_eval.reads.planted_draws import oracles
from arflow_eval.reads.quarters import (
    decimals,
    quarter_table,
)
from arflow_eval.reads.screen import columns, compared, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.reads.stacks import (
    NAMES,
    Stack,
    draw_errors,
    lone,
    pooled_mean,
    stack_scores,
    weights,
)
from arflow_eval.stats.ladder import best_of, pooled_ladder

__all__ = ["oracles", "selection_ceiling", "table"]

CLAIM_BOUNDARY: Final = (
    "a bound: the best draw is chosen by the recorded actions, which no selector knows; open-loop"
    " error says nothing certain about success rates"
)
BASES: Final = ("greedy", "ensemble")
SIGN: Final = "core frames of equal weight (negative = the best draw is closer)"


def selection_ceiling(
    greedy: xarray.Dataset,
    draws: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    quantiles: Sequence[float],
    subset_mode: bool,
) -> dict[str, Any]:
    """The ladder of best-of-K errors, and what the best of N gains over greedy and the ensemble.

    Ladders weigh by scored element (first-step ones by frame), paired differences and gains weigh
    scored core frames equally. Headroom is of the rounded pooled errors, as published.

    Args:
        greedy: the deployment read of a policy.
        draws: its draws on the same frames, one by one.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        quantiles: shares of the frames at which the gain is given.
        subset_mode: whether greedy was cut to the frames of the draws.

    Raises:
        Refusal: a guard, where a prediction is not finite or no frame is scored.
    """
    core = draws["core"].to_numpy()
    single = draw_errors(greedy, core, window=window)
    stack = stack_scores(draws, core, window=window)
    pooled = {
        "greedy": pooled_mean(greedy, single, single),
        "ensemble": pooled_mean(draws, stack.mean, stack.draws),
    }
    ladders, best = _ladders(stack), stack.best
    settings = {"cluster": cluster, "resamples": resamples, "seed": seed, "confidence": confidence}
    errors = {"greedy": lone(single), "ensemble": lone(stack.mean)}
    paired = {
        base: _paired(stack, best, errors[base], draws.isel(frame=core), base=base, **settings)
        for base in BASES
    }
    kept = stack.draws.scored
    gain = (errors["greedy"]["chunk"] - best["chunk"])[kept]
    head, head_more = _headroom(pooled, ladders)
    chosen, chosen_more = gains(gain, stack.spread.mean[kept], quantiles=quantiles)
    return {
        "arms_pooled": {role: shown for role, (shown, _) in pooled.items()},
        "sample_draws": draws.sizes["draw"],
        "subset_mode": subset_mode,
        "n_rows_paired": draws.sizes["frame"],
        "n_core": len(kept),
        "ladder": {
            name: [rounded(rung, places=RATE_PLACES) for rung in rungs.tolist()]
            for name, rungs in ladders.items()
        },
        "headroom": head,
        "paired_delta": _side(paired, 0),
        "gain": {**chosen, "share_best_beats_greedy": paired["greedy"]["chunk"][0]["arm_win_rate"]},
        "best_draw": best_draws(stack),
        "extended": {
            "arms_pooled": {role: more for role, (_, more) in pooled.items()},
            "ladder": {name: rungs.tolist() for name, rungs in ladders.items()},
            "headroom": head_more,
            "paired_delta": _side(paired, 1),
            "gain": chosen_more,
            "units": str(draws.attrs["action_units"]),
            "window": window,
            "n_core_without_scored_step": int((~kept).sum()),
            "n_frames_whose_best_draw_is_tied": tied_best(stack.draws.mae[kept]),
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """The ladder, the best of N against both single predictions, and where it gains most."""
    about = report["extended"]
    ladder = columns(["best of K", "chunk MAE", "first MAE"], words=0)
    for row, errors in enumerate(zip(*report["ladder"].values(), strict=True)):
        ladder.add_row(str(row + 1), *(f"{error:.4f}" for error in errors))
    draws, gain = report["sample_draws"], report["gain"]
    quarters = quarter_table(
        gain["by_dispersion_quartile"], of="quarter by dispersion", names={"gain": "mean gain"}
    )
    paths = {f"{name} - {base}": ("paired_delta", base, name) for base in BASES for name in NAMES}
    counts = ", ".join(f"{count:,}" for count in report["best_draw"]["chunk"])
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {about['window']} steps, errors in"
            f" {about['units']}, {draws} draws a frame"
        ),
        ladder,
        Text(
            f"best of {draws}, less greedy and less the ensemble; below 0 the best draw is closer"
        ),
        *compared(report, paths, units=about["units"]),
        Text(
            f"best of {draws} beats greedy on {gain['share_best_beats_greedy']:.1%} of frames;"
            " rank correlation of dispersion and gain"
            f" {decimals(gain['spearman_dispersion_gain'], places=4)}"
        ),
        quarters,
        Text(f"frames that each draw is the best of: {counts}"),
        *standing(report),
    )


def _ladders(stack: Stack) -> dict[str, Float64[np.ndarray, "draw"]]:
    """Pooled best-of-K errors, K = 1 to N."""
    errors, by = {"chunk": stack.draws.mae, "first": stack.draws.first}, weights(stack.draws)
    return {f"{name}_mae": pooled_ladder(best_of(errors[name]), by[name]) for name in NAMES}


def _paired(
    stack: Stack,
    best: Mapping[str, Float64[np.ndarray, "frame"]],
    errors: Mapping[str, Float64[np.ndarray, "frame"]],
    frames: xarray.Dataset,
    *,
    base: str,
    **settings: Any,
) -> dict[str, Finding]:
    """The best of N less one single prediction, per frame."""
    scored = {"chunk": stack.draws.scored, "first": stack.draws.first_scored}
    measures = {
        name: Paired(
            best[name] - errors[name],
            scored[name],
            f"paired per-frame {name}_mae, best of N - {base}, {SIGN}",
        )
        for name in NAMES
    }
    return paired_findings(measures, frames, **settings)


def _side(paired: Mapping[str, Mapping[str, Finding]], side: int) -> dict[str, Any]:
    return {base: {name: it[side] for name, it in found.items()} for base, found in paired.items()}


def _headroom(
    pooled: Mapping[str, Finding], ladders: Mapping[str, Float64[np.ndarray, "draw"]]
) -> Finding:
    """What lies between a single prediction and the best of N, of rounded values and exactly."""
    shown: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for base, (published, more) in pooled.items():
        best = {name: float(rungs[-1]) for name, rungs in ladders.items()}
        shown[base] = {
            name: rounded(published[name] - round(value, RATE_PLACES), places=RATE_PLACES)
            for name, value in best.items()
        }
        exact[base] = {name: more[name] - value for name, value in best.items()}
    return shown, exact
