"""Spread of draws, quarters, rank correlation, and errors along a chunk."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jaxtyping import Bool, Float32, Float64
from scipy import stats

from arflow_eval import refusal
from arflow_eval.stats.dispersion import (
    Dispersion,
    Profile,
    block_dispersion,
    block_profile,
    joined_dispersion,
    joined_profile,
    quartiles,
    rank_correlation,
)
from arflow_eval.stats.errors import frame_errors

Draws = Float32[np.ndarray, "frame draw step action"]
Chunks = Float32[np.ndarray, "frame step action"]
Valids = Bool[np.ndarray, "frame step"]
FRAMES, DRAWS, STEPS, ACTIONS = 5, 4, 6, 2


def _panel(seed: int) -> tuple[Draws, Chunks, Valids]:
    rng = np.random.default_rng(seed)
    valid = rng.random((FRAMES, STEPS)) < 0.7
    valid[0] = True
    return (
        rng.normal(size=(FRAMES, DRAWS, STEPS, ACTIONS)).astype(np.float32),
        rng.normal(size=(FRAMES, STEPS, ACTIONS)).astype(np.float32),
        valid,
    )


def _spread(prediction: Draws, truth: Chunks, valid: Valids, *, window: int = STEPS) -> Dispersion:
    return joined_dispersion([block_dispersion(prediction, truth, valid, window=window)])


def _profile(prediction: Draws, truth: Chunks, valid: Valids, *, window: int = STEPS) -> Profile:
    return joined_profile([block_profile(prediction, truth, valid, window=window)])


def _bytes(columns: Dispersion | Profile) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in asdict(columns).items()}


def test_two_draws_either_side_of_the_truth_spread_by_one() -> None:
    prediction = np.ones((1, 2, 3, 2), np.float32)
    prediction[0, 1] = -1
    found = _spread(prediction, np.zeros((1, 3, 2), np.float32), np.ones((1, 3), bool), window=3)
    assert found.mean.tolist() == [1.0]


def test_the_spread_is_the_mean_over_scored_elements_of_the_deviation_without_ddof() -> None:
    prediction, truth, valid = _panel(0)
    truth[0, 2, 1] = np.nan
    found = _spread(prediction, truth, valid, window=5)
    for frame in range(FRAMES):
        steps = valid[frame, :5] & np.isfinite(truth[frame, :5]).all(axis=1)
        kept = prediction[frame, :, :5][:, steps].astype(np.float64)
        if not steps.any():
            assert np.isnan(found.mean[frame])
        else:
            assert found.mean[frame] == pytest.approx(kept.std(axis=0).mean(), rel=1e-12)


def test_one_draw_and_draws_that_are_the_same_have_no_spread() -> None:
    prediction, truth, valid = _panel(1)
    valid[:, 0] = True
    assert (_spread(prediction[:, :1], truth, valid).mean == 0).all()
    prediction[:] = prediction[:, :1]
    assert (_spread(prediction, truth, valid).mean == 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(DRAWS)), st.sampled_from([0.5, 4.0]))
def test_the_spread_ignores_the_order_of_draws_and_scales_with_them(
    seed: int, order: list[int], factor: float
) -> None:
    prediction, truth, valid = _panel(seed)
    clean = _spread(prediction, truth, valid).total
    assert _spread(prediction[:, order], truth, valid).total == pytest.approx(clean, rel=1e-12)
    scaled = _spread(np.float32(factor) * prediction, truth, valid).total
    assert np.array_equal(scaled, factor * clean)


def test_a_failed_draw_is_counted_and_not_in_the_spread() -> None:
    prediction, truth, valid = _panel(2)
    prediction[0, 1] = np.nan
    found = _spread(prediction, truth, valid)
    expected = prediction[0, [0, 2, 3]].astype(np.float64).std(axis=0).mean()
    assert found.mean[0] == pytest.approx(expected, rel=1e-12)
    assert found.failed.sum() == 1


@pytest.mark.parametrize("read", [_spread, _profile])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_scored_prediction_that_is_not_finite_is_refused(read: object, broken: float) -> None:
    prediction, truth, valid = _panel(3)
    prediction[0, 3, 2, 1] = broken
    with pytest.raises(refusal.Refusal, match="1 of 5 frames have a NaN") as refused:
        read(prediction, truth, valid)
    assert refused.value.exit_code == refusal.GUARD


@pytest.mark.parametrize("read", [_spread, _profile])
def test_a_frame_whose_draws_all_failed_is_refused(read: object) -> None:
    prediction, truth, valid = _panel(4)
    prediction[3] = np.nan
    with pytest.raises(refusal.Refusal, match="1 of 5 frames have no draw"):
        read(prediction, truth, valid)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.nan, np.inf, 1e30, -7.0]))
def test_scribbling_on_unscored_cells_changes_no_bit(seed: int, scribble: float) -> None:
    prediction, truth, valid = _panel(seed)
    clean = [_bytes(read(prediction, truth, valid, window=4)) for read in (_spread, _profile)]
    unscored = ~valid
    unscored[:, 4:] = True
    truth[unscored] = scribble
    unscored[:, 0] = False  # or a frame without steps is all failed
    prediction[np.broadcast_to(unscored[:, None], prediction.shape[:3])] = scribble
    again = [_bytes(read(prediction, truth, valid, window=4)) for read in (_spread, _profile)]
    assert again == clean


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(FRAMES)), st.integers(1, FRAMES - 1))
def test_neither_neighbours_nor_blocks_move_a_bit_of_a_frame(
    seed: int, order: list[int], cut: int
) -> None:
    prediction, truth, valid = _panel(seed)
    prediction[1, 2] = np.nan
    parts = [(prediction[rows], truth[rows], valid[rows]) for rows in (order[:cut], order[cut:])]
    spread = joined_dispersion([block_dispersion(*part, window=STEPS) for part in parts])
    whole = _spread(prediction, truth, valid)
    assert spread.total.tobytes() == whole.total[order].tobytes()
    profile = joined_profile([block_profile(*part, window=STEPS) for part in parts])
    whole = _profile(prediction, truth, valid)
    assert profile.by_step.tobytes() == whole.by_step[order].tobytes()
    assert profile.by_action.tobytes() == whole.by_action[order].tobytes()


def test_errors_along_the_chunk_and_by_joint_by_hand() -> None:
    # frame 0: joint errors (1, 3) then (2, 2); frame 1: (5, 1), its second step past the end
    prediction = np.array([[[[1, 3], [2, 2]]], [[[5, 1], [9, 9]]]], np.float32)
    valid = np.array([[True, True], [True, False]])
    found = _profile(prediction, np.zeros((2, 2, 2), np.float32), valid, window=2)
    assert found.by_step.tolist() == [[2.0, 2.0], [3.0, 0.0]]
    assert found.by_action.tolist() == [[1.5, 2.5], [5.0, 1.0]]
    assert found.counts.tolist() == [2, 1]
    assert found.curve.tolist() == [2.5, 2.0]


def test_a_step_that_no_frame_scores_has_no_point_on_the_curve() -> None:
    prediction, truth, valid = _panel(5)
    valid[:, 4] = False
    found = _profile(prediction, truth, valid)
    assert found.counts[4] == 0
    assert np.flatnonzero(np.isnan(found.curve)).tolist() == [4]


def test_the_curve_weighted_by_its_counts_is_the_pooled_chunk_mae() -> None:
    prediction, truth, valid = _panel(6)
    found = _profile(prediction, truth, valid)
    anchor = frame_errors(prediction, truth, valid, window=STEPS)
    assert np.average(found.curve, weights=found.counts) == pytest.approx(
        anchor.chunk_mae, rel=1e-12
    )
    kept = anchor.scored
    assert found.by_action.mean(axis=1)[kept] == pytest.approx(anchor.frame_mae[kept], rel=1e-12)


def test_a_value_on_an_edge_between_quarters_goes_up() -> None:
    edges, quarter = quartiles(np.array([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert edges.tolist() == [1.0, 2.0, 3.0]
    assert quarter.tolist() == [0, 1, 2, 3, 3]


def test_values_that_are_all_the_same_fall_in_the_last_quarter() -> None:
    assert quartiles(np.full(4, 2.5))[1].tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("values", [np.zeros(0), np.array([1.0, np.nan])])
def test_quarters_of_nothing_or_of_nan_are_an_error(values: Float64[np.ndarray, "frame"]) -> None:
    with pytest.raises(ValueError, match="kept frames"):
        quartiles(values)


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float64, 12, elements=st.integers(0, 4).map(float)),
    arrays.arrays(np.float64, 12, elements=st.integers(0, 4).map(float)),
)
def test_the_rank_correlation_is_that_of_scipy_with_ties_at_their_average(
    first: Float64[np.ndarray, "frame"], second: Float64[np.ndarray, "frame"]
) -> None:
    found = rank_correlation(first, second)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert found is None
    else:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


def test_the_rank_correlation_of_a_monotone_relation_is_one() -> None:
    values = np.array([0.3, -2.0, 7.0, 1.0])
    assert rank_correlation(values, np.exp(values)) == pytest.approx(1.0, rel=1e-15)
    assert rank_correlation(values, -values) == pytest.approx(-1.0, rel=1e-15)


def test_a_value_without_a_rank_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rank"):
        rank_correlation(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
