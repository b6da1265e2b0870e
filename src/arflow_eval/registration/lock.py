"""The lock: what a registration holds, composed, digested and written once, before data exists."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arflow_eval import provenance, refusal
from arflow_eval.registration import composing, documents, ledger
from arflow_eval.registration.chain import AMENDMENTS, LOCK, LOCK_FORMAT, LOCK_KEY
from arflow_eval.registration.folders import stores
from arflow_eval.registration.plan import NAME, read_plan


def lock(
    folder: Path, *, allow_dirty: bool, outputs: Path, list_open: Callable[[str], object]
) -> dict[str, Any]:
    """Lock the plan in a folder, begin its ledger, and return the lock.

    Args:
        folder: the registration's, with a plan.yaml.
        allow_dirty: lock what git cannot show, and record that.
        outputs: where stores lie; arms whose data is there already are recorded.
        list_open: takes every open question, one by one.

    Raises:
        Refusal: it is locked already, the tree is dirty (guard), or a question is open (usage).
    """
    _check_unlocked(folder)
    plan = read_plan(folder)
    tree = composing.tree(folder, file=NAME)
    if tree["dirty"] and not allow_dirty:
        raise refusal.guard(
            tree["dirty"][0],
            expected="everything committed, so that the commit says what was locked",
            remedy="commit it, or lock with --allow-dirty, which the lock records",
        )
    document, questions = composing.composed(plan)
    for question in questions:
        list_open(question)
    if questions:
        raise refusal.usage(
            f"{len(questions)} open questions in {folder.name}",
            expected="a plan in which nothing is open",
            remedy=f"answer them in {folder.name}/{NAME}",
        )
    made = _made(
        folder, document, tree=tree, allow_dirty=allow_dirty, before=data_before(document, outputs)
    )
    text = json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_once(folder / LOCK, text)
    (folder / ledger.NAME).touch()
    ledger.record(
        folder, start=made[LOCK_KEY], kind="locked", what={"registered": made["registered_sha256"]}
    )
    return made


def _made(
    folder: Path,
    document: Mapping[str, Any],
    *,
    tree: Mapping[str, Any],
    allow_dirty: bool,
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """A lock: the document, its digests, and with what and when it was made."""
    return documents.sealed(
        {
            "format": LOCK_FORMAT,
            "name": folder.name,
            "registered": document,
            "registered_sha256": provenance.digest(document),
            "plan_sha256": hashlib.sha256((folder / NAME).read_bytes()).hexdigest(),
            "panels": _panels(document),
            "data_before": dict(before),
            "made": {
                "utc": documents.now(),
                **tree,
                "allow_dirty": allow_dirty,
                **composing.made_with(),
            },
        },
        key=LOCK_KEY,
    )


def _check_unlocked(folder: Path) -> None:
    if (folder / LOCK).exists():
        raise refusal.usage(
            f"{folder.name} is locked already",
            expected="a plan without a lock",
            remedy="change what was locked with arflow-eval prereg amend, or register anew under"
            " another name",
        )
    left = [name for name in (ledger.NAME, AMENDMENTS) if (folder / name).exists()]
    if left:
        raise refusal.guard(
            f"{folder.name} has no lock, and {' and '.join(left)} of an earlier one",
            expected="a plan that was never locked",
            remedy=f"restore {LOCK} from git, or register anew under another name",
        )


def _panels(document: Mapping[str, Any]) -> dict[str, Any]:
    """Every panel by name: its frame list and digest, and the digest that names its stores."""
    arms = {name: arm for name, arm in document["arms"].items() if "panel" in arm}
    return {
        arm["panel"]["name"]: {
            **{key: arm["panel"][key] for key in ("_target_", "plan", "digest", "sealed")},
            "data": document["stores"][name]["panel"],
        }
        for name, arm in arms.items()
    }


def data_before(document: Mapping[str, Any], outputs: Path) -> dict[str, list[str]]:
    """Arms whose data lies below `outputs` already, with the run folders that hold it."""
    wanted = {
        name: provenance.digest(identity)
        for name, identity in document["stores"].items()
        if "fingerprint" not in identity
    }
    found = [(store.attributes.get("digest"), store.path.parent.name) for store in stores(outputs)]
    there = {name: [run for of, run in found if of == digest] for name, digest in wanted.items()}
    return {name: runs for name, runs in there.items() if runs}


def write_once(path: Path, text: str) -> None:
    """Write a file whole and on disk, or refuse (guard) where there is one: never overwrite."""
    path.parent.mkdir(exist_ok=True)
    whole = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    try:
        with whole.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(whole)
    except FileExistsError as error:
        raise refusal.guard(
            f"{path.name} was written by another process meanwhile",
            expected="to be the only one",
            remedy="look at what was written, and run the command again if it is still needed",
        ) from error
    finally:
        whole.unlink(missing_ok=True)
