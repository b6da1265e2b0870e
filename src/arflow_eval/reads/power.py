"""What a planned panel can show, from the paired differences of a pilot."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool, Float64
from rich.console import Group
from rich.text import Text

from arflow_eval import refusal
from arflow_eval.reads.comparison import Finding
from arflow_eval.reads.delta import DELTA_PLACES, RATE_PLACES, rounded
from arflow_eval.reads.grouping import groups
from arflow_eval.reads.screen import columns, figure, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.intervals import FEWEST_CLUSTERS
from arflow_eval.stats.power import (
    Pilots,
    detectable_effect,
    needed_frames,
    pilot,
    resampled_range,
)
from arflow_eval.stats.scoring import arm_errors

CLAIM_BOUNDARY: Final = (
    "planning arithmetic: it holds as far as the planned frames are like the pilot's; choose the"
    " size before the panel is scored"
)
MANY_CLUSTERS: Final = 40  # below, normal quantiles promise too much
FEW: Final = f"normal quantiles: optimistic on fewer than {MANY_CLUSTERS} clusters"
METRICS: Final = ("chunk", "first")
Of = Callable[[Pilots], Float64[np.ndarray, "resample"]]
DEFINITIONS: Final = {
    "standard_deviation": "of the per-frame difference treatment - control, over frames, ddof 1",
    "intraclass_correlation": "share of its variance between clusters (one-way ANOVA, >= 0)",
    "design_effect": "1 + (m (1 + CV^2) - 1) x correlation, m and CV of the cluster sizes",
    "detectable": "(z_(1 - a/2) + z_power) x CR1 standard error, by the pilot and as planned",
    "needed": "(z_(1 - a/2) + z_power)^2 x variance x design effect / effect^2, in frames; clusters"
    " of the pilot's sizes that hold them",
}


@dataclass(frozen=True)
class Plan:
    """What is asked of a panel; see `planning`."""

    effect: float | int | None
    frames: int | None
    clusters: int | None
    confidence: float
    power: float


def planning(
    treatment: xarray.Dataset,
    control: xarray.Dataset,
    *,
    window: int,
    cluster: Grouping,
    confidence: float,
    power: float,
    effect: float | None,
    frames: int | None,
    clusters: int | None,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Detectable differences of a planned panel, and the size that a wanted difference takes.

    Of the paired differences of chunk and first-step MAE over core frames, in the panel's action
    units. Every number has an interval over resampled clusters of the pilot beside it.

    Args:
        treatment: the pilot's arm in question; frame i is frame i of the control arm.
        control: the arm it is measured against.
        window: leading steps scored.
        cluster: whose frames move together, `episode` or `repo`.
        confidence: of the two-sided interval that is to exclude 0.
        power: share of panels in which it is to do so.
        effect: difference wanted, in action units; null: no size is asked for.
        frames: core frames planned; null: as many as the clusters hold, or as the pilot's.
        clusters: clusters planned; null: as many as hold the frames, or as the pilot's.
        resamples: of the pilot's clusters.
        seed: of the resampling.

    Raises:
        Refusal: a guard, where the pilot has fewer than two clusters, its arms do not differ, a
            prediction is not finite, or no frame is scored.
    """
    core = control["core"].to_numpy()
    errors = {
        role: arm_errors(arm, core, window=window)
        for role, arm in (("treatment", treatment), ("control", control))
    }
    plan = Plan(effect, frames, clusters, confidence, power)
    sampling = {"resamples": resamples, "seed": seed, "confidence": confidence}
    treated, held = errors["treatment"], errors["control"]
    deltas = {
        "chunk": (treated.frame_mae - held.frame_mae, held.scored),
        "first": (treated.first - held.first, held.first_scored),
    }
    found = {
        name: _found(
            _pilot(delta, control.isel(frame=core), scored=scored, cluster=cluster),
            plan,
            sampling=sampling,
        )
        for name, (delta, scored) in deltas.items()
    }
    few = [each for each in (found["chunk"][0]["n_clusters"], clusters) if each is not None]
    return {
        "units": str(control.attrs["action_units"]),
        "window": window,
        "n_core": int(core.sum()),
        "planned": asdict(plan),
        **{name: shown for name, (shown, _) in found.items()},
        "definitions": DEFINITIONS,
        "extended": {
            **{name: more for name, (_, more) in found.items()},
            **({"note": FEW} if min(few) < MANY_CLUSTERS else {}),
        },
    }


def _pilot(
    delta: Float64[np.ndarray, "frame"],
    control: xarray.Dataset,
    *,
    scored: Bool[np.ndarray, "frame"],
    cluster: Grouping,
) -> Pilots:
    """The pilot's differences by cluster, or a guard refusal where they say nothing."""
    codes, _ = groups(control, by=cluster)
    delta, codes = delta[scored], codes[scored]
    count = len(np.unique(codes))
    if count < 2:
        raise refusal.guard(
            f"a pilot of {len(delta):,} scored core frames in {count} {cluster}s",
            expected=f"two {cluster}s at least: how far they differ decides the size",
            remedy="set read.cluster=episode, or evaluate a pilot on more of the panel",
        )
    if np.ptp(delta) == 0:
        raise refusal.guard(
            f"the difference is {delta[0]:g} on each of {len(delta):,} frames",
            expected="a pilot whose arms differ by more on some frames than on others",
            remedy="give the pilot of the two arms that are to be compared",
        )
    return pilot(delta, codes)


