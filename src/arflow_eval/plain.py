"""Plain command lines: words and flags in, an exit code out, one line for what is wrong."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arflow_eval import jobs, refusal


def parser(
    program: str, *, description: str | None, words: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """A parser with `words` as its positional arguments and --help, abbreviating nothing."""
    found = argparse.ArgumentParser(
        prog=f"arflow-eval {program}",
        usage=usage,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    found.add_argument("words", nargs="*", metavar="WORD", help=words)
    found.add_argument("-h", "--help", action="store_true", help="show this and end")
    return found


def run(
    command: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    task: Callable[[dict[str, Any]], int],
    *,
    forms: str,
) -> int:
    """The exit code of a task with its command line's words and flags."""
    try:
        given, unknown = command.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        return jobs.report(wrong(str(error), forms=forms, help_of=command.prog))
    if unknown:
        known = [word for action in command._actions for word in action.option_strings]  # noqa: SLF001 - argparse lists its flags nowhere else
        close = refusal.nearest(unknown[0], known)
        said = f"unknown flag {unknown[0]}"
        return jobs.report(wrong(said, forms=forms, close=close, help_of=command.prog))
    if given.help:
        sys.stdout.write(command.format_help())
        return 0
    return jobs.run(task, vars(given))


def wrong(
    found: str, *, forms: str, close: str | None = None, help_of: str = "arflow-eval"
) -> refusal.Refusal:
    """The refusal of words that are no form of a command."""
    remedy = f"did you mean {close}?" if close else f"see {help_of} --help"
    return refusal.usage(found, expected=forms, remedy=remedy)


def numbers(given: Mapping[str, Any], flag: str, *, least: float, most: float) -> tuple[float, ...]:
    """The comma-separated numbers of a flag, each between bounds."""
    words = str(given[flag.strip("-").replace("-", "_")])
    try:
        found = tuple(float(word) for word in words.split(",") if word)
    except ValueError:
        found = (float("nan"),)
    if not all(least <= number <= most for number in found):
        raise refusal.usage(
            f"{flag} {words}",
            expected=f"numbers {least:g} to {most:g}, comma-separated",
            remedy=f"give for example {flag} {max(least, 1):g}",
        )
    return found


def say(line: str) -> None:
    """A line on stdout."""
    sys.stdout.write(line + "\n")
