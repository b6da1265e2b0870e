"""Policies without weights: what any learnt policy must beat.

Each loader is named by a configuration in conf/model; the first two are columns of every
store as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32

from arflow_eval import refusal
from arflow_eval.contracts import Observation, Space

Rule = Callable[[Observation, int], Float32[np.ndarray, "step action"]]

VELOCITY_FRAMES: Final = 10


@dataclass(frozen=True)
class Baseline:
    """A rule from an observation and a horizon to a chunk."""

    rule: Rule
    horizon: int
    action_dim: int

    def predict(self, observation: Observation) -> Float32[np.ndarray, "step action"]:
        """The rule's chunk, in raw units."""
        return self.rule(observation, self.horizon)


def hold_state(observation: Observation, steps: int) -> Float32[np.ndarray, "step action"]:
    """The present state at every step."""
    return _held(observation.state, steps)


def hold_state_norm(observation: Observation, steps: int) -> Float32[np.ndarray, "step action"]:
    """mean_a + std_a * (s - mean_s) / std_s at every step; a constant state gives mean_a."""
    table = observation.statistics
    spread = np.where(table.state_std == 0, 1, table.state_std)
    score = np.where(table.state_std == 0, 0, (observation.state - table.state_mean) / spread)
    return _held((table.action_mean + table.action_std * score).astype(np.float32), steps)


def hold_action(observation: Observation, steps: int) -> Float32[np.ndarray, "step action"]:
    """The last action commanded before the frame; an episode's first frame has only its state."""
    earlier = observation.actions
    return _held(earlier[-1] if len(earlier) else observation.state, steps)


def carry_velocity(observation: Observation, steps: int) -> Float32[np.ndarray, "step action"]:
    """On from the present state at its mean velocity over ten frames, for ten steps, then held."""
    past = observation.states[-(VELOCITY_FRAMES + 1) :]
    velocity = (past[-1] - past[0]) / np.float32(max(len(past) - 1, 1))
    ahead = np.minimum(np.arange(1, steps + 1), VELOCITY_FRAMES).astype(np.float32)
    chunk: Float32[np.ndarray, "step action"] = observation.state + ahead[:, None] * velocity
    return chunk


def _held(row: Float32[np.ndarray, "action"], steps: int) -> Float32[np.ndarray, "step action"]:
    return np.repeat(row[None], steps, axis=0)


def _loader(rule: Rule, *, same_units: bool) -> Callable[..., Baseline]:
    """A `load` as every model has one; a rule that makes actions of states needs as many."""

    def load(
        *, folder: Path | None, dtype: str, device: str, threads: int, steps: int, space: Space
    ) -> Baseline:
        del folder, dtype, device, threads  # nothing to load, nothing to compute with
        as_many = len(space.state_names) == len(space.action_names)
        if not (space.shared if same_units else as_many):
            raise refusal.guard(
                f"{len(space.state_names)} states in {space.state_units}, "
                f"{len(space.action_names)} actions in {space.action_units}",
                expected="as many of both" + (", in the same units" if same_units else ""),
                remedy="choose a baseline that does not hold the state",
            )
        return Baseline(rule=rule, horizon=steps, action_dim=len(space.action_names))

    return load


state_copy: Final = _loader(hold_state, same_units=True)
state_copy_norm: Final = _loader(hold_state_norm, same_units=False)
hold_last: Final = _loader(hold_action, same_units=True)
constant_velocity: Final = _loader(carry_velocity, same_units=True)
