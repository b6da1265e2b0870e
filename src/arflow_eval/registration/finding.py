"""The store of a locked arm: found by what it says, and held against the registration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arflow_eval import provenance, refusal
from arflow_eval.registration.chain import Registration
from arflow_eval.registration.folders import Found, stores
from arflow_eval.registration.running import differences, expected_identity


def arm_store(registration: Registration, arm: str, *, root: Path) -> Found:
    """The one store of an arm below a folder, known by its digests and not by its name.

    Raises:
        Refusal: there is none (waiting), or only ones that differ (guard), with what differs.
    """
    expected = expected_identity(registration, arm)
    every = list(stores(root))
    if "fingerprint" in expected:
        whole = [it for it in every if it.attributes.get("fingerprint") == expected["fingerprint"]]
        return _only(registration, arm, whole, every, root=root)
    mine = [
        it
        for it in every
        if it.stamp.get("experiment") == registration.name
        and it.stamp.get("arm") == arm
        and not it.stamp.get("exploratory")
    ]
    problems = {it.path.parent.name: _problems(registration, expected, it) for it in mine}
    fit = [it for it in mine if not problems[it.path.parent.name]]
    if mine and not fit:
        run, differing = next(iter(problems.items()))
        raise refusal.guard(
            f"the store of arm {arm} in {run} differs from what was locked in"
            f" {'; '.join(differing)}",
            expected="the registered configuration, code, panel and checkpoint",
            remedy=f"run arflow-eval evaluate experiment={registration.name} arm={arm}",
        )
    store = _only(registration, arm, fit, every, root=root)
    _check_finished(registration, arm, store)
    return store


def _problems(registration: Registration, expected: Mapping[str, Any], store: Found) -> list[str]:
    """What of a store is not as its registration says; empty where all is."""
    said = store.stamp
    if said.get("lock") != registration.start:
        return [f"lock ({str(said.get('lock'))[:12]}… -> {registration.start[:12]}…)"]
    if list(said.get("amendments", [])) != registration.chain[: len(said.get("amendments", []))]:
        return ["amendments, of which it carries others"]
    identity = store.attributes.get("identity", {})
    found = differences(expected, identity)
    if not found and provenance.digest(identity) != store.attributes.get("digest"):
        found = ["digest, which is not that of its identity"]
    return found


def _only(
    registration: Registration, arm: str, fit: list[Found], every: list[Found], *, root: Path
) -> Found:
    if fit and len({it.attributes.get("fingerprint") for it in fit}) == 1:
        return fit[0]
    if fit:
        raise refusal.guard(
            f"{len(fit)} different stores of arm {arm} below {root.name}",
            expected="one",
            remedy=f"move one away: {', '.join(it.path.parent.name for it in fit)}",
        )
    digest = provenance.digest(expected_identity(registration, arm))
    outside = [it.path.parent.name for it in every if it.attributes.get("digest") == digest]
    also = f" ({outside[0]} was made outside of the registration)" if outside else ""
    raise refusal.waiting(
        f"no store of arm {arm} among {len(every)} below {root.name}{also}",
        expected="the finished store of every arm",
        remedy=f"run arflow-eval evaluate experiment={registration.name} arm={arm},"
        " or give store.root=FOLDER where the stores were moved",
    )


def _check_finished(registration: Registration, arm: str, store: Found) -> None:
    entry = registration.first("finished", arm=arm, store=store.attributes["digest"])
    fingerprint = store.attributes.get("fingerprint")
    if entry is not None and fingerprint and entry["what"]["fingerprint"] != fingerprint:
        raise refusal.damage(
            f"the store of arm {arm} has fingerprint {fingerprint[:12]}…",
            expected=f"{entry['what']['fingerprint'][:12]}…, which the ledger recorded",
            remedy="restore it from a copy",
        )
