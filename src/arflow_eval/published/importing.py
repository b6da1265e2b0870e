"""From published files to a store: checked whole, named by its content, written in blocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from arflow_eval import refusal, store
from arflow_eval.progress import frames_done
from arflow_eval.published import pooled
from arflow_eval.published.columns import Column, block_frames, block_ranges, together
from arflow_eval.published.files import Given, columns_of, paired, space
from arflow_eval.published.names import Name
from arflow_eval.published.recording import PUBLISHED, left_out_of, recorded
from arflow_eval.published.scanning import POOLED, PREDICTION, THEIRS, scan
from arflow_eval.store.access import opened

STORE: Final = "predictions.zarr"
OF_FILES: Final = ("files", "left_out", "rows")  # what the same arrays in another file change


@dataclass(frozen=True)
class Imported:
    """What an import left: its folder, and what the store in it holds.

    `computed` is the number of frames that this call wrote, `failed` that of draws that are NaN
    throughout, `assumed_greedy` that nothing but a name without draws says the temperature is 0,
    `left_out` names the arrays of the files that no store has a place for.
    """

    folder: Path
    fingerprint: str
    name: Name
    frames: int
    draws: int
    horizon: int
    failed: int
    computed: int
    assumed_greedy: bool
    left_out: tuple[str, ...]


def import_npz(source: Path, out: Path, given: Given) -> Imported:
    """Import one prediction of a published file as `out/predictions.zarr`.

    Every value is read and checked before the store is made. A rerun resumes; a store of other
    content is never written into. Memory holds a block of every array, and where a draws file has
    fewer rows the joined rows of the predictions.

    Raises:
        Refusal: see `contract`, `joining`, `scanning` and `reports`; usage, where the folder holds
            another store.
    """
    files = paired(source, given)
    columns = columns_of(files)
    ranges = block_ranges(len(files.frames), row_bytes=files.row_bytes)
    found = scan(columns, files.frames, ranges, family=files.family)
    actions = space(files, given)
    schema = store.Schema(
        frames=files.frames,
        space=actions,
        steps=files.predictions.steps,
        draws=files.draws,
        block=block_frames(row_bytes=files.row_bytes),
        attributes=recorded(files, found, space=actions, panel=given.panel),
        state_copy=True,
    )
    computed = _write(out, schema, columns)
    return Imported(
        folder=out,
        fingerprint=str(store.finalise(out / STORE)),
        name=files.name,
        frames=len(files.frames),
        draws=files.draws,
        horizon=found.horizon,
        failed=found.failed,
        computed=computed,
        assumed_greedy=files.family is None,
        left_out=tuple(left_out_of(files)),
    )


def _write(out: Path, schema: store.Schema, columns: Mapping[str, Column]) -> int:
    """Write the blocks that the store still lacks; returns how many frames they were."""
    path = out / STORE
    store.open_or_create(path, schema)
    _check_same(path, schema.attributes)
    if POOLED in columns:
        pooled.write(out, columns[POOLED], sizes=schema.sizes)
    todo = set(store.missing(path, shard_index=0, shard_count=1))
    if not todo:
        return 0
    wanted = {name: each for name, each in columns.items() if name not in {POOLED, *THEIRS}}
    blocks = store.blocks(path, shard_index=0, shard_count=1)
    total, mine = len(schema.frames), sum(map(len, todo))
    title = str(schema.attributes["arm"])
    with frames_done(title, done=total - mine, total=total) as advance:
        for rows, block in zip(blocks, together(wanted, blocks), strict=True):
            if rows in todo:
                unknown = np.full(block[PREDICTION].shape[:2], np.nan)
                store.write_block(path, rows, {**block, "logprob": unknown})
                advance(len(rows))
    return mine


def _check_same(path: Path, attributes: Mapping[str, Any]) -> None:
    """Refuse a folder whose store has the same content and says other things of it."""
    there, here = (_stated(each) for each in (opened(path).attrs.asdict(), attributes))
    for key, value in here.items():
        if there.get(key) != value:
            raise refusal.usage(
                f"{path} was imported with another {key}",
                expected="the report, panel and draws file that it was imported with",
                remedy="choose another folder",
            )


def _stated(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by key, those of `published` one by one; the same arrays may come in any file."""
    inner = {f"{PUBLISHED}.{key}": value for key, value in attributes.get(PUBLISHED, {}).items()}
    found = {**attributes, **inner}
    for key in (PUBLISHED, *(f"{PUBLISHED}.{each}" for each in OF_FILES)):
        found.pop(key, None)
    return found
