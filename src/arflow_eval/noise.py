"""Random numbers keyed by what they are for, never by when or where they are drawn.

A stream is named by (domain, seed, frame identity); a number in it by draw, position and
element. So a draw is the same in any batch, order, shard or panel, and however many draws
are asked for; and an AR draw never replays a flow draw of the same frame.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): four 32-bit words from a 128-bit counter and a 64-bit key.
"""

import hashlib
from typing import Final, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int, UInt32, UInt64
from scipy.special import ndtri

from arflow_eval.contracts import FrameId

Domain = Literal["token", "flow"]

VERSION: Final = b"arflow-eval noise 1"
_MULTIPLIERS: Final = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def stream_key(domain: Domain, frame: FrameId, *, seed: int) -> int:
    """The 64-bit Philox key of a frame's stream. Every part is length-prefixed."""
    names = (domain, str(seed), frame.repo, str(frame.episode), str(frame.frame_index))
    parts = (VERSION, *(name.encode() for name in names))
    message = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")


def philox(
    counter: UInt32[np.ndarray, "*rows word"], *, key: int
) -> UInt32[np.ndarray, "*rows word"]:
    """Philox4x32-10 of each 4-word counter."""
    words: list[UInt64[np.ndarray, "*rows"]] = [counter[..., i].astype(np.uint64) for i in range(4)]
    key_low, key_high = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            (second >> _HALF) ^ words[1] ^ np.uint64(key_low),
            second & _LOW,
            (first >> _HALF) ^ words[3] ^ np.uint64(key_high),
            first & _LOW,
        ]
        key_low, key_high = (key_low + _WEYL[0]) & 0xFFFFFFFF, (key_high + _WEYL[1]) & 0xFFFFFFFF
    return np.stack(words, axis=-1).astype(np.uint32)


def uniform(
    elements: Int[np.ndarray, "element"], *, key: int, draws: Int[np.ndarray, "row"], position: int
) -> Float64[np.ndarray, "row element"]:
    """Numbers in (0, 1), never 0 or 1: (word + 1/2) / 2^32 of the element's lane."""
    blocks, block_of = np.unique(elements >> 2, return_inverse=True)
    counter = np.zeros((len(draws), len(blocks), 4), dtype=np.uint32)
    counter[..., 0] = blocks
    counter[..., 1] = position
    counter[..., 2] = draws[:, None]
    words = philox(counter, key=key)[:, block_of, elements & 3]
    numbers: Float64[np.ndarray, "row element"] = (words + 0.5) / 2.0**32
    return numbers


def gumbel(
    tokens: Int[np.ndarray, "element"], *, key: int, draws: Int[np.ndarray, "row"], position: int
) -> Float64[np.ndarray, "row element"]:
    """Standard Gumbel noise of token ids at a position of the action block."""
    noise: Float64[np.ndarray, "row element"] = -np.log(
        -np.log(uniform(tokens, key=key, draws=draws, position=position))
    )
    return noise


def normal(
    shape: tuple[int, int], *, key: int, draws: Int[np.ndarray, "row"]
) -> Float32[np.ndarray, "row step action"]:
    """Standard normal noise of a (steps, actions) chunk, by inversion, element by element."""
    elements = np.arange(shape[0] * shape[1])
    numbers = ndtri(uniform(elements, key=key, draws=draws, position=0))
    chunk: Float32[np.ndarray, "row step action"] = numbers.reshape(-1, *shape).astype(np.float32)
    return chunk
