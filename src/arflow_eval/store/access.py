"""Getting at what a store has: its root, its arrays, its blocks, its identities and its marks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from jaxtyping import Bool, Shaped, UInt8

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.store.layout import FORMAT, IDENTITIES, VARIABLES, Variable, identity_digest


def opened(path: Path, *, writable: bool = False) -> zarr.Group:
    """The root of a store. Raises a refusal where there is none, or an unreadable one."""
    if not (path / "zarr.json").is_file():
        raise refusal.usage(
            f"{path} is not a store",
            expected="a predictions.zarr written by evaluate",
            remedy="name the run folder of an evaluate command",
        )
    try:
        group = zarr.open_group(path, mode="r+" if writable else "r", use_consolidated=True)
    except (ValueError, KeyError, TypeError) as error:
        raise refusal.damage(
            f"{path}/zarr.json cannot be read ({error})",
            expected="the metadata evaluate wrote",
            remedy="move the run folder away and rerun the same evaluate command",
        ) from error
    if group.attrs.get("format") != FORMAT:
        raise refusal.usage(
            f"{path} has the format {group.attrs.get('format')!r}",
            expected=f"{FORMAT!r}",
            remedy="use the version of arflow_eval that wrote it, or convert it",
        )
    return group


def array(group: zarr.Group, name: str) -> "zarr.Array[Any]":
    """An array of a store."""
    found = group[name]
    if not isinstance(found, zarr.Array):
        raise TypeError(f"{name} is a group; a store holds arrays only")
    return found


def variables(group: zarr.Group) -> tuple[Variable, ...]:
    """The blockwise variables that a store has, in digest order."""
    return tuple(variable for variable in VARIABLES if variable.name in group)


def code_names(group: zarr.Group, name: str) -> list[str]:
    """The names that the codes of `repo` or `task` stand for, by code."""
    names: Any = array(group, name).attrs["names"]
    return list(names)


def identities(group: zarr.Group, rows: range | None = None) -> list[FrameId]:
    """Identity of every frame, or of some rows, in panel order."""
    place = slice(None) if rows is None else slice(rows.start, rows.stop)
    names = code_names(group, "repo")
    repo, episode, frame_index = (
        _identity(group, name)[place].tolist() for name in ("repo", "episode", "frame_index")
    )
    return [
        FrameId(names[code], *key) for code, *key in zip(repo, episode, frame_index, strict=True)
    ]


def check_identities(group: zarr.Group) -> None:
    """Raise a refusal where an identity column is not what it was when the store was created."""
    found = identity_digest({name: _identity(group, name) for name in IDENTITIES})
    if found != group.attrs["identity_digest"]:
        raise _identities_changed(group, "they differ from their digest")


def _identity(group: zarr.Group, name: str) -> Shaped[np.ndarray, "frame"]:
    try:
        return np.asarray(array(group, name)[:])
    except ValueError as error:  # its checksum fails
        raise _identities_changed(group, f"{name}: {error}") from error


def _identities_changed(group: zarr.Group, how: str) -> refusal.Refusal:
    return refusal.damage(
        f"the identity columns of {group.store} have changed ({how})",
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


def read_marks(group: zarr.Group) -> Marks:
    """Every frame's mark."""
    stored = array(group, "frame_digest")
    unreadable = np.zeros(stored.shape[0], dtype=bool)
    try:
        return Marks(digests=np.asarray(stored[:]), unreadable=unreadable)
    except ValueError:  # a checksum fails somewhere: find out where
        digests = np.zeros(stored.shape, dtype=np.uint8)
    for rows in all_blocks(group):
        try:
            digests[rows.start : rows.stop] = stored[rows.start : rows.stop]
        except ValueError:
            unreadable[rows.start : rows.stop] = True
    return Marks(digests=digests, unreadable=unreadable)


def all_blocks(group: zarr.Group) -> list[range]:
    """The frames of every block, in order."""
    stored = array(group, "frame_digest")
    frames, block = stored.shape[0], stored.chunks[0]
    return [range(start, min(start + block, frames)) for start in range(0, frames, block)]
