"""Two artefacts side by side: configuration, code, data and results, key by key."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from arflow_eval import refusal
from arflow_eval.registration import chain
from arflow_eval.registration.documents import flat, read_json, read_yaml

Kind = Literal["lock", "amendment", "store", "report", "config"]
SECTIONS: Final = ("config", "code", "data", "results")
ABSENT: Final = "(absent)"
WIDTH: Final = 40
STORE_DATA: Final = ("panel", "panel_digest", "checkpoint_digest", "action_units", "fps")


@dataclass(frozen=True)
class Artefact:
    """Something to compare: what kind it is, and its values by section and dotted key."""

    kind: Kind
    name: str
    sections: Mapping[str, Mapping[str, Any]]


def artefact(path: Path) -> Artefact:
    """A lock, an amendment, a store, a report or a configuration, by what lies at a path.

    A folder stands for the lock, the store or the report in it. Raises a usage refusal elsewhere.
    """
    name = str(path.name)
    inside = {
        "lock.json": _lock,
        "predictions.zarr": _store,
        "report.json": _report,
    }
    for file, read in inside.items():
        if path.name == file or (path / file).exists():
            found = path if path.name == file else path / file
            if found.exists():
                return read(found, name if path.name != file else f"{path.parent.name}/{name}")
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return _config(path, name)
    if path.suffix == ".json" and path.is_file():
        found_json = read_json(path)
        if "extended" in found_json:
            return _report(path, name)
        return Artefact("config", name, {"config": flat(found_json)})
    raise refusal.usage(
        f"nothing at {path} that can be compared",
        expected="a lock, amendment, store, report or configuration, or a folder with one",
        remedy="name an experiment's folder, a run folder or a file",
    )


def _lock(path: Path, name: str) -> Artefact:
    lock = read_json(path)
    document = dict(lock["registered"])
    stores, code = document.pop("stores"), document.pop("code")
    return Artefact(
        "lock",
        name,
        {
            "config": flat(document),
            "code": {
                **flat({"code": {"reading": code["reading"]}}),
                **{f"stores.{arm}.code": it.get("code") for arm, it in stores.items()},
                **{f"versions.{it}": version for it, version in lock["made"]["versions"].items()},
                "commit": lock["made"]["commit"],
            },
            "data": {
                **flat({"panels": lock["panels"]}),
                **{
                    f"stores.{arm}.checkpoint": it.get("model", {}).get("checkpoint")
                    for arm, it in stores.items()
                },
            },
            "results": {},
        },
    )


def _config(path: Path, name: str) -> Artefact:
    found = read_yaml(path)
    if found.get("format") != chain.AMENDMENT_FORMAT:
        return Artefact("config", name, {"config": flat(found)})
    changes = found["changes"]
    code = {it["key"]: it["new"] for it in changes if "code" in it["key"].split(".")}
    config = {it["key"]: it["new"] for it in changes if it["key"] not in code}
    return Artefact("amendment", name, {"config": config, "code": code})


def _store(path: Path, name: str) -> Artefact:
    said = read_json(path / "zarr.json")["attributes"]
    stamp = said.get("registration") or {}
    return Artefact(
        "store",
        name,
        {
            "config": {
                **flat(said.get("config") or {}),
                **flat({"registration": stamp} if stamp else {}),
            },
            "code": {"code_digest": said.get("code_digest")},
            "data": {key: said.get(key) for key in STORE_DATA},
            "results": {key: said.get(key) for key in ("fingerprint", "complete")},
        },
    )


def _report(path: Path, name: str) -> Artefact:
    report = read_json(path)
    about = report.get("extended", {})
    data = ("arms", "read_from")
    config = ("read", "question", "definition", "status", "status_reason", "registration")
    kept = {key: it for key, it in about.items() if key not in {*data, *config}}
    own = {key: it for key, it in report.items() if key != "extended"}
    return Artefact(
        "report",
        name,
        {
            "config": flat({key: about[key] for key in config if key in about}),
            "code": {},
            "data": flat({key: about[key] for key in data if key in about}),
            "results": {**flat(own), **flat({"extended": kept} if kept else {})},
        },
    )


def _arm_of(lock: Artefact, store: Artefact) -> Artefact:
    """A lock cut to the arm that a store is of, under the store's keys; else the whole lock."""
    arm = store.sections["config"].get("registration.arm")
    prefix = f"arms.{arm}."
    config = lock.sections["config"]
    own = {
        key.removeprefix(prefix).replace("_target_", "target"): value
        for key, value in config.items()
        if key.startswith(prefix)
    }
    if not own:
        return lock
    there = store.sections["config"]
    kept = {key: own[key] for key in there if key in own}
    decided = {key: there[key] for key, value in kept.items() if value is None}
    stamp = {key: value for key, value in there.items() if key.startswith("registration.")}
    checkpoint = lock.sections["data"][f"stores.{arm}.checkpoint"]
    panel = str(own["panel.name"])
    data = {
        **store.sections["data"],
        "panel_digest": lock.sections["data"].get(f"panels.{panel}.data"),
        "checkpoint_digest": checkpoint,
    }
    sections = {
        "config": {**kept, **decided, **stamp},
        "code": {"code_digest": lock.sections["code"][f"stores.{arm}.code"]},
        "data": data,
    }
    return Artefact("lock", f"{lock.name}, arm {arm}", sections)


def compared(left: Artefact, right: Artefact) -> dict[str, Any]:
    """What both are, and every key that differs, by section.

    Of a lock beside a store, the arm is taken that the store is of, and what the lock left to be
    decided (null) counts as the same.
    """
    if (left.kind, right.kind) == ("lock", "store"):
        left = _arm_of(left, right)
    elif (left.kind, right.kind) == ("store", "lock"):
        right = _arm_of(right, left)
    found: dict[str, Any] = {
        "left": {"kind": left.kind, "name": left.name},
        "right": {"kind": right.kind, "name": right.name},
    }
    for section in SECTIONS:
        before, after = (it.sections.get(section, {}) for it in (left, right))
        found[section] = {
            key: {"left": before.get(key, ABSENT), "right": after.get(key, ABSENT)}
            for key in {**before, **after}
            if before.get(key, ABSENT) != after.get(key, ABSENT)
        }
    return found


def as_text(found: Mapping[str, Any]) -> str:
    """A comparison for the screen: one line a key."""
    lines = [_heading(found)]
    for section in SECTIONS:
        rows = found[section]
        lines.append(f"{section}: {f'{len(rows)} keys differ' if rows else 'the same'}")
        lines += [f"  {key}: {_cut(it['left'])} -> {_cut(it['right'])}" for key, it in rows.items()]
    return "\n".join(lines) + "\n"


def as_markdown(found: Mapping[str, Any]) -> str:
    """A comparison as Markdown: one table a section."""
    parts = [f"# {_heading(found)}"]
    for section in SECTIONS:
        rows = found[section]
        parts.append(f"## {section}")
        if not rows:
            parts.append("The same.")
            continue
        head = f"| key | {found['left']['name']} | {found['right']['name']} |\n|---|---|---|"
        body = [
            f"| {key} | {_cell(it['left'])} | {_cell(it['right'])} |" for key, it in rows.items()
        ]
        parts.append("\n".join([head, *body]))
    return "\n\n".join(parts) + "\n"


def _heading(found: Mapping[str, Any]) -> str:
    left, right = found["left"], found["right"]
    return f"{left['kind']} {left['name']} -> {right['kind']} {right['name']}"


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _cell(value: Any) -> str:
    return _cut(value).replace("|", "\\|")
