"""The `prereg` command: lock a plan, amend a lock, compare two of them, show one as a page."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from arflow_eval import jobs, refusal
from arflow_eval.registration import amending, comparing, folders, showing
from arflow_eval.registration.classes import STAGES
from arflow_eval.registration.lock import lock

DESCRIPTION: Final = """\
Registrations: plans in experiments/NAME, locked before their data exists.

  arflow-eval prereg lock NAME
  arflow-eval prereg amend NAME arms.draws.seed=1 --before sweep --reason "why"
  arflow-eval prereg show NAME --html > NAME.html
  arflow-eval prereg diff experiments/A experiments/B
"""


class _Parser(argparse.ArgumentParser):
    """Turns what argparse refuses into a refusal of ours."""

    def error(self, message: str) -> NoReturn:
        raise refusal.usage(
            message, expected=f"words as {self.prog} --help shows", remedy=f"see {self.prog} --help"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one of lock, amend, diff and show; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        asked = _parser().parse_args(words)
    except refusal.Refusal as refused:
        return jobs.report(refused)
    except SystemExit as stopped:  # --help
        return int(stopped.code or 0)
    act: Callable[[Mapping[str, Any]], int] = asked.act
    return jobs.run(act, vars(asked))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="arflow-eval prereg",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    acts = parser.add_subparsers(
        required=True, metavar="lock|amend|diff|show", parser_class=_Parser
    )
    lock_parser = acts.add_parser("lock", help="compose, digest and write a plan once")
    lock_parser.add_argument("--allow-dirty", action="store_true", help="lock uncommitted files")
    amend = acts.add_parser("amend", help="change what was locked, with a reason, in time")
    amend.add_argument("name", help="of the registration")
    amend.add_argument("changes", nargs="+", metavar="key=value")
    amend.add_argument("--reason", required=True, help="why")
    when = amend.add_mutually_exclusive_group(required=True)
    when.add_argument("--before", choices=STAGES, help="the stage that it precedes")
    when.add_argument("--deviation", action="store_true", help="too late: every report shows it")
    amend.add_argument("--dry-run", action="store_true", help="show the diff, write nothing")
    show = acts.add_parser("show", help="a registration as a page (Markdown)")
    show.add_argument("--html", action="store_true", help="as one HTML file")
    diff = acts.add_parser("diff", help="what differs between two artefacts")
    diff.add_argument("left")
    diff.add_argument("right")
    for each in (lock_parser, show):
        each.add_argument("name", help="of the registration")
    for each, act in ((lock_parser, _lock), (amend, _amend), (show, _show)):
        each.add_argument("--root", help="folder of registrations")
        each.add_argument("--outputs", default="outputs", help="where stores lie")
        each.set_defaults(act=act)
    diff.set_defaults(act=_diff)
    return parser


def _lock(asked: Mapping[str, Any]) -> int:
    folder = folders.experiment(asked["name"], root=asked["root"])
    made = lock(
        folder,
        allow_dirty=asked["allow_dirty"],
        outputs=Path(asked["outputs"]),
        list_open=lambda question: sys.stderr.write(f"open: {question}\n"),
    )
    _say(f"locked {made['name']} {made['made']['utc']}")
    _say(f"sha256 {made['lock_sha256']}")
    for arm, runs in made["data_before"].items():
        _say(f"note: data of arm {arm} is there already ({runs[0]}); its reads are exploratory")
    for why in made["made"]["dirty"]:
        _say(f"note: {why}, and the lock says so")
    _say(f"next: git add {folder.name}; git commit; git tag, signed where that is wanted")
    return 0


def _amend(asked: Mapping[str, Any]) -> int:
    folder = folders.experiment(asked["name"], root=asked["root"])
    amendment = amending.amend(
        folder,
        asked["changes"],
        reason=asked["reason"],
        before=asked["before"],
        outputs=Path(asked["outputs"]),
        dry_run=asked["dry_run"],
    )
    for line in amending.shown(amendment):
        _say(line)
    _say("nothing was written (--dry-run)" if asked["dry_run"] else "written; commit it with git")
    return 0


def _show(asked: Mapping[str, Any]) -> int:
    blocks = showing.page(folders.experiment(asked["name"], root=asked["root"]))
    sys.stdout.write((showing.as_html if asked["html"] else showing.markdown)(blocks))
    return 0


def _diff(asked: Mapping[str, Any]) -> int:
    left, right = (comparing.artefact(Path(asked[side])) for side in ("left", "right"))
    sys.stdout.write(comparing.as_text(comparing.compared(left, right)))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
