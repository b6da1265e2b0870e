"""Two arms' errors as paired differences, and one arm's as pooled ones, in published form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float64

from arflow_eval.reads.delta import RATE_PLACES, Delta, compare, published, rounded
from arflow_eval.reads.grouping import groups
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors

Finding = tuple[dict[str, Any], dict[str, Any]]  # as published, and what we add


@dataclass(frozen=True)
class Paired:
    """A measure's paired differences, treatment - control, one a frame.

    Attributes:
        delta: the differences; those of unscored frames are not looked at.
        scored: the frames that have one.
        definition: what it is, in the report's words.
    """

    delta: Float64[np.ndarray, "frame"]
    scored: Bool[np.ndarray, "frame"]
    definition: str


def error_findings(
    treatment: Errors,
    control: Errors,
    frames: xarray.Dataset,
    *,
    chunk: str,
    first: str,
    **settings: Any,
) -> tuple[Finding, Finding]:
    """Differences of chunk MAE and of the first step's errors, under their definitions.

    The first step's are of the frames whose first step is scored.
    """
    measures = {
        "chunk": Paired(treatment.frame_mae - control.frame_mae, control.scored, chunk),
        "first": Paired(treatment.first - control.first, control.first_scored, first),
    }
    found = paired_findings(measures, frames, **settings)
    return found["chunk"], found["first"]


def paired_findings(
    measures: Mapping[str, Paired],
    frames: xarray.Dataset,
    *,
    cluster: Grouping,
    resamples: int,
    seed: int,
    confidence: float,
) -> dict[str, Finding]:
    """Each measure's differences as published; influence by episode in a lone repo.

    Measures of the same frames share their resamples, which are most of the work.
    """
    influence_by: Grouping = "repo" if len(np.unique(frames["repo_name"])) > 1 else "episode"
    group, names = groups(frames, by=influence_by)
    clusters, _ = groups(frames, by=cluster)
    alike: dict[bytes, list[str]] = {}
    for name, measure in measures.items():
        alike.setdefault(measure.scored.tobytes(), []).append(name)
    found: dict[str, Delta] = {}
    for members in alike.values():
        scored = measures[members[0]].scored
        deltas = compare(
            [measures[name].delta[scored] for name in members],
            cluster=clusters[scored],
            group=group[scored],
            resamples=resamples,
            seed=seed,
            confidence=confidence,
        )
        found |= dict(zip(members, deltas, strict=True))
    said: dict[str, Any] = {"cluster": cluster, "influence_by": influence_by, "names": names}
    return {
        name: published(found[name], definition=measure.definition, **said)
        for name, measure in measures.items()
    }


def pooled_errors(arm: xarray.Dataset, errors: Errors) -> Finding:
    """An arm's pooled errors, rounded as published; full precision, draws and failures beside."""
    exact = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    shown = {name: rounded(value, places=RATE_PLACES) for name, value in exact.items()}
    key = {"pred_key": str(arm.attrs.get("pred_key", f"pred:{arm.attrs['arm']}"))}
    counts = {"draws": arm.sizes["draw"], "failed_draws": int(errors.failed.sum())}
    return {**shown, **key}, {"arm": str(arm.attrs["arm"]), **exact, **counts}
