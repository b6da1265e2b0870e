"""Writing an npz array by array and block by block, in one step, and never over another file."""

import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from arflow_eval import refusal
from arflow_eval.published.columns import Block
from arflow_eval.store.disk import sync, writable

EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal arrays give equal files
MODE: Final = 0o644 << 16


@runtime_checkable
class Writable(Protocol):
    """A member of a zip that is written from start to end."""

    def write(self, content: bytes, /) -> object:
        """Append bytes."""
        ...


@dataclass(frozen=True)
class Member:
    """One array to be written: its type and shape, and what gives its blocks in order."""

    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[Block]]


def held(values: Shaped[np.ndarray, "..."]) -> Member:
    """An array in memory."""
    return Member(values.dtype, values.shape, lambda: [values])


def check_new(path: Path) -> None:
    """Raise a usage refusal where a file is already, or where the name is not that of an npz."""
    if path.suffix != ".npz":
        raise refusal.usage(
            f"the output {path}", expected="a name that ends in .npz", remedy=f"write {path}.npz"
        )
    if path.exists():
        raise refusal.usage(
            f"{path} exists", expected="a new file", remedy="choose another name, or move it away"
        )


def write_npz(path: Path, members: Mapping[str, Member]) -> None:
    """Write arrays as `numpy.savez` does, uncompressed. Refuses a disk that cannot be written."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(temporary, "w") as file:
                for key, member in members.items():
                    entry = zipfile.ZipInfo(f"{key}.npy", EPOCH)
                    entry.external_attr = MODE
                    with file.open(entry, "w", force_zip64=True) as stream:
                        _write(stream, member)
            sync(temporary)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def _write(stream: Writable, member: Member) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(member.dtype),
        "fortran_order": False,
        "shape": member.shape,
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for block in member.blocks():
        stream.write(np.ascontiguousarray(block).tobytes())
