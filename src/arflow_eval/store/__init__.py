"""The store: predictions draw by draw, as Zarr v3, written block by block and never half believed.

A block of frames is exactly one chunk of every array written blockwise, so no two writers ever
share a file. Data is written first and its digest last; the digest is the completion mark.
A killed run resumes with the blocks that lack it, and a complete store has one fingerprint,
whatever its chunks, its codec, its shards and the order they finished in.

`layout` has the variables and how they lie, `access` reads what is there, `digests` says what a
mark and a fingerprint are, `writing` commits a block, `sealing` checks and ends, `opening` is the
way in for a read.
"""

from arflow_eval.store.digests import fingerprint, frame_digests
from arflow_eval.store.layout import Schema, block_frames
from arflow_eval.store.opening import open_run
from arflow_eval.store.sealing import clear, damaged, finalise
from arflow_eval.store.writing import blocks, missing, open_or_create, progress, write_block

__all__ = [
    "Schema",
    "block_frames",
    "blocks",
    "clear",
    "damaged",
    "finalise",
    "fingerprint",
    "frame_digests",
    "missing",
    "open_or_create",
    "open_run",
    "progress",
    "write_block",
]
