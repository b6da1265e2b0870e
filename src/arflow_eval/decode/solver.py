"""Flow policies: integrate noise at t = 0 to a chunk at t = 1, one encode for all draws."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jaxtyping import Float32

from arflow_eval.contracts import FlowPolicy, FrameDraws, Observation
from arflow_eval.decode.tiles import padded
from arflow_eval.noise import flow_noise

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
    policy: FlowPolicy,
    observation: Observation,
    *,
    draws: int,
    steps: int,
    solver: str,
    seed: int,
    noise: str = "philox",
    tickets: Float32[np.ndarray, "draw step action"] | None = None,
    tile: int = 4,
    least: int = 1,
) -> FrameDraws:
    """All draws of one frame, integrated in one batch of whole tiles, `least` rows at least.

    Draw d starts from ticket d where there are `tickets` (`noise` and `seed` are then unused),
    and from the frame's own noise otherwise. A flow policy has no token log-probability, so it
    is NaN. An unknown `noise`, or fewer tickets than draws, raises ValueError.
    """
    started = time.perf_counter()
    context = policy.encode(observation)
    encoded = time.perf_counter()
    rows = padded(draws, tile=tile, least=least)
    if tickets is None:
        shape = (policy.horizon, policy.action_dim)
        start = flow_noise(noise, observation.frame, np.arange(rows), shape=shape, seed=seed)
    else:
        start = _dealt(tickets, draws=draws, rows=rows)
    chunks = SOLVERS[solver](policy, context, start, steps=steps)[:draws]
    integrated = time.perf_counter()
    prediction = policy.to_units(context, chunks).astype(np.float32)
    return FrameDraws(
        prediction=prediction,
        logprob=np.full(draws, np.nan),
        seconds={
            "prefill": encoded - started,
            "draws": integrated - encoded,
            "decode": time.perf_counter() - integrated,
        },
    )


def _dealt(tickets: Float32[np.ndarray, "draw step action"], *, draws: int, rows: int) -> Chunk:
    """Ticket d for draw d; the rows beyond repeat them and are cut afterwards."""
    if len(tickets) < draws:
        raise ValueError(f"{len(tickets)} tickets for {draws} draws; expected one a draw")
    start: Chunk = tickets[np.arange(rows) % draws]
    return start
