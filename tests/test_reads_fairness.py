"""The fairness of draws: oracles, both instruments, the deficit by spread and step."""

import json
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

import made_arms
from arflow_eval import read
from arflow_eval.reading import run_oracles
from arflow_eval.reads.draws_fairness import draws_fairness, table
from arflow_eval.reads.made import made_arm
from arflow_eval.reads.planted_fairness import oracles
from made_arms import Arms, carry_out, fair_pair


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return made_arms.definition("draws_fairness")


def by_hand(arm: xarray.Dataset) -> dict[str, Any]:
    """Per core frame: error of the mean, of the best draw, spread; 0 where no step is valid."""
    core = arm["core"].to_numpy()
    stack, truth = (arm[key].to_numpy()[core].astype(float) for key in ("prediction", "truth"))
    valid = arm["valid"].to_numpy()[core]
    steps = np.maximum(valid.sum(axis=1), 1)
    step_errors = np.abs(stack.mean(axis=1) - truth).mean(axis=2) * valid
    draws = (np.abs(stack - truth[:, None]).mean(axis=3) * valid[:, None]).sum(axis=2)
    spread = (stack.std(axis=1).mean(axis=2) * valid).sum(axis=1) / steps
    return {
        "valid": valid,
        "by_step": step_errors,
        "mean": step_errors.sum(axis=1) / steps,
        "best": (draws / steps[:, None]).min(axis=1),
        "spread": spread,
    }


def test_both_instruments_pool_by_valid_element(definition: dict[str, Any]) -> None:
    arms = fair_pair()
    report = carry_out(definition, arms)
    for role, arm in arms.items():
        found = by_hand(arm)
        weight = found["valid"].sum(axis=1)
        mean, best = (np.average(found[key], weights=weight) for key in ("mean", "best"))
        assert report["arms_pooled"][role]["chunk_mae"] == pytest.approx(mean, abs=6e-5)
        assert report["best_of_n"][role]["chunk_mae"] == pytest.approx(best, abs=6e-5)
    shown = report["best_of_n"]
    assert report["difference_of_pooled"]["best_of_n"]["chunk_mae"] == round(
        shown["treatment"]["chunk_mae"] - shown["control"]["chunk_mae"], 4
    )


def test_frames_without_a_valid_step_stay_in_the_differences_as_zeros(
    definition: dict[str, Any],
) -> None:
    arms = fair_pair()
    report = carry_out(definition, arms)
    found = {role: by_hand(arm) for role, arm in arms.items()}
    for instrument, key in (("mean_of_draws", "mean"), ("best_of_n", "best")):
        delta = report["paired_delta"][instrument]["chunk"]
        wanted = (found["treatment"][key] - found["control"][key]).mean()  # zeros among them
        assert delta["n_frames"] == 640
        assert delta["mean"] == pytest.approx(wanted, abs=2e-5)
        assert report["extended"]["paired_delta"][instrument]["chunk"]["n_ties"] >= 3
    assert report["extended"]["n_core_without_scored_step"] == 3
    assert report["paired_delta"]["mean_of_draws"]["first"]["n_frames"] == 636


def test_the_deficit_is_by_quarter_of_each_arms_own_spread(definition: dict[str, Any]) -> None:
    arms = fair_pair()
    report = carry_out(definition, arms)
    found = {role: by_hand(arm) for role, arm in arms.items()}
    for role in arms:
        spread = found[role]["spread"]
        edges = np.quantile(spread, [0.25, 0.5, 0.75])
        quarter = np.searchsorted(edges, spread, side="right")
        for number, row in enumerate(report["by_dispersion_quartile"][role]):
            inside = quarter == number
            assert row["n_frames"] == inside.sum()
            for other in arms:
                assert row[other] == pytest.approx(found[other]["mean"][inside].mean(), abs=6e-5)
            assert row["deficit"] == round(row["treatment"] - row["control"], 4)


def test_step_curves_divide_by_the_frames_in_which_the_step_is_valid(
    definition: dict[str, Any],
) -> None:
    arms = fair_pair()
    report = carry_out(definition, arms)
    for role, arm in arms.items():
        found = by_hand(arm)
        wanted = found["by_step"].sum(axis=0) / found["valid"].sum(axis=0)
        assert report["per_step"][role] == pytest.approx(wanted.tolist(), abs=6e-5)
        assert report["per_step"]["n_frames"] == found["valid"].sum(axis=0).tolist()


