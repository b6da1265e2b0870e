"""The energy score of an arm's draws against its greedy decode, the N = 1 baseline."""

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

oracles: Final = partial(planted_energies, flow=False)


def energy_score(
    greedy: xarray.Dataset,
    draws: xarray.Dataset,
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
    """The draws' energy score and its terms, greedy's, and their paired difference.

    Pooled scores weigh by scored element, the difference weighs scored core frames equally.
    Greedy is a forecast of one draw: its score is its distance to the recorded chunk.

    Args:
        greedy: the deployment read of a policy.
        draws: its draws on the same frames, one by one.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        first_draws: score the first so many draws of each frame; null scores all.
        anchors: published numbers that stand beside the read, never estimated again.
        subset_mode: whether greedy was cut to the frames of the draws.

    Raises:
        Refusal: a guard, where a prediction is not finite or no frame is scored.
    """
    arms = {"greedy": greedy, **matched({"draws": draws}, first_draws=first_draws)}
    core = draws["core"].to_numpy()
    energies = {role: stack_energy(arm, core, window=window) for role, arm in arms.items()}
    scored = energies["draws"].scored
    pooled = {role: pooled_energy(arms[role], it, scored) for role, it in energies.items()}
    gain, gain_more = difference(pooled, first="draws", other="greedy")
    ((delta, delta_more),) = energy_deltas(
        energies,
        draws.isel(frame=core),
        pairs=[("draws", "greedy")],
        rows=scored,
        cluster=cluster,
        resamples=resamples,
        seed=seed,
        confidence=confidence,
    ).values()
    return {
        "arms_pooled": {role: shown for role, (shown, _) in pooled.items()},
        "forms": dict(FORMS),
        "subset_mode": subset_mode,
        "n_rows_paired": draws.sizes["frame"],
        "n_core": len(scored),
        **gain,
        "paired_delta": {"draws_greedy": delta},
        "anchors_record_only": dict(anchors),
        "extended": {
            "arms_pooled": {role: more for role, (_, more) in pooled.items()},
            **gain_more,
            "paired_delta": {"draws_greedy": delta_more},
            "units": str(draws.attrs["action_units"]),
            "window": window,
            "n_core_without_scored_step": int((~scored).sum()),
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """The score and its terms by arm, the paired difference, and what is not claimed."""
    about = report["extended"]
    paths = {"draws - greedy": ("paired_delta", "draws_greedy")}
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {about['window']} steps, energy scores in"
            f" {about['units']} (root mean square over elements), lower is better"
        ),
        energy_table(report["arms_pooled"]),
        *deltas_of(report, paths, units=about["units"]),
        Text("differences of plain scores; below 0 the draws forecast better than greedy alone"),
        *standing(report),
    )
