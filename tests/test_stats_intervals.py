"""Intervals and influence: exact digits, known answers, and coverage by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float64, Int64
from scipy import stats

from arflow_eval.stats import intervals, resampling
from arflow_eval.stats.influence import most_influential
from arflow_eval.stats.intervals import cluster_interval, frame_bootstrap

Deltas = Float64[np.ndarray, "frame"]
Clusters = Int64[np.ndarray, "frame"]
PUBLISHED = {"resamples": 10_000, "seed": 0, "confidence": 0.95}
QUICK = {"resamples": 300, "seed": 0, "confidence": 0.95}


def _clustered(
    rng: np.random.Generator, clusters: int, *, correlation: float = 0.2, mean_size: int = 12
) -> tuple[Deltas, Clusters]:
    """Differences of true mean 0 in uneven clusters of the given intra-class correlation."""
    sizes = np.maximum(rng.lognormal(np.log(mean_size) - 0.32, 0.8, clusters).astype(int), 1)
    cluster = np.repeat(np.arange(clusters), sizes)
    shared = rng.normal(size=clusters)[cluster] * np.sqrt(correlation)
    return shared + rng.normal(size=len(cluster)) * np.sqrt(1 - correlation), cluster


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**32 - 1), st.integers(1, 3000))
def test_batches_of_rows_give_the_stream_of_one_call(
    clusters: int, resamples: int, seed: int, batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "BATCH", batch)
        parts = [part for _, part in resampling.resampled(clusters, resamples=resamples, seed=seed)]
    one_call = np.random.default_rng(seed).integers(0, clusters, (resamples, clusters))
    assert np.array_equal(np.concatenate(parts), one_call)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1), st.lists(st.integers(1, 9)))
def test_indices_keep_the_stream_where_numpy_draws_again(
    below: int, seed: int, sizes: list[int]
) -> None:
    # just above 2^31 every other half of a word is left out
    for bound in (below, 2**31 + 1):
        words, waiting = np.random.PCG64(seed), np.empty(0, np.uint32)
        parts = [np.empty(size, np.int64) for size in sizes]
        for part in parts:
            waiting = resampling._fill(part, waiting, words, below=bound)
        one_call = np.random.default_rng(seed).integers(0, bound, sum(sizes))
        assert np.array_equal(np.concatenate([np.empty(0, int), *parts]), one_call)


def test_the_frame_bootstrap_has_the_published_digits() -> None:
    delta = np.random.default_rng(5).normal(-0.1, 2.0, 700)
    chosen = np.random.default_rng(0).integers(0, 700, (10_000, 700))
    low, high = np.percentile(delta[chosen].mean(axis=1), [2.5, 97.5])
    found = frame_bootstrap(delta, **PUBLISHED)
    assert (found.low, found.high) == (low, high)
    assert "independent" in found.note


def test_the_frame_bootstrap_agrees_with_scipy() -> None:
    delta = np.random.default_rng(6).normal(-0.1, 2.0, 300)
    theirs = stats.bootstrap(
        (delta,),
        np.mean,
        method="percentile",
        n_resamples=10_000,
        batch=500,
        rng=np.random.default_rng(1),
    ).confidence_interval
    found = frame_bootstrap(delta, **PUBLISHED)
    assert [found.low, found.high] == pytest.approx([theirs.low, theirs.high], abs=0.01)


def test_a_self_pair_has_intervals_of_exactly_zero_that_say_so() -> None:
    delta = np.zeros(60)
    for clusters in (2, 20):
        found = cluster_interval(delta, np.arange(60) % clusters, **QUICK)
        assert (found.low, found.high) == (0.0, 0.0)
        assert "exactly 0" in found.degenerate
    found = frame_bootstrap(delta, **QUICK)
    assert (found.low, found.high) == (0.0, 0.0)
    assert "exactly 0" in found.degenerate


@pytest.mark.parametrize("delta", [np.full(40, 0.3), np.array([1.5])])
def test_no_interval_has_zero_width_in_silence(delta: Deltas) -> None:
    assert frame_bootstrap(delta, **QUICK).degenerate is not None
    assert cluster_interval(delta, np.arange(len(delta)), **QUICK).degenerate is not None


def test_clusters_of_equal_means_give_a_degenerate_interval() -> None:
    delta = np.tile([1.0, -0.5], 10)
    found = cluster_interval(delta, np.repeat(np.arange(10), 2), **QUICK)
    assert "no width" in found.degenerate


def test_an_ordinary_interval_is_not_degenerate() -> None:
    delta, cluster = _clustered(np.random.default_rng(0), 30)
    assert frame_bootstrap(delta, **QUICK).degenerate is None
    assert cluster_interval(delta, cluster, **QUICK).degenerate is None


def test_fewer_than_six_clusters_have_no_interval_and_a_reason() -> None:
    found = cluster_interval(np.arange(50.0), np.arange(50) % 5, **QUICK)
    assert found.low is None
    assert found.high is None
    assert found.clusters == 5
    assert found.degenerate.startswith("5 clusters")


@pytest.mark.parametrize(
    ("clusters", "method"),
    [(6, "CR1"), (199, "CR1"), (200, "percentile")],
)
def test_the_number_of_clusters_chooses_the_method(clusters: int, method: str) -> None:
    delta, cluster = _clustered(np.random.default_rng(1), clusters)
    found = cluster_interval(delta, cluster, **QUICK)
    assert found.method.startswith(method)
    assert found.clusters == clusters
    assert (found.note is not None) is (clusters < 200)


def test_few_clusters_state_the_measured_coverage() -> None:
    delta, cluster = _clustered(np.random.default_rng(1), 41)
    note = cluster_interval(delta, cluster, **QUICK).note
    assert all(stated in note for stated in ("95 % at 82", "95 % at 41", "92 % at 10"))


def test_clusters_of_one_give_the_t_interval_of_independent_frames() -> None:
    delta = np.random.default_rng(2).normal(0.4, 1.0, 50)
    found = cluster_interval(delta, np.arange(50), **QUICK)
    error = delta.std(ddof=1) / np.sqrt(50)
    theirs = stats.t.interval(0.95, 49, loc=delta.mean(), scale=error)
    assert [found.low, found.high] == pytest.approx(theirs, rel=1e-12)


def test_the_cluster_bootstrap_is_the_ratio_of_resampled_sums_to_sizes() -> None:
    delta, cluster = _clustered(np.random.default_rng(3), 220)
    found = cluster_interval(delta, cluster, **QUICK)
    members = [delta[cluster == number] for number in range(220)]
    chosen = np.random.default_rng(0).integers(0, 220, (300, 220))
    means = [np.concatenate([members[number] for number in row]).mean() for row in chosen]
    expected = np.percentile(means, [2.5, 97.5])
    assert [found.low, found.high] == pytest.approx(expected, rel=1e-10)


def test_the_labels_of_clusters_do_not_matter() -> None:
    delta, cluster = _clustered(np.random.default_rng(4), 30)
    assert cluster_interval(delta, cluster, **QUICK) == cluster_interval(
        delta, 7 * cluster - 100, **QUICK
    )


def test_an_empty_vector_has_no_interval() -> None:
    with pytest.raises(ValueError, match="no differences"):
        frame_bootstrap(np.zeros(0), **QUICK)
    with pytest.raises(ValueError, match="no differences"):
        cluster_interval(np.zeros(0), np.zeros(0, int), **QUICK)


def test_cluster_intervals_cover_and_frame_intervals_do_not() -> None:
    rng, replicates = np.random.default_rng(11), 200
    by_cluster = by_frame = 0
    for _ in range(replicates):
        delta, cluster = _clustered(rng, 210, mean_size=10)
        found = cluster_interval(delta, cluster, **QUICK)
        by_cluster += found.low <= 0 <= found.high
        found = frame_bootstrap(delta, **QUICK)
        by_frame += found.low <= 0 <= found.high
    # three Monte-Carlo standard errors at 95 % of 200 replicates are 4.6 points
    assert 0.904 <= by_cluster / replicates <= 0.996
    assert by_frame / replicates < 0.8


def test_few_clusters_cover_as_the_note_says() -> None:
    rng, replicates = np.random.default_rng(12), 1_000
    covered = 0
    for _ in range(replicates):
        found = cluster_interval(*_clustered(rng, 41), **QUICK)
        covered += found.low <= 0 <= found.high
    # 92 % stated, in three Monte-Carlo standard errors of 2.6 points; never below 89 %
    assert 0.89 <= covered / replicates <= 0.96


def test_the_cr1_standard_error_is_that_of_statsmodels() -> None:
    linear_model = pytest.importorskip(
        "statsmodels.regression.linear_model", reason="statsmodels is not installed"
    )
    for clusters in (2, 41, 210):
        delta, cluster = _clustered(np.random.default_rng(clusters), clusters)
        fitted = linear_model.OLS(delta, np.ones((len(delta), 1))).fit(
            cov_type="cluster", cov_kwds={"groups": cluster}
        )
        found = intervals.cr1_error(*intervals.cluster_sums(delta, cluster))
        assert found == pytest.approx(fitted.bse[0], rel=1e-10)


def test_influence_by_hand() -> None:
    delta = np.array([1.0, 1.0, 4.0, 0.0])
    found = most_influential(delta, np.array([7, 7, 9, 8]))
    # mean 1.5; without 9: 2/3, without 7: 2, without 8: 2
    assert [(row.group, row.frames, row.mean_without) for row in found] == [
        (9, 1, 0.66667),
        (7, 2, 2.0),
        (8, 1, 2.0),
    ]


def test_influence_ranks_by_rounded_means_and_ties_keep_group_order() -> None:
    # unrounded, group 2 moves the mean a little further than group 1
    delta = np.array([1.0, 1.0 + 1e-7, 0.0, 0.0])
    found = most_influential(delta, np.array([1, 2, 3, 4]))
    moved = [row.group for row in found]
    assert moved.index(1) < moved.index(2)


def test_influence_of_a_lone_group_is_zero_by_the_published_divisor() -> None:
    (only,) = most_influential(np.array([3.0, 5.0]), np.array([0, 0]))
    assert (only.frames, only.mean_without) == (2, 0.0)


def test_influence_names_five_groups_at_most() -> None:
    assert len(most_influential(np.arange(9.0), np.arange(9))) == 5
