"""arflow-eval panel check: what silently goes wrong in LeRobot datasets, set by set.

  panel check ROOT [--repos A/B,C/D] [--plan PLAN.json] [--units degree] [--json]

Without --repos or --plan, every dataset under ROOT is checked on its own. Exit code 3 where a
check found a fault; each names the set, and the episode and joint where there is one.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from arflow_eval import plain, refusal
from arflow_eval.panel.checks import faults_of
from arflow_eval.panel.checks.duplicates import (
    Fingerprints,
    duplicate_episode,
    duplicate_frames,
    fingerprints,
)
from arflow_eval.panel.checks.recording import Fault, Recording, recorded
from arflow_eval.panel.contents import check_alike
from arflow_eval.panel.datasets.cached import default_folder
from arflow_eval.panel.datasets.episodes import check_counts
from arflow_eval.panel.datasets.opened import Dataset, open_dataset, repos_under
from arflow_eval.panel.extras import library
from arflow_eval.panel.plan import read_plan

FORMS: Final = "panel check ROOT [--repos A/B,C/D] [--plan PLAN.json] [--units degree] [--json]"


@dataclass(frozen=True)
class Checked:
    """One set that could be read: its size, and the share of steps without any motion."""

    repo: str
    version: str
    episodes: int
    frames: int
    still: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run `panel` with the words after it; returns the exit code."""
    return plain.run(_parser(), argv, _task, forms=FORMS)


def _parser() -> argparse.ArgumentParser:
    found = plain.parser("panel", description=__doc__, words="check, then the folder of the data")
    found.add_argument("--repos", metavar="A/B,C/D", help="of one panel; they must be alike")
    found.add_argument("--plan", metavar="FILE", help="check the episodes of its frames alone")
    found.add_argument("--units", default="degree", metavar="UNIT", help="that the panel declares")
    found.add_argument("--json", action="store_true", help="the report as JSON")
    found.add_argument("--cache", metavar="FOLDER", help="of episode tables; the user's by default")
    return found


def _task(given: Mapping[str, Any]) -> int:
    command, *words = given["words"] or [""]
    root = Path(words[0]).expanduser() if len(words) == 1 else None
    if command != "check" or root is None:
        close = refusal.nearest(command, ["check"])
        raise plain.wrong(f"panel {' '.join(given['words'])}".strip(), forms=FORMS, close=close)
    library("pyarrow", extra="lerobot")  # else every set would seem unreadable
    wanted = _wanted(root, given)
    cache = Path(given["cache"]).expanduser() if given["cache"] else default_folder()
    together = given["repos"] is not None or given["plan"] is not None
    checked, faults = check(root, wanted, units=given["units"], cache=cache, together=together)
    if given["json"]:
        plain.say(json.dumps({"sets": _plain(checked), "faults": _plain(faults)}, indent=1))
    else:
        _print(checked, faults)
    return refusal.GUARD if faults else 0


def _wanted(root: Path, given: Mapping[str, Any]) -> dict[str, list[int] | None]:
    """The repos to check, each with its episodes (None: all)."""
    if given["plan"] is not None:
        plan = read_plan(Path(given["plan"]).expanduser(), digest=None, key="--plan")
        episodes: dict[str, set[int]] = {}
        for frame in plan.frames:
            episodes.setdefault(frame.repo, set()).add(frame.episode)
        return {repo: sorted(found) for repo, found in sorted(episodes.items())}
    repos = given["repos"].split(",") if given["repos"] else repos_under(root)
    if not repos:
        raise refusal.usage(
            f"no datasets under {root}", expected="folders with meta/info.json", remedy="check ROOT"
        )
    return dict.fromkeys(repos)


def check(
    root: Path,
    wanted: Mapping[str, list[int] | None],
    *,
    units: str,
    cache: Path,
    together: bool,
) -> tuple[list[Checked], list[Fault]]:
    """Check sets one after the other; `together`, they are also held against each other's form.

    A set that cannot be read is a fault of its own, and the others are checked all the same.
    """
    checked: list[Checked] = []
    faults: list[Fault] = []
    known: list[Fingerprints] = []
    first: Dataset | None = None
    for repo, episodes in wanted.items():
        try:
            dataset = open_dataset(root, repo, cache=cache)
            first = first or dataset
            faults += _formal(dataset, first if together else dataset)
            recording = recorded(dataset, units=units, episodes=episodes)
        except refusal.Refusal as refused:
            faults.append(_fault("unreadable", repo, refused))
            continue
        checked.append(_checked(dataset, recording))
        faults += faults_of(recording)
        known.append(fingerprints(recording))
    return checked, faults + duplicate_episode(known) + duplicate_frames(known)


def _formal(dataset: Dataset, like: Dataset) -> list[Fault]:
    """Counts that disagree with the tables, and another form than the panel's first set."""
    found = []
    try:
        check_counts(dataset.info, dataset.episodes)
    except refusal.Refusal as refused:
        found.append(_fault("counts", dataset.repo, refused))
    try:
        check_alike([like, dataset], names=None)
    except refusal.Refusal as refused:
        found.append(_fault("alike", dataset.repo, refused))
    return found


def _fault(check_name: str, repo: str, refused: refusal.Refusal) -> Fault:
    said = refused.found.removeprefix(f"dataset {repo}: ")
    return Fault(check_name, repo, said, refused.expected)


def _checked(dataset: Dataset, recording: Recording) -> Checked:
    rows = recording.steps()
    still = (recording.actions[rows + 1] == recording.actions[rows]).all(axis=1)
    return Checked(
        repo=dataset.repo,
        version=dataset.info.version,
        episodes=len(np.unique(recording.episode)),
        frames=len(recording.states),
        still=float(still.mean()) if len(still) else 0.0,
    )


def _plain(found: Sequence[Any]) -> list[dict[str, Any]]:
    return [asdict(each) for each in found]


def _print(checked: Sequence[Checked], faults: Sequence[Fault]) -> None:
    console = Console(width=120)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for heading in ("set", "version", "episodes", "frames", "still", "faults"):
        right = heading in ("episodes", "frames", "still")
        shown.add_column(heading, justify="right" if right else "left", overflow="fold")
    for each in checked:
        mine = dict.fromkeys(fault.check for fault in faults if fault.repo == each.repo)
        size = (f"{each.episodes:,}", f"{each.frames:,}", f"{each.still:.0%}")
        shown.add_row(each.repo, each.version, *size, ", ".join(mine) or "none")
    console.print(shown)
    for fault in faults:
        place = "" if fault.episode is None else f" episode {fault.episode}"
        joint = "" if fault.joint is None else f" {fault.joint}"
        plain.say(
            f"{fault.check}: {fault.repo}{place}{joint}: {fault.found}; expected {fault.expected}"
        )
    plain.say(f"faults: {len(faults):,}, in sets: {len({fault.repo for fault in faults}):,}")


if __name__ == "__main__":
    sys.exit(main())
