"""Documents of a registration: safe YAML and JSON, dotted keys of any depth, digests by key."""

import copy
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

import yaml

from arflow_eval import provenance, refusal

SHORT: Final = 12  # hex digits that name which key changed; whole digests say whether one did
SECOND: Final = "%Y-%m-%dT%H:%M:%SZ"
PATHS: Final = (
    *("model.path", "panel.plan", "panel.root", "panel.cache", "panel.subset"),
    *("decode.tickets", "store.root"),
)


def now() -> str:
    """The present time in UTC, to the second."""
    return datetime.now(UTC).strftime(SECOND)


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one recorded time to another; negative where the clock ran backwards."""
    first, last = (datetime.strptime(it, SECOND).replace(tzinfo=UTC) for it in (earlier, later))
    return (last - first).total_seconds()


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of plain keys and JSON values: no tags, aliases, repeats or interpolations.

    Raises:
        Refusal: there is no such file, or it holds something else (usage).
    """
    if not path.is_file():
        raise _unusable(path, "does not exist", remedy=_near(path))
    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise _unusable(path, "holds an alias (*)", remedy="write the value out")
        repeated = next(_repeated(yaml.compose(text, Loader=yaml.SafeLoader)), None)
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        said = " ".join(str(error).split())
        raise _unusable(path, f"cannot be read ({said})", remedy="mend its YAML") from error
    if repeated is not None:
        raise _unusable(path, f"gives the key {repeated} twice", remedy="drop one")
    if not isinstance(found, dict):
        raise _unusable(path, "holds no keys", remedy="write key: value")
    _check_plain(path, found)
    return found


def _near(path: Path) -> str:
    known = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
    close = refusal.nearest(path.name, known)
    return f"did you mean {close}?" if close else "check the name"


def _unusable(path: Path, how: str, *, remedy: str) -> refusal.Refusal:
    return refusal.usage(
        f"{path.parent.name}/{path.name} {how}",
        expected="a YAML file of plain keys and values",
        remedy=remedy,
    )


def _repeated(node: Any) -> Iterator[str]:
    """Keys that a mapping gives twice; YAML would keep the last of them."""
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value]
        yield from (name for name in names if names.count(name) > 1)
        for _, value in node.value:
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _repeated(value)


def _check_plain(path: Path, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise _unusable(path, f"has the key {key!r}", remedy=f'write it as text: "{key}"')
            _check_plain(path, inner)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(path, inner)
    elif isinstance(value, str) and "${" in value:
        raise _unusable(path, f"interpolates ({value})", remedy="write the value out")
    elif not isinstance(value, str | int | float | bool | None):
        raise _unusable(path, f"holds {value!r}", remedy="write dates and the like in quotes")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that this program wrote. Damage where it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refusal.damage(
            f"{path.parent.name}/{path.name} cannot be read ({type(error).__name__})",
            expected="the JSON that was written",
            remedy="restore the file from git",
        ) from error
    if not isinstance(found, dict):
        raise refusal.damage(
            f"{path.parent.name}/{path.name} is no JSON object",
            expected="the JSON that was written",
            remedy="restore the file from git",
        )
    return found


def places(
    document: Mapping[str, Any], *, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The path of every value that holds no further keys. Lists are values."""
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from places(value, above=(*above, key))
        else:
            yield (*above, key)


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value; keys of a document may hold dots of their own."""
    return {".".join(place): at(document, place) for place in places(document)}


def at(document: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    """The value at a path."""
    found: Any = document
    for key in place:
        found = found[key]
    return found


def replaced(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a document with the values at some dotted keys, which it has, replaced."""
    known = {".".join(place): place for place in places(document)}
    found = copy.deepcopy(dict(document))
    for key, value in changes.items():
        *above, last = known[key]
        at(found, tuple(above))[last] = value
    return found


def sealed(document: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """A document with a short digest of each value, and under `key` the digest of all of it."""
    leaves = {name: provenance.digest(it)[:SHORT] for name, it in flat(_keyed(document)).items()}
    whole = {**document, "leaves": leaves}
    return {**whole, key: provenance.digest(whole)}


def _keyed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document whose lists of changes are by their keys, so that each has leaves of its own."""
    return {
        name: {it["key"]: it for it in value}
        if isinstance(value, list)
        and all(isinstance(it, dict) and isinstance(it.get("key"), str) for it in value)
        else value
        for name, value in document.items()
    }


def broken(document: Mapping[str, Any], *, key: str) -> list[str]:
    """The dotted keys of a sealed document that are not what they were; empty where none is."""
    body = {name: value for name, value in document.items() if name != key}
    if provenance.digest(body) == document.get(key):
        return []
    leaves = body.pop("leaves", {})
    leaves = leaves if isinstance(leaves, Mapping) else {}
    found = flat(_keyed(body))
    differing = [
        name
        for name in {**found, **leaves}
        if name not in found
        or name not in leaves
        or provenance.digest(found[name])[:SHORT] != leaves[name]
    ]
    return differing or [key]


def impersonal(key: str, value: Any) -> Any:
    """A value as it may be recorded: of a path from a root or a home, only the last part."""
    if not isinstance(value, str) or not key.endswith(PATHS) or value.startswith("bundled:"):
        return value
    posix, windows = PurePosixPath(value), PureWindowsPath(value)
    if posix.is_absolute() or windows.is_absolute() or value.startswith("~") or ".." in posix.parts:
        return windows.name if windows.is_absolute() else posix.name
    return value
