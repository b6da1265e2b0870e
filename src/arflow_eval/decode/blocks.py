"""Action blocks: sampled under the grammar, all draws of all frames of a batch in step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped

from arflow_eval import noise
from arflow_eval.contracts import FrameId, Grammar, Sampling, TokenPolicy
from arflow_eval.decode.choice import Chosen, choose
from arflow_eval.decode.tiles import padded

UNUSED: Final = -1  # marks positions past a block's end


@dataclass(frozen=True)
class Blocks:
    """One frame's action blocks, one a draw, and what is recorded of each.

    `logprob` is summed over the block, at T = 1 among the legal tokens; NaN marks a failed draw.
    """

    tokens: list[list[int]]
    logprob: Float64[np.ndarray, "draw"]
    measures: Mapping[str, Shaped[np.ndarray, "draw ..."]]


def sample(
    policy: TokenPolicy, prefixes: Sequence[Any], frames: Sequence[FrameId], how: Sampling
) -> list[Blocks]:
    """The blocks of each frame, from prefixes that end before the begin-of-actions marker.

    At T = 0 one draw is decoded. Row f x each + d is draw d of frame f; the others idle.
    """
    draws = distinct(how)
    each = padded(draws, tile=how.tile)
    total = max(each * max(len(frames), how.frames or 0), how.least)
    rows = policy.rows(prefixes, each=each, total=total)
    real = (each * np.arange(len(frames))[:, None] + np.arange(draws)).ravel()
    record = _Record(policy.grammar, rows=len(real), how=how)
    gumbel = None
    if how.T != 0:
        gumbel = noise.token_noise(
            how.noise,
            [frame for frame in frames for _ in range(draws)],
            np.tile(np.arange(draws), len(frames)),
            ids=policy.grammar.ids,
            vocabulary=policy.vocabulary,
            seed=how.seed,
        )
    fed = np.full((total, 1), policy.suffix.begin)
    while record.active.any():
        scores = policy.extend(rows, fed, actions=True, total=how.mass)
        mass = None if scores.total is None else scores.total[real, 0]
        record.step(scores.logits[real, 0], mass, gumbel and gumbel(record.position))
        fed[real, 0] = record.last
    return [record.blocks(slice(first, first + draws)) for first in range(0, len(real), draws)]


def distinct(how: Sampling) -> int:
    """How many draws of a frame can differ."""
    return 1 if how.T == 0 else how.draws


def temperatures(
    states: Int64[np.ndarray, "row"], grammar: Grammar, how: Sampling
) -> Float64[np.ndarray, "row"]:
    """The temperature of each row: `T`, or on the line from `T` to `final` along the block."""
    start = float(how.T or 0)
    final = start if how.final is None else how.final
    there = grammar.progress[states]
    warmth: Float64[np.ndarray, "row"] = start * (1 - there) + final * there
    return warmth


class _Record:
    """The rows' states and all that is recorded of them, one column a position."""

    def __init__(self, grammar: Grammar, *, rows: int, how: Sampling) -> None:
        shape = (rows, grammar.longest)
        self._grammar, self._how = grammar, how
        self._states = np.full(rows, grammar.start)
        self.active = np.ones(rows, dtype=bool)
        self.position = 0
        self.last = np.zeros(rows, dtype=np.int64)
        self._tokens = np.full(shape, UNUSED, dtype=np.int64)
        self._columns = {
            name: np.full(shape, np.nan) for name in ("logprob", "sampling", "entropy", "gap")
        } | ({"mass": np.full(shape, np.nan)} if how.mass else {})

    def step(
        self,
        logits: Float32[np.ndarray, "row id"],
        total: Float32[np.ndarray, "row"] | None,
        gumbel: Float64[np.ndarray, "row id"] | None,
    ) -> None:
        """Choose one token in every row that is not done, and book it."""
        rows, grammar = np.flatnonzero(self.active), self._grammar
        states = self._states[rows]
        chosen = choose(
            logits[rows],
            grammar.legal[states],
            None if gumbel is None else gumbel[rows],
            temperature=temperatures(states, grammar, self._how),
        )
        self.last[rows] = self._tokens[rows, self.position] = grammar.ids[chosen.place]
        self._book(rows, chosen, None if total is None else total[rows])
        self._states[rows] = grammar.following[states, chosen.place]
        done = (self._states[rows] == grammar.complete) | ~np.isfinite(chosen.logprob)
        self.active[rows[done]] = False
        self.position += 1

    def _book(
        self,
        rows: Int64[np.ndarray, "row"],
        chosen: Chosen,
        total: Float32[np.ndarray, "row"] | None,
    ) -> None:
        for name in ("logprob", "sampling", "entropy", "gap"):
            self._columns[name][rows, self.position] = getattr(chosen, name)
        if total is not None:
            self._columns["mass"][rows, self.position] = np.exp(chosen.log_legal - total)

    def blocks(self, rows: slice) -> Blocks:
        """What is recorded of one frame's rows."""
        tokens = self._tokens[rows]
        length = (tokens != UNUSED).sum(axis=1)
        spoken = np.arange(tokens.shape[1]) < length[:, None]
        columns = {name: values[rows] for name, values in self._columns.items()}
        logprob = columns["logprob"].sum(axis=1, where=spoken)
        failed = ~np.isfinite(logprob)
        measures: dict[str, Shaped[np.ndarray, "draw ..."]] = {
            "logprob_sampling": columns["sampling"].sum(axis=1, where=spoken),
            "entropy": columns["entropy"].sum(axis=1, where=spoken),
            "top1_gap": _mean(columns["gap"], np.isfinite(columns["gap"])),
            "block_length": length.astype(np.int32),
        }
        if self._how.mass:
            measures["grammar_mass"] = _mean(columns["mass"], spoken)
        if self._how.tokens:
            measures["tokens"] = tokens.astype(np.int32)
            measures["token_logprob"] = columns["logprob"].astype(np.float32)
        for name, values in measures.items():
            if values.dtype.kind == "f" and name != "token_logprob":
                values[failed] = np.nan
        return Blocks(
            tokens=[row[:count].tolist() for row, count in zip(tokens, length, strict=True)],
            logprob=logprob,
            measures=measures,
        )


def _mean(
    values: Float64[np.ndarray, "draw position"], counted: Shaped[np.ndarray, "draw position"]
) -> Float64[np.ndarray, "draw"]:
    """Mean over the counted positions; NaN where there are none."""
    count = counted.sum(axis=1)
    total = values.sum(axis=1, where=counted)
    mean: Float64[np.ndarray, "draw"] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean
