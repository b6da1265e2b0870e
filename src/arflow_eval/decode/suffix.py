"""What a token policy speaks after its prompt: auxiliary lines, then sampled action blocks.

The prompt and the lines are decoded once a frame and shared by all its draws; only the
action block is sampled. Rows are decoded in tiles of a fixed size, so a draw's bits do not
depend on how many others are asked for.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from arflow_eval import noise
from arflow_eval.contracts import FrameDraws, Observation, TokenPolicy
from arflow_eval.decode.tiles import tiles


def decode_frame(
    policy: TokenPolicy, observation: Observation, *, draws: int, temperature: float, seed: int
) -> FrameDraws:
    """All draws of one frame. At temperature 0 each is the greedy decode, ties to the lowest id."""
    started = time.perf_counter()
    cache = policy.prefill(observation)
    prefilled = time.perf_counter()
    lines = speak_lines(policy, cache)
    logits = policy.extend(cache, np.array([[policy.suffix.begin]]))[0]
    spoken = time.perf_counter()
    key = noise.stream_key("token", observation.frame, seed=seed)
    distinct = 1 if temperature == 0 else draws
    blocks: list[list[int]] = []
    logprob: list[float] = []
    for tile, kept in tiles(distinct):
        rows = policy.fork(cache, rows=len(tile))
        sampled = sample_blocks(policy, rows, logits, draws=tile, temperature=temperature, key=key)
        blocks += sampled[0][:kept]
        logprob += sampled[1][:kept].tolist()
    prediction = np.stack([_chunk(policy, observation, block) for block in blocks])
    prediction[~np.isfinite(logprob)] = np.nan  # a failed draw is never averaged in
    return FrameDraws(
        prediction=np.repeat(prediction, draws // distinct, axis=0),
        logprob=np.repeat(np.array(logprob), draws // distinct),
        lines=lines,
        seconds={
            "prefill": prefilled - started,
            "lines": spoken - prefilled,
            "draws": time.perf_counter() - spoken,
        },
    )


def speak_lines(policy: TokenPolicy, cache: Any) -> dict[str, str]:
    """Decode the auxiliary lines greedily into the cache; their texts by name.

    A line ends with the newline token, forced where its budget runs out.
    """
    suffix = policy.suffix
    logits = policy.extend(cache, np.array([suffix.opener]))
    texts: dict[str, str] = {}
    for line in suffix.lines:
        spoken: list[int] = []
        while len(spoken) < line.budget and (token := int(logits[0].argmax())) != suffix.newline:
            spoken.append(token)
            logits = policy.extend(cache, np.array([[token]]))
        logits = policy.extend(cache, np.array([[suffix.newline]]))
        texts[line.name] = policy.text(spoken)
    return texts


def sample_blocks(
    policy: TokenPolicy,
    cache: Any,
    logits: Float32[np.ndarray, "id"],
    *,
    draws: Int64[np.ndarray, "row"],
    temperature: float,
    key: int,
) -> tuple[list[list[int]], Float64[np.ndarray, "row"]]:
    """One action block a row of a forked cache, and its log-probability at T = 1, masked.

    `logits` follow the begin-of-actions marker and are the same for all rows. A row that is
    whole, or has failed, repeats its last token into the cache until the others are done.
    """
    grammar = policy.grammar
    blocks: list[list[int]] = [[] for _ in draws]
    states = [grammar.start] * len(draws)
    logprob = np.zeros(len(draws))
    scores = np.broadcast_to(logits[grammar.ids], (len(draws), len(grammar.ids)))
    active = list(range(len(draws)))
    for position in itertools.count():
        gumbel = (
            noise.gumbel(grammar.ids, key=key, draws=draws[active], position=position)
            if temperature > 0
            else np.zeros((len(active), len(grammar.ids)))
        )
        legal = np.stack([grammar.legal(states[row]) for row in active])
        chosen, gained = choose(scores[active], legal, gumbel, temperature=temperature)
        logprob[active] += gained
        for row, token in zip(active, grammar.ids[chosen].tolist(), strict=True):
            blocks[row].append(token)
            states[row] = grammar.advance(states[row], token)
        active = [
            row for row in active if states[row] != grammar.complete and np.isfinite(logprob[row])
        ]
        if not active:
            break
        last = np.array([[block[-1]] for block in blocks])
        scores = policy.extend(cache, last)[:, grammar.ids]
    return blocks, logprob


def choose(
    scores: Float32[np.ndarray, "row id"],
    legal: Bool[np.ndarray, "row id"],
    gumbel: Float64[np.ndarray, "row id"],
    *,
    temperature: float,
) -> tuple[Int64[np.ndarray, "row"], Float64[np.ndarray, "row"]]:
    """The one decision point of greedy and sampled decodes: one token's place in `scores` a row.

    argmax over legal tokens of scores / T + Gumbel noise (scores alone at T = 0), ties to
    the lowest id; and the chosen token's log-probability at T = 1 among the legal ones.
    The mask is applied after the noise, so that no noise can lift an illegal token. A row
    with a NaN among its legal scores gains NaN, which marks its draw as failed.
    """
    masked = np.where(legal, scores.astype(np.float64), -np.inf)
    below_peak = masked - masked.max(axis=1, keepdims=True)
    perturbed = below_peak
    if temperature > 0:
        # far below the peak may become -inf, and what the noise does to illegal tokens is masked
        with np.errstate(over="ignore", invalid="ignore"):
            perturbed = np.where(legal, below_peak / temperature + gumbel, -np.inf)
    chosen: Int64[np.ndarray, "row"] = perturbed.argmax(axis=1)
    total = np.log(np.exp(below_peak).sum(axis=1))
    gained: Float64[np.ndarray, "row"] = below_peak[np.arange(len(chosen)), chosen] - total
    return chosen, gained


def _chunk(
    policy: TokenPolicy, observation: Observation, block: Sequence[int]
) -> Float32[np.ndarray, "step action"]:
    """The block's chunk, or NaN where it is not one."""
    try:
        return policy.chunk(observation, block).astype(np.float32)
    except ValueError:
        return np.full((policy.horizon, policy.action_dim), np.nan, dtype=np.float32)
