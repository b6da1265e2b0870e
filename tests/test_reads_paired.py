"""The paired read, on arms made by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from arflow_eval import refusal
from arflow_eval.reads import guards
from arflow_eval.reads.paired import paired_delta
from arflow_eval.reads.pairing import identities, in_panel_order
from arflow_eval.stats.errors import frame_errors

FRAMES, STEPS, ACTIONS = 48, 10, 2
CHUNK = ("frame", "step", "action")
read = partial(
    paired_delta, window=STEPS, resamples=500, seed=0, confidence=0.95, cluster="episode"
)


def make_arm(
    *, factor: float = 1.0, draws: int = 1, seed: int = 3, repos: int = 2
) -> xarray.Dataset:
    """An arm on 12 episodes of 4 frames, whose residuals are `factor` x one fixed sample."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 50, (FRAMES, STEPS, ACTIONS)).astype(np.float32)
    spread = np.random.default_rng(seed).normal(0, 1, (FRAMES, draws, STEPS, ACTIONS))
    shared = rng.normal(0, 6, (FRAMES, 1, STEPS, ACTIONS))
    valid = np.ones((FRAMES, STEPS), bool)
    valid[3::4, 6:] = False
    valid[0] = False
    names = [f"owner/repo{number}" for number in range(repos)]
    rows = np.arange(FRAMES)
    repo = rows % repos
    held = rng.normal(size=(FRAMES, STEPS, ACTIONS)).astype(np.float32)
    prediction = truth[:, None] + factor * (shared + spread - spread.mean(axis=1, keepdims=True))
    return xarray.Dataset(
        {
            "prediction": (("frame", "draw", "step", "action"), prediction.astype(np.float32)),
            "truth": (CHUNK, truth),
            "valid": (CHUNK[:2], valid),
            "state_copy": (CHUNK, held),
            "state_copy_norm": (CHUNK, held + 1),
            "repo": ("frame", repo),
        },
        coords={
            "episode": ("frame", rows // 4),
            "frame_index": ("frame", 10 * (rows % 4)),
            "panel_row": ("frame", rows),
            "core": ("frame", rows % 8 != 7),
            "repo_name": ("frame", np.array(names)[repo]),
        },
        attrs={
            "arm": f"made_{factor:g}",
            "complete": True,
            "fingerprint": f"{factor:g}{draws}{seed}".ljust(64, "0"),
            "digest": "0" * 64,
            "horizon": STEPS,
            "action_names": ["x", "y"],
            "action_units": "pixel",
            "fps": 10.0,
        },
    )


def edited(arm: xarray.Dataset, name: str, change: Callable[[Any], None]) -> xarray.Dataset:
    """A copy of an arm with one variable changed in place."""
    arm = arm.copy(deep=True)
    values = arm[name].to_numpy().copy()
    change(values)
    return (
        arm.assign_coords({name: (arm[name].dims, values)})
        if name in arm.coords
        else (arm.assign({name: (arm[name].dims, values)}))
    )


def test_pooled_errors_and_deltas_match_a_direct_calculation() -> None:
    treatment, control = make_arm(factor=0.9, draws=4), make_arm()
    found = read(treatment, control)
    core = control["core"].to_numpy()
    scored = control["valid"].to_numpy()[core]
    errors = {}
    for role, arm in (("treatment", treatment), ("control", control)):
        chunk = arm["prediction"].to_numpy().astype(float).mean(axis=1)[core]
        errors[role] = np.abs(chunk - arm["truth"].to_numpy()[core])
        assert found["extended"]["arms_pooled"][role]["chunk_mae"] == pytest.approx(
            errors[role][scored].mean(), rel=1e-5
        )
    kept = scored.any(axis=1)
    frame_mae = {
        role: np.where(scored, error.mean(axis=2), 0).sum(axis=1)[kept] / scored.sum(axis=1)[kept]
        for role, error in errors.items()
    }
    delta = frame_mae["treatment"] - frame_mae["control"]
    assert found["extended"]["delta_chunk"]["mean"] == pytest.approx(delta.mean(), rel=1e-4)
    assert found["delta_chunk"]["arm_win_rate"] == round(float((delta < 0).mean()), 4)
    assert found["delta_chunk"]["n_frames"] == kept.sum() == 41
    assert found["n_core_without_scored_step"] == 1


def test_a_self_pair_is_exactly_zero_everywhere() -> None:
    arm = make_arm(draws=3)
    found = read(arm, arm)
    for name in ("delta_chunk", "delta_first"):
        delta, more = found[name], found["extended"][name]
        assert (delta["mean"], delta["median"], delta["arm_win_rate"]) == (0.0, 0.0, 0.0)
        assert delta["ci95"] == [0.0, 0.0]
        assert more["interval_by_cluster"]["ci95"] == [0.0, 0.0]
        assert "exactly 0" in more["interval_by_frame"]["degenerate"]
        assert "exactly 0" in more["interval_by_cluster"]["degenerate"]
        assert more["n_ties"] == delta["n_frames"]


@pytest.mark.parametrize("factor", [0.75, 0.95, 1.005, 1.05])
def test_scaled_errors_land_at_exactly_their_factor(factor: float) -> None:
    control = make_arm()
    found = read(make_arm(factor=factor), control)
    pooled = found["extended"]["arms_pooled"]
    ratio = pooled["treatment"]["chunk_mae"] / pooled["control"]["chunk_mae"]
    assert ratio == pytest.approx(factor, rel=1e-6)
    errors = frame_errors(
        *(control[name].to_numpy()[control["core"]] for name in ("prediction", "truth", "valid")),
        window=STEPS,
    )
    frame_mae = errors.frame_mae[errors.scored]
    assert found["extended"]["delta_chunk"]["mean"] == pytest.approx(
        (factor - 1) * frame_mae.mean(), rel=1e-4
    )
    assert found["delta_chunk"]["arm_win_rate"] == (1.0 if factor < 1 else 0.0)


def test_swapping_the_arms_changes_the_sign_and_nothing_else() -> None:
    left, right = make_arm(factor=0.9), make_arm(draws=2)
    there, back = (read(*pair)["delta_chunk"] for pair in ((left, right), (right, left)))
    assert there["mean"] == -back["mean"]
    assert there["ci95"] == [-end for end in reversed(back["ci95"])]


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(FRAMES)), st.permutations(range(FRAMES)))
def test_storage_order_moves_no_bit(one: list[int], other: list[int]) -> None:
    treatment, control = make_arm(factor=0.9), make_arm(draws=2)
    stored = {"treatment": treatment.isel(frame=one), "control": control.isel(frame=other)}
    assert read(**in_panel_order(stored)) == read(treatment, control)


