"""Two arms' errors as paired differences, and one arm's as pooled ones, in published form."""

from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float64

from arflow_eval.reads.delta import RATE_PLACES, compare, published, rounded
from arflow_eval.reads.grouping import groups
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors

Finding = tuple[dict[str, Any], dict[str, Any]]  # as published, and what we add


def chunk_delta(
    treatment: Errors, control: Errors, frames: xarray.Dataset, **settings: Any
) -> Finding:
    """Paired differences of per-frame chunk MAE over the frames with a scored step."""
    delta = treatment.frame_mae - control.frame_mae
    return paired_finding(delta, frames, scored=control.scored, **settings)


def first_delta(
    treatment: Errors, control: Errors, frames: xarray.Dataset, **settings: Any
) -> Finding:
    """Paired differences of the first step's errors over the frames whose first step is scored."""
    delta = treatment.first - control.first
    return paired_finding(delta, frames, scored=control.first_scored, **settings)


def paired_finding(
    delta: Float64[np.ndarray, "frame"],
    frames: xarray.Dataset,
    *,
    scored: Bool[np.ndarray, "frame"],
    definition: str,
    cluster: Grouping,
    resamples: int,
    seed: int,
    confidence: float,
) -> Finding:
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


def pooled_errors(arm: xarray.Dataset, errors: Errors) -> Finding:
    """An arm's pooled errors, rounded as published; full precision, draws and failures beside."""
    exact = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    shown = {name: rounded(value, places=RATE_PLACES) for name, value in exact.items()}
    key = {"pred_key": str(arm.attrs.get("pred_key", f"pred:{arm.attrs['arm']}"))}
    counts = {"draws": arm.sizes["draw"], "failed_draws": int(errors.failed.sum())}
    return {**shown, **key}, {"arm": str(arm.attrs["arm"]), **exact, **counts}
