"""What a token policy speaks after its prompt: auxiliary lines, then sampled action blocks.

Every frame is prefilled alone, at its exact length. Lines are decoded once a frame, the frames
of a batch in step; action blocks as rows = frames x draws over the frames' prefixes.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from arflow_eval.contracts import FrameDraws, Observation, Sampling, TokenPolicy
from arflow_eval.decode import blocks, lines, reference


def decode_frames(
    policy: TokenPolicy, observations: Sequence[Observation], how: Sampling
) -> list[FrameDraws]:
    """All draws of some frames. At temperature 0 each is the greedy decode."""
    if how.T is None:
        raise TypeError("a token policy is decoded at a temperature")
    clock = _Clock(len(observations))
    prompts = []
    for frame, seen in enumerate(observations):
        prompts.append(policy.prefill(seen))
        clock.stop("prefill", frame=frame)
    spoken = lines.speak(policy, prompts, how)
    prefixes = policy.grown(spoken.rows, lengths=[len(each) for each in spoken.tokens])
    clock.stop("lines")
    sampled = blocks.sample(policy, prefixes, [seen.frame for seen in observations], how)
    clock.stop("draws")
    found = []
    for frame, seen in enumerate(observations):
        mine = sampled[frame]
        prediction = np.stack([_chunk(policy, seen, block) for block in mine.tokens])
        prediction[~np.isfinite(mine.logprob)] = np.nan  # a failed draw is never averaged in
        clock.stop("decode", frame=frame)
        measures = dict(mine.measures)
        if how.reference is not None:
            said = spoken.without(how.reference, frame=frame)
            measures |= reference.compare(policy, seen, prefixes[frame], said, mine, how=how)
            clock.stop("reference", frame=frame)
        found.append(
            FrameDraws(
                prediction=_repeated(prediction, how.draws),
                logprob=_repeated(mine.logprob, how.draws),
                measures={name: _repeated(each, how.draws) for name, each in measures.items()},
                lines=spoken.texts[frame],
                seconds=clock.seconds[frame],
            )
        )
    return found


def _repeated(values: Any, draws: int) -> Any:
    """At T = 0 one draw is decoded and stands for all."""
    return np.repeat(values, draws // len(values), axis=0)


def _chunk(
    policy: TokenPolicy, observation: Observation, block: Sequence[int]
) -> Float32[np.ndarray, "step action"]:
    """The block's chunk, or NaN where it is not one."""
    try:
        return policy.chunk(observation, block).astype(np.float32)
    except ValueError:
        return np.full((policy.horizon, policy.action_dim), np.nan, dtype=np.float32)


class _Clock:
    """Seconds by part, for each frame of a batch; what a batch does together is shared out."""

    def __init__(self, frames: int) -> None:
        self.seconds: list[dict[str, float]] = [{} for _ in range(frames)]
        self._last = time.perf_counter()

    def stop(self, part: str, *, frame: int | None = None) -> None:
        """Book the time since the last stop to a part of one frame, or of all alike."""
        now = time.perf_counter()
        chosen = self.seconds if frame is None else [self.seconds[frame]]
        for seconds in chosen:
            seconds[part] = seconds.get(part, 0.0) + (now - self._last) / len(chosen)
        self._last = now
