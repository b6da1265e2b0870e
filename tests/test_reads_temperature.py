"""The temperature table: rungs on one panel's rows, its guards and oracles, and no decision."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles, run_read
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.planted_rungs import oracles
from arflow_eval.reads.temperature_table import table, temperature_table
from arflow_eval.stats.scoring import arm_errors

Arms = dict[str, xarray.Dataset]
TAGS = {"t0_5": 0.5, "t0_7": 0.7, "t1_0": 1.0, "t1_3": 1.3}
FACTORS = {"t0_5": 0.9586, "t0_7": 0.9684, "t1_0": 1.0, "t1_3": 1.0594}
QUARTER = slice(1, None, 4)


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    words = ["read=temperature_table", *(f"arms.{role}=A" for role in TAGS), "read.resamples=200"]
    found: dict[str, Any] = compose.compose("read", words)["read"]
    return found


def made() -> Arms:
    """Rungs of one policy: T = 1.0 on the full panel, the others on a quarter of it."""
    full = made_arm(chunk_mae=6.7812).assign_attrs(panel_digest="full")
    quarter = full.isel(frame=QUARTER).assign_attrs(panel_digest="q4")
    return {
        role: planted(
            full if role == "t1_0" else quarter,
            factor=FACTORS[role],
            draws=10,
            name=f"{full.attrs['arm']}_draws10_t{temperature:g}",
            temperature=temperature,
        )
        for role, temperature in TAGS.items()
    }


def carry_out(definition: dict[str, Any], arms: Arms, **changed: Any) -> dict[str, Any]:
    return run_read({**definition, **changed}, arms, measure=temperature_table)


def attribute(role: str, **values: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].assign_attrs(values)

    return change


def variable(role: str, name: str) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        values = arms[role][name].to_numpy().copy()
        values[5] += 1  # row 5 of the full panel is row 1 of the quarter
        arms[role] = arms[role].assign({name: (arms[role][name].dims, values)})

    return change


def rows(role: str, chosen: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].isel(frame=chosen)

    return change


def full_panel_as_rung(arms: Arms) -> None:
    tag = {"arm": arms["t0_7"].attrs["arm"], "temperature": 0.7}
    arms["t0_7"] = arms["t1_0"].assign_attrs(tag)


def other_rows(arms: Arms) -> None:
    full = arms["t1_0"].isel(frame=slice(2, None, 4))
    tag = {"arm": arms["t0_7"].attrs["arm"], "temperature": 0.7}
    arms["t0_7"] = full.assign_attrs(tag)


def one_row_less(arms: Arms) -> None:
    arms["t0_5"] = arms["t0_5"].isel(frame=slice(1, None))


def fewer_draws(arms: Arms) -> None:
    arms["t1_3"] = arms["t1_3"].isel(draw=slice(9))


def core_of_one(arms: Arms) -> None:
    core = np.ones(arms["t0_7"].sizes["frame"], dtype=bool)
    arms["t0_7"] = arms["t0_7"].assign_coords(core=("frame", core))


# every guard that the table runs, and a change of good arms that must trip it
MUTATIONS: dict[str, tuple[Callable[[Arms], None], str]] = {
    "complete": (attribute("t0_7", complete=False), "not marked complete"),
    "same_space": (attribute("t1_3", action_units="radian"), "action_units is"),
    "no_duplicates": (rows("t0_5", [0, 0, *range(2, 240)]), "more than once"),
    "no_duplicates of the full panel": (
        rows("t1_0", [1, *range(1, 960)]),
        "the t1_0 arm holds 1 frames more than once",
    ),
    "same_frames": (other_rows, "240 frames are only in the t0_5 arm"),
    "same_frames of a full panel that lacks one": (
        rows("t1_0", [row for row in range(960) if row != 5]),
        "1 frames are only in the t0_5 arm",
    ),
    "window_fits": (attribute("t0_5", horizon=30), "horizons differ"),
    "core_frames": (core_of_one, "core in only one"),
    "same_truth": (variable("t1_0", "truth"), "recorded actions or valid steps differ"),
    "same_baselines": (variable("t1_0", "state_copy"), "state_copy differs"),
    "same_baselines of the norm": (variable("t1_3", "state_copy_norm"), "state_copy_norm differs"),
    "temperatures": (attribute("t0_7", temperature=0.6), "has the temperature 0.6"),
    "temperatures of greedy": (attribute("t0_5", temperature=0.0), "registered 0.5"),
    "draws": (fewer_draws, "the t1_3 arm has 9 draws a frame"),
    "panel": (attribute("t0_7", panel_digest="another"), "has the digest another"),
    "names_end": (attribute("t0_5", arm="made@0_draws10_t0.7"), "ends in _draws10_t0.5"),
    "names_end without a policy": (attribute("t1_0", arm="_draws10_t1"), "ends in _draws10_t1"),
    "one_checkpoint": (attribute("t1_3", checkpoint_digest="f" * 64), "different checkpoints"),
    "one_checkpoint unknown": (attribute("t0_5", checkpoint_digest=None), "or none is known"),
    "summaries_reproduced": (
        attribute("t0_5", summary={"chunk_mae": 6.0, "first_mae": 1.0}),
        "the t0_5 arm's arrays give the chunk_mae",
    ),
    "summaries_reproduced of the full panel": (
        attribute("t1_0", summary={"chunk_mae": 6.7912}),
        "arrays give the chunk_mae 6.7812",
    ),
    "subset of a full panel as a rung": (
        full_panel_as_rung,
        "the t0_7 arm holds 960 frames and the t0_5 arm 240; expected .*; only t1_0 may hold more",
    ),
    "subset of rungs that disagree": (one_row_less, "the t0_7 arm holds 240 frames"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_guard_is_tripped_by_its_mutation(definition: dict[str, Any], mutation: str) -> None:
    arms = made()
    change, message = MUTATIONS[mutation]
    change(arms)
    pinned = {**definition["guards"], "panel": {"rows": 240, "core": 160, "digest": "q4"}}
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, arms, guards=pinned, oracles={})
    assert refused.value.exit_code == refusal.GUARD
    assert "\n" not in str(refused.value)


def test_the_mutations_name_every_guard_that_the_table_runs(definition: dict[str, Any]) -> None:
    passed = carry_out(definition, made())["extended"]["guards_passed"]
    assert set(passed) | {"subset"} == {name.split(" ")[0] for name in MUTATIONS}
    assert set(definition["guards"]) <= set(passed)


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ({"rows": 4301, "core": None, "digest": None}, "the t0_5 arm's panel has the rows 240"),
        ({"rows": None, "core": 4301, "digest": None}, "has the core 160"),
        ({"rows": None, "core": None, "digest": "ab"}, "has the digest q4"),
    ],
)
def test_another_panel_than_the_registered_one_is_refused(
    definition: dict[str, Any], pin: dict[str, Any], message: str
) -> None:
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, made(), guards={**definition["guards"], "panel": pin})
    assert refused.value.exit_code == refusal.GUARD


def test_a_table_on_a_pinned_panel_still_runs_its_oracles(definition: dict[str, Any]) -> None:
    pinned = {**definition["guards"], "panel": {"rows": 240, "core": 160, "digest": "q4"}}
    assert carry_out(definition, made(), guards=pinned)["subset_mode"] is True


def test_a_full_panel_at_t_1_is_read_on_the_rows_of_the_rungs(definition: dict[str, Any]) -> None:
    arms = made()
    joined = carry_out(definition, arms)
    alone = carry_out(definition, {**arms, "t1_0": arms["t1_0"].isel(frame=QUARTER)})
    assert (joined["subset_mode"], alone["subset_mode"]) == (True, False)
    assert joined["n_rows_paired"] == 240
    for key in ("temperature_table", "paired_delta", "arms_pooled"):
        assert joined[key] == alone[key]


def test_a_summary_of_the_full_panel_is_held_against_the_full_panel(
    definition: dict[str, Any],
) -> None:
    arms = made()
    errors = arm_errors(arms["t1_0"], arms["t1_0"]["core"].to_numpy(), window=50)
    stored = {"chunk_mae": errors.chunk_mae, "first_mae": errors.first_mae}
    arms["t1_0"] = arms["t1_0"].assign_attrs(summary=stored)
    report = carry_out(definition, arms)
    assert "summaries_reproduced" in report["extended"]["guards_passed"]
    assert abs(report["arms_pooled"]["t1_0"]["chunk_mae"] - errors.chunk_mae) > 1e-3


def test_the_table_holds_pooled_differences_rounded_after_subtraction(
    definition: dict[str, Any],
) -> None:
    report = carry_out(definition, made())
    exact = report["extended"]["arms_pooled"]
    for role, rung in report["temperature_table"].items():
        assert rung["temperature"] == TAGS[role]
        assert rung["chunk_mae"] == round(exact[role]["chunk_mae"], 4)
        for name in ("chunk_mae", "first_mae"):
            difference = exact[role][name] - exact["t1_0"][name]
            assert rung[f"delta_{name}"] == pytest.approx(difference, abs=5e-5)
    assert report["temperature_table"]["t1_0"]["delta_chunk_mae"] == 0
    zero = report["paired_delta"]["t1_0"]["chunk"]
    assert (zero["mean"], zero["ci95"]) == (0, [0, 0])


def test_factors_of_the_published_table_give_its_deltas(definition: dict[str, Any]) -> None:
    chunk = dict(zip(TAGS, definition["anchors"]["chunk_mae"]["value"], strict=True))
    wanted = dict(zip(TAGS, definition["anchors"]["delta_chunk_mae"]["value"], strict=True))
    quarter = made_arm(chunk_mae=1.0).isel(frame=QUARTER)
    scale = arm_errors(quarter, quarter["core"].to_numpy(), window=50).chunk_mae
    base = made_arm(chunk_mae=chunk["t1_0"] / scale)
    arms = made()
    for role, temperature in TAGS.items():
        arms[role] = planted(
            base.isel(frame=QUARTER),
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
    report = carry_out(definition, made())
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
            arms[other].assign_attrs(arm=arms[role].attrs["arm"], temperature=TAGS[role])
            for role, other in (("t0_5", "t0_7"), ("t0_7", "t0_5"))
        )
        return carry_out(definition, arms, oracles={}, **changed)

    assert [each.passed for each in oracles(definition, careless)] == [True, False, False, True]


def test_only_a_role_of_the_read_may_be_cut(definition: dict[str, Any]) -> None:
    with pytest.raises(refusal.Refusal, match=r"did you mean read\.subset=t1_0") as refused:
        carry_out(definition, made(), subset=["t10"], oracles={})
    assert refused.value.exit_code == refusal.USAGE


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=temperature_table", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "errors x 1.07" in out
    assert " NO " not in out
