"""Chunks as files: one block of one array, encoded, named and read without an event loop.

The bytes are those zarr writes, and any Zarr reader reads them. Going round it puts a chunk on
disk before it has its name, which zarr does not, and takes half of the time or, where the chunks
are small, a tenth. Only arrays laid out as `layout` does it are read here; `access` leaves others
to zarr.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
from jaxtyping import Int64, Shaped, UInt8
from numcodecs import Blosc

from arflow_eval.store.disk import will_need

BLOSC: Final = Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE)
CHECKSUM_BYTES: Final = 4
AHEAD: Final = 8  # chunks that the system is asked to fetch before they are read
READERS: Final = 2  # threads that read and decode many chunks
CODECS: Final = ("bytes", "blosc", "crc32c")


@dataclass(frozen=True)
class Chunks:
    """The files of one array, which is cut along its first axis only.

    Attributes:
        folder: where they lie.
        shape: of the array.
        block: frames a chunk.
        fill: what a frame holds that was never written, or that lies past the last one.
    """

    folder: Path
    shape: tuple[int, ...]
    block: int
    dtype: "np.dtype[Any]"
    fill: Any

    @property
    def count(self) -> int:
        """How many chunks the array has."""
        return -(-self.shape[0] // self.block)

    def name(self, number: int) -> str:
        """The file name of a chunk."""
        return ".".join(["c", str(number), *("0" for _ in self.shape[1:])])

    def file(self, number: int) -> Path:
        """The file of a chunk."""
        return self.folder / self.name(number)

    def rows(self, number: int) -> range:
        """The frames of a chunk."""
        return range(number * self.block, min((number + 1) * self.block, self.shape[0]))

    def lacking(self) -> list[int]:
        """The chunks that have no file."""
        with os.scandir(self.folder) as entries:
            there = {entry.name for entry in entries}
        return [number for number in range(self.count) if self.name(number) not in there]

    def encode(self, values: Shaped[np.ndarray, "frame *rest"]) -> bytes:
        """The content of the file that holds some values, one entry a frame of the chunk."""
        whole = np.ascontiguousarray(values, dtype=self.dtype)
        if len(whole) < self.block:  # the last chunk is as long as every other
            padded = np.full((self.block, *self.shape[1:]), self.fill, dtype=self.dtype)
            padded[: len(whole)] = whole
            whole = padded
        body: bytes = BLOSC.encode(whole)
        return body + _checksum(body)

    def read(self, number: int) -> Shaped[np.ndarray, "frame *rest"]:
        """The values of a chunk's frames; the fill value where it has no file.

        Raises:
            ValueError: the file is not what was written.
        """
        return self.values(self.rows(number))

    def values(self, rows: range) -> Shaped[np.ndarray, "frame *rest"]:
        """The values of consecutive frames; raises what `read` raises."""
        found = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        numbers = self._numbers(rows)

        def read(number: int) -> None:
            if number + AHEAD in numbers:
                will_need(self.file(number + AHEAD))
            chunk = self.rows(number)
            first, last = max(rows.start, chunk.start), min(rows.stop, chunk.stop)
            part = found[first - rows.start : last - rows.start]
            if len(part) == self.block:
                self._decode(number, part)
            else:
                part[:] = self._whole(number)[first - chunk.start : last - chunk.start]

        if len(numbers) < AHEAD:
            for number in numbers:
                read(number)
        else:
            with ThreadPoolExecutor(READERS) as pool:
                list(pool.map(read, numbers))
        return found

    def take(self, rows: Int64[np.ndarray, "row"]) -> Shaped[np.ndarray, "row *rest"]:
        """The values of frames in any order, each chunk read once; raises what `read` raises."""
        if len(rows) and (np.diff(rows) == 1).all():
            return self.values(range(int(rows[0]), int(rows[-1]) + 1))
        found = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        numbers = rows // self.block
        for number in np.unique(numbers).tolist():
            of_chunk = numbers == number
            found[of_chunk] = self._whole(number)[rows[of_chunk] - number * self.block]
        return found

    def _numbers(self, rows: range) -> range:
        """The chunks that hold some frames."""
        return range(rows.start // self.block, -(-rows.stop // self.block) if rows else 0)

    def _whole(self, number: int) -> Shaped[np.ndarray, "frame *rest"]:
        found = np.empty((self.block, *self.shape[1:]), dtype=self.dtype)
        self._decode(number, found)
        return found

    def _decode(self, number: int, out: Shaped[np.ndarray, "frame *rest"]) -> None:
        """Decode a whole chunk in place."""
        try:
            with self.file(number).open("rb", buffering=0) as file:
                content = file.read()
        except FileNotFoundError:
            out[:] = self.fill
            return
        body = np.frombuffer(content, np.uint8)[:-CHECKSUM_BYTES]
        if not len(body) or _checksum(body) != content[-CHECKSUM_BYTES:]:
            raise ValueError("stored and computed checksum do not match")
        size = int.from_bytes(content[4:8], "little")  # as the header of Blosc has it
        if size != out.nbytes:
            raise ValueError(f"a chunk of {size} bytes; expected {out.nbytes}")
        try:
            BLOSC.decode(body, out)
        except RuntimeError as error:  # a checksum that fits what is no chunk
            raise ValueError(str(error)) from error


def chunks(folder: Path, described: Mapping[str, Any]) -> Chunks | None:
    """The chunk files of an array that lies in `folder`, or None where it is laid out otherwise.

    Another tool may have copied a store with other chunks and codecs; its values are the same.

    Args:
        folder: where its files lie.
        described: the array's metadata, as the Zarr v3 specification has it in JSON.
    """
    shape, dtype = described["shape"], described["data_type"]
    block, *rest = chunk_shape(described)
    names = described["chunk_key_encoding"]
    plain = names["name"] == "default" and names.get("configuration", {}).get("separator") == "."
    if not (plain and rest == shape[1:] and isinstance(dtype, str) and _ours(described["codecs"])):
        return None
    whole = np.dtype(dtype).newbyteorder("<")
    return Chunks(
        folder=folder,
        shape=tuple(shape),
        block=block,
        dtype=whole,
        fill=np.array(described["fill_value"], dtype=whole),
    )


def chunk_shape(described: Mapping[str, Any]) -> list[int]:
    """Length of an array's chunks along each axis."""
    lengths: list[int] = described["chunk_grid"]["configuration"]["chunk_shape"]
    return lengths


def _ours(codecs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether chunks are little-endian bytes, then Blosc, then a checksum."""
    endian = codecs[0].get("configuration", {}).get("endian", "little")
    return endian == "little" and tuple(codec["name"] for codec in codecs) == CODECS


def _checksum(body: bytes | UInt8[np.ndarray, "byte"]) -> bytes:
    return int(google_crc32c.value(body)).to_bytes(CHECKSUM_BYTES, "little")
