"""Dotted keys of a nested configuration: which exist, which are missing, which changed type."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.values import shown, wrong

TARGETS: Final = "arflow_eval."
MISSING: Final = "???"
SYNONYMS: Final = {"temperature": "T", "temp": "T"}  # no spelling comes near one letter
TYPE_NAMES: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def leaves(config: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of everything that holds no further keys. Lists are values."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, prefix=f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def branches(names: Iterable[str]) -> set[str]:
    """Every dotted key above the given ones: `shard` above `shard.index`."""
    return {
        ".".join(parts[:depth])
        for parts in (name.split(".") for name in names)
        for depth in range(1, len(parts))
    }


def unknown_key(key: str, known: Iterable[str]) -> refusal.Refusal:
    """The refusal of a key that does not exist, with the nearest one that does."""
    names = set(known)
    parent = key.rpartition(".")[0]
    siblings = sorted(name for name in names if name.rpartition(".")[0] == parent)
    close = _nearest_sibling(key, siblings) if siblings and parent else None
    close = close or (None if parent in names else refusal.nearest(key, names))
    return refusal.usage(
        f"unknown key {key}",
        expected=f"one of {', '.join(siblings)}" if siblings else "a key that --cfg job shows",
        remedy=f"did you mean {close}?" if close else "--cfg job shows every key",
    )


def check_values(base: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a configuration that adds, drops or retypes a key of the one before its overrides."""
    before, after = leaves(base), leaves(given)
    for key in [*after, *before]:
        if key not in after or key in branches(before):
            raise _not_keys(key, before, after)
        if key not in before:
            raise _not_a_value(key, before)
        check_type(key, after[key], like=before[key])


def check_type(key: str, value: Any, *, like: Any) -> None:
    """Refuse a value of another type than the one it replaces.

    A null, a required and a list value take anything; null may replace text only.
    """
    if like is None or like == MISSING or isinstance(like, (list, Mapping)):
        return
    if value == MISSING or (value is None and isinstance(like, str)):
        return
    accepted = (int, float) if isinstance(like, float) else (type(like),)
    if type(value) not in accepted:
        raise wrong(key, value, expected=TYPE_NAMES[type(like)], example=shown(like))


def check_missing(config: Mapping[str, Any]) -> None:
    """Refuse a configuration with a required value that nobody gave."""
    lacking = [key for key, value in leaves(config).items() if value == MISSING]
    if lacking:
        raise refusal.usage(
            f"{' and '.join(lacking)} not given",
            expected="a value for every required key",
            remedy="add " + " ".join(f"{key}=…" for key in lacking),
        )


def check_targets(config: Mapping[str, Any], *, within: tuple[str, ...] = (TARGETS,)) -> None:
    """Refuse a `_target_` that starts with none of the given words. Nothing is imported."""
    for key, value in leaves(config).items():
        if key.rpartition(".")[2] == "_target_" and not allowed_target(value, within=within):
            raise foreign_target(f"{key}={value}", within=within)


def allowed_target(target: Any, *, within: tuple[str, ...] = (TARGETS,)) -> bool:
    """Whether a dotted path lies inside this package, or inside the packages given."""
    return isinstance(target, str) and target.startswith(within)


def foreign_target(found: str, *, within: tuple[str, ...] = (TARGETS,)) -> refusal.Refusal:
    """The refusal of code outside this package, or outside the packages given."""
    return refusal.usage(
        found,
        expected=f"a dotted path that starts with {' or '.join(within)}",
        remedy="choose a group option instead, such as model=ar_tiny",
    )


def _nearest_sibling(key: str, siblings: Iterable[str]) -> str | None:
    names = {name.rpartition(".")[2]: name for name in siblings}
    spelt = {other: names[name] for other, name in SYNONYMS.items() if name in names} | names
    close = refusal.nearest(key.rpartition(".")[2], spelt)
    return None if close is None else spelt[close]


def _not_a_value(key: str, before: Mapping[str, Any]) -> refusal.Refusal:
    parts = key.split(".")
    for depth in range(1, len(parts)):
        above = ".".join(parts[:depth])
        if above in before:
            return refusal.usage(
                f"{above} is given keys of its own ({key})",
                expected="a single value",
                remedy=f"give for example {above}={shown(before[above])}",
            )
    return unknown_key(key, before)


def _not_keys(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> refusal.Refusal:
    above = next(name for name in sorted(branches([key]) | {key}) if name in after)
    inside = [name for name in before if name.startswith(f"{above}.")]
    return refusal.usage(
        f"{above}={shown(after[above])}",
        expected=f"values for its keys: {', '.join(inside)}",
        remedy=f"give for example {inside[0]}={shown(before[inside[0]])}",
    )
