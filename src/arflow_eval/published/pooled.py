"""The published mean of draws, beside a store that holds the draws themselves.

Summing the draws again gives the same numbers but not always the same bits, so the published ones
are kept in `pooled.npy`; the store's attributes have their digest.
"""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32

from arflow_eval import refusal
from arflow_eval.published.columns import Column, block_ranges, hashed
from arflow_eval.store.disk import sync, writable

FILE: Final = "pooled.npy"


def write(folder: Path, column: Column, *, sizes: Mapping[str, int]) -> None:
    """Write the file in one step, unless it is there; `sizes` are those of frame, step, action."""
    path = folder / FILE
    if path.exists():
        return
    shape = tuple(sizes[axis] for axis in ("frame", "step", "action"))
    ranges = block_ranges(shape[0], row_bytes=4 * shape[1] * shape[2])
    temporary = path.with_name(f".{FILE}.{uuid.uuid4().hex}.partial")
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with writable(path):
        try:
            with temporary.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                for block in column(ranges):
                    file.write(np.ascontiguousarray(block).data)
            sync(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(folder)


def read(folder: Path, *, digest: str) -> Float32[np.ndarray, "frame step action"]:
    """The published mean, read as it is used. Refuses one that is lost or changed (damage)."""
    path = folder / FILE
    try:
        values: Float32[np.ndarray, "frame step action"] = np.load(
            path, mmap_mode="r", allow_pickle=False
        )
        state = None
        for rows in block_ranges(len(values), row_bytes=values[0].nbytes):
            state = hashed(state, values[rows.start : rows.stop])
        found = state.hexdigest() if state else ""
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise _damaged(path, found=str(error)) from error
    if found != digest:
        raise _damaged(path, found=f"has SHA-256 {found[:12]}…, not {digest[:12]}…")
    return values


def _damaged(path: Path, *, found: str) -> refusal.Refusal:
    return refusal.damage(
        f"{path} is not the published mean of these draws ({found})",
        expected="the file that the import wrote beside the store",
        remedy="import the predictions and draws again into another folder",
    )