def test_arms_are_paired_by_identity_where_their_panel_rows_differ() -> None:
    treatment, control = make_arm(factor=0.9), make_arm()
    treatment = treatment.isel(frame=slice(None, None, -1))
    treatment["panel_row"] = ("frame", np.arange(FRAMES))
    paired = in_panel_order({"control": control, "treatment": treatment})
    assert identities(paired["treatment"]) == identities(control)
    assert read(**paired)["delta_chunk"] == read(make_arm(factor=0.9), control)["delta_chunk"]


def test_a_blockwise_read_equals_one_block() -> None:
    treatment, control = make_arm(factor=0.9, draws=4), make_arm()
    whole = read(treatment, control)
    for arm in (treatment, control):
        arm["prediction"].encoding["preferred_chunks"] = {"frame": 5}
    assert read(treatment, control) == whole


def test_influence_is_by_repo_and_by_episode_where_there_is_one_repo() -> None:
    several = read(make_arm(factor=0.9), make_arm())["delta_chunk"]
    assert {row["repo"] for row in several["most_influential_repos"]} == {
        "owner/repo0",
        "owner/repo1",
    }
    found = read(make_arm(factor=0.9, repos=1), make_arm(repos=1))
    one = found["delta_chunk"]
    assert "most_influential_repos" not in one
    assert len(one["most_influential_episodes"]) == 5
    assert one["most_influential_episodes"][0].keys() == {
        "repo",
        "episode",
        "n_excl",
        "mean_without",
    }
    assert found["extended"]["delta_chunk"]["n_clusters"] == 12


