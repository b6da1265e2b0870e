"""Creating a store and committing its blocks, by any number of processes that may die any time."""

import errno
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import zarr

from arflow_eval import refusal
from arflow_eval.store.access import all_blocks, array, identities, opened, read_marks, variables
from arflow_eval.store.digests import frame_digests
from arflow_eval.store.disk import sync, sync_tree, writable
from arflow_eval.store.layout import Schema, create, settings

TAKEN: Final = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


def open_or_create(path: Path, schema: Schema) -> None:
    """Make sure that `path` is the store of `schema`, whoever comes first.

    The store is built under a temporary name in the same folder and renamed once it is whole
    and on disk. Whoever finds one there compares digests. The first comer's block size stands.

    Raises:
        Refusal: the store there was made by another configuration, or the disk cannot be written.
    """
    if not (path / "zarr.json").exists():
        with writable(path):
            _create(path, schema)
    _check_same(path, digest=str(schema.attributes["digest"]))


def _create(path: Path, schema: Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.creating")
    try:
        create(temporary, schema)
        sync_tree(temporary)
        temporary.rename(path)
        sync(path.parent)
    except OSError as error:
        if error.errno not in TAKEN:  # another process was first: its store is as good
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_same(path: Path, *, digest: str) -> None:
    found = str(opened(path).attrs["digest"])
    if found != digest:
        raise refusal.usage(
            f"{path} was made by configuration {found[:12]}…",
            expected=f"{digest[:12]}…, a store never mixes two",
            remedy="choose another run folder",
        )


def blocks(path: Path, *, shard_index: int, shard_count: int) -> list[range]:
    """The frames of every block a shard owns: block k belongs to shard k mod `shard_count`."""
    if not 0 <= shard_index < shard_count:
        raise ValueError(f"shard {shard_index} of {shard_count}; shards count from 0")
    return all_blocks(opened(path))[shard_index::shard_count]


def missing(path: Path, *, shard_index: int, shard_count: int) -> list[range]:
    """Those of a shard's blocks in which any frame lacks a readable mark."""
    with settings():
        written = read_marks(opened(path)).written
    owned = blocks(path, shard_index=shard_index, shard_count=shard_count)
    return [rows for rows in owned if not written[rows.start : rows.stop].all()]


def progress(path: Path) -> tuple[int, int]:
    """Frames done, and frames in all."""
    with settings():
        written = read_marks(opened(path)).written
    return int(written.sum()), len(written)


def write_block(path: Path, rows: range, columns: Mapping[str, np.ndarray]) -> None:
    """Commit one whole block: data, then its marks, each on disk before the next.

    A block that is already marked is left as it is: what is written is never overwritten, and
    `clear` is the way to have it redone.

    Args:
        path: the store.
        rows: panel rows of the block, as `blocks` gives them.
        columns: prediction, truth, valid, logprob and, where the store has them, state_copy and
            state_copy_norm; the first axis is the frame, one entry a row.

    Raises:
        ValueError: the rows are no block, or a column has another name, shape or type.
        Refusal: the disk is full or read-only. The store stays as it was, and resumes.
    """
    with settings(), writable(path):
        group = opened(path, writable=True)
        _check_rows(group, rows)
        _check_columns(group, rows, columns)
        if _already_marked(group, rows):
            return
        digests = frame_digests(identities(group, rows), columns)
        remove_marks(path, group, rows)
        _commit(path, group, rows, columns)
        _commit(path, group, rows, {"frame_digest": digests})


def _already_marked(group: zarr.Group, rows: range) -> bool:
    try:
        marks = np.asarray(array(group, "frame_digest")[rows.start : rows.stop])
    except ValueError:  # its checksum fails
        return False
    return bool(marks.any(axis=1).all())


def _check_rows(group: zarr.Group, rows: range) -> None:
    known = all_blocks(group)
    block = len(known[0])
    number = rows.start // block
    if not 0 <= number < len(known) or rows != known[number]:
        raise ValueError(f"{rows} is no block; blocks have {block} frames and start at 0")


def _check_columns(group: zarr.Group, rows: range, columns: Mapping[str, np.ndarray]) -> None:
    expected = {variable.name: variable for variable in variables(group)}
    if columns.keys() != expected.keys():
        raise ValueError(f"columns {sorted(columns)}; this store has {sorted(expected)}")
    for name, variable in expected.items():
        shape = (len(rows), *array(group, name).shape[1:])
        found = columns[name]
        if found.shape != shape or found.dtype != np.dtype(variable.dtype):
            axes = " ".join(variable.axes)
            raise ValueError(
                f"{name} is {found.dtype} {found.shape}; "
                f"this block takes {variable.dtype} {shape} ({axes})"
            )


def remove_marks(path: Path, group: zarr.Group, rows: range) -> None:
    """Take back the marks of one block, on disk before this returns."""
    chunk = _chunk_file(path, group, "frame_digest", rows)
    if chunk.exists():
        chunk.unlink(missing_ok=True)
        sync(chunk.parent)


def _chunk_file(path: Path, group: zarr.Group, name: str, rows: range) -> Path:
    """The file that holds one block of one variable."""
    stored = array(group, name)
    place = (rows.start // stored.chunks[0], *(0 for _ in stored.shape[1:]))
    return path / name / stored.metadata.encode_chunk_key(place)


def _commit(path: Path, group: zarr.Group, rows: range, columns: Mapping[str, np.ndarray]) -> None:
    for name, column in columns.items():
        array(group, name)[rows.start : rows.stop] = column
    for name in columns:
        chunk = _chunk_file(path, group, name, rows)
        sync(chunk)
        sync(chunk.parent)
