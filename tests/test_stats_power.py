"""Power: formulae by hand, and panels of the size asked for that find the effect as often."""

import numpy as np
import pytest
from jaxtyping import Float64, Int64

from arflow_eval.stats.intervals import cluster_sums, cr1_error
from arflow_eval.stats.power import (
    design_effect,
    detectable_effect,
    intraclass_correlation,
    needed,
)

Deltas = Float64[np.ndarray, "frame"]
Clusters = Int64[np.ndarray, "frame"]
USUAL = {"confidence": 0.95, "power": 0.8}


def _clustered(
    rng: np.random.Generator, clusters: int, *, correlation: float, mean: float = 0.0
) -> tuple[Deltas, Clusters]:
    """Differences of standard deviation 2 in uneven clusters of some 12 frames."""
    sizes = np.maximum(rng.lognormal(np.log(12) - 0.32, 0.8, clusters).astype(int), 1)
    cluster = np.repeat(np.arange(clusters), sizes)
    shared = rng.normal(size=clusters)[cluster] * np.sqrt(correlation)
    own = rng.normal(size=len(cluster)) * np.sqrt(1 - correlation)
    return mean + 2 * (shared + own), cluster


def test_the_detectable_effect_is_2_8_standard_errors() -> None:
    delta, cluster = _clustered(np.random.default_rng(0), 60, correlation=0.2)
    error = cr1_error(*cluster_sums(delta, cluster))
    found = detectable_effect(delta, cluster, **USUAL)
    assert found / error == pytest.approx(1.959964 + 0.841621, rel=1e-6)
    assert detectable_effect(3 * delta, cluster, **USUAL) == pytest.approx(3 * found)


def test_the_correlation_within_clusters_by_hand() -> None:
    # means 1 and 4 about 2.5: between 9 on 1; within 2 + 2 on 2: (9 - 2) / (9 + 2)
    delta, cluster = np.array([0.0, 2.0, 3.0, 5.0]), np.array([7, 7, 3, 3])
    assert intraclass_correlation(delta, cluster) == pytest.approx(7 / 11)


def test_the_correlation_of_uneven_clusters_by_hand() -> None:
    # sums of squares about the mean 2: between 2 + 4, within 2; n0 = (3 - 5 / 3) / 1 = 4 / 3
    delta, cluster = np.array([0.0, 2.0, 4.0]), np.array([0, 0, 1])
    assert intraclass_correlation(delta, cluster) == pytest.approx((6 - 2) / (6 + 2 / 3))


def test_the_correlation_is_recovered_from_uneven_clusters() -> None:
    rng = np.random.default_rng(1)
    found = [
        intraclass_correlation(*_clustered(rng, 200, correlation=0.2, mean=5.0)) for _ in range(60)
    ]
    assert np.mean(found) == pytest.approx(0.2, abs=4 * np.std(found) / np.sqrt(60) + 0.005)


def test_frames_that_differ_more_within_clusters_than_between_have_no_correlation() -> None:
    assert intraclass_correlation(np.tile([-1.0, 1.0], 5), np.repeat(np.arange(5), 2)) == 0.0


@pytest.mark.parametrize("delta", [np.arange(6.0), np.full(6, 0.3)])
def test_clusters_of_one_or_equal_differences_have_no_correlation(delta: Deltas) -> None:
    cluster = np.arange(6) if np.ptp(delta) else np.arange(6) // 2
    assert intraclass_correlation(delta, cluster) == 0.0


def test_the_design_effect_counts_uneven_sizes() -> None:
    assert design_effect(np.array([4, 4, 4]), correlation=0.5) == 2.5
    uneven = np.array([1, 7, 4])  # mean 4, CV^2 = 6 / 16
    assert design_effect(uneven, correlation=0.5) == pytest.approx(1 + (4 * (1 + 6 / 16) - 1) / 2)
    assert design_effect(uneven, correlation=0.0) == 1.0


def test_independent_frames_need_the_textbook_number() -> None:
    delta = np.tile([-1.0, 1.0], 50)
    found = needed(delta, np.arange(100), effect=-0.5, **USUAL)
    assert found.deviation == pytest.approx(np.sqrt(100 / 99))
    # 2.8016^2 * (100 / 99) / 0.25 = 31.7
    assert (found.frames, found.clusters, found.design_effect) == (32, 32, 1.0)


def test_clustered_frames_need_a_design_effect_more_of_them() -> None:
    delta, cluster = _clustered(np.random.default_rng(2), 80, correlation=0.3)
    found = needed(delta, cluster, effect=0.4, **USUAL)
    alone = 2.801585**2 * found.deviation**2 / 0.4**2
    assert found.frames == np.ceil(alone * found.design_effect)
    assert found.clusters == np.ceil(found.frames * 80 / len(delta))
    assert found.design_effect > 3
    assert needed(delta, cluster, effect=0.2, **USUAL).frames == pytest.approx(
        4 * found.frames, abs=4
    )


def test_an_effect_of_zero_needs_no_number_of_frames() -> None:
    with pytest.raises(ValueError, match="effect of 0"):
        needed(np.arange(4.0), np.arange(4), effect=0.0, **USUAL)


def test_one_cluster_shows_no_power_at_all() -> None:
    one = np.zeros(4, int)
    with pytest.raises(ValueError, match="two at least"):
        detectable_effect(np.arange(4.0), one, **USUAL)
    with pytest.raises(ValueError, match="two at least"):
        needed(np.arange(4.0), one, effect=1.0, **USUAL)


def _found_share(rng: np.random.Generator, clusters: int, *, mean: float, replicates: int) -> float:
    """Share of simulated panels whose CR1 interval at 95 % excludes 0."""
    found = 0
    for _ in range(replicates):
        delta, cluster = _clustered(rng, clusters, correlation=0.2, mean=mean)
        found += abs(delta.mean()) > 1.96 * cr1_error(*cluster_sums(delta, cluster))
    return found / replicates


@pytest.mark.slow
def test_panels_of_the_needed_size_find_the_effect_as_often_as_asked() -> None:
    rng, replicates = np.random.default_rng(3), 200
    pilot = _clustered(rng, 2_000, correlation=0.2)
    need = needed(*pilot, effect=0.3, **USUAL)
    share = _found_share(rng, need.clusters, mean=0.3, replicates=replicates)
    # three Monte-Carlo standard errors at 80 % of 200 replicates are 8.5 points
    assert abs(share - 0.8) < 0.085


@pytest.mark.slow
def test_the_detectable_effect_is_found_as_often_as_asked() -> None:
    rng, replicates = np.random.default_rng(4), 200
    effects = [
        detectable_effect(*_clustered(rng, 300, correlation=0.2), **USUAL) for _ in range(20)
    ]
    share = _found_share(rng, 300, mean=float(np.mean(effects)), replicates=replicates)
    assert abs(share - 0.8) < 0.085