def test_an_episode_number_in_two_repos_is_two_clusters() -> None:
    found = read(make_arm(factor=0.9), make_arm())["extended"]["delta_chunk"]
    assert found["n_clusters"] == 24
    by_repo = read(make_arm(factor=0.9), make_arm(), cluster="repo")["extended"]["delta_chunk"]
    assert by_repo["n_clusters"] == 2
    assert by_repo["interval_by_cluster"]["ci95"] == [None, None]
    assert by_repo["interval_by_cluster"]["degenerate"].startswith("2 clusters")


def test_published_fields_are_rounded_and_extended_ones_are_not() -> None:
    found = read(make_arm(factor=0.93), make_arm())
    delta, more = found["delta_chunk"], found["extended"]["delta_chunk"]
    arm, exact = (each["arms_pooled"]["control"] for each in (found, found["extended"]))
    assert delta["mean"] == round(more["mean"], 5) != more["mean"]
    assert arm["chunk_mae"] == round(exact["chunk_mae"], 4)
    assert delta["ci95"] == [round(end, 5) for end in more["interval_by_frame"]["ci95"]]


def test_a_definition_says_what_is_compared_in_which_unit_and_weight() -> None:
    found = read(make_arm(factor=0.9), make_arm(), window=4)
    delta = found["delta_chunk"]
    for words in ("leading 4 steps", "treatment - control", "equal weight", "pixel", "negative"):
        assert words in delta["definition"]
    assert "independent" in found["extended"]["delta_chunk"]["interval_by_frame"]["note"]


def test_another_confidence_is_never_called_ci95() -> None:
    delta = read(make_arm(factor=0.9), make_arm(), confidence=0.9)["delta_chunk"]
    assert "ci90" in delta
    assert "ci95" not in delta


def test_failed_draws_are_counted_by_arm() -> None:
    def fail(values: Any) -> None:
        values[1:3, 0] = np.nan

    found = read(edited(make_arm(draws=3), "prediction", fail), make_arm())
    assert found["extended"]["arms_pooled"]["treatment"]["failed_draws"] == 2
    assert found["extended"]["arms_pooled"]["control"]["failed_draws"] == 0


def test_nan_in_a_scored_prediction_stops_the_read() -> None:
    def spoil(values: Any) -> None:
        values[1, 0, 2, 0] = np.nan

    with pytest.raises(refusal.Refusal, match="1 of 42 frames have a NaN"):
        read(edited(make_arm(), "prediction", spoil), make_arm())


def test_an_arm_without_any_recorded_step_is_refused() -> None:
    arm = edited(make_arm(), "valid", lambda values: values.fill(False))
    with pytest.raises(refusal.Refusal, match="none of 42 frames has a scored step"):
        read(arm, arm)


@pytest.mark.parametrize("guard", [*guards.BEFORE_PAIRING, *guards.AFTER_PAIRING])
def test_a_guard_lets_a_self_pair_and_a_sound_pair_pass(guard: guards.Guard) -> None:
    arm = make_arm()
    guard({"treatment": arm, "control": arm}, None)
    guard({"treatment": make_arm(factor=0.9, draws=3), "control": arm}, 4)


def test_padding_of_invalid_steps_may_differ_between_arms() -> None:
    def pad(values: Any) -> None:
        values[0] = np.nan

    padded = edited(make_arm(), "truth", pad)
    guards.same_truth({"treatment": padded, "control": make_arm()}, None)
    found = read(edited(make_arm(factor=0.9), "truth", pad), make_arm())
    assert found == read(make_arm(factor=0.9), make_arm())
