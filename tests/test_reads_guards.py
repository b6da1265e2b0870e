"""Every read x every guard that it runs x every mutation: exit code 3, one line, no report."""

import functools
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import made_arms
from arflow_eval import compose, read, refusal
from arflow_eval.reading import write_report
from arflow_eval.reads import guards, registered
from guard_mutations import MUTATIONS
from mutations import Case, imported

READS = sorted(path.stem for path in (compose.conf_dir() / "read").glob("*.yaml"))
CASES = [(name, mutation) for name in READS for mutation in MUTATIONS.get(name, {})]
KNOWN = {
    **{guard.__name__: guard for guard in (*guards.BEFORE_PAIRING, *guards.AFTER_PAIRING)},
    **registered.GUARDS,
}
# refusals that are no guard's: while arms are joined, and while they are measured
BEYOND = {"cut_to_subset", "_floor", "matched"}


def run_by(name: str) -> list[str]:
    """The guards that a read runs, as its option of conf/read says."""
    stated = made_arms.definition(name)
    scored, arms = "window" in stated, len(made_arms.roles(name))
    known = (guards.BEFORE_PAIRING, guards.AFTER_PAIRING)
    needed = [guard for each in known for guard in guards.needed(each, arms=arms, scored=scored)]
    return [*(guard.__name__ for guard in needed), *stated.get("guards", {})]


def missing(name: str) -> set[str]:
    """The guards of a read that no mutation is there for."""
    return set(run_by(name)) - {tripped_by(mutation) for mutation in MUTATIONS.get(name, {})}


def tripped_by(mutation: str) -> str:
    return mutation.split(" ", maxsplit=1)[0]


def good(name: str, folder: Path) -> Case:
    """A read on arms that pass all its guards."""
    return Case(made_arms.definition(name), made_arms.MADE[name](folder), folder)


def report_of(case: Case) -> dict[str, Any]:
    """Carry a read out and write its report, as the command does."""
    report = made_arms.carry_out(case.definition, case.arms)
    write_report(report, root=case.folder / "reads")
    return report


def refused(case: Case) -> tuple[str | None, refusal.Refusal | None]:
    """Which guard refuses a read, or which function of the reads does; None where none does."""
    try:
        report_of(case)
    except refusal.Refusal as error:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__) if ours(frame)]
        known = (each for each in names if each in {*KNOWN, *BEYOND})
        return next(known, names[-1] if names else None), error
    return None, None


def ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).parent.name == "reads"


def test_every_read_has_arms_and_a_mutation_of_every_guard_it_runs() -> None:
    assert set(READS) == set(made_arms.MADE) == set(MUTATIONS)
    assert {name: missing(name) for name in READS} == {name: set() for name in READS}


def test_every_guard_there_is_belongs_to_a_read() -> None:
    assert {guard for name in READS for guard in run_by(name)} == set(KNOWN)


@pytest.mark.parametrize("name", READS)
def test_no_mutation_is_of_a_guard_that_the_read_does_not_run(name: str) -> None:
    tripped = {tripped_by(mutation) for mutation in MUTATIONS[name]}
    assert tripped - BEYOND == set(run_by(name))


@pytest.mark.parametrize("name", READS)
def test_arms_that_are_as_they_should_be_pass_every_guard(name: str, tmp_path: Path) -> None:
    report = report_of(good(name, tmp_path))
    assert report["extended"]["guards_passed"] == run_by(name)
    assert len(list(tmp_path.glob("reads/*/report.json"))) == 1


def check(name: str, mutation: str, folder: Path) -> None:
    """A mutation trips the guard that it is named for, and no report is written."""
    case = good(name, folder)
    change, words = MUTATIONS[name][mutation]
    change(case)
    guard, error = refused(case)
    assert guard == tripped_by(mutation)
    assert error is not None
    assert error.exit_code == refusal.GUARD
    assert re.search(words, str(error)), str(error)
    assert "\n" not in str(error)
    assert all((error.found, error.expected, error.remedy))
    assert not list(folder.glob("reads/**/*"))


@pytest.mark.parametrize(("name", "mutation"), CASES)
def test_a_mutation_trips_exactly_its_guard(name: str, mutation: str, tmp_path: Path) -> None:
    check(name, mutation, tmp_path)


