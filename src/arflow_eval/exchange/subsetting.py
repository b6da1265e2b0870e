"""A complete store cut to the frames of a smaller panel. Every row keeps its digest.

The result is a store of its own. Its `panel_digest` is derived: SHA-256 over the frames in their
order, their core flags and the parent's panel digest, so that two arms of one panel that are cut
alike agree in it. It never claims to be the smaller panel's own digest, which also covers data
that a store does not hold. Its `digest` is over that and the parent's fingerprint, and
`subset_of` says where it came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Int64

from arflow_eval import provenance, refusal, store
from arflow_eval.contracts import Frames
from arflow_eval.exchange.cut_mean import cut_attributes, cut_mean
from arflow_eval.exchange.selection import Selection
from arflow_eval.exchange.sources import Source, source, taken
from arflow_eval.runs import STORE

NAMED: Final = 3
OF_PARENT: Final = ("arm", "digest", "fingerprint", "panel", "panel_digest", "registration")


@dataclass(frozen=True)
class Subset:
    """What a cut left: the run folder, its rows of the parent's, and the fingerprint."""

    folder: Path
    frames: int
    of: int
    fingerprint: str


def subset(run: Path, out: Path, selection: Selection) -> Subset:
    """Cut a complete store to some of its frames, in their order and with their core flags.

    Where the selection states no core, the parent's flags stay. A cut that was stopped goes on.

    Raises:
        Refusal: a guard where the store is not complete or lacks a frame, usage where `out` is
            another store, damage where a row is not what was written.
    """
    store.open_run(run)  # complete, and its marks give its fingerprint
    parent = source(run)
    rows = _rows(parent, selection)
    schema = _schema(parent, selection, rows)
    path = out / STORE
    store.open_or_create(path, schema)
    for part in store.missing(path, shard_index=0, shard_count=1):
        store.write_block(path, part, taken(parent, rows[part.start : part.stop]))
    cut_mean(parent.folder, out, rows, attributes=parent.schema.attributes)
    fingerprint = store.finalise(path)
    if fingerprint is None:
        raise RuntimeError(f"rows of {path} vanished while they were written")
    return Subset(out, len(rows), len(parent.frames), fingerprint)


def _rows(parent: Source, selection: Selection) -> Int64[np.ndarray, "frame"]:
    """The parent's row of every frame of the selection."""
    place = {frame: row for row, frame in enumerate(parent.frames)}
    absent = [frame for frame in selection.frames if frame not in place]
    if absent:
        listed = ", ".join(
            f"{frame.repo} episode {frame.episode} frame {frame.frame_index}"
            for frame in absent[:NAMED]
        )
        more = f" and {len(absent) - NAMED:,} more" if len(absent) > NAMED else ""
        raise refusal.guard(
            f"{parent.folder} lacks {len(absent):,} of {len(selection.frames):,} frames of"
            f" {selection.panel}: {listed}{more}",
            expected="a panel whose frames the store holds",
            remedy="choose a smaller panel, or evaluate this one",
        )
    return np.array([place[frame] for frame in selection.frames], dtype=np.int64)


def _schema(parent: Source, selection: Selection, rows: Int64[np.ndarray, "frame"]) -> store.Schema:
    whole = parent.schema.frames
    core = whole.core[rows] if selection.core is None else np.array(selection.core, dtype=bool)
    frames = Frames(
        repos=whole.repos,
        tasks=whole.tasks,
        repo=whole.repo[rows],
        task=whole.task[rows],
        episode=whole.episode[rows],
        frame_index=whole.frame_index[rows],
        index=whole.index[rows],
        core=core,
    )
    return replace(
        parent.schema, frames=frames, attributes=_attributes(parent, selection, frames, rows)
    )


def _attributes(
    parent: Source, selection: Selection, frames: Frames, rows: Int64[np.ndarray, "frame"]
) -> dict[str, Any]:
    whole: Mapping[str, Any] = parent.group.attrs.asdict()
    listed = {
        "frames": [list(frame) for frame in frames.ids()],
        "core": frames.core.tolist(),
        "of": whole.get("panel_digest"),
    }
    identity = {
        "subset_of": whole["fingerprint"],
        "panel": provenance.digest(listed),
    }
    origin = {key: whole.get(key) for key in OF_PARENT}
    return {
        **parent.schema.attributes,
        **cut_attributes(parent.folder, rows, attributes=parent.schema.attributes),
        "digest": provenance.digest(identity),
        "identity": identity,
        "panel": selection.panel,
        "panel_digest": identity["panel"],
        "registration": None,
        "subset_of": {
            **origin,
            "frames": len(parent.frames),
            "by": dict(selection.origin),
            "identity": whole.get("identity"),
            "subset_of": whole.get("subset_of"),
        },
    }
