"""Energy scores of draws: oracles, both forms, one N in both families."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

import made_arms
from arflow_eval import read, refusal
from arflow_eval.reading import run_oracles
from arflow_eval.reads import energy_score as lone
from arflow_eval.reads import energy_score_flow as both
from arflow_eval.reads.made import made_arm
from made_arms import DRAWS, Arms, definition, families

MEASURES = {
    "energy_score": lone.energy_score,
    "energy_score_flow": both.energy_score_flow,
}
TABLES = {"energy_score": lone.table, "energy_score_flow": both.table}
ROLES = {"energy_score": ("greedy", "draws"), "energy_score_flow": ("greedy", "draws", "flow")}


def carry_out(name: str, arms: Arms, **changed: Any) -> dict[str, Any]:
    given = {role: arms[role] for role in ROLES[name]}
    return made_arms.carry_out(definition(name), given, **changed)


def distances(arm: xarray.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance of each draw to the truth, of each pair, and the elements of each core frame."""
    core = arm["core"].to_numpy()
    valid = arm["valid"].to_numpy()[core, None, :, None]
    stack, truth = (arm[key].to_numpy()[core].astype(float) for key in ("prediction", "truth"))
    elements = valid.sum(axis=(1, 2, 3)) * truth.shape[2]
    root = np.sqrt(elements)
    far = np.sqrt((((stack - truth[:, None]) * valid) ** 2).sum(axis=(2, 3))) / root[:, None]
    apart = [
        np.sqrt((((stack - stack[:, [draw]]) * valid) ** 2).sum(axis=(2, 3))) / root[:, None]
        for draw in range(stack.shape[1])
    ]
    return far, np.stack(apart, axis=1), elements


def test_both_forms_are_those_of_the_definition() -> None:
    arms = families()
    report = carry_out("energy_score_flow", arms)
    for role in ("draws", "flow"):
        far, apart, elements = distances(arms[role])
        truth = np.average(far.mean(axis=1), weights=elements)
        between = np.average(apart.sum(axis=(1, 2)), weights=elements)
        exact = report["extended"]["arms_pooled"][role]
        wanted = {
            "truth_term": truth,
            "interaction_term": between / (2 * DRAWS**2),
            "energy_score": truth - between / (2 * DRAWS**2),
            "fair_energy_score": truth - between / (2 * DRAWS * (DRAWS - 1)),
        }
        for term, value in wanted.items():
            assert exact[term] == pytest.approx(value, rel=1e-9)
            assert report["arms_pooled"][role][term] == round(exact[term], 6)


@pytest.mark.parametrize("name", MEASURES)
def test_greedy_is_its_distance_with_no_interaction_and_no_fair_form(name: str) -> None:
    arms = families()
    found = carry_out(name, arms)["arms_pooled"]["greedy"]
    far, _, elements = distances(arms["greedy"])
    assert found["energy_score"] == round(np.average(far[:, 0], weights=elements), 6)
    assert (found["truth_term"], found["interaction_term"]) == (found["energy_score"], 0)
    assert (found["fair_energy_score"], found["draws"]) == (None, 1)


def test_the_gain_is_of_rounded_scores_and_the_delta_of_frames() -> None:
    arms = families()
    report = carry_out("energy_score", arms)
    scores = {role: each["energy_score"] for role, each in report["arms_pooled"].items()}
    assert report["energy_score_gain"] == round(scores["greedy"] - scores["draws"], 6)
    per_frame = []
    for role in ("draws", "greedy"):
        far, apart, _ = distances(arms[role])
        per_frame.append(far.mean(axis=1) - apart.mean(axis=(1, 2)) / 2)
    wanted = (per_frame[0] - per_frame[1]).mean()
    delta = report["paired_delta"]["draws_greedy"]
    assert delta["mean"] == round(wanted, 5)
    assert delta["n_frames"] == 640
    assert report["extended"]["paired_delta"]["draws_greedy"]["interval_by_cluster"]["ci95"][0] < 0


def test_the_report_names_which_form_a_number_is() -> None:
    forms = carry_out("energy_score", families())["forms"]
    assert "comparable at one N only" in forms["energy_score"]
    assert "unbiased in N" in forms["fair_energy_score"]


def test_unequal_stacks_are_matched_by_their_first_draws_and_that_is_stated() -> None:
    arms = families(flow_draws=10)
    matched = carry_out("energy_score_flow", arms, first_draws=3)
    assert matched["sample_draws"] == 3
    assert matched["extended"]["draws_held"] == {"draws": 4, "flow": 10}
    assert matched["extended"]["definition"]["first_draws"] == 3
    alone = {
        **arms,
        "draws": arms["draws"].isel(draw=slice(3)).assign_attrs(arm="made@0_draws3_t1"),
        "flow": arms["flow"].isel(draw=slice(3)).assign_attrs(arm="flow@0_draws3"),
    }
    wanted = carry_out("energy_score_flow", alone)
    assert matched["paired_delta"] == wanted["paired_delta"]
    for role in ROLES["energy_score_flow"]:
        for term in ("energy_score", "fair_energy_score"):
            assert matched["arms_pooled"][role][term] == wanted["arms_pooled"][role][term]


