"""The fairness of draws: guards and oracles, both instruments, the deficit by spread and step."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles, run_read
from arflow_eval.reads.draws_fairness import draws_fairness, table
from arflow_eval.reads.made import made_arm
from arflow_eval.reads.planted_draws import scaled_draws, uneven
from arflow_eval.reads.planted_fairness import oracles

Arms = dict[str, xarray.Dataset]
Change = Callable[[Arms], None]
FRAMES, DRAWS = 960, 4
EMPTY = [0, 3, 4]  # core frames without a valid step


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    words = ["read=draws_fairness", "arms.treatment=A", "arms.control=B", "read.resamples=200"]
    found: dict[str, Any] = compose.compose("read", words)["read"]
    return found


def made(*, control_draws: int = DRAWS) -> Arms:
    """An AR and a flow stack whose errors differ, on frames of which three have no valid step."""
    found = {}
    for role, size, name in (("treatment", 6.0, "made@0"), ("control", 5.3, "flow@0")):
        greedy = made_arm(chunk_mae=size).assign_attrs(arm=name)
        valid = greedy["valid"].to_numpy().copy()
        valid[EMPTY] = False
        valid[9, 0] = False  # a first step that is not scored
        greedy = greedy.assign(valid=(greedy["valid"].dims, valid))
        ar = role == "treatment"
        factors = uneven(FRAMES, DRAWS if ar else control_draws, seed=1 if ar else 2)
        found[role] = scaled_draws(greedy, factors, temperature=1.0 if ar else None)
    return found


def carry_out(definition: dict[str, Any], arms: Arms, **changed: Any) -> dict[str, Any]:
    return run_read({**definition, "oracles": {}, **changed}, arms, measure=draws_fairness)


def attribute(role: str, **values: Any) -> Change:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].assign_attrs(values)

    return change


def variable(role: str, name: str) -> Change:
    def change(arms: Arms) -> None:
        values = arms[role][name].to_numpy().copy()
        values[5] += 1
        arms[role] = arms[role].assign({name: (arms[role][name].dims, values)})

    return change


def column(role: str, name: str, values: Any) -> Change:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].assign_coords({name: ("frame", values)})

    return change


def rows(role: str, chosen: Any) -> Change:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].isel(frame=chosen)

    return change


def single_draw(role: str, arm: str) -> Change:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].isel(draw=slice(1)).assign_attrs(arm=arm)

    return change


def imported(role: str, *, folder: Path, off: float) -> Change:
    """The arm as it is imported: its published mean lies beside the store, `off` on one frame."""

    def change(arms: Arms) -> None:
        stack = arms[role]["prediction"].to_numpy()
        mean = stack.astype(np.float64).mean(axis=1).astype(np.float32)
        mean[7, 0, 0] += off
        np.save(folder / "pooled.npy", mean)
        arms[role] = arms[role].assign_attrs(published={"pooled_digest": "a" * 64})
        arms[role].encoding["source"] = str(folder / "predictions.zarr")

    return change


MUTATIONS: dict[str, tuple[Change, str]] = {
    "complete": (attribute("control", complete=False), "not marked complete"),
    "same_space": (attribute("control", action_units="radian"), "action_units is"),
    "no_duplicates": (rows("control", [0, 0, 1, 2]), "more than once"),
    "same_frames": (column("control", "frame_index", np.arange(FRAMES) % 4 + 1), "only in the"),
    "window_fits": (attribute("control", horizon=30), "horizons differ"),
    "core_frames": (column("control", "core", np.zeros(FRAMES, bool)), "core in only one"),
    "same_truth": (variable("control", "truth"), "recorded actions or valid steps differ"),
    "same_baselines": (variable("treatment", "state_copy"), "state_copy differs"),
    "stated_draws": (attribute("treatment", sample_draws=10), "sample_draws says 10"),
    "stated_draws of the control": (attribute("control", arm="flow@0_draws10"), "name says 10"),
    "several_draws": (single_draw("treatment", "made@0_draws1_t1"), "treatment arm has a single"),
    "several_draws of the control": (
        single_draw("control", "flow@0_draws1"),
        "control arm has a single",
    ),
    "same_index": (column("control", "index", np.arange(FRAMES) + 1), "index differs"),
    "summaries_reproduced": (
        attribute("control", summary={"chunk_mae": 9.0}),
        "the control arm's arrays give the chunk_mae",
    ),
    "matched draws": (
        lambda arms: arms.update(control=made(control_draws=10)["control"]),
        r"different numbers of draws a frame \(treatment 4, control 10\)",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_guard_is_tripped_by_its_mutation(definition: dict[str, Any], mutation: str) -> None:
    arms = made()
    change, message = MUTATIONS[mutation]
    change(arms)
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, arms)
    assert refused.value.exit_code == refusal.GUARD
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("role", ["treatment", "control"])
def test_a_mean_that_drifts_from_the_pooled_prediction_is_refused(
    definition: dict[str, Any], role: str, tmp_path: Path
) -> None:
    arms = made()
    imported(role, folder=tmp_path, off=0)(arms)
    assert "mean_reproduced" in carry_out(definition, arms)["extended"]["guards_passed"]
    imported(role, folder=tmp_path, off=0.01)(arms)
    with pytest.raises(refusal.Refusal, match=f"the {role} arm's draws is not its") as refused:
        carry_out(definition, arms)
    assert refused.value.exit_code == refusal.GUARD


def test_the_mutations_name_every_guard_that_the_read_runs(definition: dict[str, Any]) -> None:
    passed = carry_out(definition, made())["extended"]["guards_passed"]
    cases = {name.split(" ")[0] for name in MUTATIONS}
    assert set(passed) == (cases | {"mean_reproduced"}) - {"matched"}
    assert set(definition["guards"]) <= set(passed)


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
    arms = made()
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
    arms = made()
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
    arms = made()
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
    arms = made()
    report = carry_out(definition, arms)
    for role, arm in arms.items():
        found = by_hand(arm)
        wanted = found["by_step"].sum(axis=0) / found["valid"].sum(axis=0)
        assert report["per_step"][role] == pytest.approx(wanted.tolist(), abs=6e-5)
        assert report["per_step"]["n_frames"] == found["valid"].sum(axis=0).tolist()


def test_a_step_that_is_valid_in_no_frame_has_no_error(definition: dict[str, Any]) -> None:
    arms = made()
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
    arms = made(control_draws=10)
    report = carry_out(definition, arms, first_draws=4)
    assert report["sample_draws"] == 4
    assert report["extended"]["draws_held"] == {"treatment": 4, "control": 10}
    alone = arms["control"].isel(draw=slice(4)).assign_attrs(arm="flow@0_draws4")
    wanted = carry_out(definition, {**arms, "control": alone})
    for key in ("best_of_n", "paired_delta", "by_dispersion_quartile", "per_step"):
        assert report[key] == wanted[key]


def test_an_arm_of_more_frames_is_read_on_those_of_the_other(definition: dict[str, Any]) -> None:
    arms = made()
    quarter = {role: arm.isel(frame=slice(1, None, 4)) for role, arm in arms.items()}
    joined = carry_out(definition, {**arms, "control": quarter["control"]})
    alone = carry_out(definition, quarter)
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    for key in ("best_of_n", "paired_delta", "by_dispersion_quartile", "per_step"):
        assert joined[key] == alone[key]


def test_what_stands_in_an_invalid_step_changes_no_bit(definition: dict[str, Any]) -> None:
    arms = made()
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
        console.print(table(carry_out(definition, made())))
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
