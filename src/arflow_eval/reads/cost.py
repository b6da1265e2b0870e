"""What the frames and draws of one run cost, from the seconds recorded beside its store."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import xarray
from rich.console import Group
from rich.text import Text

from arflow_eval import refusal
from arflow_eval.costs import Timings, read_timings, run_cost
from arflow_eval.reads.screen import columns, figure, standing, title

CLAIM_BOUNDARY: Final = "seconds on this machine; not part of the store's fingerprint"


def cost(run: xarray.Dataset) -> dict[str, Any]:
    """Seconds of the run's frames by part, device-hours, and a draw at the margin.

    Args:
        run: the arm, opened from its folder: its timings lie beside the store.

    Returns:
        JSON values: `arms_cost`, which holds a `costs.Cost` by role, and the digest of the
        seconds it was `read_from`.

    Raises:
        Refusal: the arm lies in memory (usage), none of its frames was timed (guard), or its
            timings are damaged.
    """
    timings = read_timings(_folder(run))
    found = run_cost(timings)
    if found is None:
        raise refusal.guard(
            "the run arm has no recorded seconds",
            expected="timings/shard-N.jsonl beside its store",
            remedy="restore them from a copy, or evaluate again under another store.root",
        )
    described = {"arm": str(run.attrs["arm"]), "draws": run.sizes["draw"]}
    return {
        "n_rows": run.sizes["frame"],
        "units": "seconds",
        "arms_cost": {"run": {**described, **asdict(found)}},
        "extended": {"read_from": {"run": _digest(timings)}},
    }


def table(report: Mapping[str, Any]) -> Group:
    """Where the seconds went, what a draw costs, and what is not claimed."""
    run = report["arms_cost"]["run"]
    shown = columns(["part", "seconds", "mean a frame", "median a frame", "share"], words=1)
    for name, part in run["parts"].items():
        seconds = (figure(part[key]) for key in ("total", "mean", "median"))
        shown.add_row(name, *seconds, f"{part['share']:.1%}")
    return Group(
        title(report),
        Text(
            f"{run['arm']}: {run['frames']:,} of {report['n_rows']:,} frames timed,"
            f" {figure(run['seconds_per_frame'])} s a frame"
        ),
        shown,
        Text(
            f"{figure(run['device_hours'])} device-hours,"
            f" {figure(run['frames_per_device_hour'])} frames a device-hour"
        ),
        Text(_margin(run)),
        *standing(report),
    )


def _margin(run: Mapping[str, Any]) -> str:
    if run["first_draw_seconds"] is None:
        lacking = "the run has one draw a frame" if run["draws"] == 1 else "no step was measured"
        return f"a draw at the margin: n/a, {lacking}"
    first, further, ratio = (
        figure(run[key])
        for key in ("first_draw_seconds", "further_draw_seconds", "further_to_first")
    )
    return f"a frame's first draw {first} s, each of the others {further} s (ratio {ratio})"


def _folder(run: xarray.Dataset) -> Path:
    source = run.encoding.get("source")  # xarray notes where it opened a dataset
    if source is None:
        raise refusal.usage(
            "the run arm is a dataset in memory",
            expected="a run folder, whose timings lie beside the store",
            remedy="give the path of the run folder",
        )
    return Path(source).parent


def _digest(timings: Timings) -> str:
    """SHA-256 (hex) over the seconds of every row by part, and the shares of its draws."""
    state = hashlib.sha256(timings.rows.astype("<i8").tobytes())
    columns = {**timings.seconds, "first": timings.first, "further": timings.further}
    for name, column in columns.items():
        state.update(f"{name}\0".encode() + column.astype("<f8").tobytes())
    return state.hexdigest()
