"""An npz as what it is, a zip of .npy members: headers first, values in slices, never a pickle.

A file from outside is untrusted. What a header claims is held against the size that the zip
states, a member is read no further than that, and its checksum is checked at its end.
"""

import json
import math
import shlex
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from arflow_eval import refusal

SUFFIX: Final = ".npy"
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED: Final = 1  # the flag bit
MOST_MEMBERS: Final = 1000
LARGEST_WHOLE: Final = 2**28  # bytes of a member that is read in one piece
LARGEST_ROW: Final = 2**24  # bytes of one frame of a member
# what zipfile, zlib and numpy raise for bytes that are not what they claim
UNREADABLE: Final = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    SyntaxError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@runtime_checkable
class Readable(Protocol):
    """A member of a zip that is read from start to end."""

    def read(self, size: int = ..., /) -> bytes:
        """The next bytes, fewer at the end."""
        ...


@dataclass(frozen=True)
class Member:
    """One array of an npz, as its header describes it."""

    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]
    fortran: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry along the first axis."""
        return self.dtype.itemsize * math.prod(self.shape[1:])


@dataclass(frozen=True)
class Archive:
    """An npz file and the headers of its arrays, by key."""

    path: Path
    members: Mapping[str, Member]


def opened(path: Path) -> Archive:
    """Read the headers of an npz. A missing file is a usage refusal, a damaged one damage."""
    if not path.is_file():
        others = {other.name for other in path.parent.glob("*.npz")} - {path.name}
        close = refusal.nearest(path.name, others)
        raise refusal.usage(
            f"there is no file {path}",
            expected="an npz of the published contract",
            remedy=f"did you mean {path.parent / close}?" if close else "check the path",
        )
    try:
        with zipfile.ZipFile(path) as file:
            return Archive(path, _members(file))
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def slices(
    archive: Archive, key: str, rows: Sequence[range]
) -> Iterator[Shaped[np.ndarray, "frame ..."]]:
    """The entries of a member, range by range; the ranges cover its first axis in order."""
    member = archive.members[key]
    try:
        with zipfile.ZipFile(archive.path) as file, file.open(key + SUFFIX) as stream:
            _header(stream)
            for part in rows:
                values = _exactly(stream, len(part) * member.row_bytes)
                yield np.frombuffer(values, member.dtype).reshape(len(part), *member.shape[1:])
    except UNREADABLE as error:
        raise unreadable(archive.path, error) from error


def whole(archive: Archive, key: str) -> Shaped[np.ndarray, "..."]:
    """All of a small member: an identity column or a scalar."""
    member = archive.members[key]
    size = member.dtype.itemsize * math.prod(member.shape)
    if size > LARGEST_WHOLE:
        raise refusal.usage(
            f"{key} of {archive.path.name} takes {size:,} bytes",
            expected=f"at most {LARGEST_WHOLE:,}, an identity column",
            remedy="resave the file with fewer frames or shorter names",
        )
    try:
        with zipfile.ZipFile(archive.path) as file, file.open(key + SUFFIX) as stream:
            _header(stream)
            return np.frombuffer(_exactly(stream, size), member.dtype).reshape(member.shape)
    except UNREADABLE as error:
        raise unreadable(archive.path, error) from error


def unreadable(path: Path, error: BaseException) -> refusal.Refusal:
    """The refusal of a file whose bytes are not what they claim to be."""
    return refusal.damage(
        f"{path.name} cannot be read ({str(error) or type(error).__name__})",
        expected="an npz as numpy.savez writes it, whole",
        remedy="copy the file again from where it was made",
    )


def resaved(path: Path, key: str, *, expression: str) -> str:
    """The line that resaves a file with one array replaced; `expression` makes it of `a`."""
    other = path.with_name(f"{path.stem}_resaved.npz")
    source, place, target = (json.dumps(text) for text in (str(path), key, str(other)))
    code = (
        f"import numpy as np; f = dict(np.load({source}, allow_pickle=True)); "
        f"a = f[{place}]; f[{place}] = {expression}; np.savez({target}, **f)"
    )
    return f"if you trust the file, resave it: python -c {shlex.quote(code)}"


def _members(file: zipfile.ZipFile) -> dict[str, Member]:
    listed = [entry for entry in file.infolist() if entry.filename.endswith(SUFFIX)]
    names = [entry.filename for entry in listed]
    if len(listed) > MOST_MEMBERS or len(set(names)) < len(names):
        raise ValueError(f"{len(listed):,} arrays, {len(set(names)):,} different names")
    return {entry.filename.removesuffix(SUFFIX): _member(file, entry) for entry in listed}


def _member(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    if entry.compress_type not in METHODS or entry.flag_bits & ENCRYPTED:
        raise ValueError(f"{entry.filename} is encrypted or compressed in another way than deflate")
    with file.open(entry) as stream:
        member, start = _header(stream), stream.tell()
    stated = start + member.dtype.itemsize * math.prod(member.shape)
    if not member.dtype.hasobject and stated != entry.file_size:
        raise ValueError(f"{entry.filename} has {entry.file_size:,} bytes, its header {stated:,}")
    return member


def _header(stream: Readable) -> Member:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"npy version {version}")
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return Member(dtype, shape, fortran and len(shape) > 1)


def _exactly(stream: Readable, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError(f"{len(found):,} bytes where {size:,} should be")
    return found
