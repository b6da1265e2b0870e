"""The temperature table: rungs on one panel's rows, its oracles, and no decision."""

from typing import Any

import pytest
from rich.console import Console

import made_arms
from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles
from arflow_eval.reads import registered
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.planted_rungs import oracles
from arflow_eval.reads.temperature_table import table, temperature_table
from arflow_eval.stats.scoring import arm_errors
from made_arms import QUARTER, RUNGS, Arms, carry_out, rungs


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return made_arms.definition("temperature_table")


def test_a_table_on_a_pinned_panel_still_runs_its_oracles(definition: dict[str, Any]) -> None:
    report = carry_out(definition, rungs(), oracles=definition["oracles"])
    assert report["subset_mode"] is True


def test_a_full_panel_at_t_1_is_read_on_the_rows_of_the_rungs(definition: dict[str, Any]) -> None:
    arms = rungs()
    joined = carry_out(definition, arms)
    quarter = arms["t1_0"].isel(frame=QUARTER).assign_attrs(panel_digest="q4")
    alone = carry_out(definition, {**arms, "t1_0": quarter})
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    assert joined["n_rows_paired"] == 240
    for key in ("temperature_table", "paired_delta", "arms_pooled"):
        assert joined[key] == alone[key]


def test_a_summary_of_the_full_panel_is_held_against_the_full_panel(
    definition: dict[str, Any],
) -> None:
    arms = rungs()
    errors = arm_errors(arms["t1_0"], arms["t1_0"]["core"].to_numpy(), window=50)
    stored = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    arms["t1_0"] = arms["t1_0"].assign_attrs(summary=stored)
    report = carry_out(definition, arms)
    assert "summaries_reproduced" in report["extended"]["guards_passed"]
    assert abs(report["arms_pooled"]["t1_0"]["chunk_mae"] - errors.chunk_mae) > 1e-3


def test_the_table_holds_pooled_differences_rounded_after_subtraction(
    definition: dict[str, Any],
) -> None:
    report = carry_out(definition, rungs())
    exact = report["extended"]["arms_pooled"]
    for role, rung in report["temperature_table"].items():
        assert rung["temperature"] == RUNGS[role]
        assert rung["chunk_mae"] == round(exact[role]["chunk_mae"], 4)
        for name in ("chunk_mae", "first_mae"):
            difference = exact[role][name] - exact["t1_0"][name]
            assert rung[f"delta_{name}"] == pytest.approx(difference, abs=5e-5)
    assert report["temperature_table"]["t1_0"]["delta_chunk_mae"] == 0
    zero = report["paired_delta"]["t1_0"]["chunk"]
    assert (zero["mean"], zero["ci95"]) == (0, [0, 0])


def test_factors_of_the_published_table_give_its_deltas(definition: dict[str, Any]) -> None:
    chunk = dict(zip(RUNGS, definition["anchors"]["chunk_mae"]["value"], strict=True))
    wanted = dict(zip(RUNGS, definition["anchors"]["delta_chunk_mae"]["value"], strict=True))
    quarter = made_arm(chunk_mae=1.0).isel(frame=QUARTER)
    scale = arm_errors(quarter, quarter["core"].to_numpy(), window=50).chunk_mae
    base = made_arm(chunk_mae=chunk["t1_0"] / scale)
    arms = rungs()
    for role, temperature in RUNGS.items():
        arms[role] = planted(
            base.isel(frame=QUARTER).assign_attrs(panel_digest="q4"),
            factor=chunk[role] / chunk["t1_0"],
            draws=10,
            name=arms[role].attrs["arm"],
            temperature=temperature,
        )
    found = carry_out(definition, arms)["temperature_table"]
    for role, rung in found.items():
        assert rung["chunk_mae"] == pytest.approx(chunk[role], abs=1e-4)
        assert rung["delta_chunk_mae"] == pytest.approx(wanted[role], abs=2e-4)


def test_the_table_is_record_only_and_decides_nothing(definition: dict[str, Any]) -> None:
    report = carry_out(definition, rungs())
    assert report["extended"]["status"] == "record-only"
    assert not {"expectations", "decision"} & set(report)
    assert report["anchors_record_only"]["rows"] == 4301
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(report))
    shown = captured.get()
    for words in ("status: record-only", "joined from a larger panel", "0.5", "+0.0000", "t1_3"):
        assert words in shown


def test_every_oracle_of_the_table_comes_out_as_planted(definition: dict[str, Any]) -> None:
    fired = run_oracles(definition, measure=temperature_table)
    assert [each.name for each in fired] == ["slice_equals_repool", "t0_5", "t0_7", "t1_3"]
    assert all(each.passed for each in fired)
    assert fired[1].found.startswith("chunk MAE x 0.930000")


def test_an_oracle_that_does_not_come_out_as_planted_is_seen(definition: dict[str, Any]) -> None:
    def careless(arms: Arms, **changed: Any) -> dict[str, Any]:
        arms["t0_5"], arms["t0_7"] = (
            arms[other].assign_attrs(arm=arms[role].attrs["arm"], temperature=RUNGS[role])
            for role, other in (("t0_5", "t0_7"), ("t0_7", "t0_5"))
        )
        return carry_out(unpinned, arms, **changed)

    unpinned = {**definition, "guards": registered.unpinned(definition["guards"])}
    assert [each.passed for each in oracles(definition, careless)] == [True, False, False, True]


def test_only_a_role_of_the_read_may_be_cut(definition: dict[str, Any]) -> None:
    with pytest.raises(refusal.Refusal, match=r"did you mean read\.subset=t1_0") as refused:
        carry_out(definition, rungs(), subset=["t10"])
    assert refused.value.exit_code == refusal.USAGE


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=temperature_table", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "errors x 1.07" in out
    assert " NO " not in out


def test_the_registered_panel_is_the_quarter() -> None:
    stated = compose.compose("read", ["read=temperature_table", "oracle=true"])["read"]
    (panel,) = stated["guards"]["panel"]["one_of"]
    assert panel == {"rows": 4301, "core": 4301, "repos": None, "digest": None}
    assert panel["rows"] == stated["anchors"]["rows"]["value"]
