"""The paired difference in error of two arms on the same frames, treatment - control."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.comparison import error_findings, pooled_errors
from arflow_eval.reads.profiles import joint_table, profiles, step_table
from arflow_eval.reads.screen import compared, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.dispersion import Profile, block_located, joined_profile
from arflow_eval.stats.errors import Errors, joined
from arflow_eval.stats.scoring import chosen_blocks

__all__ = ["paired_delta", "table"]

FRAMES: Final = "treatment - control, mean over core frames of equal weight"
PATHS: Final = {"chunk MAE": ("delta_chunk",), "first MAE": ("delta_first",)}
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
        JSON values: `arms_pooled`, `delta_chunk`, `delta_first`, what they count, and under
        `extended` full precision, the intervals by cluster, and both arms by step and by joint.

    Raises:
        Refusal: a guard, where a scored prediction is not finite, a frame has no draw that did
            not fail, or no frame is scored.
    """
    core = control["core"].to_numpy()
    arms = {"treatment": treatment, "control": control}
    scores = {role: _scores(arm, core, window=window) for role, arm in arms.items()}
    errors = {role: each for role, (each, _) in scores.items()}
    pooled = {role: pooled_errors(arms[role], errors[role]) for role in arms}
    units = str(control.attrs["action_units"])
    frames = control.isel(frame=core)
    sampling = {"resamples": resamples, "seed": seed, "confidence": confidence}
    steps = f"the leading {window} steps"
    what = f"{FRAMES}, in {units}; {SIGN}"
    (chunk, chunk_more), (first, first_more) = error_findings(
        errors["treatment"],
        errors["control"],
        frames,
        chunk=f"difference of per-frame chunk MAE over {steps}, {what}",
        first=f"difference of per-frame MAE at the first step, {what}",
        cluster=cluster,
        **sampling,
    )
    return {
        "units": units,
        "window": window,
        "n_rows_paired": control.sizes["frame"],
        "n_core": len(errors["control"]),
        "n_core_without_scored_step": int((~errors["control"].scored).sum()),
        "arms_pooled": {role: each for role, (each, _) in pooled.items()},
        "delta_chunk": chunk,
        "delta_first": first,
        "extended": {
            "arms_pooled": {role: more for role, (_, more) in pooled.items()},
            "delta_chunk": chunk_more,
            "delta_first": first_more,
            **profiles(
                scores["treatment"][1],
                scores["control"][1],
                frames,
                cluster=cluster,
                confidence=confidence,
            ),
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """Arms, differences, what they hang on, where along chunk and joints they lie; status."""
    about = report["extended"]
    shown = {
        "interval": f"ci{100 * about['definition']['confidence']:g}",
        "by": about["definition"]["cluster"],
    }
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {report['window']} steps,"
            f" errors in {report['units']}"
        ),
        *compared(report, PATHS, units=report["units"]),
        Text("treatment - control; below 0 the treatment predicts the recorded actions better"),
        step_table(about, **shown),
        joint_table(about, **shown),
        *standing(report),
    )


def _scores(
    arm: xarray.Dataset, rows: Bool[np.ndarray, "frame"], *, window: int
) -> tuple[Errors, Profile]:
    """The errors of the chosen frames, and where they lie, in one pass over the arm."""
    blocks = [block_located(*block, window=window) for block in chosen_blocks(arm, rows)]
    errors, found = zip(*blocks, strict=True)
    return joined(errors), joined_profile(found)
