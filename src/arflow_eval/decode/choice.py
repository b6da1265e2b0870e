"""The one decision point of greedy and sampled decodes, and what is measured there."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64


@dataclass(frozen=True)
class Chosen:
    """One token a row, by its place in the scores, and what it was chosen among.

    Attributes:
        place: of the token.
        logprob: its log-probability at T = 1 among the legal tokens.
        sampling: the same at the sampling temperature; 0 at T = 0.
        entropy: of the legal tokens at T = 1, in nats.
        gap: log-probability of the likeliest token less that of the next; NaN where only one
            is legal.
        log_legal: log-sum-exp of the legal logits.
    """

    place: Int64[np.ndarray, "row"]
    logprob: Float64[np.ndarray, "row"]
    sampling: Float64[np.ndarray, "row"]
    entropy: Float64[np.ndarray, "row"]
    gap: Float64[np.ndarray, "row"]
    log_legal: Float64[np.ndarray, "row"]


def choose(
    logits: Float32[np.ndarray, "row id"],
    legal: Bool[np.ndarray, "row id"],
    gumbel: Float64[np.ndarray, "row id"] | None,
    *,
    temperature: Float64[np.ndarray, "row"],
) -> Chosen:
    """Argmax over legal tokens of logits / T + Gumbel noise, ties to the lowest id.

    At T = 0 (where `gumbel` may be None) it is the argmax of the logits. The mask is applied
    after the noise, so that no noise can lift an illegal token. A row with a NaN among its
    legal logits gains NaN, which marks its draw as failed.
    """
    rows = np.arange(len(logits))
    masked = np.where(legal, logits.astype(np.float64), -np.inf)
    peak = masked.max(axis=1, keepdims=True)
    below = masked - peak
    warm = temperature > 0
    divisor = np.where(warm, temperature, 1)[:, None]
    # far below the peak may become -inf, and what the noise does to illegal tokens is masked
    with np.errstate(over="ignore", invalid="ignore"):
        cooled = below if (divisor == 1).all() else below / divisor
        noisy = cooled if gumbel is None else np.where(warm[:, None], cooled + gumbel, below)
        perturbed = np.where(legal, noisy, -np.inf)
    place: Int64[np.ndarray, "row"] = perturbed.argmax(axis=1)
    weights = np.exp(below)
    mass = weights.sum(axis=1)
    log_mass = np.log(mass)
    at_one = below[rows, place] - log_mass
    at_temperature = at_one
    if cooled is not below:
        at_temperature = cooled[rows, place] - np.log(np.exp(cooled).sum(axis=1))
    # p log p, where an illegal token's 0 x -inf counts 0
    spread = (weights * np.where(legal, below, 0)).sum(axis=1) / mass
    return Chosen(
        place=place,
        logprob=at_one,
        sampling=np.where(warm, at_temperature, at_one * 0),
        entropy=log_mass - spread,
        gap=_gap(below),
        log_legal=peak[:, 0] + log_mass,
    )


def _gap(below: Float64[np.ndarray, "row id"]) -> Float64[np.ndarray, "row"]:
    rows = np.arange(len(below))
    rest = below.copy()
    rest[rows, below.argmax(axis=1)] = -np.inf
    second = rest.max(axis=1)
    gap: Float64[np.ndarray, "row"] = np.where(np.isneginf(second), np.nan, -second)
    return gap
