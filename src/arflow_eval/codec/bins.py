"""Uniform bins over [-1, 1]: one token a value, for states in a prompt."""

import numpy as np
from jaxtyping import Float, Int64


def to_bins(values: Float[np.ndarray, "*rows"], *, bins: int) -> Int64[np.ndarray, "*rows"]:
    """The bin 0…bins-1 of each value; the ends belong to the outer bins."""
    return np.clip(np.floor((values + 1) / 2 * bins), 0, bins - 1).astype(np.int64)