def test_a_step_that_is_valid_in_no_frame_has_no_error(definition: dict[str, Any]) -> None:
    arms = fair_pair()
    for role, arm in arms.items():
        valid = arm["valid"].to_numpy().copy()
        valid[:, 40:] = False
        arms[role] = arm.assign(valid=(arm["valid"].dims, valid))
    report = carry_out(definition, arms)
    assert report["per_step"]["difference"][40:] == [None] * 10
    json.dumps(report, allow_nan=False)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(report))
    assert "n/a" in captured.get()


def test_unequal_stacks_are_matched_by_their_first_draws(definition: dict[str, Any]) -> None:
    arms = fair_pair(control_draws=10)
    report = carry_out(definition, arms, first_draws=4)
    assert report["sample_draws"] == 4
    assert report["extended"]["draws_held"] == {"treatment": 4, "control": 10}
    alone = arms["control"].isel(draw=slice(4)).assign_attrs(arm="flow@0_draws4")
    wanted = carry_out(definition, {**arms, "control": alone})
    for key in ("best_of_n", "paired_delta", "by_dispersion_quartile", "per_step"):
        assert report[key] == wanted[key]


def test_an_arm_of_more_frames_is_read_on_those_of_the_other(definition: dict[str, Any]) -> None:
    arms = fair_pair()
    quarter = {role: arm.isel(frame=slice(1, None, 4)) for role, arm in arms.items()}
    joined = carry_out(definition, {**arms, "control": quarter["control"]})
    alone = carry_out(definition, quarter)
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    for key in ("best_of_n", "paired_delta", "by_dispersion_quartile", "per_step"):
        assert joined[key] == alone[key]


def test_what_stands_in_an_invalid_step_changes_no_bit(definition: dict[str, Any]) -> None:
    arms = fair_pair()
    wanted = carry_out(definition, arms)
    for role, arm in arms.items():
        truth = arm["truth"].to_numpy().copy()
        truth[~arm["valid"].to_numpy()] = np.nan
        arms[role] = arm.assign(truth=(arm["truth"].dims, truth))
    assert carry_out(definition, arms) == wanted


def test_every_oracle_comes_out_as_planted(definition: dict[str, Any]) -> None:
    fired = run_oracles(definition, measure=draws_fairness)
    names = ["self_pair", "scaled_errors", "deficit_where_draws_spread"]
    assert [each.name for each in fired] == names
    assert all(each.passed for each in fired)


@pytest.mark.parametrize("draws", [2, 5])
def test_the_oracles_hold_on_a_given_arm_and_for_any_number_of_draws(
    definition: dict[str, Any], draws: int
) -> None:
    stated = {**definition, "oracles": {**definition["oracles"], "draws": draws}}
    given = made_arm(chunk_mae=2.0, seed=3).assign_attrs(sample_draws=1, summary={"chunk_mae": 2.0})
    assert all(each.passed for each in run_oracles(stated, measure=draws_fairness, given=given))


def test_an_oracle_that_does_not_come_out_as_planted_is_seen(definition: dict[str, Any]) -> None:
    def dropping(arms: Arms, **changed: Any) -> dict[str, Any]:
        """As a read would be that leaves out the frames without a valid step."""
        kept = {
            role: arm.isel(frame=arm["valid"].to_numpy().any(axis=1)) for role, arm in arms.items()
        }
        return carry_out(definition, kept, **changed)

    def reversed_roles(arms: Arms, **changed: Any) -> dict[str, Any]:
        turned = {"treatment": arms["control"], "control": arms["treatment"]}
        return carry_out(definition, turned, **changed)

    assert [each.passed for each in oracles(definition, dropping)] == [True, False, True]
    assert [each.passed for each in oracles(definition, reversed_roles)] == [True, False, False]


def test_the_screen_shows_instruments_quarters_steps_and_status(
    definition: dict[str, Any],
) -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(carry_out(definition, fair_pair())))
    shown = captured.get()
    for words in ("a single draw", "best of 4", "quarter by spread of control", "exploratory"):
        assert words in shown


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=draws_fairness", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "deficit_where_draws_spread" in out
    assert " NO " not in out
