"""python -m arflow_eval.doctor [FOLDER]: whether stores are safe on a folder's file system.

Two processes try out what the store asks of a file system. FOLDER is outputs by default, or the
present folder where there is none; all that is made in it is removed. Exit codes: 0 all is well, 3
something that the store needs fails.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from arflow_eval import plain, refusal
from arflow_eval.doctoring.filesystem import Outcome, examine

WIDTH: Final = 100  # columns of a table that is not on a terminal
FORMS: Final = "arflow-eval doctor [FOLDER] [--json]"


def table(found: Sequence[Outcome]) -> Table:
    """A row a check."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("check", "", "needed for", "seen"):
        shown.add_column(heading, overflow="fold")
    for each in found:
        shown.add_row(each.check.name, _word(each), each.check.needed_for, each.seen)
    return shown


def _word(found: Outcome) -> str:
    if found.passed:
        return "pass"
    return "FAIL" if found.check.required else "warn"


def _files(folder: Path, *, as_json: bool) -> int:
    """Examine a file system; 3 where something that the store needs fails."""
    found = examine(folder)
    if as_json:
        listed = [
            {
                "check": each.check.name,
                "passed": each.passed,
                "required": each.check.required,
                "needed_for": each.check.needed_for,
                "seen": each.seen,
            }
            for each in found
        ]
        sys.stdout.write(json.dumps({"folder": str(folder), "checks": listed}, indent=2) + "\n")
    else:
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        console.print(f"file system of {folder}", soft_wrap=True, highlight=False, markup=False)
        console.print(table(found))
    failed = [each.check.name for each in found if each.check.required and not each.passed]
    if failed:
        raise refusal.guard(
            f"{folder} fails {', '.join(failed)}",
            expected="a file system that keeps what a store writes",
            remedy="set store.root to a local disk, and move finished runs with convert merge",
        )
    return 0


def _examine(asked: Mapping[str, Any]) -> int:
    words = asked["words"]
    adapters = [word for word in words if "=" in word]
    if adapters:
        raise _wrong(f"doctor {adapters[0]}, which tests no adapters yet")
    if len(words) > 1:
        raise _wrong(f"doctor with {len(words)} folders")
    folder = Path(words[0]) if words else Path("outputs" if Path("outputs").is_dir() else ".")
    if not folder.is_dir():
        raise _wrong(f"there is no folder {folder}")
    return _files(folder, as_json=asked["json"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run `doctor` with the given words, the command line's by default; returns the exit code."""
    parser = plain.parser("doctor", description=__doc__, words="a folder of outputs")
    parser.add_argument("--json", action="store_true", help="the outcomes as JSON")
    return plain.run(parser, argv, _examine, forms=FORMS)


def _wrong(found: str) -> refusal.Refusal:
    return plain.wrong(found, forms=FORMS, help_of="arflow-eval doctor")


if __name__ == "__main__":
    sys.exit(main())
