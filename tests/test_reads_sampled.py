"""The registered study of sampled draws: branches, published keys, subsets, definitions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import made_arms
from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles
from arflow_eval.reads import expectations
from arflow_eval.reads.made import made_arm
from arflow_eval.reads.sampled_draws import ar_sampled_draws
from made_arms import carry_out, sampled


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return made_arms.definition("ar_sampled_draws")


def test_the_report_has_the_published_keys_exactly(definition: dict[str, Any]) -> None:
    report = carry_out(definition, sampled())
    keys = {
        "": "arms_pooled subset_mode n_rows_paired read1_delta_ar read2_fairness_vs_flow"
        " read3_family_band read4_first_mirrors read5_execution_oracles expectations decision"
        " extended",
        "arms_pooled": "greedy draws10_t1",
        "arms_pooled.greedy": "chunk_mae first_mae pred_key",
        "read1_delta_ar": "mean median ci95 arm_win_rate n_frames most_influential_repos"
        " definition",
        "read1_delta_ar.most_influential_repos": "repo n_excl mean_without",
        "read2_fairness_vs_flow": "delta_ar_mean flow_teacher_gain ar_gain_smaller_than_flow"
        " definition",
        "read3_family_band": "draws10_t1_chunk_mae flow_draws10_band reaches_band"
        " anchors_record_only subset_mode note",
        "read3_family_band.anchors_record_only": "teacher_draws10_heun30 snapflow_student_mean10",
        "read4_first_mirrors": "delta_ar_first flow_first_gain_descriptive"
        " flow_first_band_descriptive draws10_t1_first_mae",
        "read5_execution_oracles": "row_pairing state_copy_byte_match state_copy_norm_byte_match"
        " ar_temperature sample_draws draws_policy checkpoint report_crosscheck",
        "expectations": "e1_delta_negative e2_gain_smaller_than_flow e3_no_overtake_of_flow_band"
        " e4_falsifier",
        "expectations.e1_delta_negative": "met ci95_excludes_zero",
        "expectations.e4_falsifier": "rule falsified",
        "decision": "falsified assembly",
    }
    for path, names in keys.items():
        found = expectations.at(report, path) if path else report
        found = found[0] if isinstance(found, list) else found
        assert list(found) == names.split(), path


def test_the_sentences_are_the_published_ones(definition: dict[str, Any]) -> None:
    assembly = carry_out(definition, sampled())["decision"]["assembly"]
    assert assembly == [
        (
            "E1 MET + E2 MET: Delta_AR < 0 with CI95 excluding 0 and |Delta_AR| < 1.258 \u2014 the"
            " AR gain is real but SMALLER than the flow teacher's; greedy decode already sits near"
            " the predictive mean (the mean-collapse shape)"
        ),
        "E3 as expected: _draws10_t1 5.5125 does not overtake the flow draws10 band 5.365",
    ]


def test_every_oracle_of_the_study_fires_its_branch(definition: dict[str, Any]) -> None:
    fired = run_oracles(definition, measure=ar_sampled_draws)
    assert {each.name for each in fired} == set(definition["oracles"]["branches"])
    assert all(each.passed for each in fired)


def test_on_a_given_arm_a_branch_out_of_reach_is_listed_as_such(definition: dict[str, Any]) -> None:
    arm = made_arm(chunk_mae=2.0).assign_attrs(panel_digest="whole")
    fired = run_oracles(definition, measure=ar_sampled_draws, given=arm)
    said = {each.name: each for each in fired}
    assert all(each.passed for each in fired)
    assert said["e2_not_met"].planted is None
    assert said["e4_falsified"].planted == "errors x 1.06"


def test_a_read_whose_oracle_fails_refuses_real_arms(definition: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(definition))
    broken["oracles"]["branches"]["none"]["factor"] = 0.97
    with pytest.raises(refusal.Refusal, match="the oracle none of ar_sampled_draws") as refused:
        carry_out(broken, sampled(), oracles=broken["oracles"])
    assert refused.value.exit_code == refusal.GUARD


def test_an_arm_that_holds_only_the_mean_of_its_draws_counts_those_behind_it(
    definition: dict[str, Any],
) -> None:
    arms = sampled()
    mean = arms["draws"].isel(draw=slice(1)).assign_attrs(pooled=True, sample_draws=10)
    whole, pooled = (
        carry_out(definition, {**arms, "draws": each}) for each in (arms["draws"], mean)
    )
    assert pooled["read1_delta_ar"] == whole["read1_delta_ar"]
    assert pooled["read5_execution_oracles"]["sample_draws"] == 10


def test_a_strict_subset_is_joined_repooled_and_flagged(definition: dict[str, Any]) -> None:
    arms = sampled()
    quarter = np.flatnonzero(np.arange(960) % 4 == 1)
    both = {role: arm.isel(frame=quarter) for role, arm in arms.items()}
    joined = carry_out(definition, {"greedy": arms["greedy"], "draws": both["draws"]})
    alone = carry_out(definition, both)
    assert joined["subset_mode"] is True
    assert joined["read3_family_band"]["note"] == "re-pooled on the joined subset of frames"
    assert joined["read1_delta_ar"] == alone["read1_delta_ar"]
    assert joined["n_rows_paired"] == len(quarter)


def test_a_subset_is_refused_where_the_read_allows_none(definition: dict[str, Any]) -> None:
    arms = sampled()
    arms["draws"] = arms["draws"].isel(frame=slice(0, 480))
    with pytest.raises(refusal.Refusal, match="only in the greedy arm"):
        carry_out(definition, arms, subset=False)


def test_a_missing_row_in_the_larger_arm_is_refused(definition: dict[str, Any]) -> None:
    arms = sampled()
    arms["greedy"] = arms["greedy"].isel(frame=slice(1, None))
    arms["draws"] = arms["draws"].isel(frame=slice(0, 480))
    with pytest.raises(refusal.Refusal, match="only in the"):
        carry_out(definition, arms)


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=ar_sampled_draws", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    for words in ("self_pair", "errors x 0.95", "E4 FALSIFIED", "E3 VIOLATED"):
        assert words in out
    assert " NO " not in out


def test_without_arms_a_read_still_says_what_is_missing() -> None:
    with pytest.raises(refusal.Refusal, match=r"arms\.greedy and arms\.draws not given"):
        compose.compose("read", ["read=ar_sampled_draws"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"guards": {"temperature": {"of": {}}}}, "did you mean temperatures"),
        ({"guards": {"one_checkpoint": {"of": 1}}}, "read.guards.one_checkpoint has the keys of"),
        ({"expectations": {"e": {"met": {"value": "x", "is": "beneath", "than": 0}}}}, "beneath"),
        ({"expectations": {"e": {"met": {"value": "x", "than": 0}}}}, "has the keys value, than"),
        (
            {
                "expectations": {
                    "e": {"met": {"value": "read1_delta_a.mean", "is": "below", "than": 0}}
                }
            },
            "did you mean read1_delta_ar",
        ),
        ({"decision": [[{"if": {}, "say": "x"}]]}, r"decision\[0\] has the keys if"),
    ],
)
def test_a_definition_that_does_not_hold_together_is_refused(
    definition: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, sampled(), **changed)
    assert refused.value.exit_code == refusal.USAGE


def test_an_interval_without_ends_excludes_nothing() -> None:
    comparison = {"interval": "ci", "excludes": 0}
    assert expectations.holds(comparison, {"ci": [None, None]}) is None
    assert expectations.holds(comparison, {"ci": [-2, -1]}) is True
    assert expectations.holds(comparison, {"ci": [-2, 0]}) is False


def test_a_report_is_written_only_after_every_guard(tmp_path: Path) -> None:
    words = ["read=ar_sampled_draws", "arms.greedy=nowhere", "arms.draws=nowhere"]
    assert read.main([*words, f"store.root={tmp_path}"]) == refusal.USAGE
    assert not list(tmp_path.iterdir())


def test_the_registered_panel_and_its_quarter_are_those_of_the_study() -> None:
    words = ["read=ar_sampled_draws", "oracle=true"]
    assert compose.compose("read", words)["read"]["guards"]["panel"] == {
        "one_of": [
            {"rows": 25800, "core": 17204, "repos": 878, "digest": None},
            {"rows": 4301, "core": 4301, "repos": None, "digest": None},
        ]
    }


@pytest.mark.parametrize("panels", [None, [], [{"core": 640}], [{"rows": 1}, {"repos": 240}]])
def test_another_panel_is_read_where_the_command_says_so(
    definition: dict[str, Any], panels: Any
) -> None:
    guards = {**definition["guards"], "panel": {"one_of": panels}}
    report = carry_out(definition, sampled(), guards=guards)
    assert report["extended"]["definition"]["guards"]["panel"] == {"one_of": panels}


def test_a_misspelt_count_of_a_panel_is_a_usage_error(definition: dict[str, Any]) -> None:
    guards = {**definition["guards"], "panel": {"one_of": [{"row": 960}]}}
    with pytest.raises(refusal.Refusal, match=r"did you mean .*one_of=rows") as refused:
        carry_out(definition, sampled(), guards=guards)
    assert refused.value.exit_code == refusal.USAGE
