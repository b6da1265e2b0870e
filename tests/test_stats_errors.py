"""Errors: what is scored, how it is pooled, what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jaxtyping import Bool, Float32

from arflow_eval import refusal
from arflow_eval.stats.errors import Errors, block_errors, failed_draws, frame_errors, joined, mask

Draws = Float32[np.ndarray, "frame draw step action"]
Chunks = Float32[np.ndarray, "frame step action"]
Valids = Bool[np.ndarray, "frame step"]
FRAMES, DRAWS, STEPS, ACTIONS = 5, 3, 4, 2
# multiples of 1/64 below 2048: sums of a few of them are exact in float32
exact = st.integers(-(2**17), 2**17).map(lambda number: number / 64)
chunks = arrays.arrays(np.float32, (FRAMES, STEPS, ACTIONS), elements=exact)
draws = arrays.arrays(np.float32, (FRAMES, DRAWS, STEPS, ACTIONS), elements=exact)
# frame 0 has a scored first step, so that every score exists
valids = arrays.arrays(np.bool_, (FRAMES, STEPS)).map(
    lambda valid: valid | (np.indices(valid.shape).sum(axis=0) == 0)
)


def _scores(errors: Errors) -> tuple[float, float, bytes]:
    return errors.chunk_mae, errors.first_mae, errors.frame_mae.tobytes()


def test_a_step_is_scored_where_it_is_valid_and_every_truth_is_finite() -> None:
    truth = np.zeros((2, 3, 2), np.float32)
    truth[0, 1, 0] = np.nan
    truth[1, 0, 1] = np.inf
    valid = np.array([[True, True, True], [True, True, False]])
    assert mask(truth, valid).tolist() == [[True, False, True], [False, True, False]]


def test_errors_match_a_calculation_by_hand() -> None:
    # frame 0: errors 1 on both steps; frame 1: error 4 on its only valid step
    prediction = np.array([[[[1.0], [1.0]]], [[[4.0], [9.0]]]], np.float32)
    errors = frame_errors(
        prediction,
        np.zeros((2, 2, 1), np.float32),
        np.array([[True, True], [True, False]]),
        window=2,
    )
    assert errors.frame_mae.tolist() == [1.0, 4.0]
    assert errors.chunk_mae == 2.0  # 6 / 3 elements, not the 2.5 of a mean of means
    assert errors.first_mae == 2.5


def test_the_window_scores_leading_steps_only() -> None:
    prediction = np.array([1, 2, 3, np.nan], np.float32).reshape(1, 1, 4, 1)
    truth, valid = np.zeros((1, 4, 1), np.float32), np.ones((1, 4), bool)
    assert frame_errors(prediction, truth, valid, window=2).chunk_mae == 1.5
    assert frame_errors(prediction, truth, valid, window=3).chunk_mae == 2.0


def test_the_headline_prediction_is_the_mean_over_draws_in_raw_units() -> None:
    prediction = np.array([1, -1], np.float32).reshape(1, 2, 1, 1)
    truth, valid = np.zeros((1, 1, 1), np.float32), np.ones((1, 1), bool)
    assert frame_errors(prediction, truth, valid, window=1).chunk_mae == 0.0


def test_a_failed_draw_is_counted_and_never_averaged_in() -> None:
    prediction = np.array([[2, np.nan, 4]], np.float32).reshape(1, 3, 1, 1)
    errors = frame_errors(
        prediction, np.zeros((1, 1, 1), np.float32), np.ones((1, 1), bool), window=1
    )
    assert errors.chunk_mae == 3.0
    assert errors.failed.tolist() == [[False, True, False]]


def test_a_draw_with_some_nan_is_no_failed_draw() -> None:
    prediction = np.zeros((1, 2, 2, 1), np.float32)
    prediction[0, 0, 0] = np.nan
    assert not failed_draws(prediction).any()


def test_nan_in_a_scored_step_is_refused_with_the_number_of_frames() -> None:
    prediction = np.zeros((4, 2, 3, 2), np.float32)
    prediction[1, 0, 2, 1] = np.nan
    prediction[3, 1, 0, 0] = np.inf
    truth, valid = np.zeros((4, 3, 2), np.float32), np.ones((4, 3), bool)
    with pytest.raises(refusal.Refusal, match="2 of 4 frames have a NaN") as refused:
        frame_errors(prediction, truth, valid, window=3)
    assert refused.value.exit_code == refusal.GUARD


def test_the_refusal_counts_over_all_blocks() -> None:
    prediction = np.full((2, 2, 3, 2), np.nan, np.float32)
    prediction[:, 0] = 0
    prediction[0, 0, 1] = np.nan
    truth, valid = np.zeros((2, 3, 2), np.float32), np.ones((2, 3), bool)
    block = block_errors(prediction, truth, valid, window=3)
    with pytest.raises(refusal.Refusal, match="3 of 6 frames"):
        joined([block, block, block])


def test_a_frame_whose_draws_all_failed_is_refused() -> None:
    prediction = np.zeros((3, 2, 2, 1), np.float32)
    prediction[1] = np.nan
    truth, valid = np.zeros((3, 2, 1), np.float32), np.ones((3, 2), bool)
    with pytest.raises(refusal.Refusal, match="1 of 3 frames have no draw") as refused:
        frame_errors(prediction, truth, valid, window=2)
    assert refused.value.exit_code == refusal.GUARD


def test_a_frame_without_a_scored_step_is_in_no_score() -> None:
    prediction = np.ones((2, 1, 2, 1), np.float32)
    valid = np.array([[True, True], [False, False]])
    errors = frame_errors(prediction, np.zeros((2, 2, 1), np.float32), valid, window=2)
    assert errors.scored.tolist() == [True, False]
    assert np.isnan(errors.frame_mae[1])
    assert (errors.chunk_mae, errors.first_mae) == (1.0, 1.0)


def test_no_scored_frame_at_all_is_refused() -> None:
    errors = frame_errors(
        np.ones((2, 1, 2, 1), np.float32),
        np.zeros((2, 2, 1), np.float32),
        np.zeros((2, 2), bool),
        window=2,
    )
    with pytest.raises(refusal.Refusal, match="none of 2 frames has a scored step"):
        _ = errors.chunk_mae
    with pytest.raises(refusal.Refusal, match="a scored first step"):
        _ = errors.first_mae


@settings(max_examples=40, deadline=None)
@given(draws, chunks, valids, st.sampled_from([np.nan, np.inf, 1e30, -7.0]))
def test_scribbling_on_padded_cells_changes_no_bit(
    prediction: Draws, truth: Chunks, valid: Valids, scribble: float
) -> None:
    scribbled, other = prediction.copy(), truth.copy()
    scribbled[np.broadcast_to(~valid[:, None], scribbled.shape[:3])] = scribble
    other[~valid] = scribble
    scribbled[:, :, 0, 0] = prediction[:, :, 0, 0]  # or a frame without steps is all failed
    clean = frame_errors(prediction, truth, valid, window=STEPS)
    assert _scores(frame_errors(scribbled, other, valid, window=STEPS)) == _scores(clean)


@settings(max_examples=40, deadline=None)
@given(draws, chunks, valids, st.permutations(range(DRAWS)))
def test_permuting_draws_changes_no_score(
    prediction: Draws, truth: Chunks, valid: Valids, order: list[int]
) -> None:
    clean = frame_errors(prediction, truth, valid, window=STEPS)
    permuted = frame_errors(prediction[:, order], truth, valid, window=STEPS)
    assert _scores(permuted) == _scores(clean)


@settings(max_examples=40, deadline=None)
@given(draws, valids, st.sampled_from([0.25, 2.0, 8.0]))
def test_scaling_residuals_scales_the_errors(
    prediction: Draws, valid: Valids, factor: float
) -> None:
    truth = np.zeros((FRAMES, STEPS, ACTIONS), np.float32)
    clean = frame_errors(prediction, truth, valid, window=STEPS)
    scaled = frame_errors(prediction * np.float32(factor), truth, valid, window=STEPS)
    assert scaled.chunk_mae == factor * clean.chunk_mae
    assert scaled.first_mae == factor * clean.first_mae


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(FRAMES)), st.integers(1, FRAMES - 1))
def test_neither_neighbours_nor_blocks_move_a_bit_of_a_frame(
    seed: int, order: list[int], cut: int
) -> None:
    rng = np.random.default_rng(seed)
    prediction = rng.normal(size=(FRAMES, DRAWS, 50, 6)).astype(np.float32)
    truth = rng.normal(size=(FRAMES, 50, 6)).astype(np.float32)
    valid = rng.random((FRAMES, 50)) < 0.8
    whole = frame_errors(prediction, truth, valid, window=30)
    parts = [
        block_errors(prediction[rows], truth[rows], valid[rows], window=30)
        for rows in (order[:cut], order[cut:])
    ]
    assert np.array_equal(joined(parts).total, whole.total[order])
    assert np.array_equal(joined(parts).first, whole.first[order])


def test_differences_are_float32_and_sums_float64() -> None:
    prediction = np.full((1, 1, 1, 3), 0.1, np.float32)
    truth = np.full((1, 1, 3), 1 / 3, np.float32)
    errors = frame_errors(prediction, truth, np.ones((1, 1), bool), window=1)
    assert errors.total[0] == 3 * float(np.float32(1 / 3) - np.float32(0.1))
