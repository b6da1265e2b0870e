"""Registrations from plan to proof, on two baselines and a small panel."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arflow_eval import cli, provenance, refusal, settings
from arflow_eval.compose import compose
from arflow_eval.panel import bundled
from arflow_eval.registration import chain, composing, documents, ledger
from arflow_eval.registration.lock import write_once
from arflow_eval.registration.verifying import Checked, exit_code, lines, verify

PLAN: dict[str, Any] = {
    "name": "tiny",
    "question": "Does holding the last command beat holding the state?",
    "arms": {
        "held": {"overrides": ["model=hold_last", "panel=pusht_q4"]},
        "state": {"overrides": ["model=state_copy", "panel=pusht_q4"]},
    },
    "reads": {
        "gain": {
            "overrides": ["read=paired_delta", "read.resamples=100"],
            "arms": {"treatment": "held", "control": "state"},
            "expectations": {
                "e1": {"met": {"value": "delta_chunk.mean", "is": "below", "than": 0}}
            },
            "decision": [[{"when": {"expectations.e1.met": True}, "say": "E1 met"}]],
        },
        "first": {
            "overrides": ["read=paired_delta", "read.window=1", "read.resamples=100"],
            "arms": {"treatment": "held", "control": "state"},
            "record_only": True,
        },
    },
    "gates": {"cost": {"device_hours": 1, "fallback_panel": "pusht_q4"}},
}
LOCK = ("prereg", "lock", "tiny", "--allow-dirty")
SWEEP = ("evaluate", "experiment=tiny", "arm=held,state", "--multirun")
READ = ("read", "experiment=tiny")


def write_plan(root: Path, changed: Callable[[dict[str, Any]], None] | None = None) -> Path:
    plan = json.loads(json.dumps(PLAN))
    if changed is not None:
        changed(plan)
    folder = root / "experiments" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registration that was locked, amended, evaluated and read, made once."""
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_plan(root)
        assert cli.main(LOCK) == 0
        assert cli.main([*AMEND, "reads.gain.read.confidence=0.9", *IN_TIME]) == 0
        assert cli.main(SWEEP) == 0
        assert cli.main(READ) == 0
    return root


AMEND = ("prereg", "amend", "tiny")
IN_TIME = ("--before", "read", "--reason", "Ninety is what we report")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def done(whole: Path, here: Path) -> Path:
    """A copy of the whole registration, to be broken."""
    shutil.copytree(whole, here, dirs_exist_ok=True)
    return here / "experiments" / "tiny"


