"""What a mark is made of: the digest of one frame's values, and the fingerprint over all frames.

Both depend on values and identities alone: not on chunks, codecs, block size or write order.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Shaped, UInt8

from arflow_eval.contracts import FrameId
from arflow_eval.store.vocabulary import DIGEST_BYTES, VARIABLES


def frame_digests(
    frames: Sequence[FrameId], columns: Mapping[str, np.ndarray]
) -> UInt8[np.ndarray, "frame byte"]:
    """The first 16 bytes of SHA-256 over each frame's identity and values.

    A frame's text is `repo NUL episode NUL frame_index NUL`, then for every column that exists,
    in the order of `vocabulary.VARIABLES`, `name NUL dtype NUL shape NUL` and the little-endian
    bytes in C order. Every NaN counts as the same one.

    Args:
        frames: identities, one a row of the columns.
        columns: arrays whose first axis is the frame.
    """
    present = [variable.name for variable in VARIABLES if variable.name in columns]
    table = _bytes([(name, columns[name]) for name in present], frames=len(frames))
    digests = np.empty((len(frames), DIGEST_BYTES), dtype=np.uint8)
    for row, frame in enumerate(frames):
        state = hashlib.sha256(f"{frame.repo}\0{frame.episode}\0{frame.frame_index}\0".encode())
        state.update(table[row])
        digests[row] = np.frombuffer(state.digest(), dtype=np.uint8, count=DIGEST_BYTES)
    return digests


def _bytes(
    columns: Sequence[tuple[str, np.ndarray]], *, frames: int
) -> UInt8[np.ndarray, "frame byte"]:
    """What a digest takes of every column, one row a frame: the hash is then one call a frame."""
    parts = []
    for name, column in columns:
        values = _canonical(column)
        header = f"{name}\0{values.dtype.name}\0{values.shape[1:]}\0".encode()
        size = values.dtype.itemsize * math.prod(values.shape[1:])
        parts.append(np.broadcast_to(np.frombuffer(header, np.uint8), (frames, len(header))))
        parts.append(values.view(np.uint8).reshape(frames, size))
    return np.concatenate([np.empty((frames, 0), np.uint8), *parts], axis=1)


def _canonical(column: Shaped[np.ndarray, "frame *rest"]) -> Shaped[np.ndarray, "frame *rest"]:
    little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
    if little.dtype.kind == "f":
        lacking = np.isnan(little)
        if lacking.any():
            little = np.where(lacking, little.dtype.type(np.nan), little)
    return little


def fingerprint(
    frames: Sequence[FrameId],
    digests: UInt8[np.ndarray, "frame byte"],
    *,
    config_digest: str,
) -> str:
    """SHA-256 (hex) over the config digest and the frame digests in identity order."""
    order = np.array(sorted(range(len(frames)), key=frames.__getitem__), dtype=np.int64)
    return ordered_fingerprint(digests[order], config_digest=config_digest)


def ordered_fingerprint(digests: UInt8[np.ndarray, "frame byte"], *, config_digest: str) -> str:
    """The fingerprint of frame digests that are in identity order already."""
    return hashlib.sha256(config_digest.encode() + digests.tobytes()).hexdigest()
