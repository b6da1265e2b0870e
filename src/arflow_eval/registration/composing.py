"""From a plan to what a lock holds: every arm and read composed, and what is still open named."""

import functools
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from arflow_eval import compose, evaluation, keys, provenance, reading, refusal
from arflow_eval.registration.documents import SHORT, flat, impersonal, replaced
from arflow_eval.registration.plan import LATER, Arm, Plan, Read
from arflow_eval.settings import evaluate_settings

OWN: Final = ("experiment", "arm", "exploratory", "experiments")  # of a command, not of an arm
LOCKING: Final = {"opens_sealed": True}  # a lock reads which frames a sealed panel lists, no more
READING: Final = ("stats", "reads", "store")
PACKAGES: Final = (
    *("arflow-eval", "hydra-core", "numpy", "omegaconf", "scipy", "tokenizers", "torch"),
    *("transformers", "xarray", "zarr"),
)


def composed(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """The document that a lock of this plan holds, and the questions that are open in it."""
    arms: dict[str, Any] = {}
    stores: dict[str, Any] = {}
    reads: dict[str, Any] = {}
    questions: list[str] = []
    questions += [f"{key} is open (???)" for key, it in flat(plan.words).items() if _is_open(it)]
    for name, arm in plan.arms.items():
        questions += _left_open(f"arms.{name}", arm.overrides)
        try:
            arms[name], stores[name] = composed_arm(name, arm)
        except refusal.Refusal as refused:
            questions.append(f"arms.{name}: {refused.found} (expected {refused.expected})")
    for name, read in plan.reads.items():
        questions += _left_open(f"reads.{name}", read.overrides)
        try:
            reads[name] = composed_read(name, read)
        except refusal.Refusal as refused:
            questions.append(f"reads.{name}: {refused.found} (expected {refused.expected})")
    document = {
        **plan.words,
        "arms": arms,
        "reads": reads,
        "stores": stores,
        "code": reading_code(),
    }
    return document, questions


def _left_open(where: str, overrides: Sequence[str]) -> list[str]:
    return [f"{where}: {each.split('=')[0]} is open (???)" for each in overrides if _is_open(each)]


def _is_open(value: Any) -> bool:
    within = value if isinstance(value, list) else [value]
    return any(keys.MISSING in str(each) for each in within)


def composed_arm(name: str, arm: Arm) -> tuple[dict[str, Any], dict[str, Any]]:
    """An arm's configuration as it is recorded, and all that can change a number of its store."""
    if arm.imported is not None:
        if _is_open(arm.imported["fingerprint"]):
            raise refusal.usage(
                f"the store of {arm.imported['name']} is not here to be pinned",
                expected="the fingerprint of a store that convert wrote",
                remedy=f"convert the file, and write its fingerprint to arms.{name}.imported",
            )
        return {"imported": arm.imported["name"]}, {"fingerprint": arm.imported["fingerprint"]}
    config = compose.valid("evaluate", arm.overrides)
    config = {key: value for key, value in config.items() if key not in OWN}
    _check_closed(config, later=arm.later)
    found = identity(config, checkpoint=LATER if arm.later else None)
    recorded = {key: impersonal(key, value) for key, value in flat(config).items()}
    return replaced(config, recorded), found


def identity(
    config: Mapping[str, Any], *, checkpoint: str | None, panel: str | None = None
) -> dict[str, Any]:
    """All that can change a number of an arm's store; a checkpoint or panel digest may be given."""
    whole = {**compose.valid("evaluate", []), **config, "registration": LOCKING}
    if checkpoint is not None:
        whole["model"] = {**whole["model"], "path": None}
    settings = evaluate_settings(whole)
    digest = compose.load_panel(settings).digest if panel is None else panel
    found = evaluation.identity_on(settings, panel=digest)
    if checkpoint is not None:
        found["model"]["checkpoint"] = checkpoint
    return found


def _check_closed(config: Mapping[str, Any], *, later: bool) -> None:
    """Refuse a configuration with a value that is open or that a machine could choose."""
    leaves = keys.leaves(config)
    lacking = [key for key, value in leaves.items() if value == keys.MISSING]
    if later and "model.path" in lacking:
        lacking.remove("model.path")
    if "model.path" in lacking:
        raise refusal.usage(
            "model.path is open (???): the checkpoint is not here",
            expected="a checkpoint folder, or checkpoint: later in the plan",
            remedy="add model.path=FOLDER, or checkpoint: later",
        )
    if lacking:
        raise refusal.usage(
            f"{' and '.join(lacking)} open (???)",
            expected="a value for every key",
            remedy="add it to the arm's overrides",
        )
    if leaves["panel.digest"] is None:
        raise refusal.usage(
            f"panel {leaves['panel.name']} has no digest",
            expected="panel.digest, the SHA-256 of its frame list",
            remedy="pin it: panel.digest=…",
        )
    unpinned = [key for key, it in leaves.items() if key.split(".")[-1] == "seed" and it is None]
    if unpinned:
        raise refusal.usage(
            f"{unpinned[0]} is not pinned", expected="a seed", remedy=f"add {unpinned[0]}=0"
        )


def composed_read(name: str, read: Read) -> dict[str, Any]:
    """A read's definition and the arms of its roles, shown able to be carried out on made arms."""
    words = [*read.overrides, *(f"arms.{role}={arm}" for role, arm in read.arms.items())]
    config = compose.valid("read", words)
    definition = {**config["read"], **read.analysis}
    lacking = [
        key
        for key, it in flat({**config["arms"], "read": definition}).items()
        if it == keys.MISSING
    ]
    if lacking:
        raise refusal.usage(
            f"{' and '.join(lacking)} open (???)",
            expected="an arm for every role, and a value for every key",
            remedy=f"add it below reads.{name}",
        )
    measure = compose.call_target(definition["_target_"])
    reading.rehearse(definition, config["arms"], measure=measure)
    return {
        "arms": config["arms"],
        "read": definition,
        "record_only": read.record_only,
        **({"note": read.note} if read.note else {}),
    }


def reading_code() -> dict[str, Any]:
    """The digest of the code that reads, and of each of its modules by name."""
    each = _reading_modules()
    return {
        "reading": provenance.digest(each),
        "modules": [f"{name} {digest[:SHORT]}" for name, digest in each.items()],
    }


@functools.cache
def _reading_modules() -> dict[str, str]:
    """The digest of every module that reads. Once a process: code does not change."""
    modules = ["arflow_eval.reading"]
    for room in READING:
        for path in sorted((provenance.PACKAGE / room).rglob("*.py")):
            parts = path.relative_to(provenance.PACKAGE.parent).with_suffix("").parts
            modules.append(".".join(part for part in parts if part != "__init__"))
    return provenance.module_digests(modules)


def made_with() -> dict[str, Any]:
    """Python, the kind of machine and the versions of packages, for the record."""
    environment = provenance.environment()
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        **{key: environment[key] for key in ("python", "system", "machine")},
        "versions": versions,
    }


def tree(folder: Path, *, file: str) -> dict[str, Any]:
    """The commits of a registration's folder and of the code, and why they pin nothing."""
    here = provenance.checkout(folder, file=file)
    code = provenance.checkout(provenance.PACKAGE)
    why = []
    if here["commit"] is None:
        why.append(f"{file} is not committed to git")
    elif here["dirty"]:
        why.append("the working tree has changes that are not committed")
    if code["dirty"] and code["commit"] != here["commit"]:
        why.append("the code's working tree has changes that are not committed")
    return {"commit": here["commit"], "code_commit": code["commit"], "dirty": why}
