"""Draws are decoded in tiles of a fixed number of rows.

A matrix product's last bits depend on its number of rows; a padded tile always has the same.
So draw d of a frame is the same number whether one draw is asked for or ten.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from jaxtyping import Int64

TILE: Final = 16


def tiles(draws: int) -> Iterator[tuple[Int64[np.ndarray, "row"], int]]:
    """Draw numbers of each tile, `TILE` of them always, and how many of them were asked for."""
    for first in range(0, draws, TILE):
        yield np.arange(first, first + TILE), min(TILE, draws - first)