def _numbers(plan: Plan) -> dict[str, Of]:
    """The planning numbers by name, each a function of a pilot or of resamples of it."""

    def shows(pilots: Pilots, size: Plan) -> Float64[np.ndarray, "resample"]:
        return detectable_effect(
            pilots,
            frames=size.frames,
            clusters=size.clusters,
            confidence=plan.confidence,
            power=plan.power,
        )

    own = replace(plan, frames=None, clusters=None)
    numbers: dict[str, Of] = {
        "standard_deviation": lambda pilots: pilots.deviation,
        "intraclass_correlation": lambda pilots: pilots.correlation,
        "design_effect": lambda pilots: pilots.design_effect,
        "detectable_by_the_pilot": lambda pilots: shows(pilots, own),
    }
    if plan != own:
        numbers["detectable_as_planned"] = lambda pilots: shows(pilots, plan)
    effect = plan.effect
    if effect is not None:
        numbers["needed_frames"] = lambda pilots: needed_frames(
            pilots, effect=effect, confidence=plan.confidence, power=plan.power
        )
    return numbers


def _found(pilots: Pilots, plan: Plan, *, sampling: Mapping[str, Any]) -> Finding:
    """One metric's planning numbers, rounded; and exactly, each with its interval."""
    numbers = _numbers(plan)
    exact = {name: float(number(pilots)[0]) for name, number in numbers.items()}
    frames, clusters = int(pilots.frames[0]), pilots.sizes.shape[1]
    needed = None
    if plan.effect is not None:
        share = exact["needed_frames"] / frames
        needed = {"frames": ceil(exact["needed_frames"]), "clusters": ceil(share * clusters)}
    shown = {
        "n_frames": frames,
        "n_clusters": clusters,
        "standard_deviation": rounded(exact["standard_deviation"], places=DELTA_PLACES),
        "intraclass_correlation": rounded(exact["intraclass_correlation"], places=RATE_PLACES),
        "design_effect": rounded(exact["design_effect"], places=RATE_PLACES),
        "detectable": {
            name: rounded(exact[f"detectable_{name}"], places=DELTA_PLACES)
            for name in ("by_the_pilot", "as_planned")
            if f"detectable_{name}" in exact
        },
        "needed": needed,
    }
    more = {
        name: {"value": exact[name], **_range(number, pilots, **sampling)}
        for name, number in numbers.items()
    }
    return shown, {**more, "mean_cluster_size": frames / clusters}


def _range(of: Of, pilots: Pilots, **sampling: Any) -> dict[str, Any]:
    key = f"ci{100 * sampling['confidence']:g}"
    clusters = pilots.sizes.shape[1]
    if clusters < FEWEST_CLUSTERS:
        few = f"{clusters} clusters; below {FEWEST_CLUSTERS} no interval holds its coverage"
        return {key: [None, None], "degenerate": few}
    return {
        key: list(resampled_range(of, pilots, **sampling)),
        "method": f"percentile bootstrap over the pilot's clusters,"
        f" {sampling['resamples']:,} resamples, seed {sampling['seed']}",
    }


def table(report: Mapping[str, Any]) -> Group:
    """What the pilot can show, what the plan can, and the size that the wanted effect takes."""
    about, planned = report["extended"], report["planned"]
    by = about["definition"]["cluster"]
    headings = ["metric", "frames", f"{by}s", "SD", "ICC", "design effect", "shows"]
    shown = columns([*headings, "as planned", "frames needed", f"{by}s needed"], words=1)
    for name in METRICS:
        row = report[name]
        needed = row["needed"] or {}
        shown.add_row(
            f"{name} MAE",
            *(f"{row[key]:,}" for key in ("n_frames", "n_clusters")),
            *(figure(row[key]) for key in ("standard_deviation", "intraclass_correlation")),
            figure(row["design_effect"]),
            figure(row["detectable"]["by_the_pilot"]),
            figure(row["detectable"].get("as_planned")),
            *(f"{needed[key]:,}" if needed else "n/a" for key in ("frames", "clusters")),
        )
    return Group(
        title(report),
        Text(
            f"differences in {report['units']} over the leading {report['window']} steps;"
            f" shows: the least difference that {planned['power']:.0%} of panels find at"
            f" {100 * planned['confidence']:g} % confidence"
        ),
        shown,
        Text(_plan(planned, by=by)),
        *([Text(about["note"])] if "note" in about else []),
        *standing(report),
    )


def _plan(planned: Mapping[str, Any], *, by: str) -> str:
    sizes = [
        f"{planned[name]:,} {words}"
        for name, words in (("frames", "core frames"), ("clusters", f"{by}s"))
        if planned[name] is not None
    ]
    plan = " in ".join(sizes) or "none (set read.frames, read.clusters)"
    effect = planned["effect"]
    wanted = "none (set read.effect)" if effect is None else f"{effect:g}"
    return f"planned: {plan}; wanted difference: {wanted}"