@pytest.fixture(scope="module")
def only_locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registration that was locked, made once."""
    root = tmp_path_factory.mktemp("locked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_plan(root)
        assert cli.main(LOCK) == 0
    return root


@pytest.fixture
def locked(only_locked: Path, here: Path) -> Path:
    """A copy of a locked registration."""
    shutil.copytree(only_locked, here, dirs_exist_ok=True)
    return here / "experiments" / "tiny"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def kinds(folder: Path) -> list[str]:
    return [entry["kind"] for entry in chain.load(folder).entries]


def report(root: Path, read: str) -> dict[str, Any]:
    reports = [json.loads(path.read_text()) for path in sorted(root.glob("outputs/*/report.json"))]
    (found,) = [it for it in reports if it["extended"]["registration"]["read"] == read]
    return dict(found)


# --- the lock -------------------------------------------------------------------------------


def test_a_lock_holds_the_resolved_configuration_of_every_arm_and_read(locked: Path) -> None:
    lock = json.loads((locked / "lock.json").read_text())
    registered = lock["registered"]
    composed = compose("evaluate", PLAN["arms"]["held"]["overrides"])
    for key in composing.OWN:
        composed.pop(key, None)
    assert registered["arms"]["held"] == composed
    assert registered["reads"]["gain"]["read"]["resamples"] == 100
    assert (
        registered["reads"]["gain"]["read"]["expectations"] == PLAN["reads"]["gain"]["expectations"]
    )
    assert registered["gates"] == PLAN["gates"]
    assert lock["registered_sha256"] == provenance.digest(registered)
    assert lock["panels"]["pusht_q4"]["digest"] == composed["panel"]["digest"]
    assert lock["plan_sha256"] == hashlib.sha256((locked / "plan.yaml").read_bytes()).hexdigest()
    assert lock["made"]["versions"]["numpy"]
    assert lock["made"]["allow_dirty"] is True


def test_a_lock_names_no_person_machine_or_absolute_path(locked: Path) -> None:
    text = (locked / "lock.json").read_text()
    assert not [word for word in (str(Path.home()), str(Path.cwd())) if word in text]
    assert not [it for it in documents.flat(json.loads(text)).values() if str(it).startswith("/")]


def test_locking_twice_is_refused(locked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (locked / "lock.json").read_bytes()
    assert cli.main(LOCK) == refusal.USAGE
    assert "locked already" in said(capsys)
    assert (locked / "lock.json").read_bytes() == before


def test_a_lock_that_is_removed_is_not_made_anew(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (locked / "lock.json").unlink()
    assert cli.main(LOCK) == refusal.GUARD
    assert "restore lock.json" in said(capsys)


OPEN: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("a word of the plan", lambda p: p["gates"]["cost"].update(device_hours="???"), "gates.cost."),
    (
        "a panel without a digest",
        lambda p: p["arms"]["held"]["overrides"].append("panel.digest=null"),
        "panel pusht_q4 has no digest",
    ),
    (
        "a checkpoint",
        lambda p: p["arms"]["held"].update(overrides=["model=ar100k", "panel=pusht_q4"]),
        "model.path is open",
    ),
    (
        "a panel that does not exist",
        lambda p: p["arms"]["held"].update(overrides=["model=hold_last", "panel=lerobt"]),
        "unknown option panel=lerobt",
    ),
    (
        "an imported store",
        lambda p: p["arms"].update(held={"imported": {"name": "banked", "fingerprint": "???"}}),
        "the store of banked is not here",
    ),
    ("a role", lambda p: p["reads"]["gain"]["arms"].pop("control"), "control open (???)"),
    (
        "an expectation that leads nowhere",
        lambda p: p["reads"]["gain"]["expectations"]["e1"]["met"].update(value="delta_chunk.maen"),
        "there is no maen",
    ),
    (
        "a key of the read",
        lambda p: p["reads"]["gain"]["overrides"].append("read.confidance=0.9"),
        "unknown key read.confidance",
    ),
]


@pytest.mark.parametrize(("why", "change", "named"), OPEN, ids=[why for why, _, _ in OPEN])
def test_an_open_question_is_named_and_nothing_is_locked(
    why: str,
    change: Callable[[dict[str, Any]], None],
    named: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del why
    folder = write_plan(here, change)
    assert cli.main(LOCK) == refusal.USAGE
    assert named in said(capsys)
    assert [path.name for path in folder.iterdir()] == ["plan.yaml"]


WRONG: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("an unknown key", lambda p: p.update(quesion="?"), "did you mean question?"),
    ("another name", lambda p: p.update(name="other"), "under the name of its folder"),
    (
        "an arm that no arm is",
        lambda p: p["reads"]["gain"]["arms"].update(control="stat"),
        "did you mean state?",
    ),
    ("an interpolation", lambda p: p.update(question="${oc.env:HOME}"), "interpolates"),
    ("overrides in one text", lambda p: p["arms"]["held"].update(overrides="a=b"), "key=value"),
]


@pytest.mark.parametrize(("why", "change", "named"), WRONG, ids=[why for why, _, _ in WRONG])
def test_a_plan_that_is_none_is_refused(
    why: str,
    change: Callable[[dict[str, Any]], None],
    named: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del why
    write_plan(here, change)
    assert cli.main(LOCK) == refusal.USAGE
    assert named in said(capsys)


def test_a_dirty_tree_is_refused_and_a_clean_one_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *who, *words], cwd=here, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    package = {"commit": None, "dirty": None}  # an installed package
    real = provenance.checkout
    monkeypatch.setattr(
        composing.provenance,
        "checkout",
        lambda folder, file="__init__.py": (
            package if folder == provenance.PACKAGE else real(folder, file=file)
        ),
    )
    folder = write_plan(here)
    git("init")
    assert cli.main(LOCK[:3]) == refusal.GUARD
    assert "plan.yaml is not committed to git" in said(capsys)
    git("add", ".")
    git("commit", "-m", "plan")
    (here / "stray").touch()
    assert cli.main(LOCK[:3]) == refusal.GUARD
    assert "changes that are not committed" in said(capsys)
    (here / "stray").unlink()
    assert cli.main(LOCK[:3]) == 0
    made = json.loads((folder / "lock.json").read_text())["made"]
    assert (made["commit"], made["dirty"]) == (git("rev-parse", "HEAD"), [])


# --- amendments -----------------------------------------------------------------------------


def test_an_amendment_shows_old_new_and_class_and_chains(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = ["reads.gain.read.confidence=0.9", "question=Which holds better?"]
    assert cli.main([*AMEND, *words, *IN_TIME]) == 0
    shown = capsys.readouterr().out
    assert "reads.gain.read.confidence: 0.95 -> 0.9  (estimand)" in shown
    assert '-> "Which holds better?"  (cosmetic)' in shown
    assert cli.main([*AMEND, "arms.held.batch=4", "--before", "sweep", "--reason", "why"]) == 0
    first, second = chain.read_amendments(locked)
    assert first["previous"] == json.loads((locked / "lock.json").read_text())["lock_sha256"]
    assert second["previous"] == first["amendment_sha256"]
    assert [it["class"] for it in second["changes"]] == ["operational"]
    assert chain.load(locked).document["arms"]["held"]["batch"] == 4
    assert kinds(locked) == ["locked", "amended", "amended"]


def test_what_follows_for_a_store_is_part_of_the_amendment(locked: Path) -> None:
    assert cli.main([*AMEND, "arms.held.seed=3", "--before", "sweep", "--reason", "why"]) == 0
    ((amendment),) = chain.read_amendments(locked)
    changes = {it["key"]: it for it in amendment["changes"]}
    assert changes["stores.held.seed"]["follows"] is True
    assert changes["stores.held.seed"]["new"] == 3


REFUSED_AMENDMENTS = [
    (["reads.gain.read.confidence=0.95", *IN_TIME], 2, "changes nothing"),
    (["reads.gain.read.confidance=0.9", *IN_TIME], 2, "did you mean reads.gain.read.confidence?"),
    (["reads.gain.read.confidence=high", *IN_TIME], 2, "a number"),
    (["reads.gain.read.confidence=1.5", *IN_TIME], 2, "between 0 and 1"),
    (["arms.held.seed=-1", "--before", "sweep", "--reason", "why"], 2, "seed=-1"),
    (["arms.held.seed=1", *IN_TIME], 3, "an amendment before the sweep"),
    (["stores.held.seed=1", "--before", "sweep", "--reason", "why"], 2, "follows from the arms"),
    (["code.reading=abc", *IN_TIME], 2, "code.reading=now"),
    (["reads.gain.read.window=5", "--before", "read", "--reason", " "], 2, "no reason"),
    (["reads.gain.read.window=5", "--deviation", "--reason", "why"], 2, "nothing has begun"),
    (["reads.gain.read.window=5", "--before", "noon", "--reason", "why"], 2, "noon"),
    (["reads.gain.read.window=5", "--before", "read"], 2, "--reason"),
    (["reads.gain.arms.control=stat", *IN_TIME], 2, "did you mean arms.state?"),
]


@pytest.mark.parametrize(("words", "status", "named"), REFUSED_AMENDMENTS)
def test_an_amendment_that_cannot_be_is_one_line(
    words: list[str], status: int, named: str, locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main([*AMEND, *words]) == status
    assert named in said(capsys)
    assert not (locked / "amendments").exists()
    assert kinds(locked) == ["locked"]


def test_a_dry_run_shows_and_writes_nothing(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*AMEND, "reads.gain.read.window=5", *IN_TIME, "--dry-run"]) == 0
    assert "reads.gain.read.window: null -> 5" in capsys.readouterr().out
    assert kinds(locked) == ["locked"]


def test_a_stage_that_has_begun_takes_deviations_only(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = [*AMEND, "reads.gain.read.confidence=0.8"]
    assert cli.main([*late, *IN_TIME]) == refusal.GUARD
    assert "the read has begun (line" in said(capsys)
    assert cli.main([*late, "--deviation", "--reason", "A late thought"]) == 0
    assert chain.load(done).amendments[-1]["deviation"] is True


def test_stores_are_evidence_where_the_ledger_has_none(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = (locked / "ledger.jsonl").read_bytes()
    assert cli.main(["evaluate", "experiment=tiny", "arm=held"]) == 0
    (locked / "ledger.jsonl").write_bytes(begun)  # cut back to the line of the lock
    assert cli.main([*AMEND, "arms.held.seed=1", "--before", "sweep", "--reason", "why"]) == 3
    assert "the store in tiny-held-" in said(capsys)


def test_two_who_amend_at_once_do_not_overwrite_each_other(
    locked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = ledger.held

    def held(folder: Path, *, start: str) -> Any:
        monkeypatch.setattr(ledger, "held", real)
        assert cli.main([*AMEND, "reads.first.read.window=2", *IN_TIME]) == 0
        return real(folder, start=start)

    monkeypatch.setattr(ledger, "held", held)
    assert cli.main([*AMEND, "reads.gain.read.window=5", *IN_TIME]) == refusal.GUARD
    assert "amendment 1 was made meanwhile" in said(capsys)
    ((only),) = chain.read_amendments(locked)
    assert only["changes"][0]["key"] == "reads.first.read.window"


def test_a_file_is_written_once(tmp_path: Path) -> None:
    write_once(tmp_path / "lock.json", "first")
    with pytest.raises(refusal.Refusal, match="by another process"):
        write_once(tmp_path / "lock.json", "second")
    assert (tmp_path / "lock.json").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_amendments_after_the_same_state_are_told_apart(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = (locked / "ledger.jsonl").read_bytes()
    assert cli.main([*AMEND, "reads.gain.read.window=5", *IN_TIME]) == 0
    mine = next((locked / "amendments").iterdir())
    kept = mine.rename(locked / "kept")
    (locked / "ledger.jsonl").write_bytes(saved)
    other = ["reads.gain.read.window=6", "--before", "read", "--reason", "Another word"]
    assert cli.main([*AMEND, *other]) == 0
    kept.rename(mine)  # as a merge of two branches leaves it
    assert cli.main(READ) == refusal.DAMAGE
    assert "as another does" in said(capsys)


def test_a_clock_that_runs_backwards_is_refused(
    locked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(documents, "now", lambda: "2020-01-01T00:00:00Z")
    assert cli.main(["evaluate", "experiment=tiny", "arm=held"]) == refusal.GUARD
    assert "a clock that runs forwards" in said(capsys)
    assert kinds(locked) == ["locked"]


# --- the run of an arm ----------------------------------------------------------------------


def test_a_locked_run_shows_no_outcome_and_stamps_its_store(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "experiment=tiny", "arm=held", "store.block=4"]) == 0
    shown = capsys.readouterr().out
    assert "outcomes stay closed until arflow-eval read experiment=tiny" in shown
    assert "overridden   store.block=4" in shown
    assert "MAE" not in shown
    (store,) = Path("outputs").glob("tiny-held-*/predictions.zarr/zarr.json")
    stamp = json.loads(store.read_text())["attributes"]["registration"]
    assert stamp["arm"] == "held"
    assert stamp["lock"] == chain.load(done).start
    assert stamp["amendments"] == chain.load(done).chain
    assert kinds(done).count("finished") == 2


REFUSED_RUNS = [
    (["arm=held", "seed=1"], 3, "seed=1 would change"),
    (["arm=held", "model=state_copy"], 3, "model._target_="),
    (["arm=held", "panel.steps=30"], 3, "with panel.steps=50"),
    (["arm=hed"], 2, "did you mean arm=held?"),
    ([], 2, "without an arm"),
    (["arm=held", "threads=2", "decode.determinism=keyed"], 3, "decode.determinism=keyed"),
    (["arm=held", "threads=2"], 3, "decode.determinism (exact -> fixed_shape)"),
]


@pytest.mark.parametrize(("words", "status", "named"), REFUSED_RUNS)
def test_an_override_of_what_is_estimated_is_refused_by_name(
    words: list[str], status: int, named: str, locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main(["evaluate", "experiment=tiny", *words]) == status
    assert named in said(capsys)
    assert kinds(locked) == ["locked"]


def test_a_word_that_gives_what_was_locked_is_no_override(locked: Path) -> None:
    assert cli.main(["evaluate", "experiment=tiny", "arm=held", "seed=0", "decode=greedy"]) == 0
    assert kinds(locked) == ["locked", "begun", "finished"]


def test_an_exploratory_run_is_stamped_and_none_of_the_registrations(locked: Path) -> None:
    words = ["experiment=tiny", "arm=held", "seed=1", "exploratory=true"]
    assert cli.main(["evaluate", *words]) == 0
    (store,) = Path("outputs").glob("*-exploratory/predictions.zarr/zarr.json")
    stamp = json.loads(store.read_text())["attributes"]["registration"]
    assert stamp["exploratory"] is True
    assert stamp["overridden"] == {"seed": 1}
    assert kinds(locked) == ["locked", "explored"]


@pytest.mark.parametrize("words", [["arm=held"], ["exploratory=true"]])
def test_keys_of_an_experiment_need_one(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del here
    assert cli.main(["evaluate", "model=hold_last", "panel=pusht_q4", *words]) == 2
    assert "without an experiment" in said(capsys)


def test_an_experiment_is_found_from_a_folder_below_and_by_the_environment(
    locked: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(locked / "..")
    assert cli.main(["evaluate", "experiment=tiny", "arm=held"]) == 0
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert cli.main(["evaluate", "experiment=tiny", "arm=state"]) == 2
    monkeypatch.setenv("ARFLOW_EVAL_EXPERIMENTS", str(locked.parent))
    assert cli.main(["evaluate", "experiment=tiny", "arm=state"]) == 0
    assert cli.main(["evaluate", "experiment=tinny", "arm=state"]) == 2


def test_changed_code_stops_a_locked_arm_by_name(
    locked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(provenance, "code_digest", lambda _, **__: "0" * 64)
    assert cli.main(["evaluate", "experiment=tiny", "arm=held"]) == refusal.GUARD
    assert "would differ from what was locked in code (" in said(capsys)
    assert kinds(locked) == ["locked"]


def checkpoint(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    for name in settings.CHECKPOINT_FILES:
        (folder / name).write_text(text)
    return folder


def test_a_checkpoint_absent_at_lock_is_bound_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = {"overrides": ["model=hold_last", "panel=pusht_q4"], "checkpoint": "later"}
    folder = write_plan(here, lambda plan: plan["arms"].update(held=later))
    assert cli.main(LOCK) == 0
    run = ["evaluate", "experiment=tiny", "arm=held"]
    assert cli.main(run) == refusal.USAGE
    assert "has no checkpoint yet" in said(capsys)
    first, other = (checkpoint(here / "secret" / name, name) for name in ("first", "other"))
    assert cli.main([*run, f"model.path={first}"]) == 0
    moved = shutil.copytree(first, here / "moved")
    assert cli.main([*run, f"model.path={moved}"]) == 0
    assert cli.main([*run, f"model.path={other}"]) == refusal.GUARD
    assert "model.checkpoint (" in said(capsys)
    entry = chain.load(folder).first("bound", arm="held")
    assert entry is not None
    assert entry["what"]["checkpoint"] == provenance.folder_digest(first)
    (store,) = Path("outputs").glob("tiny-held-*/predictions.zarr/zarr.json")
    assert str(here) not in store.read_text()


# --- a sealed panel -------------------------------------------------------------------------


@pytest.fixture
def sealed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A locked registration over a panel that this test seals: the public quarter panel."""
    episodes = {each.episode for each in bundled.read_plan(
        bundled.DATA / "pusht_q4.json", digest=None).frames}  # fmt: skip
    monkeypatch.setattr(bundled, "sealed_episodes", lambda: frozenset(episodes))

    def seal(plan: dict[str, Any]) -> None:
        for arm in plan["arms"].values():
            arm["overrides"].append("panel.sealed=true")

    folder = write_plan(here, seal)
    assert cli.main(LOCK) == 0
    return folder


