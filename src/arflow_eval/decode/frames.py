"""The decode of every family of policies: `decode=greedy` and `decode=draws` are its settings."""

import time
from collections.abc import Sequence

import numpy as np

from arflow_eval.contracts import (
    ChunkPolicy,
    FlowPolicy,
    FrameDraws,
    Observation,
    Policy,
    Sampling,
    TokenPolicy,
)
from arflow_eval.decode import solver as flow
from arflow_eval.decode import suffix


def decode(policy: Policy, observations: Sequence[Observation], how: Sampling) -> list[FrameDraws]:
    """Draws of each observation, in order, decoded together where the family can.

    A token policy needs `T` (0 is greedy), a flow policy `steps` and `solver`; a chunk policy
    is deterministic and takes neither. Raises TypeError where they do not fit.
    """
    if isinstance(policy, TokenPolicy) and how.T is not None:
        return suffix.decode_frames(policy, observations, how)
    if isinstance(policy, FlowPolicy) and how.steps is not None:
        return [
            flow.decode_frame(
                policy,
                seen,
                draws=how.draws,
                steps=how.steps,
                solver=how.solver,
                seed=how.seed,
                noise=how.noise,
                tickets=how.tickets,
                tile=how.tile,
                least=how.least,
            )
            for seen in observations
        ]
    if isinstance(policy, ChunkPolicy) and how.draws == 1:
        return [_whole_chunk(policy, seen) for seen in observations]
    raise TypeError(f"{type(policy).__name__} cannot be decoded with {how}")


def _whole_chunk(policy: ChunkPolicy, observation: Observation) -> FrameDraws:
    started = time.perf_counter()
    chunk = policy.predict(observation).astype(np.float32)
    return FrameDraws(
        prediction=chunk[None],
        logprob=np.full(1, np.nan),
        seconds={"draws": time.perf_counter() - started},
    )
