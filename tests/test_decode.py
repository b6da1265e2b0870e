"""Decodes on policies small enough to know their every probability."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from arflow_eval.contracts import FrameDraws, FrameId, Line, Observation, Statistics, Suffix
from arflow_eval.decode import solver, suffix
from arflow_eval.decode.frames import decode
from arflow_eval.decode.grammar import SymbolBudget

OPEN, NEWLINE, BEGIN, WORD = 0, 1, 2, 3
FIRST_ACTION = 4


def observation(episode: int = 0, frame: int = 0) -> Observation:
    one = np.ones(1)
    return Observation(
        frame=FrameId("a/b", episode, frame),
        index=0,
        task="t",
        states=np.zeros((1, 1), dtype=np.float32),
        actions=np.zeros((0, 1), dtype=np.float32),
        statistics=Statistics(one, one, one, one),
    )


@dataclass(frozen=True)
class Speaker:
    """A token policy over four coefficients; its logits depend on the last token and length."""

    lengths: tuple[int, ...] = (1, 1, 2, 3)
    horizon: int = 4
    action_dim: int = 1
    line_budget: int = 3
    talkative: bool = False
    spoken: list[np.ndarray] = field(default_factory=list)

    @property
    def suffix(self) -> Suffix:
        return Suffix((OPEN,), (Line("progress", self.line_budget),), NEWLINE, BEGIN)

    @property
    def grammar(self) -> SymbolBudget:
        ids = FIRST_ACTION + np.arange(len(self.lengths))
        return SymbolBudget(ids=ids, lengths=np.array(self.lengths), start=4)

    def prefill(self, observation: Observation) -> list[np.ndarray]:
        return [np.array([[observation.frame.frame_index]])]

    def fork(self, cache: Any, *, rows: int) -> Any:
        return [np.repeat(tokens, rows, axis=0) for tokens in cache]

    def extend(self, cache: Any, tokens: np.ndarray) -> np.ndarray:
        cache.append(tokens)
        self.spoken.append(tokens)
        length = sum(part.shape[1] for part in cache)
        ids = np.arange(FIRST_ACTION + len(self.lengths))
        logits = np.sin(1.7 * ids[None] + 0.9 * tokens[:, -1:] + length).astype(np.float32)
        logits[:, NEWLINE] = -9 if self.talkative else 9
        return logits

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def chunk(self, observation: Observation, tokens: Sequence[int]) -> np.ndarray:
        symbols = [t for t in tokens for _ in range(self.lengths[t - FIRST_ACTION])]
        if len(symbols) != 4:
            raise ValueError("not a whole chunk")
        return np.array(symbols, dtype=float)[:, None] + observation.frame.frame_index


def drawn(
    policy: Speaker, seen: Observation, *, draws: int, temperature: float, seed: int = 0
) -> FrameDraws:
    return suffix.decode_frame(policy, seen, draws=draws, temperature=temperature, seed=seed)


def test_temperature_zero_is_the_greedy_decode_for_every_draw() -> None:
    greedy = drawn(Speaker(), observation(), draws=1, temperature=0.0)
    ten = drawn(Speaker(), observation(), draws=10, temperature=0.0)
    assert (ten.prediction == greedy.prediction).all()
    assert (ten.logprob == greedy.logprob).all()


def test_ties_go_to_the_lowest_id() -> None:
    scores = np.array([[1.0, 3.0, 3.0]], dtype=np.float32)
    legal = np.ones((1, 3), dtype=bool)
    chosen, gained = suffix.choose(scores, legal, np.zeros((1, 3)), temperature=0.0)
    assert chosen.tolist() == [1]
    assert gained[0] == pytest.approx(3 - np.log(np.exp(scores[0].astype(float)).sum()))


def test_no_noise_lifts_an_illegal_token() -> None:
    scores = np.zeros((1, 2), dtype=np.float32)
    legal = np.array([[True, False]])
    chosen, gained = suffix.choose(scores, legal, np.array([[-50.0, np.inf]]), temperature=1.0)
    assert chosen.tolist() == [0]
    assert gained[0] == 0


@pytest.mark.parametrize("draws", [1, 3, 16, 17])
def test_a_draw_is_the_same_however_many_are_asked_for(draws: int) -> None:
    few = drawn(Speaker(), observation(), draws=draws, temperature=1.0)
    many = drawn(Speaker(), observation(), draws=40, temperature=1.0)
    assert (few.prediction == many.prediction[:draws]).all()
    assert (few.logprob == many.logprob[:draws]).all()


@dataclass(frozen=True)
class Broken(Speaker):
    """Its second action token has logits that are not numbers, in every second row."""

    def extend(self, cache: Any, tokens: np.ndarray) -> np.ndarray:
        logits = super().extend(cache, tokens)
        if len(tokens) > 1:
            logits[1::2] = np.nan
        return logits


def test_a_draw_with_logits_that_are_no_numbers_fails_and_the_others_stand() -> None:
    found = drawn(Broken(), observation(), draws=6, temperature=1.0)
    whole = drawn(Speaker(), observation(), draws=6, temperature=1.0)
    assert np.isnan(found.prediction[1::2]).all()
    assert (found.prediction[::2] == whole.prediction[::2]).all()


@pytest.mark.parametrize("temperature", [1e-310, 1e-30, 1e-6])
def test_a_vanishing_temperature_is_the_greedy_decode(temperature: float) -> None:
    greedy = drawn(Speaker(), observation(), draws=5, temperature=0.0)
    cold = drawn(Speaker(), observation(), draws=5, temperature=temperature)
    assert (cold.prediction == greedy.prediction).all()


def test_draws_depend_on_frame_and_seed() -> None:
    here = drawn(Speaker(), observation(episode=1), draws=20, temperature=1.0)
    there = drawn(Speaker(), observation(episode=2), draws=20, temperature=1.0)
    other = drawn(Speaker(), observation(episode=1), draws=20, temperature=1.0, seed=1)
    assert (here.prediction != there.prediction).any()
    assert (here.prediction != other.prediction).any()


def test_every_block_spends_the_budget_exactly() -> None:
    found = drawn(Speaker(), observation(), draws=64, temperature=5.0)
    assert np.isfinite(found.prediction).all()
    assert len(np.unique(found.prediction, axis=0)) > 5


def test_draws_follow_the_policys_own_distribution() -> None:
    found = drawn(Speaker(), observation(), draws=4000, temperature=1.0)
    blocks, counts = np.unique(found.prediction[:, :, 0], axis=0, return_counts=True)
    for block, count in zip(blocks, counts, strict=True):
        rows = (found.prediction[:, :, 0] == block).all(axis=1)
        # two blocks may spell the same chunk, so their probabilities add up
        share = sum(np.exp(value) for value in np.unique(found.logprob[rows].round(9)))
        assert abs(count / 4000 - share) < 4 * np.sqrt(share / 4000) + 1e-3


def test_logprob_is_at_temperature_one_whatever_the_sampling_temperature() -> None:
    cool = drawn(Speaker(), observation(), draws=200, temperature=0.3)
    warm = drawn(Speaker(), observation(), draws=200, temperature=1.0)
    known = {chunk.tobytes(): p for chunk, p in zip(warm.prediction, warm.logprob, strict=True)}
    shared = [
        (known[chunk.tobytes()], p)
        for chunk, p in zip(cool.prediction, cool.logprob, strict=True)
        if chunk.tobytes() in known
    ]
    assert shared
    assert all(a == pytest.approx(b) for a, b in shared)


def test_lines_are_spoken_once_for_all_draws_and_end_with_the_newline() -> None:
    policy = Speaker()
    drawn(policy, observation(), draws=16, temperature=1.0)
    prefix = [tokens for tokens in policy.spoken if len(tokens) == 1]
    assert [tokens.tolist() for tokens in prefix] == [[[OPEN]], [[NEWLINE]], [[BEGIN]]]


def test_a_talkative_line_is_cut_at_its_budget() -> None:
    found = drawn(Speaker(talkative=True), observation(), draws=1, temperature=0.0)
    assert len(found.lines["progress"].split()) == 3


@dataclass(frozen=True)
class Drift:
    """A flow policy whose velocity is known: toward the target along a straight line."""

    horizon: int = 5
    action_dim: int = 2
    target: float = 3.0

    def encode(self, observation: Observation) -> float:
        return self.target + observation.frame.frame_index

    def velocity(self, context: float, chunk: np.ndarray, time: float) -> np.ndarray:
        return ((context - chunk) / max(1 - time, 1e-6)).astype(np.float32)

    def to_units(self, context: float, chunk: np.ndarray) -> np.ndarray:
        return chunk * 10 + 0 * context


@dataclass(frozen=True)
class Decay(Drift):
    """dx/dt = -x: the exact end is x0 / e."""

    def velocity(self, context: float, chunk: np.ndarray, time: float) -> np.ndarray:
        del context, time
        return -chunk


def test_euler_follows_a_straight_path_exactly() -> None:
    found = solver.decode_frame(Drift(), observation(), draws=3, steps=4, solver="euler", seed=0)
    assert np.allclose(found.prediction, 30, atol=1e-4)
    assert np.isnan(found.logprob).all()


def test_heun_is_second_order_and_euler_first() -> None:
    start = np.ones((1, 5, 2), dtype=np.float32)
    errors = {
        (name, steps): abs(float(method(Decay(), 0.0, start, steps=steps)[0, 0, 0]) - np.exp(-1))
        for name, method in solver.SOLVERS.items()
        for steps in (8, 16)
    }
    assert errors["euler", 8] / errors["euler", 16] == pytest.approx(2, rel=0.1)
    assert errors["heun", 8] / errors["heun", 16] == pytest.approx(4, rel=0.1)


def test_flow_draws_differ_and_more_of_them_change_none() -> None:
    three, ten = (
        solver.decode_frame(Decay(), observation(), draws=n, steps=2, solver="euler", seed=0)
        for n in (3, 10)
    )
    assert (three.prediction == ten.prediction[:3]).all()
    assert len(np.unique(ten.prediction, axis=0)) == 10


def test_a_decode_that_does_not_fit_its_policy_says_so() -> None:
    with pytest.raises(TypeError, match="cannot be decoded"):
        decode(Drift(), [observation()], draws=1, T=0.7, steps=None, solver="euler", seed=0)


def test_observations_come_back_in_their_order() -> None:
    seen = [observation(frame=k) for k in (3, 1, 2)]
    found = decode(Speaker(), seen, draws=2, T=0.0, steps=None, solver="euler", seed=0)
    alone = [
        decode(Speaker(), [one], draws=2, T=0.0, steps=None, solver="euler", seed=0)[0]
        for one in seen
    ]
    for both, single in zip(found, alone, strict=True):
        assert (both.prediction == single.prediction).all()
