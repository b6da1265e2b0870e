"""From observations and draws to the columns of a store: part of what names it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from arflow_eval.contracts import FrameDraws, Observation, Panel
from arflow_eval.model.baseline import hold_state, hold_state_norm


def block_columns(
    panel: Panel, rows: range, observations: Sequence[Observation], found: Sequence[FrameDraws]
) -> dict[str, Shaped[np.ndarray, "frame ..."]]:
    """The columns of a block; a shorter horizon leaves NaN in the steps past it."""
    targets = panel.targets(rows)
    draws, horizon, actions = found[0].prediction.shape
    prediction = np.full((len(rows), draws, panel.steps, actions), np.nan, dtype=np.float32)
    prediction[:, :, :horizon] = np.stack([frame.prediction for frame in found])
    columns = {
        "prediction": prediction,
        "truth": targets.truth,
        "valid": targets.valid,
        "logprob": np.stack([frame.logprob for frame in found]),
        **{name: np.stack([frame.measures[name] for frame in found]) for name in found[0].measures},
    }
    if panel.space.shared:
        for name, rule in (("state_copy", hold_state), ("state_copy_norm", hold_state_norm)):
            columns[name] = np.stack([rule(seen, panel.steps) for seen in observations])
    return columns
