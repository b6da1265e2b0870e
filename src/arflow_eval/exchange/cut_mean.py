"""The published mean of draws beside an imported store, cut as the store is."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from arflow_eval.published import pooled
from arflow_eval.published.columns import Block, Column, block_ranges, hashed
from arflow_eval.published.recording import PUBLISHED

Rows = Int64[np.ndarray, "frame"]


def cut_attributes(folder: Path, rows: Rows, *, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What an imported store says of some of its rows: no summary, and the digest of their mean."""
    found: dict[str, Any] = {}
    if attributes.get("summary") is not None:
        found["summary"] = None  # of exactly the whole store's rows
    origin = attributes.get(PUBLISHED)
    if origin is not None:
        found[PUBLISHED] = {**origin, "subset": True}
        if origin.get("pooled_digest") is not None:
            column, shape = _cut(folder, rows, digest=origin["pooled_digest"])
            state: Any = None
            for block in column(block_ranges(len(rows), row_bytes=4 * shape[0] * shape[1])):
                state = hashed(state, block)
            found[PUBLISHED]["pooled_digest"] = state.hexdigest()
    return found


def cut_mean(folder: Path, out: Path, rows: Rows, *, attributes: Mapping[str, Any]) -> None:
    """Write the mean of some rows beside the store that holds them, where there is one."""
    digest = (attributes.get(PUBLISHED) or {}).get("pooled_digest")
    if digest is not None:
        column, (steps, actions) = _cut(folder, rows, digest=digest)
        pooled.write(out, column, sizes={"frame": len(rows), "step": steps, "action": actions})


def _cut(folder: Path, rows: Rows, *, digest: str) -> tuple[Column, tuple[int, int]]:
    values = pooled.read(folder, digest=digest)

    def blocks(parts: Sequence[range]) -> Iterator[Block]:
        for part in parts:
            yield np.asarray(values[rows[part.start : part.stop]])

    return blocks, (values.shape[1], values.shape[2])
