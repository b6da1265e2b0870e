"""The words of one kind of conversion: paths and flags, and a refusal that names the nearest."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arflow_eval import jobs, refusal


@dataclass(frozen=True)
class Kind:
    """What one kind of conversion takes.

    Attributes:
        name: the word after `convert`.
        forms: the command, as it is typed.
        purpose: what it does, for --help.
        flags: metavariable and meaning of every flag, by its name without dashes.
    """

    name: str
    forms: str
    purpose: str
    flags: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def wrong(self, found: str, *, close: str = "", known: Sequence[str] = ()) -> refusal.Refusal:
        """The usage refusal of words that do not fit."""
        nearest = refusal.nearest(close, known)
        return refusal.usage(
            found,
            expected=self.forms,
            remedy=f"did you mean {nearest}?"
            if nearest
            else f"see arflow-eval convert {self.name} --help",
        )


Convert = Callable[[Sequence[str], Mapping[str, Any]], int]


def run(kind: Kind, convert: Convert, argv: Sequence[str]) -> int:
    """Read the words after a kind's name and convert; returns the exit code."""
    parser = _parser(kind)
    try:
        arguments, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        return jobs.report(kind.wrong(str(error)))
    if unknown:
        known = [f"--{name}" for name in (*kind.flags, "help")]
        return jobs.report(kind.wrong(f"unknown flag {unknown[0]}", close=unknown[0], known=known))
    if arguments.help:
        sys.stdout.write(parser.format_help())
        return 0
    asked = vars(arguments)
    return jobs.run(lambda _: convert(asked["words"], asked), asked)


def say(line: str) -> None:
    """Print one line."""
    sys.stdout.write(line + "\n")


def _parser(kind: Kind) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"arflow-eval convert {kind.name}",
        usage=kind.forms,
        description=kind.purpose,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="PATH", help="as above")
    for name, (metavar, meaning) in kind.flags.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=meaning)
    parser.add_argument("-h", "--help", action="store_true", help="show this and end")
    return parser
