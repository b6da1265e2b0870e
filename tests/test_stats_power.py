"""Power: formulae by hand, and panels of the size asked for that find the effect as often."""

import numpy as np
import pytest
from jaxtyping import Float64, Int64

from arflow_eval.stats.intervals import cluster_sums, cr1_error
from arflow_eval.stats.power import (
    detectable_effect,
    needed_frames,
    pilot,
    resampled_range,
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
    (found,) = detectable_effect(pilot(delta, cluster), **USUAL)
    assert found / error == pytest.approx(1.959964 + 0.841621, rel=1e-6)
    assert detectable_effect(pilot(3 * delta, cluster), **USUAL) == pytest.approx(3 * found)


def test_a_panel_of_more_such_clusters_shows_a_smaller_effect() -> None:
    found = pilot(*_clustered(np.random.default_rng(0), 60, correlation=0.2))
    (frames,) = found.frames
    (here,) = detectable_effect(found, **USUAL)
    for planned in ({"clusters": 240}, {"frames": 4 * int(frames)}):
        assert detectable_effect(found, **USUAL, **planned) == pytest.approx(here / 2)
    both = detectable_effect(found, **USUAL, clusters=240, frames=4 * int(frames))
    assert both == pytest.approx(here / 2)


def test_more_frames_of_the_same_clusters_help_only_within_them() -> None:
    found = pilot(*_clustered(np.random.default_rng(0), 60, correlation=0.2))
    (frames,) = found.frames
    (here,) = detectable_effect(found, **USUAL)
    (many,) = detectable_effect(found, **USUAL, clusters=60, frames=1000 * int(frames))
    # between clusters nothing shrinks: 0.2 of the variance, of DEFF at a typical size m'
    typical, correlation = found.typical_size[0], found.correlation[0]
    floor = typical * correlation / (1 + (typical - 1) * correlation)
    assert (many / here) ** 2 == pytest.approx(floor, rel=1e-2)
    alone = pilot(np.tile([-1.0, 1.0], 50), np.arange(100) // 4)  # no correlation
    assert alone.correlation == 0
    (spread,) = detectable_effect(alone, **USUAL, clusters=1000, frames=100)
    assert spread == pytest.approx(detectable_effect(alone, **USUAL)[0])


def test_the_correlation_within_clusters_by_hand() -> None:
    # means 1 and 4 about 2.5: between 9 on 1; within 2 + 2 on 2: (9 - 2) / (9 + 2)
    found = pilot(np.array([0.0, 2.0, 3.0, 5.0]), np.array([7, 7, 3, 3]))
    assert found.correlation == pytest.approx(7 / 11)


def test_the_correlation_of_uneven_clusters_by_hand() -> None:
    # sums of squares about the mean 2: between 2 + 4, within 2; n0 = (3 - 5 / 3) / 1 = 4 / 3
    found = pilot(np.array([0.0, 2.0, 4.0]), np.array([0, 0, 1]))
    assert found.correlation == pytest.approx((6 - 2) / (6 + 2 / 3))


def test_the_correlation_is_recovered_from_uneven_clusters() -> None:
    rng = np.random.default_rng(1)
    found = [
        pilot(*_clustered(rng, 200, correlation=0.2, mean=5.0)).correlation[0] for _ in range(60)
    ]
    assert np.mean(found) == pytest.approx(0.2, abs=4 * np.std(found) / np.sqrt(60) + 0.005)


def test_frames_that_differ_more_within_clusters_than_between_have_no_correlation() -> None:
    assert pilot(np.tile([-1.0, 1.0], 5), np.repeat(np.arange(5), 2)).correlation == 0


@pytest.mark.parametrize("delta", [np.arange(6.0), np.full(6, 0.3)])
def test_clusters_of_one_or_equal_differences_have_no_correlation(delta: Deltas) -> None:
    cluster = np.arange(6) if np.ptp(delta) else np.arange(6) // 2
    assert pilot(delta, cluster).correlation == 0


def test_the_design_effect_counts_uneven_sizes() -> None:
    cluster = np.repeat(np.arange(3), [1, 7, 4])  # mean 4, CV^2 = 6 / 16
    found = pilot(np.random.default_rng(5).normal(size=12) + 3 * cluster, cluster)
    assert found.typical_size == pytest.approx(4 * (1 + 6 / 16))
    assert found.design_effect == pytest.approx(1 + (4.5 + 1 - 1) * found.correlation)
    assert pilot(np.tile([-1.0, 1.0], 6), np.repeat([0, 1, 2], 4)).design_effect == 1


def test_independent_frames_need_the_textbook_number() -> None:
    found = pilot(np.tile([-1.0, 1.0], 50), np.arange(100))
    assert found.deviation == pytest.approx(np.sqrt(100 / 99))
    # 2.8016^2 * (100 / 99) / 0.25 = 31.7
    assert needed_frames(found, effect=-0.5, **USUAL) == pytest.approx(31.712, abs=1e-3)


def test_clustered_frames_need_a_design_effect_more_of_them() -> None:
    found = pilot(*_clustered(np.random.default_rng(2), 80, correlation=0.3))
    (frames,) = needed_frames(found, effect=0.4, **USUAL)
    alone = 2.801585**2 * found.deviation**2 / 0.4**2
    assert frames == pytest.approx(alone * found.design_effect)
    assert found.design_effect > 3
    assert needed_frames(found, effect=0.2, **USUAL) == pytest.approx(4 * frames)


def test_resampled_pilots_say_how_far_a_pilot_can_be_trusted() -> None:
    rng, inside = np.random.default_rng(6), 0
    truth = pilot(*_clustered(rng, 20_000, correlation=0.2)).deviation[0]
    for _ in range(40):
        low, high = resampled_range(
            lambda pilots: pilots.deviation,
            pilot(*_clustered(rng, 80, correlation=0.2)),
            resamples=300, seed=0, confidence=0.95,
        )  # fmt: skip
        inside += low < truth < high
    assert inside >= 32  # 95 % nominal, fewer clusters cover somewhat less


def test_an_effect_of_zero_needs_no_number_of_frames() -> None:
    with pytest.raises(ValueError, match="effect of 0"):
        needed_frames(pilot(np.arange(4.0), np.arange(4)), effect=0.0, **USUAL)


def test_one_cluster_shows_no_power_at_all() -> None:
    with pytest.raises(ValueError, match="two at least"):
        pilot(np.arange(4.0), np.zeros(4, int))


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
    found = pilot(*_clustered(rng, 2_000, correlation=0.2))
    (frames,) = needed_frames(found, effect=0.3, **USUAL)
    clusters = int(np.ceil(frames * 2_000 / found.frames[0]))
    share = _found_share(rng, clusters, mean=0.3, replicates=replicates)
    # three Monte-Carlo standard errors at 80 % of 200 replicates are 8.5 points
    assert abs(share - 0.8) < 0.085


@pytest.mark.slow
def test_the_detectable_effect_is_found_as_often_as_asked() -> None:
    rng, replicates = np.random.default_rng(4), 200
    effects = [
        detectable_effect(pilot(*_clustered(rng, 300, correlation=0.2)), **USUAL)[0]
        for _ in range(20)
    ]
    share = _found_share(rng, 300, mean=float(np.mean(effects)), replicates=replicates)
    assert abs(share - 0.8) < 0.085
