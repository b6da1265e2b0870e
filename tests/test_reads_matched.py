"""The matched window: splits and masks, classes, guards and their mutations, oracles."""

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
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.matched_window import matched_window, table
from arflow_eval.reads.planted_candidate import oracles
from arflow_eval.reads.repos import frames_of, named
from arflow_eval.reads.splits import classified
from arflow_eval.stats.scoring import arm_errors

Arms = dict[str, xarray.Dataset]
FACTORS = {
    "snapflow_80k_ticket": 0.9,
    "snapflow_80k": 1.1,
    "ar_40k": 1.0,
    "ar_60k": 0.97,
    "er_60k": 1.25,
}
DIRTY = [f"made/repo{number:03d}" for number in range(0, 240, 3)]
MASKED = "made/repo001"
COUNTS = {"repos": 80, "frames": 320, "core": 240, "clean_core": 400}


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    """The study as it is registered, with the pins of the made panel."""
    roles = [f"arms.{role}=A" for role in ("candidate", *FACTORS)]
    found: dict[str, Any] = compose.compose(
        "read", ["read=matched_window", *roles, "read.resamples=200"]
    )["read"]
    guards = {
        **found["guards"],
        "panel": {"rows": 960, "core": 640, "digest": None},
        "contamination": {"of": DIRTY, **COUNTS},
        "exclusion": {"of": [MASKED], "frames": 4, "core": 3},
        "full_chunk": {
            "of": {role: 6.0079 * factor for role, factor in FACTORS.items()},
            "tolerance": 5e-3,
        },
    }
    return {**found, "contaminated": DIRTY, "excluded": [MASKED], "guards": guards}


def candidate(base: xarray.Dataset, *, factor: float) -> xarray.Dataset:
    made = planted(base, factor=factor, draws=1, name="molmoact2@release", temperature=None)
    prediction = made["prediction"].to_numpy().copy()
    prediction[:, :, 30:] = np.nan
    return made.assign(prediction=(made["prediction"].dims, prediction)).assign_attrs(horizon=30)


def made(*, factor: float = 0.95) -> Arms:
    base = made_arm(chunk_mae=6.0079)
    banked = {
        role: planted(base, factor=each, draws=1, name=f"{role}@1", temperature=None)
        for role, each in FACTORS.items()
    }
    ticket = banked["snapflow_80k_ticket"]
    banked["snapflow_80k_ticket"] = ticket.assign_attrs(arm="bijou@80000_draws10_ticket")
    return {"candidate": candidate(base, factor=factor), **banked}


def carry_out(definition: dict[str, Any], arms: Arms, **changed: Any) -> dict[str, Any]:
    return run_read({**definition, **changed}, arms, measure=matched_window)


def attribute(role: str, **values: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].assign_attrs(values)

    return change


def variable(role: str, name: str, *, at: tuple[Any, ...] = (3,), by: float = 1) -> Any:
    def change(arms: Arms) -> None:
        values = arms[role][name].to_numpy().copy()
        values[at] += by
        arms[role] = arms[role].assign({name: (arms[role][name].dims, values)})

    return change


def filled_tail(arms: Arms) -> None:
    values = arms["candidate"]["prediction"].to_numpy().copy()
    values[700, 0, 30, 2] = 1
    arms["candidate"] = arms["candidate"].assign(
        prediction=(arms["candidate"]["prediction"].dims, values)
    )


def rows(role: str, chosen: Any) -> Callable[[Arms], None]:
    def change(arms: Arms) -> None:
        arms[role] = arms[role].isel(frame=chosen)

    return change


def renamed(number: int, *, frames: list[int]) -> Callable[[Arms], None]:
    """Frames that come to belong to another repo, in every arm."""

    def change(arms: Arms) -> None:
        for role, arm in arms.items():
            names = arm["repo_name"].to_numpy().copy()
            names[frames] = f"made/repo{number:03d}"
            episodes = arm["episode"].to_numpy() + 1000
            columns = {"repo_name": ("frame", names), "episode": ("frame", episodes)}
            arms[role] = arm.assign_coords(columns)

    return change


def core_of_one(arms: Arms) -> None:
    core = np.ones(960, dtype=bool)
    arms["ar_60k"] = arms["ar_60k"].assign_coords(core=("frame", core))


