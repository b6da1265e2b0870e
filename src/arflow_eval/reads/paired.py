"""The paired difference in error of two arms on the same frames, treatment - control."""

from functools import partial
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool, Float64

from arflow_eval.reads.delta import RATE_PLACES, compare, published, rounded
from arflow_eval.reads.grouping import groups
from arflow_eval.reads.screen import table
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

__all__ = ["paired_delta", "table"]

FRAMES: Final = "treatment - control, mean over core frames of equal weight"
SIGN: Final = "negative = the treatment arm predicts the recorded actions more closely"


def paired_delta(
    treatment: xarray.Dataset,
    control: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
) -> dict[str, Any]:
    """Pooled errors of both arms, and the paired differences of their chunk and first-step MAE.

    Pooled errors weigh by scored element, differences weigh core frames equally. Frames without
    a scored step in the window are excluded and counted. Errors are in the panel's action units.

    Args:
        treatment: the arm in question; frame i is frame i of the control arm.
        control: the arm it is measured against.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together, `episode` or `repo`.

    Returns:
        JSON values: `arms_pooled`, `delta_chunk`, `delta_first`, and what they count.

    Raises:
        Refusal: a guard, where a scored prediction is not finite, a frame has no draw that did
            not fail, or no frame is scored.
    """
    core = control["core"].to_numpy()
    arms = {"treatment": treatment, "control": control}
    errors = {role: arm_errors(arm, core, window=window) for role, arm in arms.items()}
    ours, theirs = errors["treatment"], errors["control"]
    units = str(control.attrs["action_units"])
    paired = partial(
        _paired,
        frames=control.isel(frame=core),
        cluster=cluster,
        resamples=resamples,
        seed=seed,
        confidence=confidence,
    )
    steps = f"the leading {window} steps"
    what = f"{FRAMES}, in {units}; {SIGN}"
    return {
        "units": units,
        "window": window,
        "n_rows_paired": control.sizes["frame"],
        "n_core": len(theirs),
        "n_core_without_scored_step": int((~theirs.scored).sum()),
        "arms_pooled": {role: _pooled(arms[role], errors[role]) for role in arms},
        "delta_chunk": paired(
            ours.frame_mae - theirs.frame_mae,
            scored=theirs.scored,
            definition=f"difference of per-frame chunk MAE over {steps}, {what}",
        ),
        "delta_first": paired(
            ours.first - theirs.first,
            scored=theirs.first_scored,
            definition=f"difference of per-frame MAE at the first step, {what}",
        ),
    }


def _paired(
    delta: Float64[np.ndarray, "frame"],
    *,
    scored: Bool[np.ndarray, "frame"],
    definition: str,
    frames: xarray.Dataset,
    cluster: Grouping,
    resamples: int,
    seed: int,
    confidence: float,
) -> dict[str, Any]:
    """The differences of the scored frames as published; influence by episode in a lone repo."""
    influence_by: Grouping = "repo" if len(np.unique(frames["repo_name"])) > 1 else "episode"
    group, names = groups(frames, by=influence_by)
    clusters, _ = groups(frames, by=cluster)
    found = compare(
        delta[scored],
        cluster=clusters[scored],
        group=group[scored],
        resamples=resamples,
        seed=seed,
        confidence=confidence,
    )
    return published(
        found, definition=definition, cluster=cluster, influence_by=influence_by, names=names
    )


def _pooled(arm: xarray.Dataset, errors: Errors) -> dict[str, Any]:
    """An arm's pooled errors, rounded as published, with full precision in `extended`."""
    exact = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    return {
        "arm": str(arm.attrs["arm"]),
        **{name: rounded(value, places=RATE_PLACES) for name, value in exact.items()},
        "draws": arm.sizes["draw"],
        "failed_draws": int(errors.failed.sum()),
        "extended": exact,
    }
