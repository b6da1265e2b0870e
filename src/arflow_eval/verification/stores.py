"""Verifying a store: every chunk's checksum, every frame's digest, the fingerprint over all.

A chunk that is missing or fails its checksum names its variable. Where all chunks of a block read
well and a frame's digest differs, any of its variables may have changed.
"""

import errno
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import zarr
from jaxtyping import Bool, Shaped

from arflow_eval import provenance, refusal, store
from arflow_eval.contracts import FrameId
from arflow_eval.exchange.sources import ranges
from arflow_eval.published import pooled
from arflow_eval.published.recording import PUBLISHED
from arflow_eval.runs import STORE, run_folder
from arflow_eval.store.access import (
    Marks,
    all_blocks,
    array,
    check_identities,
    identities,
    opened,
    read_marks,
    variables,
)
from arflow_eval.store.layout import settings
from arflow_eval.store.vocabulary import IDENTITIES
from arflow_eval.verification.finding import Damage, Finding

MARKS: Final = "frame_digest"
LOST: Final = "chunk missing"
UNREADABLE: Final = "chunk unreadable"
DIFFERS: Final = "digest differs, any of these may have changed"

Key = tuple[tuple[str, ...], str]  # the variables, and what was found
Rows = dict[Key, list[int]]


def verify_store(path: Path) -> Finding:
    """Read a store through and say what of it is not what was written.

    Only written rows can be damaged; in a store that was declared complete, all were written.

    Raises:
        Refusal: damage, where the store's metadata is lost or cannot be read.
    """
    folder = run_folder(path)
    _check_metadata(folder / STORE)
    with settings():
        group = opened(folder / STORE)
        marks = read_marks(group)
        sealed = bool(group.attrs["complete"])
        damage = _identity_damage(group, folder / STORE)
        if not damage:
            frames = identities(group)
            rows = _damaged_rows(group, folder / STORE, marks, frames, sealed=sealed)
            damage = [_named(key, found, frames) for key, found in rows.items()]
            if sealed and not damage:
                damage += _fingerprint_damage(group, marks, frames)
        damage += _attribute_damage(group) + _beside(folder, group)
    missing = np.zeros_like(marks.written) if sealed else ~(marks.written | marks.unreadable)
    return Finding(
        path=str(folder),
        kind="store",
        total=len(marks.written),
        unwritten=tuple(ranges(np.flatnonzero(missing))),
        sealed=sealed,
        fingerprint=str(group.attrs["fingerprint"]) if sealed else None,
        damage=tuple(damage),
    )


def _check_metadata(path: Path) -> None:
    if not (path / "zarr.json").is_file():
        raise refusal.damage(
            f"{path} has lost its zarr.json",
            expected="the metadata evaluate wrote",
            remedy="restore it from a copy, or move the run folder away and rerun evaluate",
        )


def _identity_damage(group: zarr.Group, path: Path) -> list[Damage]:
    """The identity columns that cannot be read, else all where they are not what they were."""
    rows = range(array(group, MARKS).shape[0])
    columns = {name: _chunk(group, path, name, rows) for name in IDENTITIES}
    found = [Damage((name,), how) for name, how in columns.items() if isinstance(how, str)]
    if not found:
        try:
            check_identities(group)
        except refusal.Refusal as refused:
            return [Damage(tuple(IDENTITIES), refused.found)]
    return found


def _named(key: Key, rows: list[int], frames: list[FrameId]) -> Damage:
    return Damage(*key, tuple(rows), tuple(frames[row] for row in rows))


def _damaged_rows(
    group: zarr.Group, path: Path, marks: Marks, frames: list[FrameId], *, sealed: bool
) -> Rows:
    """Rows of every damage, by its variables and what was found."""
    found: Rows = defaultdict(list)
    for block in all_blocks(group):
        place = slice(block.start, block.stop)
        written, unreadable = marks.written[place], marks.unreadable[place]
        lost = ~written & ~unreadable if sealed else np.zeros_like(written)
        for which, how in ((unreadable, UNREADABLE), (lost, LOST)):
            if which.any():
                found[(MARKS,), how] += _rows(block, which)
        due = written | unreadable | lost
        if due.any():
            for key, which in _damage_of_block(group, path, marks, frames, block):
                if (which & due).any():
                    found[key] += _rows(block, which & due)
    return found


def _rows(block: range, which: Bool[np.ndarray, "frame"]) -> list[int]:
    return (block.start + np.flatnonzero(which)).tolist()


def _damage_of_block(
    group: zarr.Group, path: Path, marks: Marks, frames: list[FrameId], block: range
) -> Iterator[tuple[Key, Bool[np.ndarray, "frame"]]]:
    """The variables of one block that cannot be read, else the rows whose digest differs."""
    everything = np.ones(len(block), dtype=bool)
    columns = {}
    for name in (variable.name for variable in variables(group)):
        column = _chunk(group, path, name, block)
        if isinstance(column, str):
            yield ((name,), column), everything
        else:
            columns[name] = column
    if len(columns) == len(variables(group)):
        place = slice(block.start, block.stop)
        digests = store.frame_digests(frames[place], columns)
        differing = (digests != marks.digests[place]).any(axis=1) & marks.written[place]
        yield (tuple(columns), DIFFERS), differing


def _chunk(
    group: zarr.Group, path: Path, name: str, block: range
) -> Shaped[np.ndarray, "frame ..."] | str:
    """The values of one chunk, or why there are none."""
    stored = array(group, name)
    place = (block.start // stored.chunks[0], *(0 for _ in stored.shape[1:]))
    if not (path / name / stored.metadata.encode_chunk_key(place)).is_file():
        return LOST
    try:
        return np.asarray(stored[block.start : block.stop])
    except (ValueError, RuntimeError):  # a checksum or a codec fails
        return UNREADABLE
    except OSError as error:
        if error.errno != errno.EIO:  # the disk itself cannot read it
            raise
        return UNREADABLE


def _fingerprint_damage(group: zarr.Group, marks: Marks, frames: list[FrameId]) -> list[Damage]:
    digest = str(group.attrs["digest"])
    found = store.fingerprint(frames, marks.digests, config_digest=digest)
    if found == group.attrs["fingerprint"]:
        return []
    return [Damage((MARKS,), "marks give another fingerprint than was recorded")]


def _attribute_damage(group: zarr.Group) -> list[Damage]:
    """Whether the digest that names the store is that of what it says it was made of."""
    attributes = group.attrs.asdict()
    made_of = attributes.get("identity")
    if made_of is None or provenance.digest(made_of) == attributes["digest"]:
        return []
    return [Damage(("zarr.json",), "its identity does not give its digest")]


def _beside(folder: Path, group: zarr.Group) -> list[Damage]:
    """The published mean of an imported store, whose digest the store records."""
    origin = group.attrs.asdict().get(PUBLISHED)
    digest = origin.get("pooled_digest") if isinstance(origin, Mapping) else None
    if digest is None:
        return []
    try:
        pooled.read(folder, digest=str(digest))
    except refusal.Refusal as refused:
        return [Damage((pooled.FILE,), refused.found)]
    return []
