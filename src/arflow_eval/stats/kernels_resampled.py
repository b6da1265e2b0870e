"""Sums over resampled rows as a compiled loop over numpy's own stream; see `resampling`."""

# ruff: noqa: PLR0917 - compiled code is called with arguments by position

from typing import Any, Final

import numpy as np
from jaxtyping import Float64, Int64, UInt32, UInt64
from llvmlite import ir
from numba import types
from numba.core import cgutils

from arflow_eval.stats.kernel_code import (
    MOST_PIECES,
    NUMBER,
    WORD,
    first_value,
    inline,
    jit,
    paired,
)

LANES: Final = 8  # states of the generator side by side, each 8 words on at a step
HALVES: Final = 2048  # of words, held at once
COLUMNS: Final = 8  # of a resampled table
LOWER: Final = np.uint64(0xFFFFFFFF)
HALF: Final = np.uint64(32)
Order = Int64[np.ndarray, "2 block"]  # pieces: their sizes, and how often to add up after each


@inline
def _gathered(
    typing_context: Any, table: Any, rows: Any, start: Any, count: Any, sums: Any, depth: Any
) -> Any:
    """`_piece` of chosen rows of a table, its columns at once, written to row `depth` of sums.

    A table has one axis and one column, or two and 8 columns.
    """
    del typing_context, start, count, depth
    width = 1 if table.ndim == 1 else COLUMNS
    vector = ir.VectorType(NUMBER, width)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, length, row = arguments[2], arguments[3], arguments[5]
        values, chosen, into = (
            first_value(context, builder, signature, arguments, place) for place in (0, 1, 4)
        )

        def columns(array: Any, index: Any, *, apart: int) -> Any:
            pointer = builder.gep(array, [builder.mul(index, WORD(apart))])
            return builder.bitcast(pointer, vector.as_pointer())

        def taken(place: Any) -> Any:
            index = builder.load(builder.gep(chosen, [builder.add(first, place)]))
            return builder.load(columns(values, builder.zext(index, WORD), apart=width), align=8)

        nothing = ir.Constant(vector, [-0.0] * width)
        running = [cgutils.alloca_once_value(builder, nothing) for _ in range(8)]
        whole = builder.sub(length, builder.urem(length, WORD(8)))
        with cgutils.for_range_slice(builder, WORD(0), whole, WORD(8)) as (place, _):
            for lane, kept in enumerate(running):
                value = taken(builder.add(place, WORD(lane)))
                builder.store(builder.fadd(builder.load(kept), value), kept)
        lanes = [builder.load(kept) for kept in running]
        total = cgutils.alloca_once_value(builder, paired(builder, lanes))
        with cgutils.for_range_slice(builder, whole, length, WORD(1)) as (place, _):
            builder.store(builder.fadd(builder.load(total), taken(place)), total)
        builder.store(builder.load(total), columns(into, row, apart=COLUMNS), align=8)
        return context.get_dummy_value()

    place = types.int64
    return types.void(table, rows, place, place, sums, place), code


@inline
def _high(typing_context: Any, left: Any, right: Any) -> Any:
    """High 64 bits of the product of two 64-bit words."""
    del typing_context, left, right

    def code(_context: Any, builder: Any, _signature: Any, words: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, wide) for word in words))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), WORD)

    return types.uint64(types.uint64, types.uint64), code


@jit
def resampled_sums(
    table: Float64[np.ndarray, "cluster *columns"],
    upper: UInt64[np.ndarray, "..."],
    lower: UInt64[np.ndarray, "..."],
    jump: UInt64[np.ndarray, "4"],
    order: Order,
    sums: Float64[np.ndarray, "resample 8"],
) -> None:
    """Sums of rows drawn as `default_rng(seed).integers` draws them, one resample a row.

    Args:
        table: what is resampled: one column, or two axes and 8 columns.
        upper: high halves of the generator's states after 1 to `LANES` steps; they move on.
        lower: their low halves.
        jump: factor and increment of `LANES` steps, each as its high and its low half.
        order: pieces of a column.
        sums: sum of each column in each resample.
    """
    halves, chosen = np.empty(HALVES, np.uint32), np.empty(len(table), np.uint32)
    waiting = np.empty((MOST_PIECES, COLUMNS))
    place = HALVES
    for resample in range(len(sums)):
        filled = 0
        while filled < len(table):
            if place == HALVES:
                _words(upper, lower, jump, halves)
                place = 0
            count = min(HALVES - place, len(table) - filled)
            filled += _scaled(halves, place, count, chosen, filled)
            place += count
        _sum_rows(table, chosen, order, waiting)
        sums[resample] = waiting[0]


@jit
def _scaled(
    halves: UInt32[np.ndarray, "word"],
    place: int,
    count: int,
    chosen: UInt32[np.ndarray, "index"],
    filled: int,
) -> int:
    """Write the fair indices that some halves give to `chosen`; their number. See `intervals`."""
    below = np.uint64(len(chosen))
    given, taken = halves[place : place + count], chosen[filled : filled + count]
    unfair = (LOWER - below + np.uint64(1)) % below
    least = LOWER
    for half in range(count):
        product = np.uint64(given[half]) * below
        taken[half] = product >> HALF
        least = min(least, product & LOWER)
    if least >= unfair:
        return count
    kept = 0
    for half in range(count):
        product = np.uint64(given[half]) * below
        if product & LOWER >= unfair:
            taken[kept] = product >> HALF
            kept += 1
    return kept


@jit
def _sum_rows(
    table: Float64[np.ndarray, "cluster *columns"],
    chosen: UInt32[np.ndarray, "cluster"],
    order: Order,
    waiting: Float64[np.ndarray, "block 8"],
) -> None:
    """Sum the chosen rows into `waiting[0]`, in the order in which numpy sums a column of them."""
    start, depth = 0, 0
    for piece in range(order.shape[1]):
        _gathered(table, chosen, start, order[0, piece], waiting, depth)
        start += order[0, piece]
        depth += 1
        for _ in range(order[1, piece]):
            depth -= 1
            for column in range(COLUMNS):
                waiting[depth - 1, column] += waiting[depth, column]


@jit
def _words(
    upper: UInt64[np.ndarray, "..."],
    lower: UInt64[np.ndarray, "..."],
    jump: UInt64[np.ndarray, "4"],
    halves: UInt32[np.ndarray, "word"],
) -> None:
    """The next words of PCG64 (XSL-RR 128/64), each as its low and then its high half."""
    for start in range(0, HALVES, 2 * LANES):
        for lane in range(LANES):
            high, low = upper[lane], lower[lane]
            turn = high >> np.uint64(58)
            mixed = high ^ low
            word = (mixed >> turn) | (mixed << ((np.uint64(64) - turn) & np.uint64(63)))
            halves[start + 2 * lane] = word & LOWER
            halves[start + 2 * lane + 1] = word >> HALF
            product = low * jump[1]
            following = product + jump[3]
            carried = np.uint64(following < product)
            lower[lane] = following
            upper[lane] = _high(low, jump[1]) + low * jump[0] + high * jump[1] + jump[2] + carried
