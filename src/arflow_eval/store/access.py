"""Getting at what a store has: its root, its arrays, its blocks, its identities and its marks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from jaxtyping import Bool, Int64, Shaped, UInt8

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.store.chunks import Chunks, chunk_shape, chunks
from arflow_eval.store.layout import FORMAT, identity_digest
from arflow_eval.store.vocabulary import IDENTITIES, MARKS, VARIABLES, Variable


@dataclass(frozen=True)
class Root:
    """What the root of a store says: of the run in `attrs`, of every array in `arrays`.

    Read as JSON in the words of the Zarr v3 specification: zarr's own types for it change from
    version to version, and its event loop takes longer to start than all of this.
    """

    path: Path
    attrs: Mapping[str, Any]
    arrays: Mapping[str, Any]


Opened = Root | zarr.Group


def read_root(path: Path) -> Root:
    """The root of a store. Raises a refusal where there is none, or an unreadable one.

    It is read again only once it was replaced.
    """
    if not (path / "zarr.json").is_file():
        raise refusal.usage(
            f"{path} is not a store",
            expected="a predictions.zarr written by evaluate",
            remedy="name the run folder of an evaluate command",
        )
    found = (path / "zarr.json").stat()
    return _root(path, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=8)
def _root(path: Path, stamp: tuple[int, ...]) -> Root:
    del stamp  # tells one root from the one that replaced it
    try:
        read: dict[str, Any] = json.loads((path / "zarr.json").read_bytes())
        found = Root(path, read["attributes"], read["consolidated_metadata"]["metadata"])
    except (ValueError, KeyError, TypeError) as error:
        raise refusal.damage(
            f"{path}/zarr.json cannot be read ({error})",
            expected="the metadata evaluate wrote",
            remedy="move the run folder away and rerun the same evaluate command",
        ) from error
    if found.attrs.get("format") != FORMAT:
        raise refusal.usage(
            f"{path} has the format {found.attrs.get('format')!r}",
            expected=f"{FORMAT!r}",
            remedy="use the version of arflow_eval that wrote it, or convert it",
        )
    return found


def opened(path: Path, *, writable: bool = False) -> zarr.Group:
    """The root of a store as zarr has it; raises what `read_root` raises."""
    read_root(path)
    return zarr.open_group(path, mode="r+" if writable else "r", use_consolidated=True)


def array(store: Opened, name: str) -> "zarr.Array[Any]":
    """An array of a store, as zarr has it."""
    store = opened(store.path) if isinstance(store, Root) else store
    found = store[name]
    if not isinstance(found, zarr.Array):
        raise TypeError(f"{name} is a group; a store holds arrays only")
    return found


def variables(store: Opened) -> tuple[Variable, ...]:
    """The blockwise variables that a store has, in digest order."""
    return tuple(variable for variable in VARIABLES if variable.name in _described(store))


def shape(store: Opened, name: str) -> tuple[int, ...]:
    """The shape of an array."""
    return tuple(_described(store)[name]["shape"])


def _described(store: Opened) -> Mapping[str, Any]:
    """What the root says of every array."""
    return store.arrays if isinstance(store, Root) else read_root(folder(store)).arrays


def code_names(store: Opened, name: str) -> list[str]:
    """The names that the codes of `repo` or `task` stand for, by code."""
    names: list[str] = _described(store)[name]["attributes"]["names"]
    return list(names)


def files(store: Opened, name: str) -> Chunks | None:
    """The chunk files of an array, or None where another tool laid the store out its own way."""
    return chunks(folder(store) / name, _described(store)[name])


def folder(store: Opened) -> Path:
    """Where a store lies."""
    if isinstance(store, Root):
        return store.path
    files_of: Any = store.store
    return Path(files_of.root)


def block_values(store: Opened, name: str, rows: range) -> Shaped[np.ndarray, "frame *rest"]:
    """The values of one block of one array; the fill value where it was never written.

    Raises:
        ValueError: its file is not what was written.
    """
    laid = files(store, name)
    if laid is None or rows.start % laid.block or rows != laid.rows(rows.start // laid.block):
        return np.asarray(array(store, name)[rows.start : rows.stop])
    return laid.read(rows.start // laid.block)


@dataclass(frozen=True)
class Identities:
    """The identity columns of a store, by name, and the names that the codes of repos stand for."""

    columns: Mapping[str, Shaped[np.ndarray, "frame"]]
    repos: Sequence[str]

    def frames(self, rows: range) -> list[FrameId]:
        """Identity of some rows."""
        place = slice(rows.start, rows.stop)
        keys = zip(
            *(self.columns[name][place].tolist() for name in ("repo", "episode", "frame_index")),
            strict=True,
        )
        return [FrameId(self.repos[code], episode, frame) for code, episode, frame in keys]

    def order(self) -> Int64[np.ndarray, "frame"]:
        """The rows in the order of their identities: what sorting `frames` would give."""
        alphabet = {name: place for place, name in enumerate(sorted(set(self.repos)))}
        rank = np.array([alphabet[name] for name in self.repos], dtype=np.int64)
        columns = self.columns
        keys = (columns["frame_index"], columns["episode"], rank[columns["repo"]])
        return np.lexsort(keys).astype(np.int64, copy=False)


def read_identities(store: Opened) -> Identities:
    """The identity columns of a store.

    Raises:
        Refusal: one is not what it was when the store was created.
    """
    columns = {name: _identity(store, name) for name in IDENTITIES}
    if identity_digest(columns) != store.attrs["identity_digest"]:
        raise _identities_changed(store, "they differ from their digest")
    return Identities(columns=columns, repos=code_names(store, "repo"))


def identities(store: Opened, rows: range | None = None) -> list[FrameId]:
    """Identity of every frame, or of some rows, in panel order."""
    columns = {name: _identity(store, name) for name in ("repo", "episode", "frame_index")}
    every = range(len(columns["repo"]))
    found = Identities(columns=columns, repos=code_names(store, "repo"))
    return found.frames(every if rows is None else rows)


def check_identities(store: Opened) -> None:
    """Raise a refusal where an identity column is not what it was when the store was created."""
    read_identities(store)


def _identity(store: Opened, name: str) -> Shaped[np.ndarray, "frame"]:
    try:
        return block_values(store, name, range(shape(store, name)[0]))
    except ValueError as error:  # its checksum fails
        raise _identities_changed(store, f"{name}: {error}") from error


def _identities_changed(store: Opened, how: str) -> refusal.Refusal:
    return refusal.damage(
        f"the identity columns of {folder(store)} have changed ({how})",
        expected="the panel's frames as they were when the store was created",
        remedy="move the run folder away and rerun the same evaluate command",
    )


@dataclass(frozen=True)
class Marks:
    """The completion marks of a store; where a mark's chunk is unreadable its rows are zeros."""

    digests: UInt8[np.ndarray, "frame byte"]
    unreadable: Bool[np.ndarray, "frame"]

    @property
    def written(self) -> Bool[np.ndarray, "frame"]:
        """Whether a frame is complete."""
        return np.asarray(self.digests.any(axis=1))


def read_marks(store: Opened) -> Marks:
    """Every frame's mark."""
    laid = files(store, MARKS)
    digests = np.zeros(shape(store, MARKS), dtype=np.uint8)
    unreadable = np.zeros(len(digests), dtype=bool)
    for number, rows in enumerate(all_blocks(store)):
        place = slice(rows.start, rows.stop)
        try:
            digests[place] = laid.read(number) if laid else block_values(store, MARKS, rows)
        except ValueError:  # its checksum fails
            unreadable[place] = True
    return Marks(digests=digests, unreadable=unreadable)


def all_blocks(store: Opened) -> list[range]:
    """The frames of every block, in order."""
    marks = _described(store)[MARKS]
    frames, block = marks["shape"][0], chunk_shape(marks)[0]
    return [range(start, min(start + block, frames)) for start in range(0, frames, block)]
