"""python -m arflow_eval.status PATH...: how far runs are, what they cost, what is left.

A path is a run folder, its predictions.zarr, or a folder that holds runs.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from arflow_eval import jobs, plain, refusal, store
from arflow_eval.costs import PARTS, Cost, read_timings, run_cost
from arflow_eval.progress import duration
from arflow_eval.reads.screen import figure
from arflow_eval.runs import STORE, run_folders
from arflow_eval.store.access import opened

WIDTH: Final = 100  # columns of a table that is not on a terminal
LEGEND: Final = (
    "left: of one process; prefill to reference: percent of the seconds;"
    " first, further: seconds of a frame's first draw and of each other one"
)
FORMS: Final = "arflow-eval status [PATH ...] [--json]"


@dataclass(frozen=True)
class Status:
    """How far a run is. `cost` and what follows from it are None before a frame was timed.

    Attributes:
        path: the run folder.
        name: its last part.
        digest: of the configuration that names the store.
        frames_done: frames that are marked in the store.
        age_seconds: since the store was last written.
        state: complete, unchecked (every frame done, the store not yet sealed) or incomplete.
        frames_per_second: of the recorded seconds of one process.
        seconds_left: of one process for the frames that are not done.
        cost: what the timed frames took.
    """

    path: str
    name: str
    arm: str
    panel: str | None
    digest: str
    frames_done: int
    frames_total: int
    age_seconds: float
    state: str
    frames_per_second: float | None
    seconds_left: float | None
    cost: Cost | None


def run_status(folder: Path) -> Status:
    """The status of one run, from its store's marks and the seconds beside it."""
    path = folder / STORE
    attributes: dict[str, Any] = opened(path).attrs.asdict()
    done, total = store.progress(path)
    cost = run_cost(read_timings(folder))
    left = total - done
    whole = "complete" if attributes["complete"] else "unchecked"
    return Status(
        path=str(folder),
        name=folder.resolve().name,
        arm=str(attributes["arm"]),
        panel=attributes.get("panel"),
        digest=str(attributes["digest"]),
        frames_done=done,
        frames_total=total,
        age_seconds=_age(path),
        state="incomplete" if left else whole,
        frames_per_second=1 / cost.seconds_per_frame if cost and cost.seconds_per_frame else None,
        seconds_left=left * cost.seconds_per_frame if cost else (None if left else 0.0),
        cost=cost,
    )


def _age(store_path: Path) -> float:
    """Seconds since a block was last marked, or the store made or sealed; never negative."""
    written = [store_path / "zarr.json", *(store_path / "frame_digest").glob("c.*")]
    return max(0.0, time.time() - max(path.stat().st_mtime for path in written))


def table(found: Sequence[Status]) -> Group:
    """Place and age, progress, and where the seconds went; a row a run in each."""
    names = _columns("run", "age", "path")
    progress = _columns("run", "arm", "panel", "frames", "state", "frames/s", "left", "device-h")
    seconds = _columns("run", "s/frame", *PARTS, "first", "further", "ratio")
    for each in found:
        names.add_row(each.digest[:8], duration(each.age_seconds), each.path)
        progress.add_row(*_progress(each))
        seconds.add_row(each.digest[:8], *_seconds(each.cost))
    return Group(names, Text(), progress, Text(), seconds, Text(LEGEND))


def _columns(*headings: str) -> Table:
    """An empty table that fits 80 columns. Where it must shrink, the widest column folds first."""
    shown = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for heading in headings:
        words = heading in ("run", "path", "arm", "panel", "state")
        shown.add_column(heading, justify="left" if words else "right", overflow="fold")
    return shown


def _progress(each: Status) -> list[str]:
    return [
        each.digest[:8],
        each.arm,
        each.panel or "n/a",
        f"{each.frames_done:,}/{each.frames_total:,}",
        each.state,
        figure(each.frames_per_second),
        "n/a" if each.seconds_left is None else duration(each.seconds_left),
        figure(each.cost.device_hours if each.cost else None),
    ]


def _seconds(cost: Cost | None) -> list[str]:
    if cost is None:
        return ["n/a"] * (len(PARTS) + 4)
    parts = (cost.parts.get(name) for name in PARTS)
    shares = ["-" if part is None else f"{100 * part.share:.1f}" for part in parts]
    margin = (cost.first_draw_seconds, cost.further_draw_seconds, cost.further_to_first)
    return [figure(cost.seconds_per_frame), *shares, *map(figure, margin)]


def _show(asked: Mapping[str, Any]) -> int:
    """Print what is known of every run; one that cannot be read hides no other."""
    found, codes = [], []
    folders = [run for path in asked["words"] or ["outputs"] for run in run_folders(Path(path))]
    for folder in dict.fromkeys(folders):
        try:
            found.append(run_status(folder))
        except refusal.Refusal as refused:
            codes.append(jobs.report(refused))
    if asked["json"]:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    elif found:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table(found))
    return jobs.worst(codes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `status` with the given words, the command line's by default; returns the exit code."""
    parser = plain.parser("status", description=__doc__, words="outputs by default")
    parser.add_argument("--json", action="store_true", help="one JSON list, an entry a run")
    return plain.run(parser, argv, _show, forms=FORMS)


if __name__ == "__main__":
    sys.exit(main())
