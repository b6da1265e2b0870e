"""The registered study of sampled draws: does the mean of N draws beat the greedy decode?"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray
from rich.console import Group

from arflow_eval.reads.comparison import error_findings, pooled_errors
from arflow_eval.reads.oracles import branches
from arflow_eval.reads.pairing import draws_behind
from arflow_eval.reads.screen import concluded, registered_table
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

oracles = branches
SIGN: Final = "core frames (negative = ensembling helps)"


def ar_sampled_draws(
    greedy: xarray.Dataset,
    draws: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
    label: str,
    anchors: Mapping[str, Any],
    subset_mode: bool,
) -> dict[str, Any]:
    """Reads 1 to 5 of the study, under the keys of its published report.

    Args:
        greedy: the deployment read of a policy.
        draws: the mean of its draws on the same frames.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together.
        label: the name of the draws arm in the report, such as `draws10_t1`.
        anchors: published numbers that stand beside the reads, never estimated again.
        subset_mode: whether the arms were joined on the frames of the smaller one.

    Raises:
        Refusal: a guard, where a prediction is not finite or no frame is scored.
    """
    core = draws["core"].to_numpy()
    errors = {
        name: arm_errors(arm, core, window=window)
        for name, arm in (("greedy", greedy), (label, draws))
    }
    arms = {"greedy": greedy, label: draws}
    pooled = {name: pooled_errors(arms[name], errors[name]) for name in arms}
    settings = {
        "cluster": cluster,
        "resamples": resamples,
        "seed": seed,
        "confidence": confidence,
    }
    frames = draws.isel(frame=core)
    (chunk, chunk_more), (first, first_more) = error_findings(
        errors[label],
        errors["greedy"],
        frames,
        chunk=f"Delta_AR: paired per-frame chunk_mae, _{label} - greedy, {SIGN}",
        first="first_mae mirror of read 1 (record-only)",
        **settings,
    )
    shown = {name: each for name, (each, _) in pooled.items()}
    return {
        "arms_pooled": shown,
        "subset_mode": subset_mode,
        "n_rows_paired": draws.sizes["frame"],
        "read1_delta_ar": chunk,
        "read2_fairness_vs_flow": _fairness(chunk, anchors),
        "read3_family_band": {
            f"{label}_chunk_mae": shown[label]["chunk_mae"],
            **_band(shown[label], anchors),
            "subset_mode": subset_mode,
            "note": "re-pooled on the joined subset of frames" if subset_mode else "full panel",
        },
        "read4_first_mirrors": {
            "delta_ar_first": first,
            "flow_first_gain_descriptive": anchors["flow_first_gain"],
            "flow_first_band_descriptive": anchors["flow_first_band"],
            f"{label}_first_mae": shown[label]["first_mae"],
        },
        "read5_execution_oracles": _execution(greedy, draws, subset_mode=subset_mode),
        "extended": {
            "arms_pooled": {name: more for name, (_, more) in pooled.items()},
            "read1_delta_ar": chunk_more,
            "read4_first_mirrors": {"delta_ar_first": first_more},
            "units": str(draws.attrs["action_units"]),
            "window": window,
            "counts": _counts(errors["greedy"]),
        },
    }


def table(report: Mapping[str, Any]) -> Group:
    """The arms, both deltas, what was expected, and what is decided."""
    deltas = {
        "chunk MAE": ("read1_delta_ar",),
        "first MAE": ("read4_first_mirrors", "delta_ar_first"),
    }
    return registered_table(report, deltas, concluded(report))


def _fairness(chunk: Mapping[str, Any], anchors: Mapping[str, Any]) -> dict[str, Any]:
    gain = anchors["flow_teacher_gain"]
    before, after = anchors["flow_teacher_draws1"], anchors["flow_draws10_band"]
    return {
        "delta_ar_mean": chunk["mean"],
        "flow_teacher_gain": gain,
        "ar_gain_smaller_than_flow": abs(chunk["mean"]) < abs(gain),
        "definition": f"Delta_AR vs the flow teacher's draws1 {before:g} -> draws10 {after:g} gain"
        f" ({gain:g}) on the same panel \u2014 does AR ensemble like flow, or is greedy already"
        " the mean?",
    }


def _band(shown: Mapping[str, Any], anchors: Mapping[str, Any]) -> dict[str, Any]:
    band = anchors["flow_draws10_band"]
    return {
        "flow_draws10_band": band,
        "reaches_band": shown["chunk_mae"] <= band,
        "anchors_record_only": {
            name: anchors[name] for name in ("teacher_draws10_heun30", "snapflow_student_mean10")
        },
    }


def _execution(
    greedy: xarray.Dataset, draws: xarray.Dataset, *, subset_mode: bool
) -> dict[str, Any]:
    """What the guards established; a read that comes this far has passed them."""
    checkpoint = draws.attrs.get("checkpoint", draws.attrs.get("checkpoint_digest"))
    summaries = [arm for arm in (greedy, draws) if arm.attrs.get("summary")]
    return {
        "row_pairing": "strict subset, joined" if subset_mode else "full byte-match",
        **{f"{name}_byte_match": name in draws for name in ("state_copy", "state_copy_norm")},
        "ar_temperature": draws.attrs.get("temperature"),
        "sample_draws": draws_behind(draws),
        "draws_policy": str(draws.attrs["arm"]),
        "checkpoint": checkpoint,
        "report_crosscheck": "both arms reproduced (|d| < 5e-3)"
        if len(summaries) == 2
        else f"{len(summaries)} of 2 arms carry a summary, reproduced (|d| < 5e-3)",
    }


def _counts(errors: Errors) -> dict[str, int]:
    return {"n_core": len(errors), "n_core_without_scored_step": int(np.sum(~errors.scored))}
