"""Random numbers keyed by what they are for, never by when or where they are drawn.

A stream is named by (domain, seed, frame identity); a number in it by draw, position and
element. So a draw is the same in any batch, order, shard or panel, and however many draws
are asked for; and an AR draw never replays a flow draw of the same frame.

Two kinds. "philox" is ours: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011) makes four 32-bit words from a 128-bit counter and a 64-bit key, so any
number is computed where it is needed, and a token's does not depend on what else the
vocabulary holds. "published" is the stream of the published method, for comparison with its
draws: a numpy generator a row, read in order over the whole vocabulary.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, get_args

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt32, UInt64
from scipy.special import ndtri

from arflow_eval.contracts import FrameId

Noise = Literal["philox", "published"]
Domain = Literal["token", "flow"]
# named once, because an annotation of an inner function is built anew at every call
Gumbel = Float64[np.ndarray, "row id"]
Uniform = Float64[np.ndarray, "position row element"]
Single = Float32[np.ndarray, "row id"]
TokenNoise = Callable[[int], Gumbel]
"""Position of the action block -> standard Gumbel noise, never infinite. Any order works."""

VERSION: Final = b"arflow-eval noise 1"
PUBLISHED_TOKENS: Final = 0x41525344  # keeps the published token streams off the flow streams
ROUNDS: Final = 10
COUNTERS: Final = 10_240  # computed at once: few enough for the cache, enough to hide the calls
MOST_POSITIONS: Final = 32  # computed ahead: a block may end before they are asked for
# arrays without axes, which numpy takes faster than its scalars
_MULTIPLIERS: Final = (np.array(0xD2511F53, np.uint64), np.array(0xCD9E8D57, np.uint64))
_WEYL: Final = (np.array(0x9E3779B9, np.uint64), np.array(0xBB67AE85, np.uint64))
_LOW: Final = np.array(0xFFFFFFFF, np.uint64)
_HALF: Final = np.array(32, np.uint64)


def token_noise(
    kind: str,
    frames: Sequence[FrameId],
    draws: Int64[np.ndarray, "row"],
    *,
    ids: Int64[np.ndarray, "id"],
    vocabulary: int,
    seed: int,
) -> TokenNoise:
    """Gumbel noise of the token ids in every row, where row r is draw `draws[r]` of `frames[r]`.

    `vocabulary` counts the ids that the model scores; only the published stream depends on
    it. An unknown kind, or another number of draws than of frames, raises ValueError.
    """
    if len(frames) != len(draws):
        raise ValueError(f"{len(frames)} frames and {len(draws)} draws; expected one of each a row")
    if _known(kind) == "philox":
        return _philox_tokens(frames, draws, ids=ids, seed=seed)
    return _published_tokens(frames, draws, ids=ids, vocabulary=vocabulary, seed=seed)


def flow_noise(
    kind: str,
    frame: FrameId,
    draws: Int64[np.ndarray, "row"],
    *,
    shape: tuple[int, int],
    seed: int,
) -> Float32[np.ndarray, "row step action"]:
    """Standard normal noise of (steps, actions) chunks. An unknown kind raises ValueError."""
    if _known(kind) == "philox":
        key = np.array(stream_key("flow", frame, seed=seed), np.uint64)
        elements = shape[0] * shape[1]
        blocks = np.arange(-(-elements // 4))
        numbers = uniform(blocks, position=np.array(0), draw=draws[:, None], key=key)
        chunks = ndtri(numbers[:, :elements]).reshape(-1, *shape).astype(np.float32)
    else:
        streams = [_published_stream(frame, seed, draw) for draw in draws.tolist()]
        chunks = np.stack([stream.standard_normal(shape, np.float32) for stream in streams])
    return chunks


def stream_key(domain: Domain, frame: FrameId, *, seed: int) -> int:
    """The 64-bit Philox key of a frame's stream. Every part is length-prefixed."""
    names = (domain, str(seed), frame.repo, str(frame.episode), str(frame.frame_index))
    parts = (VERSION, *(name.encode() for name in names))
    message = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")


def philox(
    counter: Sequence[UInt32[np.ndarray, "..."]], *, key: UInt64[np.ndarray, "..."]
) -> UInt32[np.ndarray, "*rows word"]:
    """Philox4x32-10 of every counter that the four words and the key broadcast to.

    A word that varies along some axes only is cheap: the first rounds run on the small arrays.
    """
    first, second, third, fourth = (word.astype(np.uint64) for word in counter)
    turns = np.arange(ROUNDS, dtype=np.uint64)
    low_keys = np.add.outer(turns * _WEYL[0], key & _LOW) & _LOW
    high_keys = np.add.outer(turns * _WEYL[1], key >> _HALF) & _LOW
    for low, high in zip(low_keys, high_keys, strict=True):
        left, right = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        first, second = (right >> _HALF) ^ (second ^ low), right & _LOW
        third, fourth = (left >> _HALF) ^ (fourth ^ high), left & _LOW
    words = (first, second, third, fourth)
    return np.stack(words, axis=-1, dtype=np.uint32, casting="unsafe")


