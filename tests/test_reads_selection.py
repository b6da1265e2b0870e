"""The selection ceiling: its oracles, the ladder, the headroom, and where gains lie."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

import made_arms
from arflow_eval import read, refusal
from arflow_eval.reading import run_oracles
from arflow_eval.reads.made import made_arm
from arflow_eval.reads.planted_draws import oracles, scaled_draws
from arflow_eval.reads.selection_ceiling import selection_ceiling, table
from arflow_eval.stats.scoring import arm_errors
from made_arms import DRAWS, FRAMES, Arms, carry_out, ceiling


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return made_arms.definition("selection_ceiling")


@pytest.mark.parametrize("tag", ["_draws4_t0.7", "_draws4", "_draws4_ticket", "_draws4_t1to0.5"])
def test_draws_of_any_temperature_are_read(definition: dict[str, Any], tag: str) -> None:
    arms = ceiling()
    arms["draws"] = arms["draws"].assign_attrs(arm=f"made@0{tag}")
    assert carry_out(definition, arms)["sample_draws"] == DRAWS


def frame_errors(arm: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The error of each draw in each core frame, and the frame's number of scored steps."""
    core = arm["core"].to_numpy()
    truth, valid = (arm[name].to_numpy()[core] for name in ("truth", "valid"))
    difference = np.abs(arm["prediction"].to_numpy()[core].astype(float) - truth[:, None])
    by_step = difference.mean(axis=3) * valid[:, None]
    return by_step.sum(axis=2) / valid.sum(axis=1)[:, None], valid.sum(axis=1)


def test_the_ladder_is_the_mean_over_all_subsets_of_k_draws(definition: dict[str, Any]) -> None:
    arms = ceiling()
    report = carry_out(definition, arms)
    errors, weight = frame_errors(arms["draws"])
    for size in range(1, DRAWS + 1):
        chosen = [errors[:, c].min(axis=1) for c in combinations(range(DRAWS), size)]
        wanted = np.average(np.mean(chosen, axis=0), weights=weight)
        assert report["extended"]["ladder"]["chunk_mae"][size - 1] == pytest.approx(wanted)
        assert report["ladder"]["chunk_mae"][size - 1] == round(wanted, 4)


def test_the_last_rung_is_the_pooled_error_of_the_composite_of_best_draws(
    definition: dict[str, Any],
) -> None:
    arms = ceiling()
    report = carry_out(definition, arms)
    stack = arms["draws"]["prediction"].to_numpy()
    core = arms["draws"]["core"].to_numpy()
    errors, _ = frame_errors(arms["draws"])
    best = np.zeros(FRAMES, dtype=int)
    best[core] = errors.argmin(axis=1)
    composite = stack[np.arange(FRAMES), best][:, None]
    one = arms["greedy"].assign(prediction=(arms["greedy"]["prediction"].dims, composite))
    wanted = arm_errors(one, core, window=50).chunk_mae
    assert report["extended"]["ladder"]["chunk_mae"][-1] == pytest.approx(wanted, abs=1e-6)


def test_the_first_step_picks_its_own_best_draw(definition: dict[str, Any]) -> None:
    arms = ceiling()
    report = carry_out(definition, arms)
    core = arms["draws"]["core"].to_numpy()
    truth = arms["draws"]["truth"].to_numpy()[core, None, 0]
    first = np.abs(arms["draws"]["prediction"].to_numpy()[core, :, 0] - truth).mean(axis=2)
    wanted = float(first.min(axis=1).mean())
    assert report["ladder"]["first_mae"][-1] == pytest.approx(wanted, abs=5e-5)
    counts = np.bincount(first.argmin(axis=1), minlength=DRAWS)
    assert report["best_draw"]["first"] == counts.tolist()


def test_headroom_is_of_rounded_errors_and_exact_beside(definition: dict[str, Any]) -> None:
    report = carry_out(definition, ceiling())
    for base in ("greedy", "ensemble"):
        pooled = report["arms_pooled"][base]["chunk_mae"]
        best = report["ladder"]["chunk_mae"][-1]
        assert report["headroom"][base]["chunk_mae"] == round(pooled - best, 4)
        exact = report["extended"]
        wanted = exact["arms_pooled"][base]["chunk_mae"] - exact["ladder"]["chunk_mae"][-1]
        assert exact["headroom"][base]["chunk_mae"] == wanted


