"""Columns of a store as they come from a file, a block of frames at a time in the store's order."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from jaxtyping import Int64, Shaped

from arflow_eval.published.archive import Archive, slices

BLOCK: Final = 256  # frames in memory at once
BLOCK_BYTES: Final = 2**25  # and bytes of one array

Block = Shaped[np.ndarray, "frame ..."]
# from ranges that cover all frames in order to their values
Column = Callable[[Sequence[range]], Iterator[Block]]


def streamed(archive: Archive, key: str) -> Column:
    """A member read from start to end; nothing but one block is in memory."""
    return partial(slices, archive, key)


def gathered(archive: Archive, key: str, rows: Int64[np.ndarray, "frame"]) -> Column:
    """Some rows of a member, in their own order; they are in memory together."""
    member = archive.members[key]
    place = np.full(member.shape[0], -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    values = np.empty((len(rows), *member.shape[1:]), dtype=member.dtype)
    ranges = block_ranges(member.shape[0], row_bytes=member.row_bytes)
    for part, block in zip(ranges, slices(archive, key, ranges), strict=True):
        wanted = place[part.start : part.stop]
        values[wanted[wanted >= 0]] = block[wanted >= 0]
    return partial(_parts, values)


def one_draw(column: Column) -> Column:
    """Chunks as the only draw of their frame."""

    def blocks(rows: Sequence[range]) -> Iterator[Block]:
        for block in column(rows):
            yield block[:, None]

    return blocks


def together(columns: Mapping[str, Column], rows: Sequence[range]) -> Iterator[dict[str, Block]]:
    """The blocks of several columns, side by side."""
    streams = [column(rows) for column in columns.values()]
    for blocks in zip(*streams, strict=True):
        yield dict(zip(columns, blocks, strict=True))


def block_frames(*, row_bytes: int) -> int:
    """Frames of a block that stays small, whatever a frame holds."""
    return max(1, min(BLOCK, BLOCK_BYTES // max(row_bytes, 1)))


def block_ranges(frames: int, *, row_bytes: int) -> list[range]:
    """All frames in blocks that stay small."""
    step = block_frames(row_bytes=row_bytes)
    return [range(start, min(start + step, frames)) for start in range(0, frames, step)]


def hashed(state: Any, block: Block) -> Any:
    """A SHA-256 that has taken one more block; None starts one.

    It is over an array's type, the shape of one frame and the bytes of all, not over blocks.
    """
    if state is None:
        head = f"{block.dtype.newbyteorder('<').str}\0{block.shape[1:]}\0"
        state = hashlib.sha256(head.encode())
    state.update(np.ascontiguousarray(block).data)
    return state


def _parts(values: Block, rows: Sequence[range]) -> Iterator[Block]:
    for part in rows:
        yield values[part.start : part.stop]
