"""The end of a store's writing: check every row, sweep, fingerprint; and the way back."""

import json
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import UInt8

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.store.access import (
    Identities,
    Marks,
    Root,
    all_blocks,
    block_values,
    read_identities,
    read_marks,
    read_root,
    shape,
    variables,
)
from arflow_eval.store.claims import claimed, sweep
from arflow_eval.store.digests import frame_digests, ordered_fingerprint
from arflow_eval.store.disk import replace_text, writable
from arflow_eval.store.vocabulary import DIGEST_BYTES, MARKS
from arflow_eval.store.writing import clear_block, writable_files

SEALING: Final = "sealing"


def damaged(path: Path) -> list[int]:
    """Panel rows that are not what was written: their values or their mark changed or are lost.

    Only written rows can be damaged. A row whose mark cannot be read was written once, and counts;
    a mark whose file is gone leaves its rows unwritten instead.

    Raises:
        Refusal: the identity columns themselves have changed; no rerun mends that.
    """
    root = read_root(path)
    known = read_identities(root)
    marks = read_marks(root)
    changed = marks.unreadable.copy()
    for rows in all_blocks(root):
        place = slice(rows.start, rows.stop)
        if marks.written[place].any():
            found = _digests(root, rows, known.frames(rows))
            changed[place] |= marks.written[place] & (found != marks.digests[place]).any(axis=1)
    return np.flatnonzero(changed).tolist()


def _digests(root: Root, rows: range, frames: list[FrameId]) -> UInt8[np.ndarray, "frame byte"]:
    """The digests that a block's values give now; zeros where they cannot be read."""
    try:
        columns = {
            variable.name: block_values(root, variable.name, rows) for variable in variables(root)
        }
    except ValueError:  # a checksum fails: nothing in this chunk can be trusted
        return np.zeros((len(rows), DIGEST_BYTES), dtype=np.uint8)
    return frame_digests(frames, columns)


def finalise(path: Path) -> str | None:
    """End a store's writing once every row is there, and return its fingerprint.

    Returns None while rows are missing. Otherwise recomputes every digest, sweeps what killed
    writers left behind and records `fingerprint` and `complete` in one step. Any process may
    call it, any number of times; a store that is already complete is not read through again.

    Raises:
        Refusal: rows differ from their digests (their blocks are cleared first, so that a rerun
            redoes them), the marks of a complete store no longer give its fingerprint, or another
            process is ending this store and was stopped.
    """
    found = _fingerprint_of_whole(path)
    if found is None:
        return None
    if _sealed(path, found):
        _tidy(path)
        return found
    with writable(path):
        _check_undamaged(path)
        with claimed(path, SEALING):
            if _fingerprint_of_whole(path) != found:
                return None  # blocks were cleared while their rows were checked
            _sweep(path)
            _set_attributes(path, fingerprint=found, complete=True)
        sweep(path)
    return found


def _fingerprint_of_whole(path: Path) -> str | None:
    root = read_root(path)
    marks = read_marks(root)
    return stored_fingerprint(root, marks) if marks.written.all() else None


def _sealed(path: Path, found: str) -> bool:
    """Whether the store is complete. Refuses one whose marks do not give its fingerprint."""
    root = read_root(path)
    if root.attrs["complete"]:
        check_fingerprint(path, root, found=found)
        return True
    return False


def stored_fingerprint(
    root: Root, marks: Marks | None = None, known: Identities | None = None
) -> str:
    """The fingerprint that the marks of a store give, of marks and identities read before."""
    marks, known = marks or read_marks(root), known or read_identities(root)
    return ordered_fingerprint(
        marks.digests[known.order()], config_digest=str(root.attrs["digest"])
    )


def check_fingerprint(path: Path, root: Root, *, found: str) -> None:
    """Raise a refusal where a complete store's marks do not give the recorded fingerprint."""
    recorded = str(root.attrs["fingerprint"])
    if found != recorded:
        raise refusal.damage(
            f"the frame digests of {path} give fingerprint {found[:12]}…",
            expected=f"{recorded[:12]}…, recorded when it was complete",
            remedy="restore it from a copy, or move it away and rerun its evaluate command",
        )


def _check_undamaged(path: Path) -> None:
    rows = damaged(path)
    if not rows:
        return
    clear(path, rows)
    raise refusal.damage(
        f"{len(rows):,} rows of {path} differ from their digests, the first is row {rows[0]}",
        expected="the values that were written",
        remedy="check the disk and rerun the same evaluate command; it redoes their blocks",
    )


def _sweep(path: Path) -> None:
    for leftover in path.rglob("*.partial"):
        leftover.unlink(missing_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*.creating"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in path.parent.glob(f".{path.name}.*.sealing"):
        leftover.unlink(missing_ok=True)


def _tidy(path: Path) -> None:
    """Remove what killed processes left beside a complete store, where it can be written."""
    if any(path.parent.glob(f".{path.name}.*")):
        with suppress(OSError, refusal.Refusal):
            with claimed(path, SEALING, patience=0.0):
                _sweep(path)
            sweep(path)


def clear(path: Path, rows: Iterable[int]) -> None:
    """Forget the blocks that hold some panel rows, so that a rerun redoes them.

    A complete store is incomplete from then on; its data stays on disk until it is overwritten.
    """
    asked = set(rows)
    root = read_root(path)
    beyond = asked - set(range(shape(root, MARKS)[0]))
    if beyond:
        raise ValueError(f"rows {sorted(beyond)} are not in {path}")
    if not asked:
        return
    writable_files(root, MARKS)  # refuses a copy that is laid out otherwise
    with writable(path), claimed(path, SEALING):
        if read_root(path).attrs["complete"]:
            _set_attributes(path, fingerprint=None, complete=False)
        for block in all_blocks(root):
            if not asked.isdisjoint(block):
                clear_block(path, root, block)


def _set_attributes(path: Path, **changed: Any) -> None:
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"] |= changed
    replace_text(
        path / "zarr.json",
        json.dumps(metadata, indent=2, allow_nan=False),
        # beside the store: a stray file inside makes zarr warn
        temporary=path.with_name(f".{path.name}.{uuid.uuid4().hex}.sealing"),
    )