def uniform(
    blocks: Int64[np.ndarray, "block"],
    *,
    position: Int64[np.ndarray, "..."],
    draw: Int64[np.ndarray, "..."],
    key: UInt64[np.ndarray, "..."],
) -> Float64[np.ndarray, "*rows element"]:
    """Numbers in (0, 1), never 0 or 1: (word + 1/2) / 2^32 of elements 4 b ... 4 b + 3 a block b.

    `position`, `draw` and `key` broadcast to `*rows`, with a last axis of length 1 for the blocks.
    """
    counter = (blocks, position, draw, np.array(0))
    words = philox([part.astype(np.uint32) for part in counter], key=key)
    numbers: Float64[np.ndarray, "*rows block word"] = words + 0.5
    numbers *= 2.0**-32
    return numbers.reshape(*numbers.shape[:-2], -1)


def _philox_tokens(
    frames: Sequence[FrameId],
    draws: Int64[np.ndarray, "row"],
    *,
    ids: Int64[np.ndarray, "id"],
    seed: int,
) -> TokenNoise:
    """-log(-log u) of each id's lane; u is computed for some positions at once."""
    keys = {frame: stream_key("token", frame, seed=seed) for frame in frames}
    key = np.array([keys[frame] for frame in frames], np.uint64)[:, None]
    blocks, block_of = np.unique(ids >> 2, return_inverse=True)
    lanes = _as_slice(4 * block_of + (ids & 3))
    together = min(MOST_POSITIONS, max(1, COUNTERS // max(1, len(frames) * len(blocks))))

    @functools.lru_cache(maxsize=1)
    def numbers(first: int) -> Uniform:
        positions = np.arange(first, first + together)[:, None, None]
        return uniform(blocks, position=positions, draw=draws[:, None], key=key)

    def gumbel(position: int) -> Gumbel:
        ahead = position % together
        noise: Gumbel = -np.log(-np.log(numbers(position - ahead)[ahead][:, lanes]))
        return noise

    return gumbel


def _as_slice(places: Int64[np.ndarray, "id"]) -> Int64[np.ndarray, "id"] | slice:
    """Consecutive places as a slice, which numpy reads without a copy."""
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _published_tokens(
    frames: Sequence[FrameId],
    draws: Int64[np.ndarray, "row"],
    *,
    ids: Int64[np.ndarray, "id"],
    vocabulary: int,
    seed: int,
) -> TokenNoise:
    """-log E in float32 of a standard exponential vector a position, over the whole vocabulary.

    The streams are read in order: positions skipped are drawn and discarded, and a position
    that has passed is found again from the start.
    """

    def vectors() -> Iterator[Single]:
        rows = zip(frames, draws.tolist(), strict=True)
        streams = [_published_stream(frame, PUBLISHED_TOKENS, seed, draw) for frame, draw in rows]
        while True:
            drawn = [stream.standard_exponential(vocabulary, np.float32) for stream in streams]
            yield np.stack([vector[ids] for vector in drawn])

    following, unread = 0, vectors()

    def gumbel(position: int) -> Gumbel:
        nonlocal following, unread
        if position < following:
            following, unread = 0, vectors()
        exponential = next(itertools.islice(unread, position - following, None))
        following = position + 1
        noise: Single = -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))
        return noise.astype(np.float64)

    return gumbel


def _published_stream(frame: FrameId, *key: int) -> np.random.Generator:
    """A numpy generator seeded by the key and 128 bits of the frame's identity.

    SeedSequence cuts numbers into 32-bit words and pads with zeros: [1] and [1, 0] are one seed,
    and so are [2**32] and [0, 1]. Below 2**32, seeds and draws are one word each, so the keys
    of a domain have one length and never meet; a larger seed may meet the other domain's.
    """
    name = "\x1f".join([frame.repo, str(frame.episode), str(frame.frame_index)])
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    words: list[int] = np.frombuffer(digest, "<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([*key, *words])))


def _known(kind: str) -> str:
    if kind not in get_args(Noise):
        raise ValueError(f"noise {kind!r}; expected one of {', '.join(get_args(Noise))}")
    return kind
