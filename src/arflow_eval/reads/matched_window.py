"""A candidate against banked arms and state-copy on its own window, split by contamination."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool
from rich.console import Group, RenderableType
from rich.text import Text

from arflow_eval import refusal
from arflow_eval.reads.comparison import pooled_errors
from arflow_eval.reads.planted_candidate import FLOOR, oracles
from arflow_eval.reads.repos import Listed, counted, frames_of, named
from arflow_eval.reads.screen import columns, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.reads.splits import split_finding, split_rows
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

__all__ = ["matched_window", "oracles", "table"]

RECORD_ONLY: Final = {
    "status": "record-only",
    "status_reason": "a reference point beside registered studies: it gates nothing",
}
SECONDARY: Final = (
    "whole chunks of the whole panel, as banked: never set against the candidate's window"
)


def matched_window(
    candidate: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    contaminated: Listed,
    excluded: Listed,
    anchors: Mapping[str, Any],
    **banked: xarray.Dataset,
) -> dict[str, Any]:
    """Errors on the leading steps, and the candidate's paired differences to every other arm.

    Args:
        candidate: the arm in question; frame i is one frame in every arm.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        contaminated: repos that the candidate was tuned on; with none there is one split.
        excluded: repos masked out of every read.
        anchors: banked scores of whole chunks, by role.
        banked: the arms it is measured against.

    Returns:
        JSON values: by split the arms' errors and the paired differences with a `class`; what
        was `excluded`; and the whole-chunk errors of longer arms as secondary anchors.

    Raises:
        Refusal: a guard, where the arms carry no state-copy, a split has no scored frame, or a
            prediction is not finite.
    """
    arms = {"candidate": candidate, **banked}
    dirty, masked = named(contaminated), named(excluded)
    read = candidate["core"].to_numpy() & ~frames_of(candidate, masked)
    frames = candidate.isel(frame=read)
    errors = {role: arm_errors(arm, read, window=window) for role, arm in arms.items()}
    errors[FLOOR] = _floor(arms, read, window=window)
    settings: dict[str, Any] = {
        "cluster": cluster,
        "resamples": resamples,
        "seed": seed,
        "confidence": confidence,
    }
    found = {
        name: split_finding(arms, errors, frames, rows, **settings)
        for name, rows in split_rows(frames, dirty).items()
    }
    return {
        "window": window,
        "units": str(candidate.attrs["action_units"]),
        "n_rows_paired": candidate.sizes["frame"],
        "n_core": int(candidate["core"].sum()),
        "excluded": {"names": masked, **counted(candidate, masked)},
        "contamination": counted(candidate, dirty),
        "splits": {name: shown for name, (shown, _) in found.items()},
        "secondary_full_chunk": {
            "note": SECONDARY,
            **_full_chunks(banked, anchors, window=window),
        },
        "extended": {
            **RECORD_ONLY,
            "splits": {name: more for name, (_, more) in found.items()},
            "read_from": {"contaminated": _digest(dirty), "excluded": _digest(masked)},
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """By split every arm's errors, and whether the candidate is closer than it."""
    masked = report["excluded"]
    return Group(
        title(report),
        Text(f"leading {report['window']} steps, errors in {report['units']}"),
        Text(
            f"excluded: {', '.join(masked['names']) or 'nothing'} ({masked['frames']:,} frames,"
            f" {masked['core_frames']:,} core)"
        ),
        *(part for name, split in report["splits"].items() for part in _shown(name, split)),
        Text("candidate - arm, paired by frame, with its interval by frame; below 0 it is closer"),
        *standing(report),
    )


def _shown(name: str, split: Mapping[str, Any]) -> list[RenderableType]:
    """One split: every arm's errors, and what the candidate's difference to it comes to."""
    headings = ["arm", "candidate is", "chunk MAE", "delta", "interval", "first MAE"]
    shown = columns(headings, words=2)
    for role, arm in split["arms"].items():
        shown.add_row(role, *_figures(arm, split["paired"].get(role)))
    return [Text(f"{name}: {split['n_core']:,} core frames"), shown]


def _floor(
    arms: Mapping[str, xarray.Dataset], rows: Bool[np.ndarray, "frame"], *, window: int
) -> Errors:
    """The errors of state-copy, which every arm carries byte for byte."""
    if FLOOR in arms:
        raise refusal.usage(
            f"an arm has the role {FLOOR}",
            expected="banked arms: that baseline is read from every store",
            remedy="drop the arm, or give it another role",
        )
    if FLOOR not in arms["candidate"]:
        raise refusal.guard(
            f"the arms carry no {FLOOR}",
            expected="the baseline in every store, as the floor of the read",
            remedy="evaluate the arms on a panel whose states can stand in for actions",
        )
    return arm_errors(arms["candidate"], rows, window=window, variable=FLOOR)


def _full_chunks(
    banked: Mapping[str, xarray.Dataset], anchors: Mapping[str, Any], *, window: int
) -> dict[str, Any]:
    """Errors over the whole chunk of every arm with a longer one, beside its banked score."""
    longer = {role: int(arm.attrs["horizon"]) for role, arm in banked.items()}
    found = {}
    for role, steps in longer.items():
        if steps > window:
            arm = banked[role]
            errors = arm_errors(arm, arm["core"].to_numpy(), window=steps)
            shown, _ = pooled_errors(arm, errors)
            found[role] = {"steps": steps, **shown, "anchor": anchors.get(role)}
    return found


def _figures(arm: Mapping[str, Any], paired: Mapping[str, Any] | None) -> list[str]:
    errors = [f"{arm[name]:.4f}" for name in ("chunk_mae", "first_mae")]
    if paired is None:
        return ["", errors[0], "", "", errors[1]]
    chunk = paired["chunk"]
    low, high = next(ends for key, ends in chunk.items() if key.startswith("ci"))
    interval = f"[{low:+.4f}, {high:+.4f}]"
    return [paired["class"], errors[0], f"{chunk['mean']:+.4f}", interval, errors[1]]


def _digest(names: list[str]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
