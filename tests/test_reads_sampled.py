"""The registered study of sampled draws: guards and their mutations, branches, published keys."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles, run_read
from arflow_eval.reads import expectations, registered
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.sampled_draws import ar_sampled_draws

Arms = dict[str, xarray.Dataset]


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    words = ["read=ar_sampled_draws", "arms.greedy=A", "arms.draws=B", "read.resamples=300"]
    found: dict[str, Any] = compose.compose("read", words)["read"]
    return found


def made(*, factor: float = 0.95) -> Arms:
    greedy = made_arm(chunk_mae=5.8026)
    name = f"{greedy.attrs['arm']}_draws10_t1"
    return {
        "greedy": greedy,
        "draws": planted(greedy, factor=factor, draws=10, name=name, temperature=1.0),
    }


def carry_out(definition: dict[str, Any], arms: Arms, **changed: Any) -> dict[str, Any]:
    return run_read({**definition, **changed}, arms, measure=ar_sampled_draws)


def attribute(role: str, **values: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].assign_attrs(values)

    return change


def variable(role: str, name: str) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        values = arms[role][name].to_numpy().copy()
        values[3] += 1
        arms[role] = arms[role].assign({name: (arms[role][name].dims, values)})

    return change


def rows(role: str, chosen: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].isel(frame=chosen)

    return change


def foreign(arms: Arms) -> None:
    names = arms["draws"]["repo_name"].to_numpy().copy()
    names[5] = "someone/else"
    arms["draws"] = arms["draws"].assign_coords(repo_name=("frame", names))


def fewer_draws(arms: Arms) -> None:
    arms["draws"] = arms["draws"].isel(draw=slice(9))


# every guard that the study runs, and a change of good arms that must trip it
MUTATIONS: dict[str, tuple[Callable[[Arms], None], str]] = {
    "complete": (attribute("draws", complete=False), "not marked complete"),
    "same_space": (attribute("draws", action_units="radian"), "action_units is"),
    "no_duplicates": (rows("draws", [0, 0, 1, 2]), "more than once"),
    "same_frames": (foreign, "only in the"),
    "window_fits": (attribute("draws", horizon=30), "horizons differ"),
    "core_frames": (
        lambda arms: arms.update(
            draws=arms["draws"].assign_coords(core=("frame", np.zeros(960, bool)))
        ),
        "core in only one",
    ),
    "same_truth": (variable("draws", "truth"), "recorded actions or valid steps differ"),
    "same_baselines": (variable("draws", "state_copy"), "state_copy differs"),
    "same_baselines of the norm": (
        variable("greedy", "state_copy_norm"),
        "state_copy_norm differs",
    ),
    "temperatures": (attribute("draws", temperature=0.7), "has the temperature 0.7"),
    "temperatures of greedy": (attribute("greedy", temperature=1.0), "registered 0"),
    "draws": (fewer_draws, "has 9 draws a frame"),
    "name_extends": (attribute("draws", arm="made@0_draws10_t0.7"), "extended by exactly"),
    "one_checkpoint": (attribute("draws", checkpoint_digest="f" * 64), "different checkpoints"),
    "one_checkpoint unknown": (attribute("greedy", checkpoint_digest=None), "or none is known"),
    "summaries_reproduced": (
        attribute("greedy", summary={"chunk_mae": 5.81, "first_mae": 1.0}),
        "arrays give the chunk_mae 5.8026",
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 25800, "core": None, "digest": None}, "has the rows 960"),
        ({"rows": None, "core": 17204, "digest": None}, "has the core 640"),
        ({"rows": None, "core": None, "digest": "ab"}, "has the digest None"),
    ],
)
def test_another_panel_than_the_registered_one_is_refused(
    definition: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(refusal.Refusal, match=message):
        carry_out(definition, made(), guards={**definition["guards"], "panel": settings})


def test_the_mutations_name_every_guard_that_the_study_runs(definition: dict[str, Any]) -> None:
    passed = carry_out(definition, made())["extended"]["guards_passed"]
    assert set(passed) - {"panel"} == {name.split(" ")[0] for name in MUTATIONS}
    assert set(definition["guards"]) == set(registered.GUARDS) & set(passed)


def test_the_report_has_the_published_keys_exactly(definition: dict[str, Any]) -> None:
    report = carry_out(definition, made())
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
    assembly = carry_out(definition, made())["decision"]["assembly"]
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
    fired = run_oracles(definition, measure=ar_sampled_draws, given=made_arm(chunk_mae=2.0))
    said = {each.name: each for each in fired}
    assert all(each.passed for each in fired)
    assert said["e2_not_met"].planted is None
    assert said["e4_falsified"].planted == "errors x 1.06"


def test_a_read_whose_oracle_fails_refuses_real_arms(definition: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(definition))
    broken["oracles"]["branches"]["none"]["factor"] = 0.97
    with pytest.raises(refusal.Refusal, match="the oracle none of ar_sampled_draws") as refused:
        carry_out(broken, made())
    assert refused.value.exit_code == refusal.GUARD


def test_an_arm_that_holds_only_the_mean_of_its_draws_counts_those_behind_it(
    definition: dict[str, Any],
) -> None:
    arms = made()
    mean = arms["draws"].isel(draw=slice(1)).assign_attrs(pooled=True, sample_draws=10)
    whole, pooled = (
        carry_out(definition, {**arms, "draws": each}) for each in (arms["draws"], mean)
    )
    assert pooled["read1_delta_ar"] == whole["read1_delta_ar"]
    assert pooled["read5_execution_oracles"]["sample_draws"] == 10


def test_a_strict_subset_is_joined_repooled_and_flagged(definition: dict[str, Any]) -> None:
    arms = made()
    quarter = np.flatnonzero(np.arange(960) % 4 == 1)
    both = {role: arm.isel(frame=quarter) for role, arm in arms.items()}
    joined = carry_out(definition, {"greedy": arms["greedy"], "draws": both["draws"]})
    alone = carry_out(definition, both)
    assert joined["subset_mode"] is True
    assert joined["read3_family_band"]["note"] == "re-pooled on the joined subset of frames"
    assert joined["read1_delta_ar"] == alone["read1_delta_ar"]
    assert joined["n_rows_paired"] == len(quarter)


def test_a_subset_is_refused_where_the_read_allows_none(definition: dict[str, Any]) -> None:
    arms = made()
    arms["draws"] = arms["draws"].isel(frame=slice(0, 480))
    with pytest.raises(refusal.Refusal, match="only in the greedy arm"):
        carry_out(definition, arms, subset=False)


def test_a_missing_row_in_the_larger_arm_is_refused(definition: dict[str, Any]) -> None:
    arms = made()
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
        carry_out(definition, made(), **{"oracles": {}, **changed})
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
