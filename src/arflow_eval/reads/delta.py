"""The paired difference of two arms as one finding: what was found, and as it is published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float64, Int64

from arflow_eval import refusal
from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.influence import Influence, most_influential
from arflow_eval.stats.intervals import Interval, cluster_intervals, frame_bootstraps

DELTA_PLACES: Final = 5
RATE_PLACES: Final = 4  # of errors and of rates


@dataclass(frozen=True)
class Delta:
    """A paired difference, treatment - control, every frame weighing the same.

    Attributes:
        mean: mean difference, in raw units; negative where the treatment is better.
        median: median difference.
        win_rate: share of frames with a difference below 0; a tie is no win.
        ties: frames with a difference of exactly 0.
        frames: frames compared.
        confidence: nominal coverage of both intervals.
        by_frame: the published interval.
        by_cluster: the interval to infer from.
        influence: the groups that the mean hangs on most.
    """

    mean: float
    median: float
    win_rate: float
    ties: int
    frames: int
    confidence: float
    by_frame: Interval
    by_cluster: Interval
    influence: Sequence[Influence]


def compare(
    deltas: Sequence[Float64[np.ndarray, "frame"]],
    *,
    cluster: Int64[np.ndarray, "frame"],
    group: Int64[np.ndarray, "frame"],
    resamples: int,
    seed: int,
    confidence: float,
) -> list[Delta]:
    """Vectors of paired differences, treatment - control, on the same frames, as findings.

    Their intervals share the resamples, which are drawn once: each is as it would be alone.

    Args:
        deltas: differences of the frames scored in both arms, in raw units, a vector a measure.
        cluster: whose frames move together, for the cluster interval.
        group: what is left out, one at a time, for the influence.
        resamples: bootstrap resamples.
        seed: seed of the bootstrap, restarted for every interval.
        confidence: nominal coverage of both intervals.

    Raises:
        Refusal: a guard, where no frame is left to compare.
    """
    if len(deltas[0]) == 0:
        raise refusal.guard(
            "no core frame is scored in both arms",
            expected="core frames with a recorded step inside the window",
            remedy="choose a longer window or another panel",
        )
    sampling: dict[str, Any] = {"resamples": resamples, "seed": seed, "confidence": confidence}
    by_frame = frame_bootstraps(deltas, **sampling)
    by_cluster = cluster_intervals(deltas, cluster, **sampling)
    return [
        Delta(
            mean=float(delta.mean()),
            median=float(np.median(delta)),
            win_rate=float((delta < 0).mean()),
            ties=int((delta == 0).sum()),
            frames=len(delta),
            confidence=confidence,
            by_frame=frames,
            by_cluster=clusters,
            influence=most_influential(delta, group),
        )
        for delta, frames, clusters in zip(deltas, by_frame, by_cluster, strict=True)
    ]


def published(
    delta: Delta,
    *,
    definition: str,
    cluster: Grouping,
    influence_by: Grouping,
    names: Sequence[dict[str, str | int]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The finding under its published names, rounded as published; and what we add to it.

    Differences have 5 places and rates 4. `names` are those of the influence groups' codes.
    What is added: full precision, what each interval resamples, and the cluster interval.
    """
    interval = f"ci{100 * delta.confidence:g}"
    return {
        "mean": rounded(delta.mean, places=DELTA_PLACES),
        "median": rounded(delta.median, places=DELTA_PLACES),
        interval: _ends(delta.by_frame),
        "arm_win_rate": rounded(delta.win_rate, places=RATE_PLACES),
        "n_frames": delta.frames,
        f"most_influential_{influence_by}s": [
            {**names[row.group], "n_excl": row.frames, "mean_without": row.mean_without}
            for row in delta.influence
        ],
        "definition": definition,
    }, {
        "mean": delta.mean,
        "median": delta.median,
        "arm_win_rate": delta.win_rate,
        "n_ties": delta.ties,
        "n_clusters": delta.by_cluster.clusters,
        "interval_by_frame": {
            interval: [delta.by_frame.low, delta.by_frame.high],
            **_words(delta.by_frame),
        },
        "interval_by_cluster": {
            "cluster": cluster,
            interval: [delta.by_cluster.low, delta.by_cluster.high],
            **_words(delta.by_cluster),
        },
    }


def rounded(value: float, *, places: int) -> float:
    """A published number. What rounds to zero is 0.0, never -0.0."""
    return round(value, places) + 0.0


def _ends(interval: Interval) -> list[float | None]:
    ends = (interval.low, interval.high)
    return [None if end is None else rounded(end, places=DELTA_PLACES) for end in ends]


def _words(interval: Interval) -> dict[str, str]:
    remarks = {"note": interval.note, "degenerate": interval.degenerate}
    said = {name: remark for name, remark in remarks.items() if remark is not None}
    return {"method": interval.method, **said}
