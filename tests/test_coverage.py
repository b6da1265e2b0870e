"""How often the intervals hold what they promise, on simulated panels of clustered frames.

Sizes of clusters are uneven (lognormal, mean 19.6 as in 17,204 core frames of 878 repos) and drawn
anew for every panel; an intra-class correlation of 0.2. The slow suite measures what the docs and
the notes in reports say, to three Monte-Carlo standard errors.
"""

from math import sqrt

import numpy as np
import pytest
from jaxtyping import Float64, Int64

from arflow_eval.stats.intervals import FEW_NOTE, FRAME_NOTE, cluster_interval, frame_bootstrap

MEAN_SIZE, CORRELATION = 17_204 / 878, 0.2
SAMPLING = {"resamples": 1000, "confidence": 0.95}
Panel = tuple[Float64[np.ndarray, "frame"], Int64[np.ndarray, "frame"]]


def panel(stream: np.random.Generator, clusters: int, *, variation: float) -> Panel:
    """Differences of mean 0 and variance 1, and each frame's cluster."""
    spread = np.log(1 + variation**2)
    sizes = stream.lognormal(np.log(MEAN_SIZE) - spread / 2, sqrt(spread), clusters)
    cluster = np.repeat(np.arange(clusters), np.maximum(sizes.round().astype(int), 1))
    shared = stream.normal(size=clusters)[cluster] * sqrt(CORRELATION)
    own = stream.normal(size=len(cluster)) * sqrt(1 - CORRELATION)
    return shared + own, cluster


def coverage(
    clusters: int, *, replicates: int, seed: int, variation: float = 0.8
) -> tuple[float, float]:
    """Shares of panels whose frame and cluster intervals hold the true mean, 0.

    `variation` is the coefficient of variation of the clusters' sizes.
    """
    stream = np.random.default_rng(seed)
    held = np.zeros(2)
    for replicate in range(replicates):
        delta, cluster = panel(stream, clusters, variation=variation)
        by_frame = frame_bootstrap(delta, seed=replicate, **SAMPLING)
        by_cluster = cluster_interval(delta, cluster, seed=replicate, **SAMPLING)
        held += [found.low <= 0 <= found.high for found in (by_frame, by_cluster)]
    frame, grouped = held / replicates
    return float(frame), float(grouped)


def test_the_frame_interval_misses_where_frames_move_together() -> None:
    frame, grouped = coverage(878, replicates=60, seed=0)
    assert frame < 0.75
    assert grouped > 0.85


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_at_878_clusters_the_cluster_interval_covers_and_the_frame_interval_does_not() -> None:
    frame, grouped = coverage(878, replicates=2000, seed=1)
    assert 0.93 <= grouped <= 0.97
    assert abs(frame - 0.53) < 3 * sqrt(0.53 * 0.47 / 2000)
    assert "53 %" in FRAME_NOTE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "least", "most", "said"),
    [
        (82, 0.928, 0.947, "93 to 95 % at 82"),
        (41, 0.925, 0.945, "92 to 95 % at 41"),
        (10, 0.860, 0.923, "86 to 92 % at 10"),
    ],
)
def test_with_few_clusters_the_coverage_is_what_the_report_says(
    clusters: int, least: float, most: float, said: str
) -> None:
    assert said in " ".join(FEW_NOTE.split())
    for variation, share in ((1.6, least), (0.8, most)):
        _, grouped = coverage(clusters, replicates=2000, seed=2, variation=variation)
        assert abs(grouped - share) < 3 * sqrt(share * (1 - share) / 2000)
