"""The JSON of a dataset's meta folder, its size, shape and numbers checked."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal

LARGEST: Final = 1 << 28  # bytes of one JSON file
MANY: Final = 10_000_000  # frames, episodes or files of one dataset


def broken(repo: str, found: str, *, expected: str) -> refusal.Refusal:
    """The refusal of a dataset whose files are not what they say."""
    return refusal.damage(
        f"dataset {repo}: {found}",
        expected=expected,
        remedy="download the dataset again, or leave it out of the panel",
    )


def read_object(path: Path, *, repo: str) -> dict[str, Any]:
    """A file that holds one JSON object."""
    return _object(_text(path, repo=repo), name=path.name, repo=repo)


def read_lines(path: Path, *, repo: str) -> list[dict[str, Any]]:
    """A file that holds one JSON object a line."""
    lines = _text(path, repo=repo).splitlines()
    return [_object(line, name=path.name, repo=repo) for line in lines if line.strip()]


def whole(value: Any, *, name: str, repo: str, least: int = 0, most: int = MANY) -> int:
    """An integer between bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise broken(repo, f"{name} is {shown(value)}", expected=f"an integer {least} to {most}")
    return value


def number(value: Any, *, name: str, repo: str, least: float, most: float) -> float:
    """A finite number between bounds."""
    right = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not least <= value <= most:
        raise broken(repo, f"{name} is {shown(value)}", expected=f"a number {least} to {most}")
    return float(value)


def text(value: Any, *, name: str, repo: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise broken(repo, f"{name} is {shown(value)}", expected="text")
    return value


def listed(value: Any, *, name: str, repo: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise broken(repo, f"{name} is {shown(value)}", expected="a list")
    return value


def shown(value: Any) -> str:
    """The start of a value, for an error."""
    return repr(value)[:60]


def _text(path: Path, *, repo: str) -> str:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise broken(repo, f"{path.name} has {size:,} bytes", expected=f"at most {LARGEST:,}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise broken(
            repo, f"{path.name} cannot be read ({error.__class__.__name__})", expected="a JSON file"
        ) from error


def _object(raw: str, *, name: str, repo: str) -> dict[str, Any]:
    read: Callable[[str], Any] = json.loads
    try:
        found = read(raw)
    except (ValueError, RecursionError) as error:
        raise broken(repo, f"{name} is not JSON ({error})", expected="JSON objects") from error
    if not isinstance(found, dict):
        raise broken(repo, f"{name} holds {shown(found)}", expected="JSON objects")
    return found
