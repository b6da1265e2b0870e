"""The reads of a registration: over the stores that it locked, and stamped by the ledger."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from arflow_eval import compose, provenance, reading, refusal
from arflow_eval.registration import chain, composing, documents, ledger
from arflow_eval.registration.chain import Registration
from arflow_eval.registration.folders import Found, experiment, experiments, stores
from arflow_eval.registration.running import differences, expected_identity

GIVEN: Final = ("experiment", "experiments.root", "store.root")
CONFIRMATORY: Final = "confirmatory"
EXPLORATORY: Final = "exploratory"


def locked_reads(config: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of `read experiment=NAME`, whose reads and arms are locked."""
    extra = [key for key in given if key not in GIVEN]
    if extra:
        raise refusal.usage(
            f"{extra[0]} with experiment={config['experiment']}",
            expected="the reads as they were locked; only store.root may be given",
            remedy=f"drop {extra[0]}, or read without experiment=, which is exploratory",
        )
    return config


def carry_out(config: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Path]]:
    """Carry out the locked reads one by one: each report, and where it was written.

    Every store is found and held against the registration before the opening is recorded, and the
    opening is recorded before a value is read.

    Raises:
        Refusal: the code or a store is not the registered one (guard), a store is not there yet
            (waiting), or something was changed (damage).
    """
    folder = experiment(config["experiment"], root=config["experiments"]["root"])
    registration = chain.load(folder)
    root = Path(config["store"]["root"])
    _check_code(registration)
    wanted = {
        arm: None
        for read in registration.document["reads"].values()
        for arm in read["arms"].values()
    }
    found = {arm: arm_store(registration, arm, root=root) for arm in wanted}
    opened = record_opening(registration, found, by="read")
    for name, read in registration.document["reads"].items():
        definition = read["read"]
        measure = compose.call_target(definition["_target_"])
        report = reading.run_read(
            definition,
            {role: found[arm].path.parent for role, arm in read["arms"].items()},
            measure=measure,
            standing=stamp(registration, name, opened=opened),
        )
        path = reading.write_report(report, root=root)
        leaves = documents.sealed(report, key="digest")["leaves"]
        what = {
            "read": name,
            "status": report["extended"]["status"],
            "report": path.parent.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "leaves": {key: digest[:8] for key, digest in leaves.items()},
        }
        ledger.record(folder, start=registration.start, kind="reported", what=what)
        yield report, path


def _check_code(registration: Registration) -> None:
    locked, found = registration.document["code"], composing.reading_code()
    if locked["reading"] == found["reading"]:
        return
    changed = sorted({line.split(" ")[0] for line in {*locked["modules"]} ^ {*found["modules"]}})
    raise refusal.guard(
        f"the reading code differs from what was locked in {', '.join(changed[:5])}",
        expected=f"code.reading {locked['reading'][:12]}…",
        remedy=f"check out what was locked, or arflow-eval prereg amend {registration.name}"
        " code.reading=now",
    )


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


def record_opening(
    registration: Registration, found: Mapping[str, Found], *, by: str
) -> ledger.Entry:
    """Record that outcomes are opened, before they are. The first opening stands for good."""
    for arm, store in found.items():
        if not store.attributes.get("complete"):
            raise refusal.waiting(
                f"the store of arm {arm} is not complete",
                expected="the finished store of every arm",
                remedy=f"run arflow-eval evaluate experiment={registration.name} arm={arm},"
                " it resumes",
            )
    what = {
        "by": by,
        "head": registration.head,
        "stores": {arm: store.attributes["fingerprint"] for arm, store in found.items()},
    }
    return ledger.record(
        registration.folder,
        start=registration.start,
        kind="opened",
        what=what,
        same=bool,  # whatever it was
    )


def stamp(registration: Registration, read: str, *, opened: ledger.Entry) -> dict[str, Any]:
    """What a report says of its registration: its status and why, and deviations first."""
    late = _late(registration, read, opened=opened)
    data = registration.lock["data_before"]
    early = [arm for arm in registration.document["reads"][read]["arms"].values() if arm in data]
    if late:
        status, why = EXPLORATORY, f"{late[0]} was changed after outcomes were opened"
    elif early:
        status, why = EXPLORATORY, f"data of arm {early[0]} existed when the lock was made"
    else:
        utc, first = registration.lock["made"]["utc"], opened["utc"]
        status = CONFIRMATORY
        why = f"locked {utc}, before outcomes were first opened {first}"
    dirty = registration.lock["made"]["dirty"]
    return {
        "status": status,
        "status_reason": why + (f"; the lock was made although {dirty[0]}" if dirty else ""),
        "registration": {
            "deviations": [_said(it) for it in registration.amendments if it["deviation"]],
            "experiment": registration.name,
            "read": read,
            "record_only": registration.document["reads"][read]["record_only"],
            "lock": registration.start,
            "locked_utc": registration.lock["made"]["utc"],
            "commit": registration.lock["made"]["commit"],
            "amendments": registration.chain,
            "exploratory_runs_before": sum(
                entry["kind"] == "explored" and entry["number"] < opened["number"]
                for entry in registration.entries
            ),
            "opened": opened["digest"],
            "opened_utc": opened["utc"],
        },
    }


def _late(registration: Registration, read: str, *, opened: ledger.Entry) -> list[str]:
    """Keys of what this read estimates that were changed after outcomes were first opened."""
    after = {
        entry["what"]["amendment"]
        for entry in registration.entries
        if entry["kind"] == "amended" and entry["number"] > opened["number"]
    }
    arms = registration.document["reads"][read]["arms"].values()
    own = [
        f"reads.{read}.",
        "code.",
        *(f"{of}.{arm}." for of in ("arms", "stores") for arm in arms),
    ]
    return [
        change["key"]
        for amendment in registration.amendments
        if amendment[chain.AMENDMENT_KEY] in after
        for change in amendment["changes"]
        if change["class"] == "estimand" and change["key"].startswith(tuple(own))
    ]


def _said(amendment: Mapping[str, Any]) -> str:
    changed = ", ".join(
        f"{it['key']} {it['old']} -> {it['new']}"
        for it in amendment["changes"]
        if not it.get("follows")
    )
    return f"amendment {amendment['number']}: {changed}: {amendment['reason']}"


def peek(config: Mapping[str, Any]) -> None:
    """Record an opening where a read outside of a registration opens one of its arms' stores."""
    for source in config["arms"].values():
        path = Path(str(source))
        for store in stores(path if path.name != "predictions.zarr" else path.parent):
            said = store.stamp
            if said and not said["exploratory"]:
                _record_peek(config, store)


def _record_peek(config: Mapping[str, Any], store: Found) -> None:
    try:
        folder = experiments(config["experiments"]["root"]) / store.stamp["experiment"]
        registration = chain.load(folder)
    except refusal.Refusal:  # its registration does not lie here; there is nothing to record in
        return
    if registration.start == store.stamp["lock"] and store.attributes.get("complete"):
        name = config["read"]["name"]
        record_opening(registration, {store.stamp["arm"]: store}, by=f"read={name}, exploratory")
