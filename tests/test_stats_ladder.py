"""The best-of-K ladder: enumeration, exact rows, ties, failed draws, and what is refused."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jaxtyping import Bool, Float32, Float64

from arflow_eval import refusal
from arflow_eval.stats.errors import frame_errors
from arflow_eval.stats.ladder import (
    DrawErrors,
    best_draw,
    best_draw_counts,
    best_of,
    block_draw_errors,
    joined,
    pooled,
    pooled_ladder,
)

Draws = Float32[np.ndarray, "frame draw step action"]
Chunks = Float32[np.ndarray, "frame step action"]
Valids = Bool[np.ndarray, "frame step"]
Rows = Float64[np.ndarray, "frame draw"]
FRAMES, DRAWS, STEPS, ACTIONS = 5, 4, 6, 2


def _panel(seed: int, *, draws: int = DRAWS) -> tuple[Draws, Chunks, Valids]:
    rng = np.random.default_rng(seed)
    valid = rng.random((FRAMES, STEPS)) < 0.7
    valid[0] = True
    return (
        rng.normal(size=(FRAMES, draws, STEPS, ACTIONS)).astype(np.float32),
        rng.normal(size=(FRAMES, STEPS, ACTIONS)).astype(np.float32),
        valid,
    )


def _errors(prediction: Draws, truth: Chunks, valid: Valids, *, window: int = STEPS) -> DrawErrors:
    return joined([block_draw_errors(prediction, truth, valid, window=window)])


def _bytes(errors: DrawErrors) -> list[bytes]:
    return [getattr(errors, name).tobytes() for name in DrawErrors.__annotations__]


def _enumerated(errors: Float64[np.ndarray, "draw"], size: int) -> float:
    return float(np.mean([min(subset) for subset in combinations(errors, size)]))


def test_errors_of_single_draws_by_hand() -> None:
    prediction = np.array([[[[1.0], [1.0]], [[-3.0], [1.0]]]], np.float32)
    errors = _errors(prediction, np.zeros((1, 2, 1), np.float32), np.ones((1, 2), bool), window=2)
    assert errors.mae.tolist() == [[1.0, 2.0]]
    assert errors.first.tolist() == [[1.0, 3.0]]
    assert errors.elements.tolist() == [2]


def test_errors_of_draws_are_float64_throughout() -> None:
    prediction = np.full((1, 1, 1, 3), 0.1, np.float32)
    truth = np.full((1, 1, 3), 1 / 3, np.float32)
    errors = _errors(prediction, truth, np.ones((1, 1), bool), window=1)
    assert errors.mae[0, 0] == float(np.float32(1 / 3)) - float(np.float32(0.1))


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(np.float64, (3, 6), elements=st.floats(0, 100)),
    st.integers(1, 6),
)
def test_the_ladder_equals_enumeration_of_all_subsets(errors: Rows, size: int) -> None:
    expected = [_enumerated(row, size) for row in errors]
    assert best_of(errors)[:, size - 1] == pytest.approx(expected, rel=1e-12, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(1, 30))
def test_draws_of_one_error_have_that_error_on_every_rung_to_the_bit(
    error: float, draws: int
) -> None:
    assert (best_of(np.full((2, draws), error)) == error).all()


def test_the_ladder_runs_from_the_average_draw_to_the_best() -> None:
    errors = np.random.default_rng(0).random((50, 10))
    ladder = best_of(errors)
    assert ladder[:, 0] == pytest.approx(errors.mean(axis=1), rel=1e-14)
    assert np.array_equal(ladder[:, -1], errors.min(axis=1))
    assert (np.diff(ladder, axis=1) < 0).all()


def test_two_hundred_draws_do_not_overflow_the_ladder() -> None:
    errors = np.random.default_rng(0).random((2, 200))
    ladder = best_of(errors)
    assert ladder[:, 0] == pytest.approx(errors.mean(axis=1), rel=1e-13)
    # the second rung by its closed form: sum e(i) * 2 (N - i) / (N (N - 1))
    weights = 2 * np.arange(199, -1, -1) / (200 * 199)
    assert ladder[:, 1] == pytest.approx(np.sort(errors) @ weights, rel=1e-13)


def test_a_failed_draw_is_in_no_subset() -> None:
    ladder = best_of(np.array([[3.0, np.nan, 1.0], [3.0, 5.0, 1.0]]))
    assert ladder[0].tolist() == [2.0, 1.0, 1.0]
    assert ladder[1].tolist() == [3.0, pytest.approx(5 / 3), 1.0]


def test_a_frame_without_a_scored_step_has_no_ladder() -> None:
    assert np.isnan(best_of(np.full((1, 3), np.nan))).all()


def test_the_last_rung_pools_to_the_chunk_mae_of_the_composite_of_best_draws() -> None:
    prediction, truth, valid = _panel(3)
    errors = _errors(prediction, truth, valid)
    kept = errors.scored
    best = best_draw(errors.mae[kept])
    composite = prediction[kept][np.arange(kept.sum()), best][:, None]
    expected = frame_errors(composite, truth[kept], valid[kept], window=STEPS).chunk_mae
    rungs = pooled_ladder(best_of(errors.mae), errors.elements)
    assert rungs[-1] == pytest.approx(expected, rel=1e-6)
    assert rungs[0] == pytest.approx(errors.total.sum() / DRAWS / errors.elements.sum(), rel=1e-14)


def test_one_draw_gives_its_own_chunk_mae_on_the_only_rung() -> None:
    prediction, truth, valid = _panel(4, draws=1)
    errors = _errors(prediction, truth, valid)
    anchor = frame_errors(prediction, truth, valid, window=STEPS)
    (rung,) = pooled_ladder(best_of(errors.mae), errors.elements)
    (first,) = pooled_ladder(best_of(errors.first), errors.first_scored)
    assert rung == pytest.approx(anchor.chunk_mae, rel=1e-6)
    assert first == pytest.approx(anchor.first_mae, rel=1e-6)


def test_pooling_weighs_frames_by_their_elements() -> None:
    assert pooled(np.array([1.0, 4.0, np.nan]), np.array([2, 1, 0])) == 2.0


def test_nothing_to_pool_is_refused() -> None:
    with pytest.raises(refusal.Refusal, match="none of 2 frames") as refused:
        pooled(np.zeros(2), np.zeros(2, int))
    assert refused.value.exit_code == refusal.GUARD


def test_the_best_draw_is_the_first_of_a_tie_and_never_a_failed_one() -> None:
    errors = np.array([[2.0, 1.0, 1.0], [np.nan, 5.0, 6.0]])
    assert best_draw(errors).tolist() == [1, 1]


def test_a_planted_best_draw_is_found() -> None:
    prediction, truth, valid = _panel(5)
    planted = np.array([0, 3, 3, 1, 3])
    prediction[np.arange(FRAMES), planted] = truth + np.float32(1e-3)
    valid[:, 0] = True
    errors = _errors(prediction, truth, valid)
    assert best_draw(errors.mae).tolist() == planted.tolist()
    assert best_draw_counts(errors.mae).tolist() == [1, 1, 0, 3]


def test_the_first_step_picks_its_own_best_draw() -> None:
    prediction = np.array([[[[1.0], [9.0]], [[2.0], [0.0]]]], np.float32)
    errors = _errors(prediction, np.zeros((1, 2, 1), np.float32), np.ones((1, 2), bool), window=2)
    assert best_draw(errors.mae).tolist() == [1]
    assert best_draw(errors.first).tolist() == [0]


def test_a_frame_without_any_error_has_no_best_draw() -> None:
    with pytest.raises(ValueError, match="no best one"):
        best_draw(np.full((1, 3), np.nan))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.nan, np.inf, 1e30, -7.0]))
def test_scribbling_on_unscored_cells_changes_no_bit(seed: int, scribble: float) -> None:
    prediction, truth, valid = _panel(seed)
    clean = _errors(prediction, truth, valid, window=4)
    unscored = ~valid
    unscored[:, 4:] = True
    truth[unscored] = scribble
    unscored[:, 0] = False  # or a frame without steps is all failed
    prediction[np.broadcast_to(unscored[:, None], prediction.shape[:3])] = scribble
    assert _bytes(_errors(prediction, truth, valid, window=4)) == _bytes(clean)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(FRAMES)), st.integers(1, FRAMES - 1))
def test_neither_neighbours_nor_blocks_move_a_bit_of_a_frame(
    seed: int, order: list[int], cut: int
) -> None:
    prediction, truth, valid = _panel(seed)
    prediction[1, 2] = np.nan
    whole = _errors(prediction, truth, valid)
    parts = [
        block_draw_errors(prediction[rows], truth[rows], valid[rows], window=STEPS)
        for rows in (order[:cut], order[cut:])
    ]
    assert joined(parts).total.tobytes() == whole.total[order].tobytes()
    assert joined(parts).first.tobytes() == whole.first[order].tobytes()
    assert best_of(joined(parts).mae).tobytes() == best_of(whole.mae)[order].tobytes()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(DRAWS)))
def test_permuting_draws_moves_no_rung(seed: int, order: list[int]) -> None:
    prediction, truth, valid = _panel(seed)
    clean = best_of(_errors(prediction, truth, valid).mae)
    permuted = best_of(_errors(prediction[:, order], truth, valid).mae)
    assert permuted.tobytes() == clean.tobytes()


def test_a_failed_draw_is_counted_and_has_no_error() -> None:
    prediction, truth, valid = _panel(6)
    prediction[2, 1] = np.nan
    errors = _errors(prediction, truth, valid)
    assert errors.failed.sum() == 1
    assert np.argwhere(np.isnan(errors.total)).tolist() == [[2, 1]]
    assert np.argwhere(np.isnan(errors.first)).tolist() == [[2, 1]]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_scored_prediction_that_is_not_finite_is_refused(broken: float) -> None:
    prediction, truth, valid = _panel(7)
    prediction[0, 3, 2, 1] = broken
    block = block_draw_errors(prediction, truth, valid, window=STEPS)
    with pytest.raises(refusal.Refusal, match="2 of 10 frames have a NaN") as refused:
        joined([block, block])
    assert refused.value.exit_code == refusal.GUARD


def test_a_frame_whose_draws_all_failed_is_refused() -> None:
    prediction, truth, valid = _panel(8)
    prediction[3] = np.nan
    with pytest.raises(refusal.Refusal, match="1 of 5 frames have no draw"):
        _errors(prediction, truth, valid)
