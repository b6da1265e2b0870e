"""How a store lies on disk: sizes, chunks, codecs and attributes; and making an empty one."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec
from zarr.errors import ZarrUserWarning

from arflow_eval.contracts import Frames, Space
from arflow_eval.store.vocabulary import (
    COORDINATES,
    DIGEST_BYTES,
    IDENTITIES,
    MARKS,
    VARIABLES,
    Variable,
)

FORMAT: Final = "arflow_eval store 1"
LARGEST_BLOCK: Final = 256
BLOCKS_A_SHARD: Final = 8


@dataclass(frozen=True)
class Schema:
    """What one store will hold, known before its first row.

    Attributes:
        frames: the panel's identity columns, in panel order.
        space: names, units and rate of states and actions.
        steps: length of the stored chunks.
        draws: draws a frame (1 for greedy and for a single flow draw).
        block: frames a block asked for; `block_frames` has the last word.
        attributes: JSON values that describe the run: `digest` (hex, names the store), `arm`,
            `config`, `horizon` and whatever else belongs to it. No NaN.
        state_copy: whether the two state-copy columns exist. Where not, an attribute says why.
        measures: optional variables that the decode records.
        positions: most tokens of an action block; counts where a measure has that axis.
        shards: processes that will share the writing; they only bound the block.
    """

    frames: Frames
    space: Space
    steps: int
    draws: int
    block: int
    attributes: Mapping[str, Any]
    state_copy: bool
    measures: frozenset[str] = frozenset()
    positions: int = 1
    shards: int = 1

    def __post_init__(self) -> None:
        sizes = {**self.sizes, "block": self.block, "shards": self.shards}
        small = sorted(name for name, size in sizes.items() if size < 1)
        if small:
            raise ValueError(f"a store of no {small[0]}; every size is at least 1: {sizes}")
        unknown = self.measures - {each.name for each in VARIABLES if each.optional}
        if unknown:
            raise ValueError(f"no measures {sorted(unknown)}")
        lacking = {"digest", "arm", "config", "horizon"} - self.attributes.keys()
        if lacking:
            raise ValueError(f"attributes lack {sorted(lacking)}")
        taken = self.attributes.keys() & self._own_attributes().keys()
        if taken:
            raise ValueError(f"attributes {sorted(taken)} are set by the store itself; rename them")
        json.dumps(dict(self.attributes), allow_nan=False)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of every axis of the blockwise variables."""
        return {
            "frame": len(self.frames),
            "draw": self.draws,
            "step": self.steps,
            "action": len(self.space.action_names),
            "position": self.positions,
        }

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The blockwise variables of this store, in digest order."""
        return tuple(
            each
            for each in VARIABLES
            if (self.state_copy or not each.needs_state)
            and (each.name in self.measures or not each.optional)
        )

    def root_attributes(self) -> dict[str, Any]:
        """Everything the store says of itself, before it is complete."""
        return {**self.attributes, **self._own_attributes()}

    def _own_attributes(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "complete": False,
            "fingerprint": None,
            "state_names": list(self.space.state_names),
            "action_names": list(self.space.action_names),
            "state_units": self.space.state_units,
            "action_units": self.space.action_units,
            "fps": self.space.fps,
            "identity_digest": identity_digest(identity_columns(self.frames)),
            "coordinates": " ".join(COORDINATES),
        }


def block_frames(frames: int, *, requested: int, shards: int) -> int:
    """Frames a block: at most 256 and what was asked, and 8 blocks a shard where frames allow."""
    return max(1, min(requested, LARGEST_BLOCK, frames // (BLOCKS_A_SHARD * shards)))


def identity_columns(frames: Frames) -> dict[str, np.ndarray]:
    """The columns of `IDENTITIES` for a panel's frames."""
    columns = {name: getattr(frames, name) for name in IDENTITIES if name != "panel_row"}
    return {**columns, "panel_row": np.arange(len(frames), dtype=np.int64)}


def identity_digest(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 (hex) over identity columns. Finds one that is lost, which reads as zeros."""
    state = hashlib.sha256()
    for name in IDENTITIES:
        column = columns[name]
        state.update(f"{name}\0{column.dtype.name}\0".encode())
        state.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
    return state.hexdigest()


def settings() -> AbstractContextManager[Any]:
    """Zarr's settings while a store is touched: few threads, and a file for every chunk.

    Small thread pools are the largest single factor of speed. A chunk that holds nothing but
    its fill value is written all the same, so that a lost file differs from an empty one.
    """
    chosen: AbstractContextManager[Any] = zarr.config.set(
        {
            "async.concurrency": 2,
            "threading.max_workers": 2,
            "array.write_empty_chunks": True,
        }
    )
    return chosen


def create(path: Path, schema: Schema) -> None:
    """Write an empty full-size store, its metadata consolidated. Not atomic: see `writing`."""
    with settings():
        group = zarr.create_group(path, zarr_format=3, attributes=schema.root_attributes())
        block = block_frames(len(schema.frames), requested=schema.block, shards=schema.shards)
        for variable in schema.variables:
            _create_variable(group, variable, schema, block=block)
        _create_array(
            group,
            MARKS,
            ("frame", "byte"),
            shape=(len(schema.frames), DIGEST_BYTES),
            chunk=block,
            dtype="uint8",
            attributes={"long_name": "SHA-256 of the frame's values, cut; zeros mean unwritten"},
        )
        _create_identities(group, schema.frames)
        with warnings.catch_warnings():
            # Consolidated metadata is no part of Zarr v3 yet; xarray warns where it is missing.
            warnings.simplefilter("ignore", ZarrUserWarning)
            zarr.consolidate_metadata(group.store)


def _create_variable(group: zarr.Group, variable: Variable, schema: Schema, *, block: int) -> None:
    attributes: dict[str, Any] = {"long_name": variable.long_name}
    if variable.in_action_units:
        attributes |= {
            "units": schema.space.action_units,
            "action_names": list(schema.space.action_names),
        }
    _create_array(
        group,
        variable.name,
        variable.axes,
        shape=tuple(schema.sizes[axis] for axis in variable.axes),
        chunk=block,
        dtype=variable.dtype,
        attributes=attributes,
    )


def _create_identities(group: zarr.Group, frames: Frames) -> None:
    names = {"repo": frames.repos, "task": frames.tasks}
    columns = identity_columns(frames)
    for name, long_name in IDENTITIES.items():
        listed = {"names": list(names[name])} if name in names else {}
        created = _create_array(
            group,
            name,
            ("frame",),
            shape=(len(frames),),
            chunk=len(frames),
            dtype=columns[name].dtype.name,
            attributes={"long_name": long_name, **listed},
        )
        created[:] = columns[name]


def _create_array(
    group: zarr.Group,
    name: str,
    axes: tuple[str, ...],
    *,
    shape: tuple[int, ...],
    chunk: int,
    dtype: str,
    attributes: dict[str, Any],
) -> "zarr.Array[Any]":
    return group.create_array(
        name,
        shape=shape,
        chunks=(chunk, *shape[1:]),
        dtype=dtype,
        fill_value=float("nan") if dtype.startswith("float") else 0,
        serializer=BytesCodec(endian="little"),
        compressors=[BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=axes,
        attributes=attributes,
    )