def without_floor(arms: Arms) -> None:
    for role in arms:
        arms[role] = arms[role].drop_vars("state_copy")


def two_draws(arms: Arms) -> None:
    arms["candidate"] = arms["candidate"].isel(draw=[0, 0])


# every guard that the read runs, and a change of good arms that must trip it
MUTATIONS: dict[str, tuple[Callable[[Arms], None], str]] = {
    "complete": (attribute("er_60k", complete=False), "not marked complete"),
    "same_space": (attribute("ar_40k", fps=10.0), "fps is"),
    "no_duplicates": (rows("ar_40k", [0, 0, *range(2, 960)]), "more than once"),
    "same_frames": (rows("ar_40k", slice(1, None)), "1 frames are only in the candidate arm"),
    "window_fits": (attribute("ar_60k", horizon=20), "a window of 30 steps"),
    "core_frames": (core_of_one, "core in only one"),
    "same_truth": (variable("snapflow_80k", "truth"), "recorded actions or valid steps differ"),
    "same_baselines": (variable("ar_60k", "state_copy"), "state_copy differs"),
    "draws": (two_draws, "the candidate arm has 2 draws"),
    "names_end": (
        attribute("snapflow_80k_ticket", arm="bijou@80000_draws10"),
        "ends in _draws10_ticket",
    ),
    "panel": (
        lambda arms: arms.update({role: arm.isel(frame=slice(959)) for role, arm in arms.items()}),
        "has the rows 959",
    ),
    "contamination of repos": (
        renamed(0, frames=[12, 13, 14, 15]),
        "the contaminated split has 79 repos; expected the registered 80",
    ),
    "contamination of frames": (renamed(0, frames=[5]), "has 321 frames"),
    "exclusion": (renamed(1, frames=[8]), "the exclusion has 5 frames"),
    "fills_exactly": (
        variable("candidate", "prediction", at=(700, 0, 29, 5), by=np.nan),
        "not finite within 30 steps on 1 frames",
    ),
    "fills_exactly of the tail": (filled_tail, "not NaN after 30 steps on 1 frames"),
    "full_chunk": (
        variable("er_60k", "prediction", at=(slice(None), 0, slice(40, None)), by=1),
        "the er_60k arm's whole chunk has the MAE",
    ),
    "summaries_reproduced": (
        attribute("ar_40k", summary={"chunk_mae": 6.02}),
        "arrays give the chunk_mae 6.0079",
    ),
    "floor": (without_floor, "the arms carry no state_copy"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_guard_is_tripped_by_its_mutation(definition: dict[str, Any], mutation: str) -> None:
    arms = made()
    change, message = MUTATIONS[mutation]
    change(arms)
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, arms, oracles={})
    assert refused.value.exit_code == refusal.GUARD
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("guard", "pin", "message"),
    [
        ("contamination", {"core": 5332}, "contaminated split has 240 core frames"),
        ("contamination", {"clean_core": 11872}, "contaminated split has 400 clean core frames"),
        ("contamination", {"of": DIRTY[1:]}, "has 79 repos"),
        ("contamination", {"of": []}, "has 0 repos"),
        ("exclusion", {"core": 16}, "the exclusion has 3 core frames"),
        ("exclusion", {"of": ["made/repo0001"]}, "did you mean made/repo"),
        ("full_chunk", {"of": {"ar_40k": 6.0079, "er_60k": 7.5283}}, "its banked 7.5283"),
    ],
)
def test_other_counts_than_the_registered_ones_are_refused(
    definition: dict[str, Any], guard: str, pin: dict[str, Any], message: str
) -> None:
    guards = definition["guards"]
    changed = {**guards, guard: {**guards[guard], **pin}}
    with pytest.raises(refusal.Refusal, match=message) as refused:
        carry_out(definition, made(), guards=changed, oracles={})
    assert refused.value.exit_code == refusal.GUARD


def test_the_mutations_name_every_guard_that_the_read_runs(definition: dict[str, Any]) -> None:
    passed = carry_out(definition, made())["extended"]["guards_passed"]
    assert set(passed) | {"floor"} == {name.split(" ")[0] for name in MUTATIONS}
    assert set(definition["guards"]) <= set(passed)


