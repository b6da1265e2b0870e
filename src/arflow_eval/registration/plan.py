"""plan.yaml: the question, the arms, the reads and the gates of a registration, before its lock."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import keys, refusal
from arflow_eval.registration.documents import read_yaml
from arflow_eval.values import flag, plain_name, text

NAME: Final = "plan.yaml"
LATER: Final = "later"
KEYS: Final = (
    *("name", "question", "background", "arms", "reads", "gates"),
    *("published_amendments", "notes"),
)
ARM_KEYS: Final = ("overrides", "checkpoint", "imported")
ANALYSIS: Final = ("guards", "anchors", "expectations", "decision", "oracles")
READ_KEYS: Final = ("overrides", "arms", "note", "record_only", *ANALYSIS)


@dataclass(frozen=True)
class Arm:
    """One arm: words of an evaluate command, or an `imported` store by its fingerprint.

    `later` says that its checkpoint does not exist yet, and is bound when it is first evaluated.
    """

    overrides: tuple[str, ...]
    later: bool
    imported: Mapping[str, Any] | None


@dataclass(frozen=True)
class Read:
    """One read: words of a read command, which arm has which role, and its own analysis."""

    overrides: tuple[str, ...]
    arms: Mapping[str, str]
    analysis: Mapping[str, Any]
    note: str | None
    record_only: bool


@dataclass(frozen=True)
class Plan:
    """What a plan.yaml says. `words` are its keys that are recorded as they are."""

    name: str
    arms: Mapping[str, Arm]
    reads: Mapping[str, Read]
    words: Mapping[str, Any]


def read_plan(folder: Path) -> Plan:
    """The plan in a registration's folder, every key of it known.

    Raises:
        Refusal: there is none, or it has an unknown, missing or misplaced key (usage).
    """
    document = read_yaml(folder / NAME)
    _check_keys(document, known=KEYS, required=("name", "question", "arms", "reads"), where="")
    if document["name"] != folder.name:
        raise refusal.usage(
            f"the plan in {folder.name} is called {document['name']}",
            expected="a plan under the name of its folder",
            remedy=f"set name: {folder.name}, or rename the folder",
        )
    arms = {_name(name, of="arms"): _arm(name, it) for name, it in _mapping(document, "arms")}
    reads = {_name(name, of="reads"): _read(name, it) for name, it in _mapping(document, "reads")}
    for name, read in reads.items():
        for role, arm in read.arms.items():
            if arm not in arms:
                close = refusal.nearest(arm, arms)
                raise refusal.usage(
                    f"reads.{name}.arms.{role}={arm}",
                    expected=f"one of the plan's arms: {', '.join(arms)}",
                    remedy=f"did you mean {close}?" if close else "add the arm",
                )
    words = {key: it for key, it in document.items() if key not in ("name", "arms", "reads")}
    text(words["question"], key="question")
    if not isinstance(words.get("notes", []), list):
        raise refusal.usage("notes is no list", expected="a list of notes", remedy="write - NOTE")
    return Plan(name=folder.name, arms=arms, reads=reads, words=words)


def _name(value: str, *, of: str) -> str:
    if "." in value:
        raise refusal.usage(
            f"{of} has the name {value}", expected="a name without dots", remedy="rename it"
        )
    return plain_name(value, key=of)


def _mapping(document: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    found = document[key]
    if not isinstance(found, dict) or not found:
        raise refusal.usage(f"{key} is empty", expected="at least one", remedy=f"add {key}")
    for name, value in found.items():
        if not isinstance(value, dict):
            raise refusal.usage(
                f"{key}.{name} has no keys of its own",
                expected="overrides: [...]",
                remedy=f"write overrides: below {key}.{name}",
            )
    return list(found.items())


def _arm(name: str, found: Mapping[str, Any]) -> Arm:
    where = f"arms.{name}."
    _check_keys(found, known=ARM_KEYS, required=(), where=where)
    if ("overrides" in found) == ("imported" in found):
        raise refusal.usage(
            f"arms.{name} has the keys {', '.join(found) or 'none'}",
            expected="either overrides of an evaluate command or imported",
            remedy=f"add arms.{name}.overrides",
        )
    checkpoint = found.get("checkpoint")
    if checkpoint not in (None, LATER):
        raise refusal.usage(
            f"{where}checkpoint={checkpoint}",
            expected=f"{LATER}, or no such key: one that exists is pinned by its content",
            remedy=f"set {where}checkpoint: {LATER}, or drop it",
        )
    imported = found.get("imported")
    if imported is not None and set(imported) != {"name", "fingerprint"}:
        raise refusal.usage(
            f"{where}imported has the keys {', '.join(imported)}",
            expected="name and fingerprint, of a store that convert wrote",
            remedy="write ??? for what is not known yet",
        )
    return Arm(_overrides(found, where), later=checkpoint == LATER, imported=imported)


def _read(name: str, found: Mapping[str, Any]) -> Read:
    where = f"reads.{name}."
    _check_keys(found, known=READ_KEYS, required=("overrides", "arms"), where=where)
    arms = found["arms"]
    if not isinstance(arms, dict) or not all(isinstance(arm, str) for arm in arms.values()):
        raise refusal.usage(
            f"{where}arms={arms}", expected="role: arm", remedy="name an arm for every role"
        )
    return Read(
        overrides=_overrides(found, where),
        arms=arms,
        analysis={key: found[key] for key in ANALYSIS if key in found},
        note=found.get("note"),
        record_only=flag(found.get("record_only", False), key=f"{where}record_only"),
    )


def _overrides(found: Mapping[str, Any], where: str) -> tuple[str, ...]:
    given = found.get("overrides", [])
    if not isinstance(given, list) or not all(isinstance(it, str) and "=" in it for it in given):
        raise refusal.usage(
            f"{where}overrides={given}",
            expected="a list of key=value, as on the command line",
            remedy="write for example [model=ar_tiny, decode=greedy]",
        )
    return tuple(given)


def _check_keys(
    found: Mapping[str, Any], *, known: tuple[str, ...], required: tuple[str, ...], where: str
) -> None:
    for key in found:
        if key not in known:
            raise keys.unknown_key(f"{where}{key}", [f"{where}{name}" for name in known])
    lacking = [key for key in required if key not in found]
    if lacking:
        raise refusal.usage(
            f"the plan has no {where}{lacking[0]}",
            expected=", ".join(required),
            remedy=f"add {where}{lacking[0]}",
        )
