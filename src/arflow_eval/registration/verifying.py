"""Whether a registration is what it was: lock, panels, amendments, ledger, stores and reports.

Everything is recomputed from the files. What the code is today does not count: a later version
may verify what an earlier one made.
"""

import hashlib
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from arflow_eval import compose, provenance, refusal
from arflow_eval.registration import chain, documents, ledger
from arflow_eval.registration.classes import key_class
from arflow_eval.registration.folders import Found, stores
from arflow_eval.registration.plan import NAME

State = Literal["intact", "changed", "missing"]
REPORTS = "reports"


@dataclass(frozen=True)
class Checked:
    """One thing of a registration, its file, its state, and in what it changed."""

    what: str
    file: str
    state: State
    detail: str = ""


def exit_code(found: list[Checked]) -> int:
    """5 where something was changed, 4 where something is missing, else 0."""
    states = {each.state for each in found}
    if "changed" in states:
        return refusal.DAMAGE
    return refusal.WAITING if "missing" in states else 0


def lines(found: list[Checked]) -> list[str]:
    """The findings as lines for the screen."""
    return [
        f"{each.state:<8} {each.what} ({each.file})" + (f": {each.detail}" if each.detail else "")
        for each in found
    ]


def verify(folder: Path, *, outputs: Path = Path("outputs")) -> list[Checked]:
    """Recompute a registration's chain from its files, and say of each what state it is in.

    Stores and reports are looked for below `outputs`, whatever their folders are called, and
    reports that were kept with the registration in its folder `reports`.
    """
    try:
        lock = chain.read_lock(folder)
    except refusal.Refusal as refused:
        state: State = "changed" if (folder / chain.LOCK).exists() else "missing"
        return [Checked("lock", chain.LOCK, state, refused.found)]
    entries, broken = _ledger(folder, start=lock[chain.LOCK_KEY])
    document, amendments = _amendments(folder, lock, entries)
    return [
        Checked("lock", chain.LOCK, "intact", f"sha256 {lock[chain.LOCK_KEY][:12]}"),
        _plan(folder, lock),
        *_panels(lock),
        *amendments,
        *broken,
        *_stores(lock, document, entries, outputs=outputs),
        *_reports(entries, places=(outputs, folder / REPORTS)),
    ]


def _plan(folder: Path, lock: Mapping[str, Any]) -> Checked:
    path = folder / NAME
    if not path.is_file():
        return Checked("plan", NAME, "missing")
    same = hashlib.sha256(path.read_bytes()).hexdigest() == lock["plan_sha256"]
    return Checked("plan", NAME, "intact" if same else "changed", "" if same else "since its lock")


def _panels(lock: Mapping[str, Any]) -> Iterator[Checked]:
    """Every panel's frame list against the digest that was locked."""
    for name, panel in lock["panels"].items():
        module = sys.modules[compose.call_target(panel["_target_"]).__module__]
        bundled = getattr(module, "DATA", None)
        path = Path(panel["plan"]) if bundled is None else bundled / panel["plan"]
        if not path.is_file():
            yield Checked(f"panel {name}", panel["plan"], "missing")
            continue
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        same = found == panel["digest"]
        detail = "" if same else f"SHA-256 {found[:12]}…, locked {panel['digest'][:12]}…"
        yield Checked(f"panel {name}", panel["plan"], "intact" if same else "changed", detail)


def _ledger(folder: Path, *, start: str) -> tuple[list[ledger.Entry], list[Checked]]:
    path = folder / ledger.NAME
    if not path.is_file():
        return [], [Checked("ledger", ledger.NAME, "missing")]
    entries, problems = ledger.read(path.read_bytes(), start=start)
    backwards = [
        f"line {later['number']} is earlier than the line before it, by the clock"
        for earlier, later in itertools.pairwise(entries)
        if documents.seconds_between(earlier["utc"], later["utc"]) < -ledger.SKEW
    ]
    if not problems and (not entries or entries[0]["kind"] != "locked"):
        problems = ["its first line is gone"]
    state: State = "changed" if problems or backwards else "intact"
    detail = "; ".join([*problems, *backwards]) or f"{len(entries)} lines"
    return entries, [Checked("ledger", ledger.NAME, state, detail)]


