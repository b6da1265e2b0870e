"""The few numbers an evaluation ends with: pooled errors of an arm and of both baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arflow_eval import refusal
from arflow_eval.stats.scoring import arm_errors
from arflow_eval.store import open_run


@dataclass(frozen=True)
class Summary:
    """Errors on core frames over the leading `window` steps, in the action's units.

    `failed` draws, of `draws` on core frames, are in no mean.
    """

    arm: str
    chunk_mae: float
    first_mae: float
    baselines: Mapping[str, float]
    frames: int
    draws: int
    failed: int
    window: int
    units: str


def summarise(path: Path, *, window: int | None) -> Summary:
    """Summarise a complete store; `window` None is the policy's whole horizon."""
    run = open_run(path)
    horizon = int(run.attrs["horizon"])
    steps = horizon if window is None else window
    if steps > horizon:
        raise refusal.guard(
            f"window={steps} of a store with a horizon of {horizon} steps",
            expected="a window inside the policy's horizon",
            remedy=f"set window={horizon} or less",
        )
    core = run["core"].to_numpy()
    arm = arm_errors(run, core, window=steps)
    baselines = {
        name: arm_errors(run, core, window=steps, variable=name).chunk_mae
        for name in ("state_copy", "state_copy_norm")
        if name in run
    }
    return Summary(
        arm=str(run.attrs["arm"]),
        chunk_mae=arm.chunk_mae,
        first_mae=arm.first_mae,
        baselines=baselines,
        frames=len(arm),
        draws=int(arm.failed.size),
        failed=int(arm.failed.sum()),
        window=steps,
        units=str(run.attrs["action_units"]),
    )
