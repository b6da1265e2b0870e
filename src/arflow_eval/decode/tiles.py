"""Rows are padded to whole tiles.

The last bits of a matrix product depend on its number of rows, where that is small (below 16 on
every CPU seen); a padded batch never has so few. So draw d of a frame is the same number whether
one draw is asked for or ten.
"""


def padded(rows: int, *, tile: int, least: int = 1) -> int:
    """Rows rounded up to whole tiles, one at least and `least` rows at least."""
    return max(max(1, -(-rows // tile)) * tile, least)
