"""Two policies' gains from one change, frame by frame: is the one as large as the other?"""

from collections.abc import Mapping
from typing import Any, Final

import xarray
from rich.console import Group
from rich.text import Text

from arflow_eval.reads.comparison import Paired, paired_findings, pooled_errors
from arflow_eval.reads.screen import compared, concluded, standing, title
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors
from arflow_eval.stats.scoring import arm_errors

GAINS: Final = {
    "ours": ("ours_changed", "ours_plain"),
    "theirs": ("theirs_changed", "theirs_plain"),
}
PATHS: Final = {
    f"{name}, {metric}": (of, metric)
    for of, name in (
        ("gain_ours", "ours"),
        ("gain_theirs", "theirs"),
        ("difference", "ours - theirs"),
    )
    for metric in ("chunk", "first")
}
WEIGHT: Final = "mean over core frames of equal weight"


def gain_difference(
    ours_changed: xarray.Dataset,
    ours_plain: xarray.Dataset,
    theirs_changed: xarray.Dataset,
    theirs_plain: xarray.Dataset,
    *,
    window: int,
    resamples: int,
    seed: int,
    confidence: float,
    cluster: Grouping,
) -> dict[str, Any]:
    """Both gains (changed - plain, below 0 is better) and ours - theirs, paired by frame.

    Errors are in the panel's action units; frames without a scored step are excluded and counted.

    Args:
        ours_changed: our policy after the change, such as the mean of ten draws.
        ours_plain: our policy before it, such as its greedy decode.
        theirs_changed: the other policy after the change.
        theirs_plain: the other policy before it.
        window: leading steps scored.
        resamples: bootstrap resamples of every interval.
        seed: bootstrap seed, restarted for every interval.
        confidence: nominal coverage of the intervals.
        cluster: what the cluster interval keeps together, `episode` or `repo`.

    Returns:
        JSON values: `arms_pooled`, and `gain_ours`, `gain_theirs`, `difference`, each of `chunk`
        and `first`; under `extended` full precision and the intervals by cluster.

    Raises:
        Refusal: a guard, where a scored prediction is not finite or no frame is scored.
    """
    arms = {
        "ours_changed": ours_changed,
        "ours_plain": ours_plain,
        "theirs_changed": theirs_changed,
        "theirs_plain": theirs_plain,
    }
    core = ours_plain["core"].to_numpy()
    errors = {role: arm_errors(arm, core, window=window) for role, arm in arms.items()}
    pooled = {role: pooled_errors(arms[role], each) for role, each in errors.items()}
    units = str(ours_plain.attrs["action_units"])
    found = paired_findings(
        _measures(errors, units=units),
        ours_plain.isel(frame=core),
        cluster=cluster,
        resamples=resamples,
        seed=seed,
        confidence=confidence,
    )
    scored = errors["ours_plain"].scored
    sides = [
        {
            of: {metric: found[f"{of} {metric}"][side] for metric in ("chunk", "first")}
            for of in ("gain_ours", "gain_theirs", "difference")
        }
        for side in (0, 1)
    ]
    return {
        "units": units,
        "window": window,
        "n_core": len(scored),
        "n_core_without_scored_step": int((~scored).sum()),
        "arms_pooled": {role: each for role, (each, _) in pooled.items()},
        **sides[0],
        "extended": {"arms_pooled": {role: more for role, (_, more) in pooled.items()}, **sides[1]},
    }


def _measures(errors: Mapping[str, Errors], *, units: str) -> dict[str, Paired]:
    """The gains of both policies and their difference, of the chunk and of the first step."""
    found = {}
    for metric, what in (("chunk", "per-frame chunk MAE"), ("first", "MAE at the first step")):
        gains = {
            name: _values(errors[changed], metric) - _values(errors[plain], metric)
            for name, (changed, plain) in GAINS.items()
        }
        either = errors["ours_plain"]
        scored = either.scored if metric == "chunk" else either.first_scored
        for name, gain in gains.items():
            said = f"{what}, {name}_changed - {name}_plain, {WEIGHT}, in {units}"
            found[f"gain_{name} {metric}"] = Paired(gain, scored, said)
        said = (
            f"gain of ours - gain of theirs in {what}, {WEIGHT}, in {units}; above 0 ours is less"
        )
        found[f"difference {metric}"] = Paired(gains["ours"] - gains["theirs"], scored, said)
    return found


def _values(errors: Errors, metric: str) -> Any:
    return errors.frame_mae if metric == "chunk" else errors.first


def table(report: Mapping[str, Any]) -> Group:
    """The four arms, both gains, their difference, and what the expectations come to."""
    return Group(
        title(report),
        Text(
            f"{report['n_core']:,} core frames, leading {report['window']} steps,"
            f" errors in {report['units']}"
        ),
        *compared(report, PATHS, units=report["units"]),
        Text("a gain is changed - plain: below 0 the change helps; above 0 ours gains less"),
        *(concluded(report) if "expectations" in report else []),
        *standing(report),
    )
