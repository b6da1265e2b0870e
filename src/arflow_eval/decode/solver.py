"""Flow policies: integrate noise at t = 0 to a chunk at t = 1, one encode for all draws."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jaxtyping import Float32

from arflow_eval import noise
from arflow_eval.contracts import FlowPolicy, FrameDraws, Observation
from arflow_eval.decode.tiles import tiles

Chunk = Float32[np.ndarray, "row step action"]


def euler(policy: FlowPolicy, context: Any, chunk: Chunk, *, steps: int) -> Chunk:
    """First-order steps: x += v(x, t) / steps."""
    for step in range(steps):
        chunk = chunk + policy.velocity(context, chunk, step / steps) / np.float32(steps)
    return chunk


def heun(policy: FlowPolicy, context: Any, chunk: Chunk, *, steps: int) -> Chunk:
    """Second-order steps: the mean of the velocities at both ends of each, two calls a step."""
    size = np.float32(1 / steps)
    for step in range(steps):
        before = policy.velocity(context, chunk, step / steps)
        after = policy.velocity(context, chunk + size * before, (step + 1) / steps)
        chunk = chunk + size * (before + after) / np.float32(2)
    return chunk


SOLVERS: Final[dict[str, Callable[..., Chunk]]] = {"euler": euler, "heun": heun}


def decode_frame(
    policy: FlowPolicy, observation: Observation, *, draws: int, steps: int, solver: str, seed: int
) -> FrameDraws:
    """All draws of one frame; a flow policy has no token log-probability, so it is NaN."""
    started = time.perf_counter()
    context = policy.encode(observation)
    encoded = time.perf_counter()
    key = noise.stream_key("flow", observation.frame, seed=seed)
    shape = (policy.horizon, policy.action_dim)
    chunks = [
        SOLVERS[solver](policy, context, noise.normal(shape, key=key, draws=tile), steps=steps)[
            :kept
        ]
        for tile, kept in tiles(draws)
    ]
    return FrameDraws(
        prediction=policy.to_units(context, np.concatenate(chunks)).astype(np.float32),
        logprob=np.full(draws, np.nan),
        seconds={"prefill": encoded - started, "draws": time.perf_counter() - encoded},
    )
