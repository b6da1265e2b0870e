"""Creating a store and committing its blocks, by any number of processes that may die any time."""

import errno
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from arflow_eval import refusal
from arflow_eval.store.access import (
    Root,
    all_blocks,
    block_values,
    files,
    folder,
    identities,
    read_marks,
    read_root,
    shape,
    variables,
)
from arflow_eval.store.chunks import Chunks
from arflow_eval.store.claims import claimed
from arflow_eval.store.digests import frame_digests
from arflow_eval.store.disk import put, sync, sync_tree, writable
from arflow_eval.store.layout import Schema, create
from arflow_eval.store.vocabulary import MARKS

WRITERS: Final = 4  # threads that encode and wait for the disk
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
        taken = error.errno in TAKEN or (path / "zarr.json").exists()
        if not taken:  # another process was first: its store is as good
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_same(path: Path, *, digest: str) -> None:
    found = str(read_root(path).attrs["digest"])
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
    return all_blocks(read_root(path))[shard_index::shard_count]


def missing(path: Path, *, shard_index: int, shard_count: int) -> list[range]:
    """Those of a shard's blocks in which any frame lacks a readable mark."""
    written = read_marks(read_root(path)).written
    owned = blocks(path, shard_index=shard_index, shard_count=shard_count)
    return [rows for rows in owned if not written[rows.start : rows.stop].all()]


def progress(path: Path) -> tuple[int, int]:
    """Frames done, and frames in all."""
    written = read_marks(read_root(path)).written
    return int(written.sum()), len(written)


def write_block(path: Path, rows: range, columns: Mapping[str, np.ndarray]) -> bool:
    """Commit one whole block: data, then its marks, each on disk before the next.

    Every file is on disk under a temporary name before the block is claimed; while it is claimed
    they only get their names. A block that is already marked is left as it is, also where another
    process was faster: what is written is never overwritten, a marked row has the values of one
    writer, and `clear` is the way to have it redone.

    Args:
        path: the store.
        rows: panel rows of the block, as `blocks` gives them.
        columns: prediction, truth, valid, logprob and, where the store has them, state_copy and
            state_copy_norm; the first axis is the frame, one entry a row.

    Returns:
        Whether the block has these values: False where it had been marked before.

    Raises:
        ValueError: the rows are no block, or a column has another name, shape or type.
        Refusal: the disk is full or read-only, or another process holds the block. The store
            stays as it was, and resumes.
    """
    with writable(path):
        root = read_root(path)
        _check_rows(root, rows)
        _check_columns(root, rows, columns)
        if _already_marked(root, rows):
            return False
        with ThreadPoolExecutor(WRITERS) as pool, _staged(pool, root, rows, columns) as staged:
            return _commit(pool, path, root, rows, staged)


def _commit(
    pool: Executor, path: Path, root: Root, rows: range, staged: Mapping[str, "_Staged"]
) -> bool:
    """Put staged files in their places, unless the block was marked since."""
    with claimed(path, _part(root, rows)):
        if _already_marked(root, rows):
            return False
        remove_marks(root, rows)
        _publish(pool, [each for name, each in staged.items() if name != MARKS])
        _publish(pool, [staged[MARKS]])
    return True


@dataclass(frozen=True)
class _Staged:
    """A file on disk under a temporary name, and the name that it will have."""

    temporary: Path
    final: Path


@contextmanager
def _staged(
    pool: Executor, root: Root, rows: range, columns: Mapping[str, np.ndarray]
) -> Iterator[dict[str, _Staged]]:
    """A block's data and marks, written beside their chunks under temporary names."""
    token = uuid.uuid4().hex
    finals = {name: _chunk_file(root, name, rows) for name in (*columns, MARKS)}
    staged = {
        name: _Staged(final.with_name(f"{final.name}.{token}.partial"), final)
        for name, final in finals.items()
    }

    def stage(name: str, values: np.ndarray) -> None:
        put(staged[name].temporary, writable_files(root, name).encode(values))

    puts = [pool.submit(stage, name, column) for name, column in columns.items()]
    try:
        digests = frame_digests(identities(root, rows), columns)
        puts.append(pool.submit(stage, MARKS, digests))
        for done in puts:
            done.result()
        yield staged
    finally:
        wait(puts)
        for each in staged.values():
            each.temporary.unlink(missing_ok=True)


def _publish(pool: Executor, staged: Sequence[_Staged]) -> None:
    """Give files their names, on disk before this returns."""
    for each in staged:
        each.temporary.replace(each.final)
    for _ in pool.map(sync, [each.final.parent for each in staged]):
        pass


def _already_marked(root: Root, rows: range) -> bool:
    try:
        marks = block_values(root, MARKS, rows)
    except ValueError:  # its checksum fails
        return False
    return bool(marks.any(axis=1).all())


def _part(root: Root, rows: range) -> str:
    return f"block-{rows.start // len(all_blocks(root)[0])}"


def _check_rows(root: Root, rows: range) -> None:
    known = all_blocks(root)
    block = len(known[0])
    number = rows.start // block
    if not 0 <= number < len(known) or rows != known[number]:
        raise ValueError(f"{rows} is no block; blocks have {block} frames and start at 0")


def _check_columns(root: Root, rows: range, columns: Mapping[str, np.ndarray]) -> None:
    expected = {variable.name: variable for variable in variables(root)}
    if columns.keys() != expected.keys():
        raise ValueError(f"columns {sorted(columns)}; this store has {sorted(expected)}")
    for name, variable in expected.items():
        wanted = (len(rows), *shape(root, name)[1:])
        found = columns[name]
        if found.shape != wanted or found.dtype != np.dtype(variable.dtype):
            axes = " ".join(variable.axes)
            raise ValueError(
                f"{name} is {found.dtype} {found.shape}; "
                f"this block takes {variable.dtype} {wanted} ({axes})"
            )


def remove_marks(root: Root, rows: range) -> None:
    """Take back the marks of one block, on disk before this returns."""
    chunk = _chunk_file(root, MARKS, rows)
    if chunk.exists():
        chunk.unlink(missing_ok=True)
        sync(chunk.parent)


def clear_block(path: Path, root: Root, rows: range) -> None:
    """Take back the marks of one block, once no writer is committing it."""
    with claimed(path, _part(root, rows)):
        remove_marks(root, rows)


def _chunk_file(root: Root, name: str, rows: range) -> Path:
    """The file that holds one block of one variable."""
    laid = writable_files(root, name)
    return laid.file(rows.start // laid.block)


def writable_files(root: Root, name: str) -> Chunks:
    """The chunk files of an array of a store that this program made.

    Raises:
        Refusal: another tool laid the store out its own way; blocks may share a file then.
    """
    laid = files(root, name)
    if laid is None:
        raise refusal.usage(
            f"{name} of {folder(root)} has other chunks or codecs",
            expected="the layout that evaluate gives a store",
            remedy="write to the store that evaluate made; this copy can be read",
        )
    return laid
