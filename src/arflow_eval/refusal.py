"""One way to say no: what was found, what was expected, and what to type next.

Every refusal carries the exit code of its kind: 2 usage or configuration, 3 a guard,
4 still waiting, 5 damaged or changed data.
"""

import difflib
from collections.abc import Iterable
from typing import Final

USAGE: Final = 2
GUARD: Final = 3
WAITING: Final = 4
DAMAGE: Final = 5


class Refusal(Exception):  # noqa: N818 - no error of the program: it says no
    """A request the program will not carry out, in one line.

    Raise it through `usage`, `guard`, `waiting` or `damage`, which name the exit code.
    """

    def __init__(self, found: str, *, expected: str, remedy: str, exit_code: int) -> None:
        super().__init__(f"{found}; expected {expected}; {remedy}")
        self.found = found
        self.expected = expected
        self.remedy = remedy
        self.exit_code = exit_code


def usage(found: str, *, expected: str, remedy: str) -> Refusal:
    """A command or configuration that cannot be run (exit code 2)."""
    return Refusal(found, expected=expected, remedy=remedy, exit_code=USAGE)


def guard(found: str, *, expected: str, remedy: str) -> Refusal:
    """A precondition of a run or a read that does not hold (exit code 3)."""
    return Refusal(found, expected=expected, remedy=remedy, exit_code=GUARD)


def waiting(found: str, *, expected: str, remedy: str) -> Refusal:
    """Something that is not there yet but may come (exit code 4)."""
    return Refusal(found, expected=expected, remedy=remedy, exit_code=WAITING)


def damage(found: str, *, expected: str, remedy: str) -> Refusal:
    """Data that is not what it was when it was written or frozen (exit code 5)."""
    return Refusal(found, expected=expected, remedy=remedy, exit_code=DAMAGE)


def sealed_panel(name: str) -> Refusal:
    """The refusal of a panel that nothing may score before its registration's locked run."""
    return guard(
        f"panel {name} is sealed",
        expected="the locked run of a registration, which alone may open it",
        remedy="develop on panel=pusht, and keep the sealed episodes for the registered run",
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None where nothing comes close.

    A dotted key is also compared by its last part, so that `decode.temprature`
    finds `decode.temperature` and `draws` finds `decode.draws`.
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    by_last_part = {full.rsplit(".", 1)[-1]: full for full in reversed(names)}
    close = difflib.get_close_matches(name.rsplit(".", 1)[-1], by_last_part, n=1, cutoff=0.6)
    return by_last_part[close[0]] if close else None
