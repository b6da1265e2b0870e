"""What a mark is made of: the digest of one frame's values, and the fingerprint over all frames.

Both depend on values and identities alone: not on chunks, codecs, block size or write order.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Shaped, UInt8

from arflow_eval.contracts import FrameId
from arflow_eval.store.layout import DIGEST_BYTES, VARIABLES


def frame_digests(
    frames: Sequence[FrameId], columns: Mapping[str, np.ndarray]
) -> UInt8[np.ndarray, "frame byte"]:
    """The first 16 bytes of SHA-256 over each frame's identity and values.

    A frame's text is `repo NUL episode NUL frame_index NUL`, then for every column that exists,
    in the order of `layout.VARIABLES`, `name NUL dtype NUL shape NUL` and the little-endian bytes
    in C order. Every NaN counts as the same one.

    Args:
        frames: identities, one a row of the columns.
        columns: arrays whose first axis is the frame.
    """
    present = [variable.name for variable in VARIABLES if variable.name in columns]
    values = {name: _canonical(columns[name]) for name in present}
    headers = {
        name: f"{name}\0{column.dtype.name}\0{column.shape[1:]}\0".encode()
        for name, column in values.items()
    }
    digests = np.empty((len(frames), DIGEST_BYTES), dtype=np.uint8)
    for row, frame in enumerate(frames):
        state = hashlib.sha256(f"{frame.repo}\0{frame.episode}\0{frame.frame_index}\0".encode())
        for name in present:
            state.update(headers[name])
            state.update(values[name][row].tobytes())
        digests[row] = np.frombuffer(state.digest(), dtype=np.uint8, count=DIGEST_BYTES)
    return digests


def _canonical(column: Shaped[np.ndarray, "frame *rest"]) -> Shaped[np.ndarray, "frame *rest"]:
    little = column.astype(column.dtype.newbyteorder("<"), copy=True)
    if little.dtype.kind == "f":
        little[np.isnan(little)] = np.nan
    return little


def fingerprint(
    frames: Sequence[FrameId],
    digests: UInt8[np.ndarray, "frame byte"],
    *,
    config_digest: str,
) -> str:
    """SHA-256 (hex) over the config digest and the frame digests in identity order."""
    state = hashlib.sha256(config_digest.encode())
    for row in sorted(range(len(frames)), key=frames.__getitem__):
        state.update(digests[row].tobytes())
    return state.hexdigest()