def test_pins_that_are_null_hold_any_panel(definition: dict[str, Any]) -> None:
    guards = {
        **definition["guards"],
        "contamination": {"of": DIRTY[5:], **dict.fromkeys(COUNTS)},
        "exclusion": {"of": [], "frames": None, "core": None},
        "full_chunk": {"of": dict.fromkeys(FACTORS), "tolerance": 5e-3},
    }
    report = carry_out(definition, made(), guards=guards, contaminated=DIRTY[5:], excluded=[])
    assert report["contamination"]["repos"] == 75


def test_a_difference_is_classified_by_its_interval_in_every_split(
    definition: dict[str, Any],
) -> None:
    report = carry_out(definition, made())
    assert list(report["splits"]) == ["pooled", "clean", "contaminated"]
    for split in report["splits"].values():
        classes = {role: split["paired"][role]["class"] for role in FACTORS}
        assert classes == {
            "snapflow_80k_ticket": "WORSE",
            "snapflow_80k": "BETTER",
            "ar_40k": "BETTER",
            "ar_60k": "BETTER",
            "er_60k": "BETTER",
        }


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ((-2.0, -1.0), "BETTER"),
        ((1.0, 2.0), "WORSE"),
        ((-1.0, 1.0), "CI-SPANS-0"),
        ((-1.0, 0.0), "CI-SPANS-0"),
        ((0.0, 0.0), "CI-SPANS-0"),
        ((None, None), "NO-INTERVAL"),
    ],
)
def test_an_end_at_zero_excludes_nothing(
    ends: tuple[float | None, float | None], word: str
) -> None:
    assert classified(*ends) == word


def test_guards_count_before_the_mask_and_reads_after_it(definition: dict[str, Any]) -> None:
    report = carry_out(definition, made())
    assert report["n_core"] == 640
    assert report["excluded"] == {"names": [MASKED], "repos": 1, "frames": 4, "core_frames": 3}
    sizes = {name: split["n_core"] for name, split in report["splits"].items()}
    assert sizes == {"pooled": 637, "clean": 397, "contaminated": 240}
    assert report["contamination"] == {"repos": 80, "frames": 320, "core_frames": 240}


def test_the_contamination_pin_counts_an_excluded_repo(definition: dict[str, Any]) -> None:
    guards = {
        **definition["guards"],
        "exclusion": {"of": [DIRTY[0]], "frames": None, "core": None},
    }
    report = carry_out(definition, made(), guards=guards, excluded=[DIRTY[0]])
    assert report["contamination"]["core_frames"] == 240
    assert report["splits"]["contaminated"]["n_core"] == 240 - report["excluded"]["core_frames"]


def test_what_an_excluded_repo_holds_moves_no_number(definition: dict[str, Any]) -> None:
    arms = made()
    broken = made()
    for role, arm in broken.items():
        truth = arm["truth"].to_numpy().copy()
        truth[frames_of(arm, [MASKED])] = 3141
        broken[role] = arm.assign(truth=(arm["truth"].dims, truth))
    guards = {name: it for name, it in definition["guards"].items() if name != "full_chunk"}
    first, second = (carry_out(definition, each, guards=guards) for each in (arms, broken))
    assert first["splits"] == second["splits"]


def test_a_split_scores_the_window_of_its_own_frames(definition: dict[str, Any]) -> None:
    arms = made()
    report = carry_out(definition, arms)
    chosen = arms["ar_40k"]["core"].to_numpy() & frames_of(arms["ar_40k"], DIRTY)
    errors = arm_errors(arms["ar_40k"], chosen, window=30)
    found = report["extended"]["splits"]["contaminated"]["arms"]["ar_40k"]
    assert found["chunk_mae"] == pytest.approx(errors.chunk_mae, rel=1e-12)
    floor = arm_errors(arms["ar_40k"], chosen, window=30, variable="state_copy")
    assert report["splits"]["contaminated"]["arms"]["state_copy"] == {
        "chunk_mae": round(floor.chunk_mae, 4),
        "first_mae": round(floor.first_mae, 4),
        "pred_key": "pred:state-copy",
    }


def test_whole_chunks_stand_apart_as_secondary_anchors(definition: dict[str, Any]) -> None:
    secondary = carry_out(definition, made())["secondary_full_chunk"]
    assert "candidate" not in secondary
    assert secondary["ar_40k"]["steps"] == 50
    assert secondary["ar_40k"]["chunk_mae"] == 6.0079
    assert secondary["ar_40k"]["anchor"] == 6.0079


