"""Condition-masked reference scoring: how much a condition decided each draw.

Two teacher-forced forwards over all draws, with the condition and with it masked, in one
kernel, so that their difference is the condition's and not the arithmetic's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from arflow_eval.contracts import Observation, Sampling, TokenPolicy
from arflow_eval.decode.blocks import Blocks, distinct
from arflow_eval.decode.tiles import padded

LogProb = Float64[np.ndarray, "draw position id"]


def compare(
    policy: TokenPolicy,
    observation: Observation,
    prefix: Any,
    said: Sequence[int],
    blocks: Blocks,
    *,
    how: Sampling,
) -> Mapping[str, Shaped[np.ndarray, "draw"]]:
    """`reference_kl` and `reference_log_ratio` of one frame's draws, in nats.

    With p given the condition and q with it masked, both at T = 1 among the legal tokens and
    after the draw's own tokens: KL = sum over positions of KL(p || q), log-ratio = sum of
    log p - log q of the drawn tokens. The masked prompt is followed by `said`: the lines that
    the unmasked one spoke, without a line that is itself the condition.
    """
    masked = policy.prefill(observation, masked=how.reference)
    total = padded(1, tile=how.tile)
    rows = policy.rows([masked], each=1, total=total)
    policy.extend(rows, np.tile(np.array(said), (total, 1)), actions=False)
    (other,) = policy.grown(rows, lengths=[len(said)])
    given, without = (_logprob(policy, each, blocks, how) for each in (prefix, other))
    with np.errstate(invalid="ignore"):  # illegal tokens are -inf in both
        difference = np.where(np.isneginf(given), 0, given - without)
    places = _places(policy, blocks)
    ratio = np.take_along_axis(difference, places[..., None].clip(0), axis=2)[..., 0]
    divergence = (np.exp(given) * difference).sum(axis=2)
    failed = ~np.isfinite(blocks.logprob)
    found = {
        "reference_kl": divergence.sum(axis=1, where=places >= 0),
        "reference_log_ratio": ratio.sum(axis=1, where=places >= 0),
    }
    return {name: np.where(failed, np.nan, values) for name, values in found.items()}


def _logprob(policy: TokenPolicy, prefix: Any, blocks: Blocks, how: Sampling) -> LogProb:
    """Log-probabilities of the legal tokens at every position of every draw, in one forward."""
    grammar = policy.grammar
    places = _places(policy, blocks)
    total = padded(distinct(how), tile=how.tile)
    fed = np.full((total, places.shape[1]), policy.suffix.begin)
    fed[: len(places), 1:] = grammar.ids[places[:, :-1].clip(0)]
    rows = policy.rows([prefix], each=total, total=total)
    logits = policy.extend(rows, fed, actions=True, last=False).logits[: len(places)]
    masked = np.where(grammar.legal[_states(policy, places)], logits.astype(np.float64), -np.inf)
    with np.errstate(invalid="ignore"):  # past a block's end nothing is legal
        below = masked - masked.max(axis=2, keepdims=True)
        logprob: LogProb = below - np.log(np.exp(below).sum(axis=2, keepdims=True))
    return np.where(places[..., None] >= 0, logprob, -np.inf)


def _places(policy: TokenPolicy, blocks: Blocks) -> Int64[np.ndarray, "draw position"]:
    """Where each token stands among the grammar's ids; -1 past a block's end."""
    longest = max(map(len, blocks.tokens))
    places = np.full((len(blocks.tokens), longest), -1)
    for draw, tokens in enumerate(blocks.tokens):
        places[draw, : len(tokens)] = np.searchsorted(policy.grammar.ids, tokens)
    return places


def _states(
    policy: TokenPolicy, places: Int64[np.ndarray, "draw position"]
) -> Int64[np.ndarray, "draw position"]:
    """The grammar's state before each token; the last one stays where a block has ended."""
    states = np.full(places.shape, policy.grammar.start)
    for position in range(places.shape[1] - 1):
        now, place = states[:, position], places[:, position]
        after = policy.grammar.following[now, place.clip(0)]
        states[:, position + 1] = np.where(place >= 0, after, now)
    return states
