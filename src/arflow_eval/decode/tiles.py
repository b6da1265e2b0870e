"""Rows are padded to whole tiles.

The last bits of a matrix product depend on its number of rows, where that is small; a tile
never has so few. So draw d of a frame is the same number whether one draw is asked for or ten.
"""


def padded(rows: int, *, tile: int) -> int:
    """Rows rounded up to whole tiles, one at least."""
    return max(1, -(-rows // tile)) * tile