@pytest.mark.parametrize(("name", "draws"), [("energy_score", 5), ("energy_score_flow", 5)])
def test_more_draws_than_a_stack_holds_are_refused(name: str, draws: int) -> None:
    with pytest.raises(refusal.Refusal, match="first_draws is 5") as refused:
        carry_out(name, families(), first_draws=draws)
    assert refused.value.exit_code == refusal.GUARD


def test_a_lone_first_draw_is_refused_as_a_setting() -> None:
    with pytest.raises(refusal.Refusal, match="first_draws") as refused:
        carry_out("energy_score", families(), first_draws=1)
    assert refused.value.exit_code == refusal.USAGE


def test_frames_with_a_failed_draw_have_another_n_and_are_left_out_of_the_families() -> None:
    arms = families()
    stack = arms["flow"]["prediction"].to_numpy().copy()
    stack[[0, 3], 1] = np.nan  # two core frames
    arms["flow"] = arms["flow"].assign(prediction=(arms["flow"]["prediction"].dims, stack))
    report = carry_out("energy_score_flow", arms)
    assert report["extended"]["n_core_with_failed_draw"] == 2
    assert {each["n_frames"] for each in report["paired_delta"].values()} == {638}
    far, _, elements = distances(arms["greedy"])
    kept = np.ones(640, bool)
    kept[[0, 2]] = False  # rows 0 and 3 of the panel, which every third row of is no core frame
    wanted = np.average(far[kept, 0], weights=elements[kept])
    assert report["arms_pooled"]["greedy"]["energy_score"] == round(wanted, 6)


@pytest.mark.parametrize("name", MEASURES)
def test_every_arm_is_read_on_the_frames_of_the_smallest(name: str) -> None:
    arms = families()
    quarter = slice(1, None, 4)
    small = ROLES[name][-1]
    cut = {role: arm.isel(frame=quarter) for role, arm in arms.items()}
    joined = carry_out(name, {**arms, small: cut[small]})
    alone = carry_out(name, cut)
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    for key in ("arms_pooled", "paired_delta"):
        assert joined[key] == alone[key]


@pytest.mark.parametrize("name", MEASURES)
def test_what_stands_in_an_invalid_step_changes_no_bit(name: str) -> None:
    arms = families()
    wanted = carry_out(name, arms)
    truth = arms["greedy"]["truth"].to_numpy().copy()
    truth[~arms["greedy"]["valid"].to_numpy()] = np.nan
    padded = {role: arm.assign(truth=(arm["truth"].dims, truth)) for role, arm in arms.items()}
    assert carry_out(name, padded) == wanted


def test_the_published_flow_score_is_its_truth_term_less_its_interaction() -> None:
    anchors = {key: each["value"] for key, each in definition("energy_score")["anchors"].items()}
    difference = anchors["flow_truth_term"] - anchors["flow_interaction_term"]
    assert difference == pytest.approx(anchors["flow_energy_score"], abs=1e-9)
    assert anchors["ar_greedy"] == 8.769585
    assert definition("energy_score_flow")["anchors"] == definition("energy_score")["anchors"]


@pytest.mark.parametrize("name", MEASURES)
def test_every_oracle_comes_out_as_planted(name: str) -> None:
    fired = run_oracles(definition(name), measure=MEASURES[name])
    assert len(fired) == (4 if name == "energy_score_flow" else 3)
    assert all(each.passed for each in fired)


def test_the_oracles_hold_on_a_given_arm() -> None:
    given = made_arm(chunk_mae=2.0, seed=3).assign_attrs(summary={"chunk_mae": 2.0})
    fired = run_oracles(definition("energy_score"), measure=lone.energy_score, given=given)
    assert all(each.passed for each in fired)


def test_an_oracle_that_does_not_come_out_as_planted_is_seen() -> None:
    def unmasked(arms: Arms, **changed: Any) -> dict[str, Any]:
        """As a score would be that forgets where an episode ends."""
        everywhere = {
            role: arm.assign(valid=xarray.ones_like(arm["valid"])) for role, arm in arms.items()
        }
        return carry_out("energy_score", everywhere, **changed)

    def fair(arms: Arms, **changed: Any) -> dict[str, Any]:
        """As a score would be that takes the one form for the other."""
        report = carry_out("energy_score", arms, **changed)
        found = report["extended"]["arms_pooled"]["draws"]
        found["energy_score"] = found["fair_energy_score"]
        return report

    fire = partial(lone.oracles, definition("energy_score"))
    assert [each.passed for each in fire(unmasked)] == [False, True, True]
    assert [each.passed for each in fire(fair)] == [True, True, False]


@pytest.mark.parametrize("name", MEASURES)
def test_the_screen_shows_both_forms_and_the_status(name: str) -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(TABLES[name](carry_out(name, families())))
    shown = captured.get()
    for words in ("plain score", "fair score", "n/a", "draws - greedy", "exploratory"):
        assert words in shown


@pytest.mark.parametrize("name", MEASURES)
def test_the_oracles_run_from_the_command_line_without_arms(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read.main([f"read={name}", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "two_draws_by_hand" in out
    assert " NO " not in out