def one_of_each_guard() -> list[tuple[str, str]]:
    first = {(name, tripped_by(mutation)): (name, mutation) for name, mutation in reversed(CASES)}
    return [case for (_, guard), case in first.items() if guard not in BEYOND]


@pytest.mark.parametrize(("name", "mutation"), one_of_each_guard())
def test_a_guard_that_lets_all_pass_is_noticed(
    name: str, mutation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_all_pass(tripped_by(mutation), monkeypatch)
    # the read goes through, another guard refuses it, or what the guard is there for breaks it
    with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
        check(name, mutation, tmp_path)


def let_all_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a function that never refuses in the place of a guard."""

    @functools.wraps(KNOWN[name])
    def idle(*_: Any, **__: Any) -> None:
        return None

    for group in ("BEFORE_PAIRING", "AFTER_PAIRING"):
        known = getattr(guards, group)
        changed = tuple(idle if guard.__name__ == name else guard for guard in known)
        monkeypatch.setattr(guards, group, changed)
    if name in registered.GUARDS:
        monkeypatch.setattr(registered, "GUARDS", {**registered.GUARDS, name: idle})


def test_a_guard_that_no_mutation_is_named_for_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {
        mutation: it
        for mutation, it in MUTATIONS["temperature_table"].items()
        if tripped_by(mutation) != "names_end"
    }
    monkeypatch.setitem(MUTATIONS, "temperature_table", kept)
    assert missing("temperature_table") == {"names_end"}
    monkeypatch.delitem(MUTATIONS, "cost")  # as of a read to come
    assert missing("cost") == {"complete", "no_duplicates"}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("draws_fairness", "treatment"),
        ("draws_fairness", "control"),
        ("energy_score", "draws"),
        ("energy_score_flow", "draws"),
        ("energy_score_flow", "flow"),
        ("selection_ceiling", "draws"),
    ],
)
def test_an_imported_arm_with_its_own_mean_passes_in_any_order(
    name: str, role: str, tmp_path: Path
) -> None:
    case = good(name, tmp_path)
    imported(role)(case)
    arm, source = case.arms[role], case.arms[role].encoding["source"]
    order = np.random.default_rng(0).permutation(arm.sizes["frame"])
    case.arms[role] = arm.isel(frame=order)
    case.arms[role].encoding["source"] = source
    assert "mean_reproduced" in report_of(case)["extended"]["guards_passed"]


# of each read one mutation that a store can hold, through the command
COMMANDED = {
    "ar_sampled_draws": "temperatures of draws",
    "cost": "no_duplicates",
    "draws_fairness": "stated_draws of control in a name",
    "energy_score": "same_checkpoint",
    "energy_score_flow": "no_temperature",
    "gain_difference": "same_baselines",
    "matched_window": "fills_exactly of the tail",
    "paired_delta": "same_truth",
    "power": "same_frames",
    "selection_ceiling": "several_draws of draws",
    "temperature_table": "names_end",
}


@pytest.mark.parametrize("name", READS)
def test_the_command_ends_with_three_one_line_and_no_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = good(name, tmp_path)
    sound, root = dict(case.arms), tmp_path / "reads"
    stores = {role: made_arms.written(arm, tmp_path / role) for role, arm in sound.items()}
    if name == "cost":
        (tmp_path / "timings").rename(stores["run"] / "timings")
    argv = [*made_arms.words(name), f"store.root={root}"]
    arms = {role: f"arms.{role}={path}" for role, path in stores.items()}
    assert read.main([*argv, *arms.values()]) == 0
    (report,) = root.glob("*/report.json")
    report.unlink()
    report.parent.rmdir()
    capsys.readouterr()
    change, words = MUTATIONS[name][COMMANDED[name]]
    change(case)
    for role, arm in case.arms.items():
        if arm is not sound[role]:
            arms[role] = f"arms.{role}={made_arms.written(arm, tmp_path / 'mutated' / role)}"
    assert read.main([*argv, *arms.values()]) == refusal.GUARD
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.count("; ") >= 2  # found; expected ...; remedy
    assert "; expected " in line
    assert re.search(words, line), line
    assert not list(root.glob("**/*"))
