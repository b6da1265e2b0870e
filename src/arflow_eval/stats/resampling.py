"""Sums over resampled frames or clusters: numpy's own stream of indices, in bounded memory."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from jaxtyping import Float64, Int64, UInt32

from arflow_eval.stats import compiled

BATCH: Final = 1 << 16  # resampled values held at once: half a MB, which a cache holds


def _rows_at_once(clusters: int) -> int:
    """Resamples in one batch, about `BATCH` values."""
    return max(BATCH // clusters, 1)


def resampled_sums(
    columns: Sequence[Float64[np.ndarray, "cluster"]], *, resamples: int, seed: int
) -> list[Float64[np.ndarray, "resample"]]:
    """The sum of each column over the clusters of each resample, which all columns share."""
    clusters = len(columns[0])
    found = compiled.kernels(resamples * clusters * len(columns))
    if found is not None:
        return compiled.resampled_sums(found, columns, resamples=resamples, seed=seed)
    sums = [np.empty(resamples) for _ in columns]
    taken = np.empty((_rows_at_once(clusters), clusters))
    for rows, chosen in resampled(clusters, resamples=resamples, seed=seed):
        for column, summed in zip(columns, sums, strict=True):
            # "clip" never clips: it is what lets numpy write into `out` without a copy
            values = column.take(chosen, out=taken[: len(chosen)], mode="clip")
            values.sum(axis=1, out=summed[rows])
    return sums


def resampled(
    clusters: int, *, resamples: int, seed: int
) -> Iterator[tuple[slice, Int64[np.ndarray, "resample cluster"]]]:
    """Batches of `default_rng(seed).integers(0, clusters, (resamples, clusters))`, row by row.

    Those digits, from the words of the same generator: numpy takes the low and then the high
    half x of each word for x * clusters / 2^32, and leaves out the x that would favour some
    indices. Frames that are resampled one by one are clusters of one. Below 2^32 clusters.

    Source: Lemire (2019), ACM Transactions on Modeling and Computer Simulation 29(1), 3.
    """
    words = np.random.PCG64(seed)
    waiting = np.empty(0, np.uint32)
    for start in range(0, resamples, _rows_at_once(clusters)):
        rows = slice(start, min(start + _rows_at_once(clusters), resamples))
        chosen = np.empty((rows.stop - start, clusters), np.int64)
        waiting = _fill(chosen.reshape(-1), waiting, words, below=clusters)
        yield rows, chosen


def _fill(
    chosen: Int64[np.ndarray, "index"],
    waiting: UInt32[np.ndarray, "..."],
    words: np.random.PCG64,
    *,
    below: int,
) -> UInt32[np.ndarray, "..."]:
    """Fill `chosen` from the halves of words waiting, then of new words; what is left waits."""
    filled = 0
    while filled < len(chosen):
        count = len(chosen) - filled
        fresh = words.random_raw(max(-(-(count - len(waiting)) // 2), 0))
        halves = fresh.astype("<u8", copy=False).view("<u4")  # the low half of a word first
        if len(waiting):
            halves = np.concatenate([waiting, halves])
        filled += _scaled(halves[:count], chosen[filled:], below=below)
        waiting = halves[count:]
    return waiting


def _scaled(
    halves: UInt32[np.ndarray, "word"], chosen: Int64[np.ndarray, "index"], *, below: int
) -> int:
    """Write the fair indices that 32-bit halves give to the front of `chosen`; their number."""
    product = chosen[: len(halves)].view(np.uint64)
    np.copyto(product, halves)
    product *= np.uint64(below)
    low = product.astype("<u8", copy=False).view("<u4")[::2]
    unfair = 2**32 % below  # a low half below it would come up once too often
    if low.min() < unfair:
        fair = product[low >= unfair]
        product = product[: len(fair)]
        product[:] = fair
    product >>= np.uint64(32)
    return len(product)
