"""Expectations and decisions: structured comparisons over a report, never code in a string.

A comparison is `{value: PATH, is: below|above, than: NUMBER or anchor}`, with `size: true` where
the magnitude counts on both sides, or `{interval: PATH, excludes: NUMBER}`. A path is dotted keys
of the findings, of what is `extended`, of `anchors` or of `expectations`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from arflow_eval import refusal

Report = Mapping[str, Any]
ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
}
COMPARISONS: Final = (frozenset({"value", "is", "than"}), frozenset({"interval", "excludes"}))
FIELD: Final = re.compile(r"\{([^{}]+)\}")


def at(report: Report, path: str) -> Any:
    """What a report holds at a dotted path. Refuses a path that leads nowhere."""
    found: Any = report
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            known = list(found) if isinstance(found, Mapping) else []
            close = refusal.nearest(key, known)
            raise refusal.usage(
                f"the read refers to {path}, and there is no {key}",
                expected=f"one of {', '.join(known)}" if known else "a path to a value",
                remedy=f"did you mean {close}?" if close else "check the read's expectations",
            )
        found = found[key]
    return found


def is_comparison(entry: Any) -> bool:
    """Whether an entry of an expectation is a comparison, and not words."""
    return isinstance(entry, Mapping) and any(keys <= entry.keys() for keys in COMPARISONS)


def holds(comparison: Mapping[str, Any], report: Report) -> bool | None:
    """Whether a comparison holds; None where an interval has no ends."""
    if "interval" in comparison:
        low, high = at(report, comparison["interval"])
        if low is None or high is None:
            return None
        return not low <= comparison["excludes"] <= high
    than = comparison["than"]
    sides = at(report, comparison["value"]), at(report, than) if isinstance(than, str) else than
    value, bound = map(abs, sides) if comparison.get("size", False) else sides
    return ORDERS[comparison["is"]](value, bound)


def expected(expectations: Mapping[str, Mapping[str, Any]], report: Report) -> dict[str, Any]:
    """Every expectation with its comparisons answered and its words as they are."""
    return {
        name: {
            key: holds(entry, report) if is_comparison(entry) else entry
            for key, entry in entries.items()
        }
        for name, entries in expectations.items()
    }


def decided(groups: Sequence[Sequence[Mapping[str, Any]]], report: Report) -> list[str]:
    """One sentence a group: of the first case whose every condition is as it says.

    A group without such a case says nothing. `{PATH}` in a sentence becomes the value there.
    """
    chosen = (next((case for case in group if _applies(case, report)), None) for group in groups)
    return [spoken(str(case["say"]), report) for case in chosen if case is not None]


def spoken(sentence: str, report: Report) -> str:
    """A sentence with its fields filled in."""
    return FIELD.sub(lambda field: _shown(at(report, field[1])), sentence)


def _applies(case: Mapping[str, Any], report: Report) -> bool:
    return all(at(report, path) is wanted for path, wanted in case["when"].items())


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and value == round(value, 2) else str(value)


def check(definition: Mapping[str, Any]) -> None:
    """Refuse an expectation or decision that is no such structure, before a store is opened."""
    for name, entries in definition["expectations"].items():
        for key, entry in entries.items():
            if isinstance(entry, Mapping):
                _check_comparison(f"read.expectations.{name}.{key}", entry)
    for number, group in enumerate(definition["decision"]):
        for case in group:
            if set(case) != {"when", "say"}:
                raise refusal.usage(
                    f"a case of read.decision[{number}] has the keys {', '.join(case)}",
                    expected="when and say",
                    remedy="state the conditions under when, and the sentence under say",
                )


def _check_comparison(key: str, entry: Mapping[str, Any]) -> None:
    known = COMPARISONS[0] | {"size"}, COMPARISONS[1]
    if not is_comparison(entry) or not any(set(entry) <= keys for keys in known):
        raise refusal.usage(
            f"{key} has the keys {', '.join(entry)}",
            expected="value, is and than (and size), or interval and excludes",
            remedy="write a comparison as the other reads do",
        )
    if "is" in entry and entry["is"] not in ORDERS:
        raise refusal.usage(
            f"{key}.is={entry['is']}", expected="below or above", remedy=f"set {key}.is=below"
        )