def test_only_the_locked_run_opens_a_sealed_panel(
    sealed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["evaluate", "experiment=tiny", "arm=held"]
    plain = ["evaluate", "model=hold_last", "panel=pusht_q4"]
    assert cli.main([*plain, "panel.sealed=true"]) == refusal.GUARD
    assert cli.main(plain) == refusal.GUARD
    assert cli.main([*run, "exploratory=true"]) == refusal.GUARD
    assert "is sealed" in said(capsys)
    assert not Path("outputs").exists()
    assert cli.main(run) == 0
    assert kinds(sealed) == ["locked", "begun", "finished"]


# --- the reads ------------------------------------------------------------------------------


def test_reads_locked_before_the_opening_are_confirmatory(done: Path) -> None:
    for read in ("gain", "first"):
        about = report(done.parents[1], read)["extended"]
        assert about["status"] == "confirmatory"
        assert "before outcomes were first opened" in about["status_reason"]
        assert about["registration"]["lock"] == chain.load(done).start
        assert about["registration"]["amendments"] == chain.load(done).chain
        assert about["registration"]["deviations"] == []
    assert report(done.parents[1], "gain")["decision"]["assembly"] == ["E1 met"]
    assert report(done.parents[1], "first")["extended"]["registration"]["record_only"] is True


def test_reading_again_gives_the_same_bytes_and_no_second_opening(done: Path) -> None:
    before = {path: path.read_bytes() for path in Path("outputs").glob("*/report.json")}
    lines_before = kinds(done)
    assert cli.main(READ) == 0
    assert {path: path.read_bytes() for path in Path("outputs").glob("*/report.json")} == before
    assert kinds(done) == lines_before


def test_a_read_changed_after_the_opening_is_exploratory_and_says_so_first(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = ["reads.gain.read.confidence=0.8", "--deviation", "--reason", "A late thought"]
    assert cli.main([*AMEND, *late]) == 0
    for path in Path("outputs").glob("*/report.json"):
        path.unlink()
    capsys.readouterr()
    assert cli.main(READ) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("DEVIATION, amendment 2: reads.gain.read.confidence 0.9 -> 0.8")
    assert shown.count("DEVIATION") == 2
    gain, first = (report(done.parents[1], read)["extended"] for read in ("gain", "first"))
    assert gain["status"] == "exploratory"
    assert "reads.gain.read.confidence was changed after" in gain["status_reason"]
    assert first["status"] == "confirmatory"
    assert "A late thought" in first["registration"]["deviations"][0]


def test_data_that_was_there_before_the_lock_makes_a_read_exploratory(here: Path) -> None:
    assert cli.main(["evaluate", "model=hold_last", "panel=pusht_q4"]) == 0
    write_plan(here)
    assert cli.main(LOCK) == 0
    assert cli.main(SWEEP) == 0
    assert cli.main(READ) == 0
    about = report(here, "gain")["extended"]
    assert about["status"] == "exploratory"
    assert about["status_reason"].startswith("data of arm held existed when the lock was made")


def test_a_store_that_is_not_there_yet_is_waited_for(
    locked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "model=hold_last", "panel=pusht_q4"]) == 0
    assert cli.main(READ) == refusal.WAITING
    assert "run arflow-eval evaluate experiment=tiny arm=" in said(capsys)
    assert kinds(locked) == ["locked"]


def test_stores_are_found_wherever_they_were_moved(done: Path) -> None:
    for number, run in enumerate(sorted(Path("outputs").glob("tiny-*"))):
        run.rename(Path("outputs") / f"renamed{number}")
    Path("outputs").rename("elsewhere")
    assert cli.main([*READ, "store.root=elsewhere"]) == 0
    assert not [it for it in verify(done, outputs=Path("elsewhere")) if it.state != "intact"]


def test_a_store_of_another_configuration_aborts_with_the_keys(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (meta,) = Path("outputs").glob("tiny-held-*/predictions.zarr/zarr.json")
    document = json.loads(meta.read_text())
    document["attributes"]["identity"]["seed"] = 7
    meta.write_text(json.dumps(document))
    assert cli.main(READ) == refusal.GUARD
    assert "differs from what was locked in seed (0 -> 7)" in said(capsys)
    del done


def test_changed_reading_code_aborts_with_its_modules(
    done: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = composing.reading_code()
    changed = {"reading": "0" * 64, "modules": ["arflow_eval.reading 000", *found["modules"][1:]]}
    monkeypatch.setattr(composing, "reading_code", lambda: changed)
    assert cli.main(READ) == refusal.GUARD
    assert "arflow_eval.reading" in said(capsys)
    assert cli.main([*AMEND, "code.reading=now", "--deviation", "--reason", "A fix"]) == 0
    assert chain.load(done).document["code"]["reading"] == "0" * 64


def test_a_read_outside_of_the_registration_counts_as_an_opening(locked: Path) -> None:
    assert cli.main(SWEEP) == 0
    arms = {role: next(Path("outputs").glob(f"tiny-{arm}-*")) for role, arm in (
        ("treatment", "held"), ("control", "state"))}  # fmt: skip
    assert cli.main(["read", *(f"arms.{role}={path}" for role, path in arms.items())]) == 0
    entry = chain.load(locked).first("opened")
    assert entry is not None
    assert entry["what"]["by"] == "read=paired_delta, exploratory"
    assert cli.main([*AMEND, "reads.gain.read.window=5", *IN_TIME]) == refusal.GUARD


def test_locked_reads_take_no_other_words(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del done
    assert cli.main([*READ, "read.confidence=0.8"]) == refusal.USAGE
    assert "drop read.confidence" in said(capsys)


# --- verification: every class of byte ------------------------------------------------------


def states(found: list[Checked]) -> set[str]:
    return {each.state for each in found}


def flipped(path: Path, needle: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert needle in raw
    path.write_bytes(raw.replace(needle, new, 1))


def one_changed(folder: Path) -> Checked:
    found = verify(folder)
    assert exit_code(found) == refusal.DAMAGE
    (changed,) = [each for each in found if each.state == "changed"]
    return changed


def test_what_nobody_touched_is_intact(done: Path) -> None:
    found = verify(done)
    assert states(found) == {"intact"}
    assert exit_code(found) == 0
    assert {each.what.split()[0] for each in found} == {
        *("lock", "plan", "panel", "amendment", "ledger", "store", "report")
    }
    assert lines(found)[0].startswith("intact   lock (lock.json)")


def test_a_flipped_configuration_byte_of_the_lock_is_named(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(done / "lock.json", b'"resamples": 100', b'"resamples": 101')
    found = one_changed(done)
    assert found.file == "lock.json"
    assert "registered.reads.gain.read.resamples" in found.detail
    assert cli.main(READ) == refusal.DAMAGE
    assert "registered.reads.gain.read.resamples" in said(capsys)


@pytest.mark.parametrize("file", ["lock.json", "ledger.jsonl", "amendments"])
@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_no_flipped_byte_of_a_chain_goes_unnoticed(done: Path, file: str, bit: int) -> None:
    path = done / file
    path = next(path.iterdir()) if path.is_dir() else path
    whole = path.read_bytes()
    for place in range(0, len(whole), max(len(whole) // 40, 1)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with pytest.raises(refusal.Refusal) as refused:
            chain.load(done)
        assert refused.value.exit_code == refusal.DAMAGE, place
    path.write_bytes(whole)
    chain.load(done)


@pytest.mark.parametrize(
    ("needle", "new", "key"),
    [
        (b"old: 0.95", b"old: 0.94", "changes.reads.gain.read.confidence.old"),
        (b"reason: Ninety", b"reason: Eighty", "reason"),
        (b"before: read\n", b"before: reed\n", "before"),
    ],
)
def test_a_flipped_byte_of_an_amendment_is_named(
    done: Path, needle: bytes, new: bytes, key: str
) -> None:
    (path,) = (done / "amendments").iterdir()
    flipped(path, needle, new)
    found = one_changed(done)
    assert found.file == f"amendments/{path.name}"
    assert f"was changed in {key};" in f"{found.detail};"
    assert cli.main(READ) == refusal.DAMAGE


def test_a_flipped_byte_of_the_ledger_is_named_by_its_line(done: Path) -> None:
    flipped(done / "ledger.jsonl", b'"arm":"state"', b'"arm":"stata"')
    (ledger_found,) = [each for each in verify(done) if each.file == "ledger.jsonl"]
    assert ledger_found.state == "changed"
    assert "line 5 was changed" in ledger_found.detail
    assert cli.main(READ) == refusal.DAMAGE


def test_a_line_taken_out_of_the_ledger_is_noticed(done: Path) -> None:
    path = done / "ledger.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:4] + kept[5:]))
    (ledger_found,) = [each for each in verify(done) if each.file == "ledger.jsonl"]
    assert "line 5 does not follow" in ledger_found.detail


def test_a_flipped_byte_of_a_panel_is_named(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(bundled.DATA / "pusht_q4.json", data)
    flipped(data / "pusht_q4.json", b'"plan_seed":', b'"plan_sead":')
    monkeypatch.setattr(bundled, "DATA", data)
    assert one_changed(done).file == "pusht_q4.json"


def test_a_flipped_byte_of_a_store_is_named_by_its_rows(done: Path) -> None:
    (chunk,) = Path("outputs").glob("tiny-held-*/predictions.zarr/prediction/c.1.0.0.0")
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 1
    chunk.write_bytes(raw)
    found = one_changed(done)
    assert found.what == "store of arm held"
    assert "rows" in found.detail


def test_a_flipped_attribute_of_a_store_is_named_by_its_key(done: Path) -> None:
    (meta,) = Path("outputs").glob("tiny-held-*/predictions.zarr/zarr.json")
    document = json.loads(meta.read_text())
    document["attributes"]["config"]["seed"] = 7
    meta.write_text(json.dumps(document))
    assert "config.seed (7, locked 0)" in one_changed(done).detail


def test_a_flipped_number_of_a_report_is_named_by_its_key(done: Path) -> None:
    path = next(
        path
        for path in Path("outputs").glob("*/report.json")
        if json.loads(path.read_text())["extended"]["registration"]["read"] == "gain"
    )
    flipped(path, b'"median": -', b'"median": -1')
    found = one_changed(done)
    assert found.what == "report of read gain"
    assert found.detail == "delta_chunk.median"


def test_what_is_gone_is_missing(done: Path) -> None:
    shutil.rmtree(next(Path("outputs").glob("tiny-held-*")))
    next(Path("outputs").glob("*/report.json")).unlink()
    found = verify(done)
    assert exit_code(found) == refusal.WAITING
    gone = {each.what.split(" of ")[0] for each in found if each.state == "missing"}
    assert gone == {"store", "report"}
    (done / "amendments").rename(done / "elsewhere")
    assert "missing   amendment 1".replace("  ", " ", 1) in "\n".join(lines(verify(done)))


def test_a_renamed_amendment_and_a_renamed_folder_get_plain_answers(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (done / "amendments").iterdir()
    path.rename(path.with_name("0007-other.yaml"))
    assert cli.main(READ) == refusal.DAMAGE
    assert "a name that starts with 0001-" in said(capsys)
    path.with_name("0007-other.yaml").rename(path)
    done.rename(done.with_name("small"))
    assert cli.main(["read", "experiment=small"]) == refusal.USAGE
    assert "rename the folder to tiny" in said(capsys)


# --- pages and comparisons ------------------------------------------------------------------


def test_a_registration_is_shown_as_a_page(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["prereg", "show", "tiny"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# tiny\n\nDoes holding the last command")
    for part in ("## Arms", "## Reads", "e1: met if delta_chunk.mean is below 0", "## Gates"):
        assert part in shown
    assert "amendment 1, before the read: Ninety is what we report" in shown
    assert "| opened |" in shown
    assert cli.main(["prereg", "show", "tiny", "--html"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "http" not in page
    del done


def test_a_plan_is_shown_with_its_open_questions(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plan(here, lambda plan: plan["gates"]["cost"].update(device_hours="???"))
    assert cli.main(["prereg", "show", "tiny"]) == 0
    shown = capsys.readouterr().out
    assert "Not locked" in shown
    assert "- gates.cost.device_hours is open (???)" in shown


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli.main(["diff", *words]) == 0
    return capsys.readouterr().out


def test_any_two_artefacts_are_compared(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held, state = (str(next(Path("outputs").glob(f"tiny-{arm}-*"))) for arm in ("held", "state"))
    amendment = str(next((done / "amendments").iterdir()))
    reports = [str(path) for path in Path("outputs").glob("paired_delta-*")]
    shown = compared(capsys, held, state)
    assert "model.name: hold_last -> state_copy" in shown
    assert "data: the same" in shown
    assert "config: the same" in compared(capsys, str(done), held)
    assert "seed" not in compared(capsys, str(done), state)
    assert "definition.window" in compared(capsys, *reports)
    assert "reads.gain.read.confidence" in compared(capsys, str(done / "lock.json"), amendment)
    found = json.loads(compared(capsys, held, state, "--json"))
    assert found["config"]["model.name"] == {"left": "hold_last", "right": "state_copy"}
    assert "| model.name | hold_last |" in compared(capsys, held, state, "--markdown")
    plan = str(done / "plan.yaml")
    assert "config: the same" in compared(capsys, plan, plan)


@pytest.mark.parametrize("words", [["A"], ["A", "B", "--yaml"], ["no/such", "no/such"]])
def test_what_cannot_be_compared_is_refused(words: list[str], here: Path) -> None:
    del here
    assert cli.main(["diff", *words]) == refusal.USAGE


@pytest.fixture(autouse=True)
def _no_folder_of_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARFLOW_EVAL_EXPERIMENTS", raising=False)


def test_the_one_verify_command_takes_a_registration(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", "experiments/tiny"]) == 0
    head, *parts = capsys.readouterr().out.splitlines()
    assert head.startswith("intact    experiments/tiny: ")
    assert any("amendment" in line for line in parts)
    (done / "lock.json").write_text((done / "lock.json").read_text().replace("hold_last", "hold_l"))
    assert cli.main(["verify", "experiments/tiny", "--json"]) == refusal.DAMAGE
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["state"]) == ("registration", "changed")


def test_reports_may_be_kept_with_their_registration(done: Path) -> None:
    for path in Path("outputs").glob("paired_delta-*"):
        (done / "reports").mkdir(exist_ok=True)
        path.rename(done / "reports" / path.name)
    found = [each for each in verify(done) if each.what.startswith("report")]
    assert {each.state for each in found} == {"intact"}
