"""Condition-masked reference scoring: how much a condition decided each draw.

One teacher-forced forward over all draws, after the prompt with the condition and after the one
with it masked, so that their difference is the condition's and not the arithmetic's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

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
    total = padded(1, tile=how.tile, least=how.least)
    rows = policy.rows([masked], each=1, total=total)
    policy.extend(rows, np.tile(np.array(said), (total, 1)), actions=True)
    (other,) = policy.grown(rows, lengths=[len(said)])
    given, without = _logprobs(policy, [prefix, other], blocks, how)
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


def _logprobs(
    policy: TokenPolicy, prefixes: Sequence[Any], blocks: Blocks, how: Sampling
) -> list[LogProb]:
    """Log-probabilities of the legal tokens at every position of every draw, after each prefix.

    All prefixes and draws in one forward.
    """
    grammar = policy.grammar
    places = _places(policy, blocks)
    each = padded(distinct(how), tile=how.tile, least=how.least)
    fed = np.full((each, places.shape[1]), policy.suffix.begin)
    fed[: len(places), 1:] = grammar.ids[places[:, :-1].clip(0)]
    total = each * len(prefixes)
    rows = policy.rows(prefixes, each=each, total=total)
    logits = policy.extend(rows, np.tile(fed, (len(prefixes), 1)), actions=True, last=False).logits
    legal = grammar.legal[_states(policy, places)] & (places[..., None] >= 0)
    return [
        _normalised(logits[first : first + len(places)], legal) for first in range(0, total, each)
    ]


def _normalised(
    logits: Float32[np.ndarray, "draw position id"], legal: Bool[np.ndarray, "draw position id"]
) -> LogProb:
    """Logits as log-probabilities among the legal ids; -inf elsewhere and past a block's end."""
    masked = np.where(legal, logits.astype(np.float64), -np.inf)
    with np.errstate(invalid="ignore"):  # past a block's end nothing is legal
        below = masked - masked.max(axis=2, keepdims=True)
        logprob: LogProb = below - np.log(np.exp(below).sum(axis=2, keepdims=True))
    return np.where(legal, logprob, -np.inf)


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
