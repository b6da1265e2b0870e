"""Made arms with known errors: what a read's oracles plant effects on."""

from typing import Any, Final

import numpy as np
import xarray

FRAMES, REPOS, STEPS, ACTIONS = 960, 240, 50, 6
PLANTED: Final = "0" * 64
CHUNK: Final = ("frame", "step", "action")


def made_arm(*, chunk_mae: float, seed: int = 0) -> xarray.Dataset:
    """A finished greedy arm of many repos whose pooled chunk MAE on core frames is `chunk_mae`.

    Errors differ in size between repos; some chunks end inside the window, and some frames are
    not core.
    """
    stream = np.random.default_rng(seed)
    truth = np.cumsum(stream.normal(0, 2, (FRAMES, STEPS, ACTIONS)), axis=1).astype(np.float32)
    rows = np.arange(FRAMES)
    repo = rows * REPOS // FRAMES
    size = stream.lognormal(0, 0.4, REPOS)[repo]
    error = stream.normal(0, 1, truth.shape) * size[:, None, None]
    valid = np.ones((FRAMES, STEPS), dtype=bool)
    valid[::7, 31:] = False
    core = rows % 3 != 2
    pooled = np.abs(error[core][valid[core]]).mean()
    return xarray.Dataset(
        {
            "prediction": (
                ("frame", "draw", "step", "action"),
                (truth + error * (chunk_mae / pooled))[:, None].astype(np.float32),
            ),
            "truth": (CHUNK, truth),
            "valid": (CHUNK[:2], valid),
            "state_copy": (CHUNK, np.zeros_like(truth)),
            "state_copy_norm": (CHUNK, np.ones_like(truth)),
        },
        coords={
            "episode": ("frame", rows // 4),
            "frame_index": ("frame", rows % 4),
            "index": ("frame", rows),
            "panel_row": ("frame", rows),
            "core": ("frame", core),
            "repo_name": ("frame", np.array([f"made/repo{number:03d}" for number in repo])),
        },
        attrs={
            "arm": "made@0",
            "complete": True,
            "fingerprint": PLANTED,
            "digest": PLANTED,
            "checkpoint_digest": PLANTED,
            "temperature": 0.0,
            "horizon": STEPS,
            "action_names": [f"joint{number}" for number in range(ACTIONS)],
            "action_units": "degree",
            "fps": 30.0,
        },
    )


def planted(
    arm: xarray.Dataset, *, factor: float, draws: int, name: str, temperature: float | None
) -> xarray.Dataset:
    """An arm whose every draw has another's errors times a factor; 1 is that arm bit for bit."""
    truth = arm["truth"].to_numpy()
    greedy = arm["prediction"].to_numpy()[:, 0]
    chunk = greedy if factor == 1 else truth + np.float32(factor) * (greedy - truth)
    stack = np.repeat(chunk[:, None].astype(np.float32), draws, axis=1)
    attributes: dict[str, Any] = {"arm": name, "temperature": temperature}
    prediction = (("frame", "draw", "step", "action"), stack)
    return arm.drop_vars("prediction").assign(prediction=prediction).assign_attrs(attributes)
