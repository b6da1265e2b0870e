"""The reads of a registration: over the stores that it locked, and stamped by the ledger."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from arflow_eval import compose, reading, refusal
from arflow_eval.registration import chain, composing, documents, ledger
from arflow_eval.registration.chain import Registration
from arflow_eval.registration.finding import arm_store
from arflow_eval.registration.folders import Found, experiment, experiments, stores

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
