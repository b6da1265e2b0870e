"""The energy score of an AR policy's draws against a flow policy's, on frames that both drew."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import xarray
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.energies import (
    FORMS,
    difference,
    energy_deltas,
    energy_table,
    pooled_energy,
)
from arflow_eval.reads.planted_energy import planted_energies
from arflow_eval.reads.screen import deltas_of, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.reads.stacks import matched, stack_energy

oracles: Final = partial(planted_energies, flow=True)

PAIRS: Final = (("draws", "flow"), ("draws", "greedy"), ("flow", "greedy"))


def energy_score_flow(
    greedy: xarray.Dataset,
    draws: xarray.Dataset,
    flow: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    first_draws: int | None,
    anchors: Mapping[str, Any],
    subset_mode: bool,
) -> dict[str, Any]:
    """One instrument on both families: scores, terms and paired differences at one N.

    Frames in which a draw failed in either stack have another N; they are left out of all
    scores and counted. Pooled scores weigh by scored element, differences by frame.

    Args:
        greedy: the deployment read of the AR policy.
        draws: its draws, one by one.
        flow: the draws of a flow policy, one by one.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        first_draws: score the first so many draws of both stacks; null demands equal stacks.
        anchors: published numbers that stand beside the read, never estimated again.
        subset_mode: whether arms were cut to the frames of the smallest.

    Raises:
        Refusal: a guard, where the stacks have different numbers of draws, a prediction is not
            finite or no frame is scored.
    """
    stacks = matched({"draws": draws, "flow": flow}, first_draws=first_draws)
    arms = {"greedy": greedy, **stacks}
    core = draws["core"].to_numpy()
    energies = {role: stack_energy(arm, core, window=window) for role, arm in arms.items()}
    whole = ~(energies["draws"].failed.any(axis=1) | energies["flow"].failed.any(axis=1))
    scored = energies["draws"].scored
    rows = scored & whole
    pooled = {role: pooled_energy(arms[role], it, rows) for role, it in energies.items()}
    settings = {"cluster": cluster, "resamples": resamples, "seed": seed, "confidence": confidence}
    frames = draws.isel(frame=core)
    gains = {
        f"{first}_{other}": difference(pooled, first=first, other=other) for first, other in PAIRS
    }
    deltas = energy_deltas(energies, frames, pairs=PAIRS, rows=rows, **settings)
    return {
        "arms_pooled": {role: shown for role, (shown, _) in pooled.items()},
        "forms": dict(FORMS),
        "sample_draws": stacks["draws"].sizes["draw"],
        "subset_mode": subset_mode,
        "n_rows_paired": draws.sizes["frame"],
        "n_core": len(rows),
        "gain": {pair: shown for pair, (shown, _) in gains.items()},
        "paired_delta": {pair: shown for pair, (shown, _) in deltas.items()},
        "anchors_record_only": dict(anchors),
        "extended": {
            "arms_pooled": {role: more for role, (_, more) in pooled.items()},
            "gain": {pair: more for pair, (_, more) in gains.items()},
            "paired_delta": {pair: more for pair, (_, more) in deltas.items()},
            "units": str(draws.attrs["action_units"]),
            "window": window,
            "draws_held": {
                role: arm.sizes["draw"] for role, arm in (("draws", draws), ("flow", flow))
            },
            "n_core_without_scored_step": int((~scored).sum()),
            "n_core_with_failed_draw": int((scored & ~whole).sum()),
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """The score and its terms by arm, the paired differences, and what is not claimed."""
    about = report["extended"]
    paths = {pair.replace("_", " - "): ("paired_delta", pair) for pair in report["paired_delta"]}
    held = ", ".join(f"{role} has {draws}" for role, draws in about["draws_held"].items())
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {about['window']} steps, energy scores in"
            f" {about['units']} (root mean square over elements), lower is better;"
            f" {report['sample_draws']} draws of each stack ({held})"
        ),
        energy_table(report["arms_pooled"]),
        *deltas_of(report, paths, units=about["units"]),
        Text("differences of plain scores; below 0 the first forecasts better"),
        *standing(report),
    )
