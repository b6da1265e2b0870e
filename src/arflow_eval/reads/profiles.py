"""Where two arms differ: along the chunk, and joint by joint."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool, Float64
from rich.table import Table

from arflow_eval.reads.grouping import groups
from arflow_eval.reads.screen import columns
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.dispersion import Profile
from arflow_eval.stats.intervals import BOOTSTRAP_CLUSTERS, FEW_NOTE, FEWEST_CLUSTERS
from arflow_eval.stats.pointwise import Pointwise, pointwise

SHOWN_STEPS: Final = 6  # on the screen
Values = Float64[np.ndarray, "frame element"]
NOTE: Final = "pointwise: each interval by itself; of many at 95 % some miss"


def profiles(
    treatment: Profile,
    control: Profile,
    frames: xarray.Dataset,
    *,
    cluster: Grouping,
    confidence: float,
) -> dict[str, Any]:
    """Both arms' errors and their paired difference at every step and for every joint.

    Frames weigh equally, so the joints' differences average to that of the chunk. JSON values:
    `by_step` and `by_joint`, each a `definition` and its rows.
    """
    codes, _ = groups(frames, by=cluster)
    scored = control.scored
    joints = [str(name) for name in frames.attrs["action_names"]]
    scored_at_all = np.broadcast_to(scored.any(axis=1, keepdims=True), control.by_action.shape)
    sides: dict[str, tuple[Values, Values, Bool[np.ndarray, "frame element"], list[Any]]] = {
        "step": (treatment.by_step, control.by_step, scored, list(range(scored.shape[1]))),
        "joint": (treatment.by_action, control.by_action, scored_at_all, joints),
    }
    definitions = {
        "step": "per-frame error at the step (0 is the first), mean over action dimensions",
        "joint": "per-frame error of the joint, mean over the frame's scored steps",
    }
    over = "means over core frames of equal weight in which it is scored"
    return {
        f"by_{of}": {
            "definition": f"{definitions[of]}; {over}; difference = treatment - control",
            "method": f"CR1 standard error with t(G - 1) over {cluster}s",
            "note": NOTE,
            "rows": _rows(
                of,
                names,
                (left, right),
                inside,
                pointwise(left - right, inside, codes, confidence=confidence),
                interval=f"ci{100 * confidence:g}",
            ),
        }
        for of, (left, right, inside, names) in sides.items()
    }


def joint_table(found: Mapping[str, Any], *, interval: str, by: str) -> Table:
    """The joints on the screen."""
    return _table("joint", found["by_joint"]["rows"], interval=interval, by=by)


def step_table(found: Mapping[str, Any], *, interval: str, by: str) -> Table:
    """Some steps on the screen, the first and the last among them."""
    rows = found["by_step"]["rows"]
    shown = np.unique(np.linspace(0, len(rows) - 1, SHOWN_STEPS).round().astype(int))
    return _table("step", [rows[row] for row in shown], interval=interval, by=by)


def _rows(
    of: str,
    names: Sequence[str | int],
    errors: tuple[Values, Values],
    inside: Bool[np.ndarray, "frame element"],
    found: Pointwise,
    *,
    interval: str,
) -> list[dict[str, Any]]:
    with np.errstate(invalid="ignore"):
        means = [np.where(inside, error, 0).sum(axis=0) / found.frames for error in errors]
    delta = errors[0] - errors[1]
    return [
        {
            of: name,
            "n_frames": int(found.frames[row]),
            "n_clusters": int(found.clusters[row]),
            "treatment": _value(means[0][row]),
            "control": _value(means[1][row]),
            "difference": _value(found.mean[row]),
            interval: [_value(found.low[row]), _value(found.high[row])],
            **_remark(delta[inside[:, row], row], clusters=int(found.clusters[row])),
        }
        for row, name in enumerate(names)
    ]


def _remark(delta: Float64[np.ndarray, "frame"], *, clusters: int) -> dict[str, str]:
    """Why an interval has no ends or no width, or what must be known of its coverage."""
    if len(delta) == 0:
        return {"degenerate": "scored in no frame"}
    if np.ptp(delta) == 0:
        return {"degenerate": f"the difference is {delta[0]:g} on each of {len(delta):,} frames"}
    if clusters < FEWEST_CLUSTERS:
        few = f"{clusters} clusters; below {FEWEST_CLUSTERS} no interval holds its coverage"
        return {"degenerate": few}
    return {"note": FEW_NOTE} if clusters < BOOTSTRAP_CLUSTERS else {}


def _value(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _table(of: str, rows: Sequence[Mapping[str, Any]], *, interval: str, by: str) -> Table:
    level = f"{interval.removeprefix('ci')} %"
    shown = columns(
        [of, "treatment", "control", "difference", f"{level} by {by}", "frames", f"{by}s"], words=1
    )
    for row in rows:
        figures = (_shown(row[key], ".4f") for key in ("treatment", "control"))
        low, high = (_shown(end, "+.4f") for end in row[interval])
        shown.add_row(
            str(row[of]),
            *figures,
            _shown(row["difference"], "+.4f"),
            "none" if low == high == "n/a" else f"[{low}, {high}]",
            f"{row['n_frames']:,}",
            f"{row['n_clusters']:,}",
        )
    return shown


def _shown(value: float | None, how: str) -> str:
    return "n/a" if value is None else f"{value:{how}}"
