"""Checks of single configuration values: each returns the value as its type, or refuses it."""

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from arflow_eval import refusal


def whole(value: Any, *, key: str, least: int) -> int:
    """An integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise wrong(key, value, expected=f"a whole number >= {least}", example=str(least))
    return value


def whole_or_null(value: Any, *, key: str, least: int) -> int | None:
    """An integer of at least `least`, or null."""
    return None if value is None else whole(value, key=key, least=least)


def positive_or_null(value: Any, *, key: str) -> float | None:
    """A finite number above 0, or null."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise wrong(key, value, expected="a number above 0, or null", example="0.1")
    return float(value)


def text(value: Any, *, key: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise wrong(key, value, expected="text", example="TEXT")
    return value


def text_or_null(value: Any, *, key: str) -> str | None:
    """A string that is not empty, or null."""
    return None if value is None else text(value, key=key)


def texts_or_null(value: Any, *, key: str) -> tuple[str, ...] | None:
    """A list of strings, or null."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise wrong(key, value, expected="a list of texts", example="[A,B]")
    return tuple(text(each, key=key) for each in value)


def plain_name(value: Any, *, key: str) -> str:
    """A string that can be part of a folder's name."""
    name = text(value, key=key)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise wrong(key, value, expected="letters, digits, _, . and -", example="my_name")
    return name


def flag(value: Any, *, key: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(key, value, expected="true or false", example="false")
    return value


def choice(value: Any, *, key: str, known: tuple[str, ...]) -> str:
    """One of the known strings."""
    if value not in known:
        raise refusal.usage(
            f"{key}={shown(value)}",
            expected=f"one of {', '.join(known)}"
            if len(known) > 1
            else f"{known[0]}, the only one",
            remedy=did_you_mean(key, str(value), known) or f"give {key}={known[0]}",
        )
    return str(value)


def wrong(key: str, value: Any, *, expected: str, example: str) -> refusal.Refusal:
    """The refusal of a value of the wrong type or range."""
    return refusal.usage(
        f"{key}={shown(value)}", expected=expected, remedy=f"give for example {key}={example}"
    )


def shown(value: Any) -> str:
    """A value as it is typed on a command line: null, true, 0.7, text."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def did_you_mean(key: str, value: str, known: Iterable[str]) -> str | None:
    """A remedy that names the known value nearest to `value`, or None where none is near."""
    close = refusal.nearest(value, known)
    return None if close is None else f"did you mean {key}={close}?"
