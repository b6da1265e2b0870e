"""What a published report says of one arm: its summary values and how it was decoded."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.published.names import Name

LARGEST: Final = 2**26  # bytes
SETTINGS: Final = (
    *("seed", "noise_key", "sample_draws", "sample_steps", "sample_method", "target_time"),
    *("ar_temperature", "core_frames", "labeled_frames", "plan_seed"),
)
CHECKPOINT_PARTS: Final = 2  # of a checkpoint's path; what stands above may carry a person's name


def read_report(path: Path, name: Name, *, core: int) -> dict[str, Any]:
    """The summary of an arm, its checkpoint, plan and decode settings, as far as a report has them.

    Two forms are known: `summaries`, a list with `policy` and numbers, and `arms_pooled`, entries
    with `pred_key` and numbers.

    Args:
        path: a JSON file.
        name: the arm.
        core: core frames of the predictions.

    Raises:
        Refusal: usage where there is no such file or arm in it, damage where it is no JSON, a
            guard where it is of other draws, of another temperature or of another panel.
    """
    content = _content(path)
    oracles = _mapping(content.get("read5_execution_oracles"))
    settings = {**_plain(oracles, SETTINGS), **_plain(content, SETTINGS)}
    checkpoint = content.get("checkpoint", oracles.get("checkpoint"))
    plan = content.get("sample_plan")
    found = {
        "summary": _summary(path, name, content),
        "checkpoint": _last(checkpoint, CHECKPOINT_PARTS),
        "sample_plan": _last(plan, 1),
        "settings": settings,
    }
    _check(path, name, settings, core=core)
    return found


def _content(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise refusal.usage(
            f"there is no file {path}", expected="a report in JSON", remedy="check --report"
        )
    if path.stat().st_size > LARGEST:
        raise refusal.usage(
            f"{path.name} has {path.stat().st_size:,} bytes",
            expected=f"a report of at most {LARGEST:,}",
            remedy="check --report",
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise refusal.damage(
            f"{path.name} cannot be read ({error})",
            expected="a report in JSON",
            remedy="copy the file again from where it was made",
        ) from error
    return _mapping(content)


def _summary(path: Path, name: Name, content: Mapping[str, Any]) -> dict[str, Any]:
    entries = content.get("summaries")
    pooled = _mapping(content.get("arms_pooled")).values()
    listed = [*(entries if isinstance(entries, list) else ()), *pooled]
    by_policy = {
        str(entry.get("policy", entry.get("pred_key"))).removeprefix("pred:"): entry
        for entry in map(_mapping, listed)
    }
    if name.policy not in by_policy:
        close = refusal.nearest(name.policy, by_policy)
        raise refusal.usage(
            f"{path.name} has no summary of {name.policy}",
            expected=f"one of {', '.join(by_policy)}" if by_policy else "summaries of its arms",
            remedy=f"{close} comes closest; take the report of this arm"
            if close
            else "take the report of this arm",
        )
    entry = by_policy[name.policy]
    return _plain(entry, [key for key in entry if isinstance(entry[key], int | float)])


def _check(path: Path, name: Name, settings: Mapping[str, Any], *, core: int) -> None:
    expected = {"sample_draws": name.draws, "ar_temperature": name.T, "core_frames": core}
    for key, value in expected.items():
        if value is not None and settings.get(key) not in (None, value):
            raise refusal.guard(
                f"{path.name} has {key} {settings[key]}",
                expected=f"{value}, as {name.policy} and its predictions have",
                remedy="take the report that was written with these predictions",
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain(values: Mapping[str, Any], keys: Any) -> dict[str, Any]:
    """Numbers, flags and text; what is no finite number is left out."""
    found = {}
    for key in keys:
        value = values.get(key)
        finite = isinstance(value, float) and math.isfinite(value)
        if isinstance(value, int | str) or finite:
            found[str(key)] = value
    return found


def _last(path: Any, parts: int) -> str | None:
    """The end of a path, whichever separator it has."""
    if not isinstance(path, str) or not path:
        return None
    return "/".join(path.replace("\\", "/").rstrip("/").split("/")[-parts:])
