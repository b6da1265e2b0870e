"""What an imported store says of itself: the attributes of an evaluated one, and where it is from.

`identity`, whose digest names the store, is the content of the arrays, the arm and the space: the
same arrays in another zip are the same store.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from arflow_eval import provenance
from arflow_eval.contracts import Space
from arflow_eval.published.archive import Archive
from arflow_eval.published.checks import COLUMNS, DRAWS
from arflow_eval.published.contract import SCALARS, left_out, scalars
from arflow_eval.published.files import Files
from arflow_eval.published.names import BASELINES
from arflow_eval.published.scanning import POOLED, Scan
from arflow_eval.store.layout import identity_columns, identity_digest

PUBLISHED: Final = "published"
UNKNOWN: Final = ("code_digest", "determinism", "tile", "attention", "dtype", "registration")


def recorded(files: Files, found: Scan, *, space: Space, panel: str | None) -> dict[str, Any]:
    """The attributes of an imported store.

    `checkpoint` is the run and step of the report, else `NAME@TAG`; `checkpoint_digest` is that
    name, marked as one, since the weights are not known: arms of one checkpoint agree in it.
    `pooled` says that the one stored draw is the mean of `sample_draws`. `summary` has the
    published numbers of exactly the stored rows.
    """
    name, report = files.name, files.report or {}
    settings = report.get("settings", {})
    drawn = _scalars(files) or settings
    checkpoint = report.get("checkpoint") or name.checkpoint
    plan = report.get("sample_plan")
    identity = _identity(files, found, space=space)
    return {
        **dict.fromkeys(UNKNOWN),
        "arm": name.policy,
        "pred_key": name.key,
        "digest": provenance.digest(identity),
        "identity": identity,
        "config": _config(files, drawn),
        "panel": panel or (Path(plan).stem if plan else None),
        "panel_digest": identity["panel"],
        "checkpoint": checkpoint,
        "checkpoint_digest": f"{checkpoint} (by name)",
        "family": files.family,
        "temperature": _temperature(files),
        "seed": drawn.get("seed"),
        "noise_key": drawn.get("noise_key"),
        "sample_draws": name.draws or 1,
        "pooled": files.stack is None and (name.draws or 1) > 1,
        "horizon": found.horizon,
        "summary": report.get("summary") if files.rows is None else None,
        "state_copy_absent": "",
        "task_absent": "published files hold no instructions",
        PUBLISHED: _origin(files, found),
    }


def left_out_of(files: Files) -> list[str]:
    """What of the files no store has a place for."""
    taken = {*COLUMNS, *BASELINES.values(), files.name.key}
    found = left_out(files.predictions.archive, taken=taken)
    if files.stack is None:
        return found
    return found + left_out(files.stack.archive, taken={*COLUMNS, DRAWS})


def _origin(files: Files, found: Scan) -> dict[str, Any]:
    """What an export needs to give the same arrays back, and which files they came from.

    Of a file only its name is kept, since folders may carry a person's.
    """
    paths = {
        "predictions": files.predictions.archive.path,
        "draws": None if files.stack is None else files.stack.archive.path,
        "report": files.report_path,
    }
    return {
        "variant": files.name.variant,
        "files": {
            role: {"name": path.name, "sha256": _sha256(path)}
            for role, path in paths.items()
            if path is not None
        },
        "dtypes": _each(_dtypes, files),
        "scalars": _each(scalars, files),
        "left_out": left_out_of(files),
        "rows": len(files.predictions.frames),
        "subset": files.rows is not None,
        "pooled_digest": found.digests.get(POOLED),
        "report": files.report,
    }


def _identity(files: Files, found: Scan, *, space: Space) -> dict[str, Any]:
    """All that names the store."""
    frames = files.frames
    panel = {"repos": list(frames.repos), "frames": identity_digest(identity_columns(frames))}
    return {
        "arm": files.name.key,
        "columns": dict(found.digests),
        "panel": provenance.digest(panel),
        "actions": [*space.action_names, space.action_units, space.fps],
        "scalars": _scalars(files),
    }


def _scalars(files: Files) -> dict[str, Any]:
    """The scalars of the draws file that the contract names; none where there is no such file."""
    if files.stack is None:
        return {}
    return {key: files.stack.scalars[key]["value"] for key in SCALARS}


def _config(files: Files, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration a published file tells, under the keys of evaluate."""
    name = files.name
    return {
        "model": {"name": name.name, "family": files.family, "tag": name.tag},
        "decode": {
            "name": "greedy" if name.draws is None else "draws",
            "draws": name.draws or 1,
            "T": _temperature(files),
            "T_final": name.T_final,
            "noise": drawn.get("noise_key"),
            "tickets": "ticket" if name.ticket else None,
        },
        "seed": drawn.get("seed"),
    }


def _temperature(files: Files) -> float | None:
    """The name's. A name without draws was not sampled: 0, but a flow policy has none."""
    if files.family in ("flow", "chunk"):
        return None
    return 0.0 if files.name.T is None else files.name.T


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _each(function: Callable[[Archive], Any], files: Files) -> dict[str, Any]:
    found = {"predictions": function(files.predictions.archive)}
    if files.stack is not None:
        found["draws"] = function(files.stack.archive)
    return found


def _dtypes(archive: Archive) -> dict[str, str]:
    """The types of the columns that a file has; a draws file may lack some."""
    return {key: archive.members[key].dtype.str for key in COLUMNS if key in archive.members}
