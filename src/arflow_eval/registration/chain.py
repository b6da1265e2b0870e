"""A registration as it stands: its lock, the amendments in order, and what has happened since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.registration import documents, ledger

LOCK: Final = "lock.json"
LOCK_FORMAT: Final = "arflow_eval lock 1"
LOCK_KEY: Final = "lock_sha256"
AMENDMENTS: Final = "amendments"
AMENDMENT_FORMAT: Final = "arflow_eval amendment 1"
AMENDMENT_KEY: Final = "amendment_sha256"
Amendment = Mapping[str, Any]


@dataclass(frozen=True)
class Registration:
    """A locked registration. `document` is what was locked, with every amendment carried out."""

    folder: Path
    lock: Mapping[str, Any]
    amendments: tuple[Amendment, ...]
    entries: tuple[ledger.Entry, ...]
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, which is its folder's."""
        return str(self.lock["name"])

    @property
    def start(self) -> str:
        """The digest of the lock."""
        return str(self.lock[LOCK_KEY])

    @property
    def chain(self) -> list[str]:
        """The digests of the amendments, in order."""
        return [str(amendment[AMENDMENT_KEY]) for amendment in self.amendments]

    @property
    def head(self) -> str:
        """The digest of the last amendment, or of the lock."""
        return (self.chain or [self.start])[-1]

    def first(self, kind: str, **what: Any) -> ledger.Entry | None:
        """The first line of the ledger of a kind, with these words in it."""
        return next(
            (
                entry
                for entry in self.entries
                if entry["kind"] == kind
                and all(entry["what"].get(key) == value for key, value in what.items())
            ),
            None,
        )


def load(folder: Path) -> Registration:
    """The registration in a folder, with every digest of its chain recomputed.

    Raises:
        Refusal: it is not locked (guard), or a file of it is not what it was (damage).
    """
    lock = read_lock(folder)
    amendments = read_amendments(folder)
    document: Mapping[str, Any] = lock["registered"]
    previous = lock[LOCK_KEY]
    for number, amendment in enumerate(amendments, start=1):
        check_follows(folder, amendment, number=number, previous=previous)
        document = carried_out(folder, document, amendment)
        previous = amendment[AMENDMENT_KEY]
    entries = ledger.entries(folder, start=lock[LOCK_KEY])
    recorded = [it["what"]["amendment"] for it in entries if it["kind"] == "amended"]
    if recorded != [amendment[AMENDMENT_KEY] for amendment in amendments]:
        raise refusal.damage(
            f"{folder.name} has {len(amendments)} amendments, and its ledger records"
            f" {len(recorded)} of which some are others",
            expected="the amendments that the ledger records",
            remedy="restore amendments and ledger from git; amend again what was cut off",
        )
    return Registration(folder, lock, tuple(amendments), tuple(entries), document)


def read_lock(folder: Path) -> dict[str, Any]:
    """The lock in a folder, held against its own digests."""
    path = folder / LOCK
    if not path.is_file():
        raise refusal.guard(
            f"{folder.name} is not locked",
            expected="a lock.json beside its plan",
            remedy=f"run arflow-eval prereg lock {folder.name}",
        )
    lock = documents.read_json(path)
    changed = documents.broken(lock, key=LOCK_KEY)
    if lock.get("format") != LOCK_FORMAT or changed:
        raise _edited(folder, LOCK, changed or ["format"])
    if lock["name"] != folder.name:
        raise refusal.usage(
            f"the lock in {folder.name} is that of {lock['name']}",
            expected="a registration in the folder of its name",
            remedy=f"rename the folder to {lock['name']}",
        )
    return lock


def read_amendments(folder: Path) -> list[Amendment]:
    """The amendments in a folder by their numbers, each held against its own digests."""
    return [read_amendment(folder, path) for path in amendment_files(folder)]


def amendment_files(folder: Path) -> list[Path]:
    """The files of a registration's amendments, in order."""
    return sorted((folder / AMENDMENTS).glob("*.yaml"))


def read_amendment(folder: Path, path: Path) -> Amendment:
    """One amendment, held against its own digests. Damage where it is not what was written."""
    file = f"{AMENDMENTS}/{path.name}"
    try:
        amendment = documents.read_yaml(path)
    except refusal.Refusal as error:  # it was written by this program
        raise refusal.damage(
            f"{folder.name}: {error.found}",
            expected="the amendment that was written",
            remedy="restore the file from git",
        ) from error
    changed = documents.broken(amendment, key=AMENDMENT_KEY)
    if amendment.get("format") != AMENDMENT_FORMAT or changed:
        raise _edited(folder, file, changed or ["format"])
    if not path.name.startswith(f"{amendment['number']:04d}-"):
        raise refusal.damage(
            f"{file} holds amendment {amendment['number']}",
            expected=f"a name that starts with {amendment['number']:04d}-",
            remedy="rename the file",
        )
    return amendment


def check_follows(folder: Path, amendment: Amendment, *, number: int, previous: str) -> None:
    """Refuse an amendment that does not follow the one before it."""
    if amendment["number"] == number and amendment["previous"] == previous:
        return
    twin = amendment["number"] < number
    raise refusal.damage(
        f"{folder.name}: amendment {amendment['number']} follows {amendment['previous'][:12]}…"
        + (", as another does" if twin else ""),
        expected=f"amendment {number} after {previous[:12]}…",
        remedy="keep the one that the ledger records, and amend the other again"
        if twin
        else "restore the missing amendment from git",
    )


def carried_out(
    folder: Path, document: Mapping[str, Any], amendment: Amendment
) -> Mapping[str, Any]:
    """A document with an amendment's changes, which must start from what it holds."""
    before = documents.flat(document)
    for change in amendment["changes"]:
        if change["key"] not in before or before[change["key"]] != change["old"]:
            raise refusal.damage(
                f"{folder.name}: amendment {amendment['number']} changes {change['key']} from"
                f" {change['old']}",
                expected=f"{before.get(change['key'], 'no such key')}, as it stood before",
                remedy="restore lock and amendments from git",
            )
    return documents.replaced(document, {it["key"]: it["new"] for it in amendment["changes"]})


def _edited(folder: Path, file: str, keys: Sequence[str]) -> refusal.Refusal:
    more = f" and {len(keys) - 5} more keys" if len(keys) > 5 else ""
    return refusal.damage(
        f"{folder.name}/{file} was changed in {', '.join(keys[:5])}{more}",
        expected="the file that was written, which is never edited",
        remedy="restore it from git; to change what was locked, run arflow-eval prereg amend",
    )