def test_gains_are_per_frame_and_go_with_the_dispersion(definition: dict[str, Any]) -> None:
    arms = ceiling()
    report = carry_out(definition, arms)
    single, _ = frame_errors(arms["greedy"])
    errors, _ = frame_errors(arms["draws"])
    gain = single[:, 0] - errors.min(axis=1)
    found = report["gain"]
    assert report["paired_delta"]["greedy"]["chunk"]["mean"] == round(-gain.mean(), 5)
    assert found["share_best_beats_greedy"] == round((gain > 0).mean(), 4)
    for share, level in found["quantiles"].items():
        assert level == pytest.approx(np.quantile(gain, float(share)), abs=1e-5)
    quarters = found["by_dispersion_quartile"]
    assert [each["n_frames"] for each in quarters] == [160] * 4
    means = [each["gain"] for each in quarters]
    assert means == sorted(means)
    assert np.mean(means) == pytest.approx(gain.mean(), abs=1e-5)
    assert 0.3 < found["spearman_dispersion_gain"] <= 1


def test_frames_without_a_valid_step_are_left_out_and_counted(definition: dict[str, Any]) -> None:
    arms = ceiling()
    valid = arms["greedy"]["valid"].to_numpy().copy()
    valid[[0, 3]] = False
    arms = {role: arm.assign(valid=(arm["valid"].dims, valid)) for role, arm in arms.items()}
    report = carry_out(definition, arms)
    assert report["extended"]["n_core_without_scored_step"] == 2
    assert report["paired_delta"]["greedy"]["chunk"]["n_frames"] == 638
    assert sum(report["best_draw"]["chunk"]) == 638


def test_what_stands_in_an_invalid_step_changes_no_bit(definition: dict[str, Any]) -> None:
    arms = ceiling()
    wanted = carry_out(definition, arms)
    truth = arms["greedy"]["truth"].to_numpy().copy()
    truth[~arms["greedy"]["valid"].to_numpy()] = np.nan
    arms = {role: arm.assign(truth=(arm["truth"].dims, truth)) for role, arm in arms.items()}
    assert carry_out(definition, arms) == wanted


def test_draws_that_do_not_differ_gain_nothing_and_the_first_is_the_best(
    definition: dict[str, Any],
) -> None:
    arms = ceiling()
    arms["draws"] = scaled_draws(arms["greedy"], np.ones((FRAMES, DRAWS)), temperature=1.0)
    same = arms["greedy"]["prediction"].isel(draw=[0] * DRAWS)
    arms["draws"] = arms["draws"].assign(prediction=same)
    report = carry_out(definition, arms)
    exact = report["extended"]
    assert set(exact["ladder"]["chunk_mae"]) == {exact["arms_pooled"]["greedy"]["chunk_mae"]}
    assert report["best_draw"]["chunk"] == [640, 0, 0, 0]
    assert exact["n_frames_whose_best_draw_is_tied"] == 640
    assert report["paired_delta"]["greedy"]["chunk"]["ci95"] == [0, 0]
    assert report["gain"]["share_best_beats_greedy"] == 0
    assert report["gain"]["spearman_dispersion_gain"] is None
    assert [each["n_frames"] for each in report["gain"]["by_dispersion_quartile"]] == [0, 0, 0, 640]
    json.dumps(report, allow_nan=False)


def test_a_failed_draw_is_never_the_best_and_is_counted(definition: dict[str, Any]) -> None:
    arms = ceiling()
    stack = arms["draws"]["prediction"].to_numpy().copy()
    stack[:, 2] = np.nan
    arms["draws"] = arms["draws"].assign(prediction=(arms["draws"]["prediction"].dims, stack))
    report = carry_out(definition, arms)
    assert report["best_draw"]["chunk"][2] == 0
    assert report["extended"]["arms_pooled"]["ensemble"]["failed_draws"] == 640


