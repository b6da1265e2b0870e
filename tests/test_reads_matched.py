"""The matched window: splits and masks, classes, oracles."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import made_arms
from arflow_eval import compose, read, refusal
from arflow_eval.reading import run_oracles
from arflow_eval.reads.matched_window import matched_window, table
from arflow_eval.reads.planted_candidate import oracles
from arflow_eval.reads.repos import frames_of, named
from arflow_eval.reads.splits import classified
from arflow_eval.stats.scoring import arm_errors
from made_arms import BANKED, DIRTY, MASKED, Arms, candidates, carry_out

PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "so100_so101_molmoact2_1220.json"
COUNTS = ("repos", "frames", "core", "clean_core")


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    """The study as it is registered, with the pins of the made panel."""
    return made_arms.definition("matched_window")


def test_pins_that_are_null_hold_any_panel(definition: dict[str, Any]) -> None:
    guards = {
        **definition["guards"],
        "contamination": {"of": DIRTY[5:], **dict.fromkeys(COUNTS)},
        "exclusion": {"of": [], "frames": None, "core": None},
        "full_chunk": {"of": dict.fromkeys(BANKED), "tolerance": 5e-3},
    }
    report = carry_out(definition, candidates(), guards=guards, contaminated=DIRTY[5:], excluded=[])
    assert report["contamination"]["repos"] == 75


def test_a_difference_is_classified_by_its_interval_in_every_split(
    definition: dict[str, Any],
) -> None:
    report = carry_out(definition, candidates())
    assert list(report["splits"]) == ["pooled", "clean", "contaminated"]
    for split in report["splits"].values():
        classes = {role: split["paired"][role]["class"] for role in BANKED}
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
    report = carry_out(definition, candidates())
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
    report = carry_out(definition, candidates(), guards=guards, excluded=[DIRTY[0]])
    assert report["contamination"]["core_frames"] == 240
    assert report["splits"]["contaminated"]["n_core"] == 240 - report["excluded"]["core_frames"]


def test_what_an_excluded_repo_holds_moves_no_number(definition: dict[str, Any]) -> None:
    arms = candidates()
    broken = candidates()
    for role, arm in broken.items():
        truth = arm["truth"].to_numpy().copy()
        truth[frames_of(arm, [MASKED])] = 3141
        broken[role] = arm.assign(truth=(arm["truth"].dims, truth))
    guards = {name: it for name, it in definition["guards"].items() if name != "full_chunk"}
    first, second = (carry_out(definition, each, guards=guards) for each in (arms, broken))
    assert first["splits"] == second["splits"]


def test_a_split_scores_the_window_of_its_own_frames(definition: dict[str, Any]) -> None:
    arms = candidates()
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
    secondary = carry_out(definition, candidates())["secondary_full_chunk"]
    assert "candidate" not in secondary
    assert secondary["ar_40k"]["steps"] == 50
    assert secondary["ar_40k"]["chunk_mae"] == 6.0079
    assert secondary["ar_40k"]["anchor"] == 6.0079


def test_the_contaminated_repos_may_come_from_a_file(
    definition: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "repos.json"
    path.write_text(json.dumps([*DIRTY, "someone/else"]))
    contamination = {**definition["guards"]["contamination"], "of": str(path)}
    guards = {**definition["guards"], "contamination": contamination}
    given = carry_out(definition, candidates())
    found = carry_out(definition, candidates(), guards=guards, contaminated=str(path))
    assert found["splits"] == given["splits"]
    digests = [it["extended"]["read_from"]["contaminated"] for it in (given, found)]
    assert digests[0] != digests[1]  # the file names one repo more


def test_a_list_may_be_shipped_without_names(definition: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "hidden.json"
    path.write_text(json.dumps([sha256(name.encode()).hexdigest() for name in DIRTY]))
    contamination = {**definition["guards"]["contamination"], "of": str(path)}
    guards = {**definition["guards"], "contamination": contamination}
    found = carry_out(definition, candidates(), guards=guards, contaminated=str(path))
    assert found["splits"] == carry_out(definition, candidates())["splits"]
    assert not any(name in json.dumps(found["extended"]["definition"]) for name in DIRTY)


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published list is not at hand")
def test_the_published_list_splits_by_name_and_by_digest() -> None:
    names = named(str(PUBLISHED))
    assert len(names) == 1220
    arm = candidates()["candidate"]
    repos = [*names[:3], "someone/else"]
    arm = arm.assign_coords(repo_name=("frame", np.resize(repos, arm.sizes["frame"])))
    by_name = frames_of(arm, names)
    assert by_name.mean() == 0.75
    assert (frames_of(arm, [sha256(name.encode()).hexdigest() for name in names]) == by_name).all()


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
    report = carry_out(definition, candidates(), contaminated=[], guards=guards)
    assert list(report["splits"]) == ["pooled"]


def test_banked_arms_may_have_any_role_but_that_of_the_floor(definition: dict[str, Any]) -> None:
    arms = candidates()
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
    report = carry_out(definition, candidates())
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
        return carry_out(definition, arms, **{**changed, **mistake})

    assert not all(each.passed for each in oracles(definition, careless))


def test_the_oracles_run_from_the_command_line_without_arms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert read.main(["read=matched_window", "oracle=true", "read.resamples=200"]) == 0
    out = capsys.readouterr().out
    assert "better_where_tuned" in out
    assert " NO " not in out


def test_the_registered_counts_are_those_of_the_study() -> None:
    roles = [f"arms.{role}=A" for role in ("candidate", *BANKED)]
    words = ["read=matched_window", *roles, "read.contaminated=tuned.json"]
    guards = compose.compose("read", words)["read"]["guards"]
    assert guards["panel"]["one_of"] == [
        {"rows": 25800, "core": 17204, "repos": 878, "digest": None}
    ]
    assert guards["contamination"] == {
        "of": "tuned.json",
        "repos": 245,
        "frames": 7996,
        "core": 5332,
        "clean_core": 17204 - 5332,
    }
    assert guards["full_chunk"]["of"]["er_60k"] == 7.5283
    assert guards["fills_exactly"] == {"role": "candidate", "steps": 30}
