"""Parts of a panel that a read keeps apart, and a candidate set against every other arm in each."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool

from arflow_eval.reads.comparison import Finding, error_findings, pooled_errors
from arflow_eval.reads.delta import RATE_PLACES, rounded
from arflow_eval.reads.repos import frames_of
from arflow_eval.stats.errors import Errors

SIGN: Final = "core frames of equal weight (negative = the candidate is closer)"


def split_rows(frames: xarray.Dataset, dirty: list[str]) -> dict[str, Bool[np.ndarray, "frame"]]:
    """The frames that each split reads."""
    touched = frames_of(frames, dirty)
    pooled = {"pooled": np.ones(len(touched), dtype=bool)}
    return {**pooled, "clean": ~touched, "contaminated": touched} if dirty else pooled


def split_finding(
    arms: Mapping[str, xarray.Dataset],
    errors: Mapping[str, Errors],
    frames: xarray.Dataset,
    rows: Bool[np.ndarray, "frame"],
    **settings: Any,
) -> Finding:
    """One split: pooled errors of every arm, and the candidate's differences to the others."""
    part = {
        role: Errors(**{name: getattr(each, name)[rows] for name in Errors.__annotations__})
        for role, each in errors.items()
    }
    pooled = {role: _pooled(arms.get(role), each) for role, each in part.items()}
    inside = frames.isel(frame=rows)
    paired = {
        role: _paired(part["candidate"], each, inside, role=role, **settings)
        for role, each in part.items()
        if role != "candidate"
    }
    counts = {
        "n_core": int(rows.sum()),
        "n_core_without_scored_step": int((~part["candidate"].scored).sum()),
    }
    return (
        {**counts, **{name: _side(it, 0) for name, it in (("arms", pooled), ("paired", paired))}},
        {name: _side(it, 1) for name, it in (("arms", pooled), ("paired", paired))},
    )


def _pooled(arm: xarray.Dataset | None, errors: Errors) -> Finding:
    """Pooled errors of an arm, or of state-copy, which is none."""
    if arm is not None:
        return pooled_errors(arm, errors)
    exact = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    shown = {name: rounded(value, places=RATE_PLACES) for name, value in exact.items()}
    return {**shown, "pred_key": "pred:state-copy"}, exact


def _paired(
    candidate: Errors, other: Errors, frames: xarray.Dataset, *, role: str, **settings: Any
) -> Finding:
    """The candidate's differences to one arm, classified by both intervals of the chunk MAE."""
    level = f"ci{100 * settings['confidence']:g}"
    said = f"candidate - {role}, {SIGN}"
    (chunk, chunk_more), (first, first_more) = error_findings(
        candidate,
        other,
        frames,
        chunk=f"paired per-frame chunk_mae, {said}",
        first=f"paired first_mae, {said}",
        **settings,
    )
    by_cluster = chunk_more["interval_by_cluster"][level]
    return (
        {"class": classified(*chunk[level]), "chunk": chunk, "first": first},
        {"class_by_cluster": classified(*by_cluster), "chunk": chunk_more, "first": first_more},
    )


def _side(found: Mapping[str, Finding], side: int) -> dict[str, Any]:
    """Of findings by role what is published (0), or what we add (1)."""
    return {role: finding[side] for role, finding in found.items()}


def classified(low: float | None, high: float | None) -> str:
    """What an interval of candidate - arm says of the candidate."""
    if low is None or high is None:
        return "NO-INTERVAL"
    if high < 0:
        return "BETTER"
    return "WORSE" if low > 0 else "CI-SPANS-0"
