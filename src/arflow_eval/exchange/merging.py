"""Stores of one configuration that hold parts of its rows, put together into one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped

from arflow_eval import refusal, store
from arflow_eval.exchange.carrying import carry, check_writers
from arflow_eval.exchange.sources import Source, named, ranges, source, taken
from arflow_eval.runs import STORE, is_run
from arflow_eval.store.access import array

NOWHERE = -1


@dataclass(frozen=True)
class Merged:
    """What a merge left.

    Attributes:
        fingerprint: of the whole store; None while rows are missing.
        missing: rows that are not in the result, as ranges.
        copied: rows that this merge copied, by the run folder they came from.
        left_out: what lies beside the stores and was not carried along.
    """

    folder: Path
    frames: int
    fingerprint: str | None
    missing: tuple[range, ...]
    copied: dict[str, int]
    left_out: tuple[str, ...]

    @property
    def resumed_as(self) -> str:
        """The name that evaluate looks for, in its store.root, to write the missing rows."""
        attributes = source(self.folder).group.attrs
        return f"{attributes['arm']}-{attributes.get('panel')}-{str(attributes['digest'])[:8]}"


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Copy the written rows of some stores into one, each row held against its digest.

    A store that is at `out` already counts as one more of them, so that a merge which was stopped
    goes on. Values, marks and the digest of the configuration stay, so a complete result has the
    fingerprint that one process would have given.

    Args:
        paths: run folders of one configuration, complete or not; of two that hold a row the first
            is taken.
        out: the run folder of the result.

    Raises:
        Refusal: usage for stores of different configurations, a guard for different panels,
            writers or values of one row, damage for a row that is not what was written.
    """
    sources = [source(path) for path in paths]
    folders = [each.folder.resolve() for each in sources]
    if out.resolve() in folders or len(set(folders)) < len(folders):
        raise refusal.usage(
            "a store is named twice",
            expected="every store once, and another folder for the result",
            remedy="leave one of them out",
        )
    existing = [source(out)] if is_run(out) else []
    _check_alike([*existing, *sources])
    origin = _origins([*existing, *sources])
    check_writers([*existing, *sources])
    path = out / STORE
    store.open_or_create(path, replace(sources[0].schema, block=_block(sources, origin)))
    origin[origin >= 0] -= len(existing)  # what the result holds has no source
    copied = _copy(sources, origin, path)
    left_out = carry(sources, out)
    written = source(out).written
    return Merged(
        folder=out,
        frames=len(written),
        fingerprint=store.finalise(path),
        missing=tuple(ranges(np.flatnonzero(~written))),
        copied=copied,
        left_out=tuple(left_out),
    )


def _check_alike(sources: Sequence[Source]) -> None:
    first, *others = sources
    for other in others:
        digests = [str(each.group.attrs["digest"]) for each in (first, other)]
        if digests[0] != digests[1]:
            raise refusal.usage(
                f"{other.folder} was made by configuration {digests[1][:12]}…",
                expected=f"{digests[0][:12]}…, that of {first.folder}; a store never mixes two",
                remedy="merge the shards of one configuration",
            )
        sizes = [(each.names, each.schema.sizes) for each in (first, other)]
        if first.frames != other.frames or sizes[0] != sizes[1]:
            raise refusal.guard(
                f"{other.folder} and {first.folder} hold other frames, variables or sizes",
                expected="one panel in one order behind all of them",
                remedy="merge the shards of one evaluate command",
            )


def _origins(sources: Sequence[Source]) -> Int64[np.ndarray, "frame"]:
    """The first store that holds each row, NOWHERE where none does. Refuses rows that differ."""
    origin = np.full(len(sources[0].frames), NOWHERE, dtype=np.int64)
    digests = np.zeros_like(sources[0].marks.digests)
    for number, each in enumerate(sources):
        both = each.written & (origin != NOWHERE)
        differing = np.flatnonzero(both & (each.marks.digests != digests).any(axis=1))
        if len(differing):
            other = sources[int(origin[differing[0]])]
            raise refusal.guard(
                f"{named(each.frames, differing)} of {each.folder} and {other.folder} differ",
                expected="one value of a frame in all stores of a configuration",
                remedy="find out which machine differs, and leave its store out",
            )
        fresh = each.written & (origin == NOWHERE)
        origin[fresh] = number
        digests[fresh] = each.marks.digests[fresh]
    return origin


def _block(sources: Sequence[Source], origin: Int64[np.ndarray, "frame"]) -> int:
    """Frames a block: the first store's, or what divides all, where rows would be lost else."""
    sizes = [each.schema.block for each in sources]
    return sizes[0] if (origin != NOWHERE).all() else math.gcd(*sizes)


def _copy(
    sources: Sequence[Source], origin: Int64[np.ndarray, "frame"], path: Path
) -> dict[str, int]:
    copied = {str(each.folder): 0 for each in sources}
    for rows in store.missing(path, shard_index=0, shard_count=1):
        chosen = origin[rows.start : rows.stop]
        if (chosen >= 0).all():
            store.write_block(path, rows, _gathered(sources, chosen, rows))
            for number in chosen.tolist():
                copied[str(sources[number].folder)] += 1
    return copied


def _gathered(
    sources: Sequence[Source], chosen: Int64[np.ndarray, "frame"], rows: range
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """One block's columns, each row from the store chosen for it."""
    place = np.arange(rows.start, rows.stop)
    numbers = np.unique(chosen).tolist()
    if len(numbers) == 1:
        return taken(sources[numbers[0]], place)
    group = sources[0].group
    columns = {
        name: np.empty((len(rows), *array(group, name).shape[1:]), array(group, name).dtype)
        for name in sources[0].names
    }
    for number in numbers:
        mine = chosen == number
        for name, values in taken(sources[number], place[mine]).items():
            columns[name][mine] = values
    return columns
