"""The energy score: hand values, the direct sum, invariances, propriety, and scoringrules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Bool, Float32, Float64

from arflow_eval import refusal
from arflow_eval.stats import energy
from arflow_eval.stats.energy import Energy, block_energy, joined
from arflow_eval.stats.errors import mask
from arflow_eval.stats.ladder import pooled

Draws = Float32[np.ndarray, "frame draw step action"]
Chunks = Float32[np.ndarray, "frame step action"]
Valids = Bool[np.ndarray, "frame step"]
FRAMES, DRAWS, STEPS, ACTIONS = 5, 4, 6, 2


def _panel(
    seed: int, *, draws: int = DRAWS, level: float = 0.0, spread: float = 1.0
) -> tuple[Draws, Chunks, Valids]:
    rng = np.random.default_rng(seed)
    valid = rng.random((FRAMES, STEPS)) < 0.7
    valid[0] = True
    noise = rng.normal(size=(FRAMES, draws, STEPS, ACTIONS))
    return (
        (level + spread * noise).astype(np.float32),
        (level + rng.normal(size=(FRAMES, STEPS, ACTIONS))).astype(np.float32),
        valid,
    )


def _energy(prediction: Draws, truth: Chunks, valid: Valids, *, window: int = STEPS) -> Energy:
    return joined([block_energy(prediction, truth, valid, window=window)])


def _direct(
    prediction: Draws, truth: Chunks, scored: Valids
) -> tuple[Float64[np.ndarray, "frame"], Float64[np.ndarray, "frame"]]:
    """Both terms from differences in extended precision, one frame after the other."""
    terms = []
    for draws, recorded, steps in zip(prediction, truth, scored, strict=True):
        decoded = ~np.isnan(draws).all(axis=(1, 2))
        points = draws[decoded][:, steps].astype(np.longdouble).reshape(decoded.sum(), -1)
        root = np.sqrt(np.longdouble(max(points.shape[1], 1)))
        near = recorded[steps].astype(np.longdouble).reshape(-1)
        to_truth = np.sqrt(((points - near) ** 2).sum(axis=1)) / root
        apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)) / root
        terms.append((float(to_truth.mean()), float(apart.mean() / 2)))
    first, second = np.array(terms).T
    return first, second


def test_two_draws_either_side_of_the_truth_score_one_half() -> None:
    prediction = np.ones((1, 2, 3, 2), np.float32)
    prediction[0, 1] = -1
    found = _energy(prediction, np.zeros((1, 3, 2), np.float32), np.ones((1, 3), bool), window=3)
    assert (found.truth[0], found.interaction[0], found.score[0]) == (1.0, 0.5, 0.5)
    assert found.fair[0] == 0.0  # 1 - 2 / (2 * 1)
    assert found.elements.tolist() == [6]
    assert found.draws.tolist() == [2]


def test_one_draw_scores_its_distance_to_the_truth_and_has_no_fair_score() -> None:
    prediction, truth, valid = _panel(0, draws=1)
    found = _energy(prediction, truth, valid)
    expected, _ = _direct(prediction, truth, valid)
    assert found.score == pytest.approx(expected, rel=1e-12, abs=0)
    assert (found.interaction == 0).all()
    assert np.isnan(found.fair).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 7),
    st.sampled_from([0.0, 60.0, -3_000.0]),
    st.sampled_from([1e-3, 1.0, 50.0]),
)
def test_both_terms_equal_direct_differences(
    seed: int, draws: int, level: float, spread: float
) -> None:
    prediction, truth, valid = _panel(seed, draws=draws, level=level, spread=spread)
    found = _energy(prediction, truth, valid)
    to_truth, interaction = _direct(prediction, truth, valid)
    assert found.truth == pytest.approx(to_truth, rel=1e-9, abs=0)
    assert found.interaction == pytest.approx(interaction, rel=1e-9, abs=0)
    fair = to_truth - interaction * draws / (draws - 1)
    assert found.fair == pytest.approx(fair, rel=1e-7, abs=1e-7 * to_truth.max())


@pytest.mark.parametrize("far", [0, 3])
def test_draws_that_nearly_coincide_far_from_another_keep_their_digits(far: int) -> None:
    prediction, truth, valid = _panel(1, spread=1e-4)
    prediction[:, far] += 1_000
    prediction[:, 2] = prediction[:, 1]  # and two are the same
    found = _energy(prediction, truth, valid)
    to_truth, interaction = _direct(prediction, truth, valid)
    assert found.truth == pytest.approx(to_truth, rel=1e-9, abs=0)
    assert found.interaction == pytest.approx(interaction, rel=1e-12, abs=0)


def test_draws_that_are_all_the_same_have_an_interaction_of_exactly_zero() -> None:
    prediction, truth, valid = _panel(2, level=37.3)
    prediction[:] = prediction[:, :1]
    assert (_energy(prediction, truth, valid).interaction == 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_three_times_the_residuals_have_three_times_the_score(seed: int) -> None:
    prediction, truth, valid = _panel(seed)
    clean = _energy(prediction, np.zeros_like(truth), valid)
    scaled = _energy(np.float32(4) * prediction, np.zeros_like(truth), valid)
    assert np.array_equal(scaled.score, 4 * clean.score)  # a power of two is exact
    whole = np.round(prediction * 64)  # small whole numbers, so that 3 times them are exact too
    clean = _energy(whole, np.zeros_like(truth), valid)
    scaled = _energy(3 * whole, np.zeros_like(truth), valid)
    assert scaled.score == pytest.approx(3 * clean.score, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(DRAWS)))
def test_permuting_draws_changes_no_score(seed: int, order: list[int]) -> None:
    prediction, truth, valid = _panel(seed)
    prediction[1, 2] = np.nan
    clean = _energy(prediction, truth, valid)
    permuted = _energy(prediction[:, order], truth, valid)
    assert permuted.truth == pytest.approx(clean.truth, rel=1e-12)
    assert permuted.interaction == pytest.approx(clean.interaction, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.nan, np.inf, 1e30, -7.0]))
def test_scribbling_on_unscored_cells_changes_no_bit(seed: int, scribble: float) -> None:
    prediction, truth, valid = _panel(seed)
    clean = _energy(prediction, truth, valid, window=4)
    unscored = ~valid
    unscored[:, 4:] = True
    truth[unscored] = scribble
    unscored[:, 0] = False  # or a frame without steps is all failed
    prediction[np.broadcast_to(unscored[:, None], prediction.shape[:3])] = scribble
    scribbled = _energy(prediction, truth, valid, window=4)
    assert scribbled.truth.tobytes() == clean.truth.tobytes()
    assert scribbled.interaction.tobytes() == clean.interaction.tobytes()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.permutations(range(FRAMES)),
    st.integers(1, FRAMES - 1),
    st.sampled_from([1, 130, 1 << 18]),
)
def test_neither_neighbours_nor_blocks_move_a_bit_of_a_frame(
    seed: int, order: list[int], cut: int, values: int
) -> None:
    prediction, truth, valid = _panel(seed)
    prediction[1, 0] = np.nan
    whole = _energy(prediction, truth, valid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "VALUES", values)
        parts = [
            block_energy(prediction[rows], truth[rows], valid[rows], window=STEPS)
            for rows in (order[:cut], order[cut:])
        ]
    assert joined(parts).truth.tobytes() == whole.truth[order].tobytes()
    assert joined(parts).interaction.tobytes() == whole.interaction[order].tobytes()


@pytest.mark.parametrize("lost", [[0], [2], [0, 1, 3]])
def test_a_failed_draw_is_counted_and_in_no_term(lost: list[int]) -> None:
    prediction, truth, valid = _panel(3)
    prediction[1, lost] = np.nan
    found = _energy(prediction, truth, valid)
    to_truth, interaction = _direct(prediction, truth, valid)
    assert found.truth == pytest.approx(to_truth, rel=1e-12)
    assert found.interaction == pytest.approx(interaction, rel=1e-12)
    assert found.draws.tolist() == [4, 4 - len(lost), 4, 4, 4]
    assert np.isnan(found.fair[1]) == (len(lost) == 3)


def test_a_frame_without_a_scored_step_weighs_nothing() -> None:
    prediction, truth, valid = _panel(4)
    valid[2] = False
    found = _energy(prediction, truth, valid)
    assert (found.truth[2], found.interaction[2], found.elements[2]) == (0.0, 0.0, 0)
    assert found.scored.tolist() == [True, True, False, True, True]
    kept = found.scored
    expected = np.average(found.score[kept], weights=found.elements[kept])
    assert pooled(found.score, found.elements) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_scored_prediction_that_is_not_finite_is_refused(broken: float) -> None:
    prediction, truth, valid = _panel(5)
    prediction[0, 3, 2, 1] = broken
    with pytest.raises(refusal.Refusal, match="1 of 5 frames have a NaN") as refused:
        _energy(prediction, truth, valid)
    assert refused.value.exit_code == refusal.GUARD


def test_a_frame_whose_draws_all_failed_is_refused() -> None:
    prediction, truth, valid = _panel(6)
    prediction[3] = np.nan
    with pytest.raises(refusal.Refusal, match="1 of 5 frames have no draw"):
        _energy(prediction, truth, valid)


def test_no_other_forecast_scores_better_than_the_true_distribution() -> None:
    """Strict propriety: the fair score's expectation is least for draws like the truth."""
    rng = np.random.default_rng(7)
    frames, draws = 4_000, 10
    truth = rng.normal(size=(frames, 3, 2)).astype(np.float32)
    noise = rng.normal(size=(frames, draws, 3, 2)).astype(np.float32)
    valid = np.ones((frames, 3), bool)
    honest = _energy(noise, truth, valid, window=3).fair
    for other in (0.5 * noise, 1.5 * noise, noise + 0.4, 0 * noise, np.abs(noise)):
        gain = _energy(other.astype(np.float32), truth, valid, window=3).fair - honest
        assert gain.mean() > 4 * gain.std() / np.sqrt(frames)