def test_the_contaminated_repos_may_come_from_a_file(
    definition: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "repos.json"
    path.write_text(json.dumps([*DIRTY, "someone/else"]))
    guards = {**definition["guards"], "contamination": {"of": str(path), **COUNTS}}
    given = carry_out(definition, made())
    found = carry_out(definition, made(), guards=guards, contaminated=str(path))
    assert found["splits"] == given["splits"]
    digests = [it["extended"]["read_from"]["contaminated"] for it in (given, found)]
    assert digests[0] != digests[1]  # the file names one repo more


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "no json", None])
def test_a_file_that_holds_no_list_of_repos_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "repos.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(refusal.Refusal, match=r"repos\.json") as refused:
        named(str(path))
    assert refused.value.exit_code == refusal.USAGE


def test_without_contaminated_repos_there_is_one_split(definition: dict[str, Any]) -> None:
    guards = {name: it for name, it in definition["guards"].items() if name != "contamination"}
    report = carry_out(definition, made(), contaminated=[], guards=guards)
    assert list(report["splits"]) == ["pooled"]


def test_banked_arms_may_have_any_role_but_that_of_the_floor(definition: dict[str, Any]) -> None:
    arms = made()
    guards = {name: definition["guards"][name] for name in ("panel", "fills_exactly")}
    two = {"candidate": arms["candidate"], "mine": arms["ar_40k"]}
    report = carry_out(definition, two, guards=guards)
    assert list(report["splits"]["pooled"]["paired"]) == ["mine", "state_copy"]
    assert list(report["extended"]["arms"]) == ["candidate", "mine"]
    with pytest.raises(refusal.Refusal, match="an arm has the role state_copy"):
        carry_out(definition, {**two, "state_copy": arms["ar_40k"]}, guards=guards)
    with pytest.raises(refusal.Refusal, match="no arm is called window"):
        carry_out(definition, {**two, "window": arms["ar_40k"]}, guards=guards)
    with pytest.raises(refusal.Refusal, match="the arm candidate is missing"):
        carry_out(definition, {"mine": arms["ar_40k"]}, guards=guards)


def test_the_read_is_record_only_and_its_table_says_so(definition: dict[str, Any]) -> None:
    report = carry_out(definition, made())
    assert report["extended"]["status"] == "record-only"
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(report))
    shown = captured.get()
    for words in (
        "record-only",
        "BETTER",
        "contaminated: 240 core",
        f"excluded: {MASKED} (4 frames",
    ):
        assert words in shown


def test_every_oracle_is_classified_as_planted(definition: dict[str, Any]) -> None:
    fired = run_oracles(definition, measure=matched_window)
    assert len(fired) == 2 * len(definition["oracles"]["planted"])
    assert all(each.passed for each in fired)
    found = {each.name: each.found.rpartition(": ")[2] for each in fired}
    assert found["better_where_tuned, clean"] == "WORSE"
    assert found["better_where_tuned, contaminated"] == "BETTER"


@pytest.mark.parametrize("mistake", [{"excluded": []}, {"contaminated": DIRTY[:40]}])
def test_a_read_that_masks_or_splits_otherwise_fails_its_oracles(
    definition: dict[str, Any], mistake: dict[str, Any]
) -> None:
    def careless(arms: Arms, **changed: Any) -> dict[str, Any]:
        return carry_out(definition, arms, **{**changed, "oracles": {}, **mistake})

    assert not all(each.passed for each in oracles(definition, careless))


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=matched_window", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "better_where_tuned" in out
    assert " NO " not in out


def test_the_registered_counts_are_those_of_the_study() -> None:
    roles = [f"arms.{role}=A" for role in ("candidate", *FACTORS)]
    words = ["read=matched_window", *roles, "read.contaminated=tuned.json"]
    guards = compose.compose("read", words)["read"]["guards"]
    assert guards["panel"]["core"] == 17204
    assert guards["contamination"] == {
        "of": "tuned.json",
        "repos": 245,
        "frames": 7996,
        "core": 5332,
        "clean_core": 17204 - 5332,
    }
    assert guards["full_chunk"]["of"]["er_60k"] == 7.5283
    assert guards["fills_exactly"] == {"role": "candidate", "steps": 30}
