"""Rows taken out of a store, each held against the digest that it was marked with."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import zarr
from jaxtyping import Bool, Int64, Shaped

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.runs import STORE, run_folder
from arflow_eval.store import frame_digests
from arflow_eval.store.access import (
    Marks,
    array,
    check_identities,
    identities,
    opened,
    read_marks,
    variables,
)
from arflow_eval.store.describing import schema_of
from arflow_eval.store.layout import Schema, settings

NAMED: Final = 3  # frames that a refusal names


@dataclass(frozen=True)
class Source:
    """A store that rows are taken from: its run folder, root, identities and marks."""

    folder: Path
    group: zarr.Group
    frames: list[FrameId]
    marks: Marks

    @property
    def path(self) -> Path:
        """The store itself."""
        return self.folder / STORE

    @property
    def written(self) -> Bool[np.ndarray, "frame"]:
        """Whether a row is complete."""
        return self.marks.written

    @property
    def names(self) -> list[str]:
        """The blockwise variables, in digest order."""
        return [variable.name for variable in variables(self.group)]

    @cached_property
    def schema(self) -> Schema:
        """What would make this store again."""
        with settings():
            return schema_of(self.group)


def source(path: Path) -> Source:
    """Open a store whose rows are to be taken.

    Raises:
        Refusal: usage where there is none, damage where its identities or a mark have changed.
    """
    folder = run_folder(path)
    with settings():
        group = opened(folder / STORE)
        check_identities(group)
        found = Source(folder, group, identities(group), read_marks(group))
    if found.marks.unreadable.any():
        rows = np.flatnonzero(found.marks.unreadable)
        raise damaged(found, rows, how="have marks that cannot be read")
    return found


def taken(of: Source, rows: Int64[np.ndarray, "frame"]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The values of some written rows, by variable, in the order asked for.

    Raises:
        Refusal: damage, where a value cannot be read or is not what its row was marked with.
    """
    with settings():
        columns = {name: _column(of, name, rows) for name in of.names}
    found = frame_digests([of.frames[row] for row in rows.tolist()], columns)
    changed = (found != of.marks.digests[rows]).any(axis=1)
    if changed.any():
        raise damaged(of, rows[changed], how="differ from their digests")
    return columns


def _column(
    of: Source, name: str, rows: Int64[np.ndarray, "frame"]
) -> Shaped[np.ndarray, "frame *rest"]:
    stored = array(of.group, name)
    try:
        if (np.diff(rows) == 1).all():
            return np.asarray(stored[int(rows[0]) : int(rows[-1]) + 1])
        order = np.argsort(rows)
        values = np.empty((len(rows), *stored.shape[1:]), stored.dtype)
        values[order] = stored.oindex[rows[order]]
    except (ValueError, RuntimeError) as error:  # a checksum or a codec fails
        raise damaged(of, rows, how=f"hold a chunk of {name} that cannot be read") from error
    return values


def damaged(of: Source, rows: Int64[np.ndarray, "frame"], *, how: str) -> refusal.Refusal:
    """The refusal of rows that are not what was written."""
    return refusal.damage(
        f"{named(of.frames, rows)} of {of.folder} {how}",
        expected="the values that were written",
        remedy=f"see arflow-eval verify {of.folder}, and restore it from a copy",
    )


def named(frames: Sequence[FrameId], rows: Int64[np.ndarray, "frame"]) -> str:
    """The first rows in words, and how many there are."""
    listed = [
        f"{frame.repo} episode {frame.episode} frame {frame.frame_index} (row {row})"
        for row, frame in ((row, frames[row]) for row in rows[:NAMED].tolist())
    ]
    more = len(rows) - len(listed)
    count = f"{len(rows):,} row{'s' if len(rows) > 1 else ''}"
    return f"{count}, {', '.join(listed)}{f' and {more:,} more' if more else ''},"


def ranges(rows: Int64[np.ndarray, "frame"]) -> list[range]:
    """Ascending rows as ranges."""
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [range(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]