def _amendments(
    folder: Path, lock: Mapping[str, Any], entries: list[ledger.Entry]
) -> tuple[Mapping[str, Any], list[Checked]]:
    """The document with every amendment that is intact, and the state of each."""
    document: Mapping[str, Any] = lock["registered"]
    previous = lock[chain.LOCK_KEY]
    recorded = {
        it["what"]["number"]: it["what"]["amendment"] for it in entries if it["kind"] == "amended"
    }
    found: list[Checked] = []
    for number, path in enumerate(chain.amendment_files(folder), start=1):
        file = f"{chain.AMENDMENTS}/{path.name}"
        try:
            amendment = chain.read_amendment(folder, path)
            chain.check_follows(folder, amendment, number=number, previous=previous)
            document = chain.carried_out(folder, document, amendment)
        except refusal.Refusal as refused:
            found.append(Checked(f"amendment {number}", file, "changed", refused.found))
            recorded.pop(number, None)
            continue
        previous = amendment[chain.AMENDMENT_KEY]
        same = recorded.pop(number, None) == previous
        detail = f"before the {amendment['before']}" if amendment["before"] else "a deviation"
        found.append(
            Checked(
                f"amendment {number}",
                file,
                "intact" if same else "changed",
                detail if same else "it is not the one that the ledger records",
            )
        )
    found += [
        Checked(f"amendment {number}", f"{chain.AMENDMENTS}/{number:04d}-…", "missing")
        for number in recorded
    ]
    return document, found


def _stores(
    lock: Mapping[str, Any],
    document: Mapping[str, Any],
    entries: list[ledger.Entry],
    *,
    outputs: Path,
) -> Iterator[Checked]:
    """Every store that the ledger saw begun, against what it recorded and against itself."""
    wanted: dict[tuple[str, str], str | None] = {}
    for entry in entries:
        if entry["kind"] in ("begun", "finished"):
            what = entry["what"]
            wanted[what["arm"], what["store"]] = what.get("fingerprint")
    mine = [it for it in stores(outputs) if it.stamp.get("lock") == lock[chain.LOCK_KEY]]
    for (arm, digest), fingerprint in wanted.items():
        fit = [it for it in mine if it.stamp.get("arm") == arm]
        store = next((it for it in fit if it.attributes.get("digest") == digest), None)
        if store is None:
            yield Checked(f"store of arm {arm}", f"digest {digest[:8]}", "missing")
            continue
        problems = _store_problems(store, document, arm=arm, fingerprint=fingerprint)
        state: State = "changed" if problems else "intact"
        detail = "; ".join(problems) or (f"fingerprint {fingerprint[:12]}" if fingerprint else "")
        yield Checked(f"store of arm {arm}", store.path.parent.name, state, detail)


def _store_problems(
    store: Found, document: Mapping[str, Any], *, arm: str, fingerprint: str | None
) -> list[str]:
    from arflow_eval.store import damaged  # noqa: PLC0415 - showing and comparing need no zarr

    said = store.attributes
    problems = []
    if provenance.digest(said.get("identity")) != said.get("digest"):
        problems.append("identity, of which its digest is not")
    if fingerprint is not None and said.get("fingerprint") != fingerprint:
        problems.append(f"fingerprint, which the ledger has as {fingerprint[:12]}…")
    locked = documents.flat(document["arms"].get(arm, {}))
    config = documents.flat(said.get("config") or {})
    given = store.stamp.get("overridden", {})
    problems += [
        f"config.{key} ({value}, locked {locked[key]})"
        for key, value in config.items()
        if locked.get(key) is not None
        and key not in given
        and value != locked[key]
        and key_class(f"arms.{arm}.{key}", document) == "estimand"
    ]
    try:
        rows = damaged(store.path)
    except refusal.Refusal as refused:
        return [*problems, refused.found]
    return [*problems, f"rows {rows[0]} to {rows[-1]}"] if rows else problems


def _reports(entries: list[ledger.Entry], *, places: Sequence[Path]) -> Iterator[Checked]:
    """Every report that the ledger recorded, wherever below some folders it lies."""
    last = {it["what"]["report"]: it["what"] for it in entries if it["kind"] == "reported"}
    patterns = ("*/report.json", "*/*/report.json")
    there = sorted({path for place in places for it in patterns for path in place.glob(it)})
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in there}
    named = {path.parent.name: path for path in there}
    for name, what in last.items():
        said = f"report of read {what['read']}"
        path = digests.get(what["sha256"]) or named.get(name)
        if path is None:
            yield Checked(said, f"{name}/report.json", "missing")
        elif what["sha256"] in digests:
            yield Checked(said, f"{path.parent.name}/report.json", "intact", what["status"])
        else:
            changed = _report_keys(path, what["leaves"])
            yield Checked(said, f"{name}/report.json", "changed", ", ".join(changed))


def _report_keys(path: Path, leaves: Mapping[str, str]) -> list[str]:
    """The keys of a report that are not what the ledger recorded."""
    try:
        found = documents.flat(documents.read_json(path))
    except refusal.Refusal as refused:
        return [refused.found]
    differing = [
        key
        for key in {**leaves, **found}
        if key not in leaves or key not in found or provenance.digest(found[key])[:8] != leaves[key]
    ]
    return differing or ["its layout alone"]
