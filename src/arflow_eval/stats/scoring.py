"""Scoring an arm block by block, so that a store never has to fit in memory."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import xarray
from jaxtyping import Bool, Float32, Shaped

from arflow_eval.stats.errors import Errors, block_errors, joined

BLOCK: Final = 256  # frames read at once, where a store does not say
Block = tuple[
    Float32[np.ndarray, "frame draw step action"],
    Float32[np.ndarray, "frame step action"],
    Bool[np.ndarray, "frame step"],
]  # prediction, truth, valid


def arm_errors(
    arm: xarray.Dataset,
    rows: Bool[np.ndarray, "frame"],
    *,
    window: int,
    variable: str = "prediction",
) -> Errors:
    """Errors of the chosen frames over the leading `window` steps, in the arm's order.

    `variable` may name a baseline of the store, which has no draws. One block is in memory at a
    time; blocks do not move a bit. Raises what `joined` raises.
    """
    blocks = chosen_blocks(arm, rows, variable=variable)
    return joined([block_errors(*block, window=window) for block in blocks])


def chosen_blocks(
    arm: xarray.Dataset, rows: Bool[np.ndarray, "frame"], *, variable: str = "prediction"
) -> Iterator[Block]:
    """The chosen frames in the arm's order, block by block; a baseline comes as one draw."""
    # variables alone: slicing a dataset slices all that it holds
    columns = [arm[name].variable for name in (variable, "truth", "valid")]
    for start in range(0, len(rows), _frames_at_once(arm)):
        block = slice(start, start + _frames_at_once(arm))
        chosen = rows[block]
        prediction, truth, valid = (
            _kept(column.isel(frame=block).to_numpy(), chosen) for column in columns
        )
        if "draw" not in arm[variable].dims:
            prediction = prediction[:, None]
        yield prediction, truth, valid


def _kept(
    column: Shaped[np.ndarray, "frame ..."], chosen: Bool[np.ndarray, "frame"]
) -> Shaped[np.ndarray, "..."]:
    return column if chosen.all() else column[chosen]


def _frames_at_once(arm: xarray.Dataset) -> int:
    """Whole chunks of the store, about `BLOCK` frames of them."""
    chunk = int(arm["prediction"].encoding.get("preferred_chunks", {}).get("frame", BLOCK))
    return chunk * max(BLOCK // chunk, 1)
