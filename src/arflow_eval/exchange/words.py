"""The words of one kind of conversion: paths and flags, and a refusal that names the nearest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arflow_eval import plain, refusal


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
    parser = plain.parser(
        f"convert {kind.name}", usage=kind.forms, description=kind.purpose, words="as above"
    )
    for name, (metavar, meaning) in kind.flags.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=meaning)
    return plain.run(parser, argv, lambda asked: convert(asked["words"], asked), forms=kind.forms)
