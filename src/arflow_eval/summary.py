"""The few numbers an evaluation ends with: pooled errors of an arm and of both baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xarray

from arflow_eval.stats.errors import Errors, block_errors, joined
from arflow_eval.store import open_run

BLOCK = 256


@dataclass(frozen=True)
class Summary:
    """Errors on core frames over the leading `window` steps, in the action's units."""

    arm: str
    chunk_mae: float
    first_mae: float
    baselines: Mapping[str, float]
    frames: int
    window: int
    units: str


def summarise(path: Path, *, window: int | None) -> Summary:
    """Summarise a complete store; `window` None is the policy's whole horizon."""
    run = open_run(path)
    steps = int(run.attrs["horizon"]) if window is None else window
    arm = _errors(run, run["prediction"], window=steps)
    baselines = {
        name: _errors(run, run[name].expand_dims("draw", axis=1), window=steps).chunk_mae
        for name in ("state_copy", "state_copy_norm")
        if name in run
    }
    return Summary(
        arm=str(run.attrs["arm"]),
        chunk_mae=arm.chunk_mae,
        first_mae=arm.first_mae,
        baselines=baselines,
        frames=len(arm),
        window=steps,
        units=str(run.attrs["action_units"]),
    )


def _errors(run: xarray.Dataset, prediction: xarray.DataArray, *, window: int) -> Errors:
    core = run["core"].to_numpy()
    blocks = []
    for start in range(0, len(core), BLOCK):
        rows = slice(start, start + BLOCK)
        kept = core[rows]
        columns = (prediction[rows], run["truth"][rows], run["valid"][rows])
        values = [column.to_numpy()[kept] for column in columns]
        blocks.append(block_errors(*values, window=window))
    return joined(blocks)