def test_a_prediction_that_is_nan_in_a_scored_step_is_refused(definition: dict[str, Any]) -> None:
    arms = ceiling()
    stack = arms["draws"]["prediction"].to_numpy().copy()
    stack[0, 1, 2, 3] = np.nan
    arms["draws"] = arms["draws"].assign(prediction=(arms["draws"]["prediction"].dims, stack))
    with pytest.raises(refusal.Refusal, match="1 of 640 frames have a NaN or infinite") as refused:
        carry_out(definition, arms)
    assert refused.value.exit_code == refusal.GUARD


def test_greedy_is_read_on_the_frames_of_a_smaller_stack(definition: dict[str, Any]) -> None:
    arms = ceiling()
    quarter = slice(1, None, 4)
    both = {role: arm.isel(frame=quarter) for role, arm in arms.items()}
    joined = carry_out(definition, {**arms, "draws": both["draws"]})
    alone = carry_out(definition, both)
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    for key in ("ladder", "headroom", "paired_delta", "gain", "best_draw"):
        assert joined[key] == alone[key]


def test_the_order_of_the_frames_in_a_store_moves_no_bit(definition: dict[str, Any]) -> None:
    arms = ceiling()
    wanted = carry_out(definition, arms)
    order = np.random.default_rng(0).permutation(FRAMES)
    shuffled = {role: arm.isel(frame=order) for role, arm in arms.items()}
    assert carry_out(definition, shuffled) == wanted


@pytest.mark.parametrize("quantiles", [[], [0.5, 1.5], 0.5, ["half"]])
def test_quantiles_are_shares_of_the_frames(definition: dict[str, Any], quantiles: Any) -> None:
    with pytest.raises(refusal.Refusal, match="between 0 and 1") as refused:
        carry_out(definition, ceiling(), quantiles=quantiles)
    assert refused.value.exit_code == refusal.USAGE


def test_every_oracle_comes_out_as_planted(definition: dict[str, Any]) -> None:
    fired = run_oracles(definition, measure=selection_ceiling)
    names = ["ladder_is_enumeration", "lone_draw_is_the_anchor", "planted_best_draw"]
    assert [each.name for each in fired] == names
    assert all(each.passed for each in fired)


def test_the_oracles_hold_on_a_given_arm(definition: dict[str, Any]) -> None:
    arm = made_arm(chunk_mae=2.0, seed=3).assign_attrs(sample_draws=1, summary={"chunk_mae": 2.0})
    assert all(
        each.passed for each in run_oracles(definition, measure=selection_ceiling, given=arm)
    )


def test_an_oracle_that_does_not_come_out_as_planted_is_seen(definition: dict[str, Any]) -> None:
    def careless(arms: Arms, **changed: Any) -> dict[str, Any]:
        worst = arms["draws"]["prediction"].to_numpy()[:, ::-1]  # draws in another order
        turned = arms["draws"].assign(prediction=(arms["draws"]["prediction"].dims, worst))
        return carry_out(definition, {**arms, "draws": turned}, **changed)

    def sloppy(arms: Arms, **changed: Any) -> dict[str, Any]:
        report = carry_out(definition, arms, **changed)
        report["extended"]["ladder"]["chunk_mae"] = [
            rung * (1 + 1e-6) for rung in report["extended"]["ladder"]["chunk_mae"]
        ]
        return report

    assert [each.passed for each in oracles(definition, careless)] == [True, True, False]
    assert [each.passed for each in oracles(definition, sloppy)] == [False, False, True]


def test_the_screen_shows_ladder_headroom_and_status(definition: dict[str, Any]) -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(carry_out(definition, ceiling())))
    shown = captured.get()
    for words in ("best of K", "chunk - greedy", "first - ensemble", "4 of 4", "exploratory"):
        assert words in shown
    assert "which no selector knows" in shown.replace("\n", " ")


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=selection_ceiling", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "planted_best_draw" in out
    assert " NO " not in out
