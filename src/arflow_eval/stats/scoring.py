"""Scoring an arm block by block, so that a store never has to fit in memory."""

from typing import Final

import numpy as np
import xarray
from jaxtyping import Bool

from arflow_eval.stats.errors import Errors, block_errors, joined

BLOCK: Final = 256  # frames read at once, where a store does not say


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
    scored = []
    for start in range(0, len(rows), _frames_at_once(arm)):
        block = slice(start, start + _frames_at_once(arm))
        part, chosen = arm.isel(frame=block), rows[block]
        prediction, truth, valid = (
            part[name].to_numpy()[chosen] for name in (variable, "truth", "valid")
        )
        if "draw" not in arm[variable].dims:
            prediction = prediction[:, None]
        scored.append(block_errors(prediction, truth, valid, window=window))
    return joined(scored)


def _frames_at_once(arm: xarray.Dataset) -> int:
    """Whole chunks of the store, about `BLOCK` frames of them."""
    chunk = int(arm["prediction"].encoding.get("preferred_chunks", {}).get("frame", BLOCK))
    return chunk * max(BLOCK // chunk, 1)
