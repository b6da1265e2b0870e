"""The start-up probe: do rows keep their bits in any company, and what does a step cost?

A row is decoded a few positions in a larger batch, alone with its frame, in another order and
among fewer, over tokens that are fixed for it. What differs is measured.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float32

from arflow_eval import noise
from arflow_eval.contracts import FlowPolicy, Observation, Policy, Sampling, TokenPolicy
from arflow_eval.decode.blocks import distinct
from arflow_eval.decode.tiles import padded

POSITIONS: Final = 4
Rows = list[tuple[int, int]]  # (frame, draw) of each row that counts
Answer = Float32[np.ndarray, "row ..."]


@dataclass(frozen=True)
class Probe:
    """What a probe found.

    Attributes:
        differing: groupings in which a row's bits differ from those of the whole batch.
        flips: expected share of tokens that would be drawn otherwise in the worst of them,
            (1 / 2T) sum p_i p_j |delta_i - delta_j|; None at T = 0 and for a flow policy.
        first: median seconds of a decode step with one draw of a frame.
        every: the same with all its draws.
    """

    differing: tuple[str, ...]
    flips: float | None
    first: float
    every: float


def probe(policy: Policy, observations: Sequence[Observation], how: Sampling) -> Probe | None:
    """Probe a policy on a frame or two; None for one that has no draws."""
    draws = distinct(how)
    if isinstance(policy, TokenPolicy):
        prefixes = [policy.prefill(seen) for seen in observations]
        ask: Callable[..., tuple[Answer, float]] = _Tokens(policy, prefixes, how)
    elif isinstance(policy, FlowPolicy):
        ask = _Velocities(policy, observations, how)
    else:
        return None
    whole = [(frame, draw) for frame in range(len(observations)) for draw in range(draws)]
    groupings: Mapping[str, Rows] = {
        "alone": [(0, draw) for draw in range(draws)],
        "in another order": whole[::-1],
        "among fewer": [(0, draw) for draw in range(0, draws, 2)],
    }
    together, _ = ask(whole, idle=how.least if how.least > 1 else 0)  # in a larger batch yet
    place = {row: number for number, row in enumerate(whole)}
    differing, flips = [], []
    for name, rows in groupings.items():
        apart, _ = ask(rows)
        same = together[[place[row] for row in rows]]
        if not np.array_equal(apart, same):
            differing.append(name)
        if isinstance(policy, TokenPolicy) and how.T:
            flips.append(expected_flips(same, apart, temperature=how.T))
    return Probe(
        differing=tuple(differing),
        flips=max(flips) if flips else None,
        first=_median_seconds(ask, [(0, 0)]),
        every=_median_seconds(ask, groupings["alone"]),
    )


def expected_flips(
    one: Float32[np.ndarray, "row position id"],
    other: Float32[np.ndarray, "row position id"],
    *,
    temperature: float,
) -> float:
    """Expected share of tokens that two arrays of logits draw differently from one noise.

    To first order in their difference delta: (1 / 2T) sum_ij p_i p_j |delta_i - delta_j|.
    """
    logits = one.astype(np.float64).reshape(-1, one.shape[-1])
    delta = other.astype(np.float64).reshape(logits.shape) - logits
    weights = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    order = delta.argsort(axis=1)
    delta, weights = (np.take_along_axis(each, order, axis=1) for each in (delta, weights))
    below = np.cumsum(weights, axis=1)[:, :-1]  # sum_ij p_i p_j |d_i - d_j| = 2 sum F (1 - F) gap
    pairs = 2 * (below * (1 - below) * np.diff(delta, axis=1)).sum(axis=1)
    return float(pairs.mean() / (2 * temperature))


def _median_seconds(ask: Callable[..., tuple[Answer, float]], rows: Rows) -> float:
    return float(np.median([ask(rows)[1] for _ in range(3)]))


@dataclass(frozen=True)
class _Tokens:
    """Logits of a token policy after tokens that are fixed for each row."""

    policy: TokenPolicy
    prefixes: Sequence[Any]
    how: Sampling

    def __call__(self, rows: Rows, *, idle: int = 0) -> tuple[Answer, float]:
        """Logits [row position id] of some rows, and the seconds of the last position."""
        frames = sorted({frame for frame, _ in rows}, key=[frame for frame, _ in rows].index)
        per_frame = {frame: [row for row in rows if row[0] == frame] for frame in frames}
        each = padded(max(map(len, per_frame.values())), tile=self.how.tile)
        total = max(each * max(len(frames), self.how.frames or 0), self.how.least) + idle
        cache = self.policy.rows([self.prefixes[frame] for frame in frames], each=each, total=total)
        place = {
            row: each * number + draw
            for number, frame in enumerate(frames)
            for draw, row in enumerate(per_frame[frame])
        }
        mine = [place[row] for row in rows]
        found, seconds = [], 0.0
        legal = self.policy.grammar.ids[self.policy.grammar.legal[self.policy.grammar.start]]
        for position in range(POSITIONS):
            fed = np.full((total, 1), self.policy.suffix.begin)
            if position:
                fed[mine, 0] = [legal[(7 * f + 3 * d + position) % len(legal)] for f, d in rows]
            started = time.perf_counter()
            found.append(self.policy.extend(cache, fed, actions=True).logits[mine, 0])
            seconds = time.perf_counter() - started
        return np.stack(found, axis=1), seconds


@dataclass(frozen=True)
class _Velocities:
    """Velocities of a flow policy at each row's own noise."""

    policy: FlowPolicy
    observations: Sequence[Observation]
    how: Sampling

    def __call__(self, rows: Rows, *, idle: int = 0) -> tuple[Answer, float]:
        """Velocities [row step action] of some rows, and the seconds of a frame's call."""
        shape = (self.policy.horizon, self.policy.action_dim)
        found: dict[tuple[int, int], Any] = {}
        seconds = 0.0
        for frame in dict(rows):
            seen, mine = self.observations[frame], [draw for f, draw in rows if f == frame]
            points = noise.flow_noise(
                self.how.noise, seen.frame, np.array(mine), shape=shape, seed=self.how.seed
            )
            tile, least = self.how.tile, self.how.least
            spare = padded(len(mine), tile=tile, least=least) - len(mine) + idle
            points = np.concatenate([points, np.zeros((spare, *shape), np.float32)])
            context = self.policy.encode(seen)
            started = time.perf_counter()
            moved = self.policy.velocity(context, points, 0.5)
            seconds = time.perf_counter() - started
            found |= {(frame, draw): moved[place] for place, draw in enumerate(mine)}
        return np.stack([found[row] for row in rows]), seconds
