"""How compiled loops are made, for `kernels` and `kernels_resampled`: numba and LLVM's vectors.

numpy sums a contiguous row in pieces of at most 128, each by eight running sums that are added
in pairs, then what is left over; pieces are added up in halves. Vectors of eight keep that order.
No fast maths, and nothing is fused.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

MOST_PIECES: Final = 64  # waiting to be added up: pieces of 2^64 values need no more
NUMBER: Final = ir.DoubleType()
WORD: Final = ir.IntType(64)
EIGHT: Final = ir.VectorType(NUMBER, 8)


def jit(function: Callable[..., Any]) -> Any:
    """Compile at the first call; kept on disk where the package or the user's cache is writable."""
    plain = inspect.unwrap(function)  # a type checker's wrapper does not compile
    try:
        return njit(plain, cache=True, error_model="numpy")
    except RuntimeError:  # there is nowhere to keep it
        return njit(plain, error_model="numpy")


def inline(function: Callable[..., Any]) -> Any:
    """Code that a compiled loop takes in, from a function that emits it."""
    return intrinsic(inspect.unwrap(function))


def first_value(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    """Pointer to the first value of an array argument."""
    kind = signature.args[place]
    return context.make_array(kind)(context, builder, arguments[place]).data


def paired(builder: Any, eight: list[Any]) -> Any:
    """((a + b) + (c + d)) + ((e + f) + (g + h))."""
    while len(eight) > 1:
        eight = [builder.fadd(*eight[place : place + 2]) for place in range(0, len(eight), 2)]
    return eight[0]
