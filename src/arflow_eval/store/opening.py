"""The way in for a read: a complete store as a lazily loaded dataset."""

from pathlib import Path

import numpy as np
import xarray

from arflow_eval import refusal
from arflow_eval.store.access import (
    Root,
    block_values,
    code_names,
    files,
    read_marks,
    read_root,
    variables,
)
from arflow_eval.store.lazy import dataset
from arflow_eval.store.sealing import check_fingerprint, stored_fingerprint

NAME = "predictions.zarr"


def open_run(path: Path | str, *, incomplete: bool = False) -> xarray.Dataset:
    """Open the store of a run.

    Values are read when they are used, not before. `repo_name` and `task_name` are attached as
    string coordinates of `frame`.

    Args:
        path: a run folder, or the predictions.zarr inside one.
        incomplete: accept a store that is still being written. Unwritten frames then read as NaN,
            and the coordinate `written` (frame) tells them from failed decodes.

    Raises:
        Refusal: there is no store, it is not complete, or its marks are not what they were.
    """
    store = _locate(Path(path))
    root = read_root(store)
    marks = read_marks(root)
    if not incomplete:
        written = marks.written
        _check_complete(store, root, unwritten=int((~written).sum()), total=len(written))
        found = stored_fingerprint(root, marks)
        check_fingerprint(store, root, found=found)
        _check_files(store, root)
    every = range(len(marks.digests))
    columns = {
        f"{name}_name": (
            "frame",
            np.array(code_names(root, name))[block_values(root, name, every)],
        )
        for name in ("repo", "task")
    }
    if incomplete:
        columns["written"] = ("frame", marks.written)
    return dataset(root).assign_coords(columns)


def _check_files(path: Path, root: Root) -> None:
    """Raise a refusal where a file of a complete store is gone: it would be read as unwritten."""
    for variable in variables(root):
        laid = files(root, variable.name)
        if laid is not None and (lost := laid.lacking()):
            raise refusal.damage(
                f"{len(lost):,} files of {variable.name} are gone from {path}, the first is "
                f"{laid.name(lost[0])}",
                expected="the files of a complete store",
                remedy="restore them from a copy, or move it away and rerun its evaluate command",
            )


def _locate(path: Path) -> Path:
    store = path if path.name == NAME else path / NAME
    if (store / "zarr.json").is_file():
        return store
    run = store.parent
    known = {other.parent.name: other.parent for other in run.parent.glob(f"*/{NAME}")}
    close = refusal.nearest(run.name, known)
    raise refusal.usage(
        f"no store at {store}",
        expected="a run folder written by evaluate",
        remedy=f"did you mean {known[close]}?" if close else "run evaluate first",
    )


def _check_complete(path: Path, root: Root, *, unwritten: int, total: int) -> None:
    if unwritten:
        raise refusal.guard(
            f"{unwritten:,} of {total:,} frames unwritten in {path}",
            expected="a complete store",
            remedy="rerun the same evaluate command, it resumes",
        )
    if not root.attrs["complete"]:
        raise refusal.guard(
            f"{path} is written and not yet checked",
            expected="a complete store",
            remedy="rerun the same evaluate command, it only checks",
        )