def test_the_fair_score_does_not_depend_on_the_number_of_draws() -> None:
    rng = np.random.default_rng(8)
    frames = 4_000
    truth = rng.normal(size=(frames, 3, 2)).astype(np.float32)
    noise = rng.normal(size=(frames, 10, 3, 2)).astype(np.float32)
    valid = np.ones((frames, 3), bool)
    few = _energy(noise[:, :2], truth, valid, window=3)
    many = _energy(noise, truth, valid, window=3)
    change = few.fair - many.fair
    assert abs(change.mean()) < 4 * change.std() / np.sqrt(frames)
    assert few.score.mean() > 1.2 * many.score.mean()  # the plain form punishes few draws


def test_scores_agree_with_scoringrules() -> None:
    scoringrules = pytest.importorskip("scoringrules", reason="scoringrules is not installed")
    prediction, truth, _ = _panel(9, draws=8, level=20.0)
    valid = np.ones((FRAMES, STEPS), bool)
    truth[1, 2, 0] = np.nan
    kept = mask(truth, valid)
    found = _energy(prediction, truth, valid)
    for frame in range(FRAMES):
        points = prediction[frame][:, kept[frame]].astype(np.float64).reshape(8, -1)
        recorded = truth[frame][kept[frame]].astype(np.float64).reshape(-1)
        root = np.sqrt(len(recorded))
        plain, fair = (
            scoringrules.es_ensemble(recorded, points, estimator=form, backend="numpy") / root
            for form in ("nrg", "fair")
        )
        assert found.score[frame] == pytest.approx(plain, rel=1e-12)
        assert found.fair[frame] == pytest.approx(fair, rel=1e-12)
