"""Errors and energies of a block of frames as compiled loops; only `compiled` imports this.

Each gives the bits of the numpy code that stands beside its caller: the same operations on the
same operands in the same order.
"""

# ruff: noqa: PLR0917 - compiled code is called with arguments by position

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from llvmlite import ir
from numba import types
from numba.core import cgutils

from arflow_eval.stats.kernel_code import (
    EIGHT,
    MOST_PIECES,
    NUMBER,
    WORD,
    first_value,
    inline,
    jit,
    paired,
)

Order = Int64[np.ndarray, "2 block"]  # pieces: their sizes, and how often to add up after each


@inline
def _piece(typing_context: Any, values: Any, start: Any, count: Any) -> Any:
    """Sum of `count` contiguous values, at most 128."""
    del typing_context, start, count

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, first, length = arguments
        data = first_value(context, builder, signature, arguments, 0)

        def loaded(place: Any, kind: Any) -> Any:
            pointer = builder.gep(data, [builder.add(first, place)])
            return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=8)

        running = cgutils.alloca_once_value(builder, ir.Constant(EIGHT, [-0.0] * 8))
        whole = builder.sub(length, builder.urem(length, WORD(8)))
        with cgutils.for_range_slice(builder, WORD(0), whole, WORD(8)) as (place, _):
            builder.store(builder.fadd(builder.load(running), loaded(place, EIGHT)), running)
        lanes = [builder.extract_element(builder.load(running), WORD(lane)) for lane in range(8)]
        total = cgutils.alloca_once_value(builder, paired(builder, lanes))
        with cgutils.for_range_slice(builder, whole, length, WORD(1)) as (place, _):
            builder.store(builder.fadd(builder.load(total), loaded(place, NUMBER)), total)
        return builder.load(total)

    return types.float64(values, types.int64, types.int64), code


@jit
def row_sum(
    values: Float64[np.ndarray, "element"], order: Order, waiting: Float64[np.ndarray, "block"]
) -> Any:
    """Sum of the values that the order covers, as numpy takes it; `waiting` is scribbled on."""
    start, depth = 0, 0
    for piece in range(order.shape[1]):
        waiting[depth] = _piece(values, start, order[0, piece])
        start += order[0, piece]
        depth += 1
        for _ in range(order[1, piece]):
            depth -= 1
            waiting[depth - 1] += waiting[depth]
    return waiting[0]


@jit
def _copy(
    source: Float32[np.ndarray, "element"],
    scored: Bool[np.ndarray, "step"],
    out: Float64[np.ndarray, "element"],
) -> None:
    """The leading values in float64, 0 in the unscored steps."""
    for place in range(len(out)):
        out[place] = source[place]
    _zero(scored, out)


@jit
def _zero(scored: Bool[np.ndarray, "step"], values: Float64[np.ndarray, "element"]) -> None:
    """Write 0 in the unscored steps."""
    actions = len(values) // len(scored)
    for step in range(len(scored)):
        if not scored[step]:
            for action in range(actions):
                values[step * actions + action] = 0.0


@jit
def headline_errors(
    prediction: Float32[np.ndarray, "frame draw element"],
    truth: Float32[np.ndarray, "frame element"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
    order: Order,
    first: Order,
    sums: Float64[np.ndarray, "frame 2"],
) -> None:
    """Errors of the mean of draws in float32: their sums over the window and the first step."""
    elements = order[0].sum()
    mean, error, waiting = np.empty(elements), np.empty(elements), np.empty(MOST_PIECES)
    for frame in range(len(sums)):
        mean[:] = 0.0
        draws = 0
        for draw in range(failed.shape[1]):
            if not failed[frame, draw]:
                draws += 1
                for place in range(elements):
                    mean[place] += prediction[frame, draw, place]
        for place in range(elements):
            apart = np.float32(mean[place] / draws) - truth[frame, place]
            error[place] = abs(apart)
        _zero(scored[frame], error)
        sums[frame, 0] = row_sum(error, order, waiting)
        sums[frame, 1] = row_sum(error, first, waiting)


@jit
def draw_errors(
    prediction: Float32[np.ndarray, "frame draw element"],
    truth: Float32[np.ndarray, "frame element"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
    order: Order,
    first: Order,
    sums: Float64[np.ndarray, "frame draw 2"],
) -> None:
    """Errors of every draw in float64: their sums over the window and the first step."""
    elements = order[0].sum()
    recorded, error, waiting = np.empty(elements), np.empty(elements), np.empty(MOST_PIECES)
    for frame in range(failed.shape[0]):
        _copy(truth[frame], scored[frame], recorded)
        for draw in range(failed.shape[1]):
            if failed[frame, draw]:
                sums[frame, draw] = np.nan
                continue
            _copy(prediction[frame, draw], scored[frame], error)
            for place in range(len(error)):
                error[place] = abs(error[place] - recorded[place])
            sums[frame, draw, 0] = row_sum(error, order, waiting)
            sums[frame, draw, 1] = row_sum(error, first, waiting)


@jit
def energy_sums(
    prediction: Float32[np.ndarray, "frame draw element"],
    truth: Float32[np.ndarray, "frame element"],
    scored: Bool[np.ndarray, "frame step"],
    failed: Bool[np.ndarray, "frame draw"],
    order: Order,
    sums: Float64[np.ndarray, "frame 2"],
) -> None:
    """Distances from the decoded draws to the truth, which is the last point, and among them."""
    draws, elements = failed.shape[1], order[0].sum()
    points, square = np.empty((draws + 1, elements)), np.empty(elements)
    waiting = np.empty(MOST_PIECES)
    for frame in range(len(sums)):
        for draw in range(draws):
            _copy(prediction[frame, draw], scored[frame], points[draw])
        _copy(truth[frame], scored[frame], points[draws])
        near, between = 0.0, 0.0
        for apart in range(1, (draws + 1) // 2 + 1):
            for one in range(draws + 1):
                other = (one + apart) % (draws + 1)
                if 2 * apart == draws + 1 and one >= apart:
                    break  # half way round, each pair would come twice
                if (one < draws and failed[frame, one]) or (other < draws and failed[frame, other]):
                    continue
                for place in range(elements):
                    difference = points[one, place] - points[other, place]
                    square[place] = difference * difference
                distance = np.sqrt(row_sum(square, order, waiting))
                if draws in (one, other):
                    near += distance
                else:
                    between += distance
        sums[frame, 0] = near
        sums[frame, 1] = between
