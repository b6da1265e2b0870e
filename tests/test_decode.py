"""Decodes on policies small enough to know their every probability."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from arflow_eval.contracts import (
    FrameDraws,
    FrameId,
    Grammar,
    Line,
    Observation,
    Sampling,
    Scores,
    Statistics,
    Suffix,
)
from arflow_eval.decode import blocks, lines, solver
from arflow_eval.decode.choice import choose
from arflow_eval.decode.frames import decode
from arflow_eval.decode.grammar import fixed_bins, symbol_budget
from arflow_eval.decode.probe import expected_flips, probe

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
    """A token policy over four coefficients; its logits depend on the last token and length.

    A prefix is the list of its tokens; `shift` tilts the logits of rows by the prompt's first.
    """

    lengths: tuple[int, ...] = (1, 1, 2, 3)
    horizon: int = 4
    action_dim: int = 1
    line_budget: int = 3
    talkative: bool = False
    candidates: tuple[tuple[int, ...], ...] = ()
    tilt: float = 0.0
    conditions: frozenset[str] = frozenset({"state"})
    fed: list[np.ndarray] = field(default_factory=list)

    @property
    def suffix(self) -> Suffix:
        line = Line("progress", self.line_budget, self.candidates)
        return Suffix((OPEN,), (line,), NEWLINE, BEGIN)

    @property
    def vocabulary(self) -> int:
        return FIRST_ACTION + len(self.lengths)

    @property
    def grammar(self) -> Grammar:
        ids = FIRST_ACTION + np.arange(len(self.lengths))
        return symbol_budget(ids, np.array(self.lengths), budget=4)

    def prefill(self, observation: Observation, *, masked: str | None = None) -> list[int]:
        return [0 if masked else observation.frame.frame_index]

    def rows(self, prefixes: Sequence[list[int]], *, each: int, total: int) -> list[list[int]]:
        rows = [list(prefix) for prefix in prefixes for _ in range(each)]
        return rows + [[0] for _ in range(total - len(rows))]

    def extend(
        self,
        rows: list[list[int]],
        tokens: np.ndarray,
        *,
        actions: bool,
        last: bool = True,
        total: bool = False,
    ) -> Scores:
        self.fed.append(tokens.copy())
        found = np.empty((*tokens.shape, self.vocabulary), dtype=np.float32)
        for row, new in enumerate(tokens.tolist()):
            for place, token in enumerate(new):
                rows[row].append(token)
                found[row, place] = self.logits(rows[row])
        found = found[:, -1:] if last else found
        mass = np.log(np.exp(found).sum(axis=2)) if total else None
        return Scores(found[:, :, FIRST_ACTION:] if actions else found, mass)

    def logits(self, said: list[int]) -> np.ndarray:
        ids = np.arange(self.vocabulary)
        logits = np.sin(1.7 * ids + 0.9 * said[-1] + len(said) + self.tilt * ids * said[0])
        logits[NEWLINE] = -9 if self.talkative else 9
        return logits

    def grown(self, rows: list[list[int]], *, lengths: Sequence[int]) -> list[list[int]]:
        return [row[: 1 + length] for row, length in zip(rows, lengths, strict=False)]

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def chunk(self, observation: Observation, tokens: Sequence[int]) -> np.ndarray:
        symbols = [t for t in tokens for _ in range(self.lengths[t - FIRST_ACTION])]
        if len(symbols) != 4:
            raise ValueError("not a whole chunk")
        return np.array(symbols, dtype=float)[:, None] + observation.frame.frame_index


def drawn(
    policy: Speaker,
    seen: Observation,
    *,
    draws: int,
    temperature: float,
    seed: int = 0,
    **more: Any,
) -> FrameDraws:
    how = Sampling(draws=draws, T=temperature, seed=seed, **more)
    return decode(policy, [seen], how)[0]


def test_temperature_zero_is_the_greedy_decode_for_every_draw() -> None:
    greedy = drawn(Speaker(), observation(), draws=1, temperature=0.0)
    ten = drawn(Speaker(), observation(), draws=10, temperature=0.0)
    assert (ten.prediction == greedy.prediction).all()
    assert (ten.logprob == greedy.logprob).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ties_go_to_the_lowest_id(dtype: type) -> None:
    logits = np.array([[1.0, 3.0, 3.0]], dtype=dtype).astype(np.float32)
    chosen = choose(logits, np.ones((1, 3), dtype=bool), None, temperature=np.zeros(1))
    assert chosen.place.tolist() == [1]
    assert chosen.logprob[0] == pytest.approx(3 - np.log(np.exp([1, 3, 3]).sum()))
    assert chosen.gap[0] == 0


def test_no_noise_lifts_an_illegal_token() -> None:
    logits = np.zeros((1, 2), dtype=np.float32)
    legal = np.array([[True, False]])
    chosen = choose(logits, legal, np.array([[-50.0, np.inf]]), temperature=np.ones(1))
    assert chosen.place.tolist() == [0]
    assert (chosen.logprob[0], chosen.entropy[0]) == (0, 0)
    assert np.isnan(chosen.gap[0])


def test_what_is_recorded_of_a_choice_is_what_the_definitions_say() -> None:
    logits = np.array([[0.3, -1.0, 2.0, 0.7]], dtype=np.float32)
    legal = np.array([[True, True, False, True]])
    chosen = choose(logits, legal, np.zeros((1, 4)), temperature=np.full(1, 0.5))
    p = np.exp(logits[0, [0, 1, 3]].astype(float))
    p /= p.sum()
    cooled = np.exp(logits[0, [0, 1, 3]].astype(float) / 0.5)
    assert chosen.place[0] == 3
    assert chosen.logprob[0] == pytest.approx(np.log(p[2]))
    assert chosen.sampling[0] == pytest.approx(np.log(cooled[2] / cooled.sum()))
    assert chosen.entropy[0] == pytest.approx(-(p * np.log(p)).sum())
    assert chosen.gap[0] == pytest.approx(0.7 - 0.3, abs=1e-6)
    assert chosen.log_legal[0] == pytest.approx(np.log(np.exp([0.3, -1.0, 0.7]).sum()), abs=1e-6)


@pytest.mark.parametrize("draws", [1, 3, 16, 17])
def test_a_draw_is_the_same_however_many_are_asked_for(draws: int) -> None:
    few = drawn(Speaker(), observation(), draws=draws, temperature=1.0)
    many = drawn(Speaker(), observation(), draws=40, temperature=1.0)
    assert (few.prediction == many.prediction[:draws]).all()
    assert (few.logprob == many.logprob[:draws]).all()


@dataclass(frozen=True)
class Broken(Speaker):
    """Its second action token has logits that are not numbers, in every second row."""

    def extend(self, rows: list[list[int]], tokens: np.ndarray, **how: Any) -> Scores:
        scores = super().extend(rows, tokens, **how)
        if len(tokens) > 1:
            scores.logits[1::2] = np.nan
        return scores


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
    shared = [tokens.tolist() for tokens in policy.fed if len(tokens) == 1]
    assert shared == [[[OPEN]], [[NEWLINE]]]
    assert policy.fed[2].tolist() == [[BEGIN]] * 16


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
        decode(Drift(), [observation()], Sampling(draws=1, T=0.7, seed=0))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("frames", [None, 5])
def test_frames_decoded_together_are_each_as_alone_and_in_their_order(
    temperature: float, frames: int | None
) -> None:
    how = Sampling(draws=3, T=temperature, seed=0, tile=4, frames=frames, tokens=True)
    seen = [observation(frame=k) for k in (3, 1, 2)]
    found = decode(Speaker(), seen, how)
    for one, both in zip(seen, found, strict=True):
        (alone,) = decode(Speaker(), [one], how)
        assert (both.prediction == alone.prediction).all()
        assert both.lines == alone.lines
        for name, values in alone.measures.items():
            assert np.array_equal(both.measures[name], values, equal_nan=True)


def test_a_line_with_candidates_says_one_of_them_whatever_the_budget() -> None:
    candidates = ((WORD, WORD), (WORD, OPEN), (BEGIN,))
    policy = Speaker(candidates=candidates, line_budget=1)
    assert drawn(policy, observation(), draws=1, temperature=0.0).lines["progress"] in {
        policy.text(each) for each in candidates
    }


def test_a_candidate_that_begins_another_ends_where_the_newline_is_likelier() -> None:
    line = Line("grip", 9, ((WORD,), (WORD, BEGIN)))
    logits = np.zeros(5, dtype=np.float32)
    logits[NEWLINE] = 1
    assert lines.next_token(logits, line, [WORD], NEWLINE) == NEWLINE
    logits[BEGIN] = 2
    assert lines.next_token(logits, line, [WORD], NEWLINE) == BEGIN


def test_the_budget_is_a_table_from_state_to_legal_ids() -> None:
    grammar = symbol_budget(np.array([10, 11, 12]), np.array([1, 2, 5]), budget=6)
    assert grammar.legal[6].tolist() == [True, True, True]
    assert grammar.legal[4].tolist() == [True, True, False]
    assert not grammar.legal[grammar.complete].any()
    assert grammar.following[6].tolist() == [5, 4, 1]
    assert grammar.following[1].tolist() == [0, -1, -1]
    assert (grammar.progress[6], grammar.progress[0], grammar.longest) == (0, 1, 6)


def test_a_budget_that_some_tokens_cannot_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be filled"):
        symbol_budget(np.array([0]), np.array([2]), budget=3)


def test_fixed_bins_take_exactly_their_number_of_tokens() -> None:
    grammar = fixed_bins(7, bins=3, values=2)
    assert grammar.ids.tolist() == [7, 8, 9]
    assert grammar.legal.all(axis=1).tolist() == [True, True, False]
    assert grammar.following[:, 0].tolist() == [1, 2, -1]
    assert (grammar.start, grammar.complete, grammar.longest) == (0, 2, 2)


def test_a_linear_schedule_falls_with_the_share_of_the_block_that_is_spoken() -> None:
    grammar = symbol_budget(np.array([1, 2]), np.array([1, 2]), budget=4)
    how = Sampling(draws=1, seed=0, T=1.0, final=0.5)
    warmth = blocks.temperatures(np.array([4, 2, 1]), grammar, how)
    assert warmth.tolist() == [1.0, 0.75, 0.625]


def test_a_schedule_that_stays_is_the_constant_temperature() -> None:
    constant = drawn(Speaker(), observation(), draws=30, temperature=0.8)
    linear = drawn(Speaker(), observation(), draws=30, temperature=0.8, final=0.8)
    cooling = drawn(Speaker(), observation(), draws=30, temperature=0.8, final=0.01)
    assert (linear.prediction == constant.prediction).all()
    assert (cooling.prediction != constant.prediction).any()


def test_measures_are_sums_and_means_over_the_block() -> None:
    policy = Speaker()
    found = drawn(policy, observation(), draws=6, temperature=0.7, tokens=True, mass=True)
    for draw in range(6):
        said = [0, OPEN, NEWLINE, BEGIN]
        state, steps = policy.grammar.start, []
        for token in found.measures["tokens"][draw]:
            if token < 0:
                break
            legal = policy.grammar.legal[state]
            every = policy.logits(said).astype(np.float32).astype(float)
            logits = every[FIRST_ACTION:][legal]
            p = np.exp(logits) / np.exp(logits).sum()
            mine = np.flatnonzero(legal).tolist().index(token - FIRST_ACTION)
            cooled = np.exp(logits / 0.7)
            top = np.sort(logits)
            steps.append(
                (
                    np.log(p[mine]),
                    np.log(cooled[mine] / cooled.sum()),
                    -(p * np.log(p)).sum(),
                    top[-1] - top[-2] if len(top) > 1 else np.nan,
                    np.exp(logits).sum() / np.exp(every).sum(),
                )
            )
            said.append(int(token))
            state = int(policy.grammar.following[state, token - FIRST_ACTION])
        one = np.array(steps)
        measured = found.measures
        assert found.logprob[draw] == pytest.approx(one[:, 0].sum(), abs=1e-5)
        assert measured["logprob_sampling"][draw] == pytest.approx(one[:, 1].sum(), abs=1e-5)
        assert measured["entropy"][draw] == pytest.approx(one[:, 2].sum(), abs=1e-5)
        assert measured["top1_gap"][draw] == pytest.approx(np.nanmean(one[:, 3]), abs=1e-5)
        assert measured["grammar_mass"][draw] == pytest.approx(one[:, 4].mean(), abs=1e-5)
        assert measured["block_length"][draw] == len(one)
        kept = measured["token_logprob"][draw]
        assert np.allclose(kept[: len(one)], one[:, 0], atol=1e-5)
        assert np.isnan(kept[len(one) :]).all()


def test_a_reference_that_masks_nothing_differs_by_nothing() -> None:
    found = drawn(Speaker(), observation(), draws=5, temperature=1.0, reference="state")
    assert np.allclose(found.measures["reference_kl"], 0, atol=1e-6)
    assert np.allclose(found.measures["reference_log_ratio"], 0, atol=1e-6)


def test_a_reference_scores_what_the_condition_decided() -> None:
    policy, seen = Speaker(tilt=0.4), observation(frame=2)
    found = drawn(policy, seen, draws=40, temperature=1.0, reference="state", tokens=True)
    kl, ratio = (found.measures[f"reference_{name}"] for name in ("kl", "log_ratio"))
    assert (kl > 0).all()
    masked = drawn(policy, observation(frame=0), draws=400, temperature=1.0, tokens=True)
    known = {
        tokens.tobytes(): value
        for tokens, value in zip(masked.measures["tokens"], masked.logprob, strict=True)
    }
    for draw, tokens in enumerate(found.measures["tokens"]):
        if tokens.tobytes() in known:
            expected = found.logprob[draw] - known[tokens.tobytes()]
            assert ratio[draw] == pytest.approx(expected, abs=1e-5)


def test_a_failed_draw_has_no_measures() -> None:
    found = drawn(Broken(), observation(), draws=6, temperature=1.0, mass=True)
    for name in ("logprob_sampling", "entropy", "top1_gap", "grammar_mass"):
        assert np.isnan(found.measures[name][1::2]).all()
        assert np.isfinite(found.measures[name][::2]).all()


def test_the_published_noise_is_another_stream_of_the_same_distribution() -> None:
    ours = drawn(Speaker(), observation(), draws=20, temperature=1.0)
    published = drawn(Speaker(), observation(), draws=20, temperature=1.0, noise="published")
    ten = drawn(Speaker(), observation(), draws=10, temperature=1.0, noise="published")
    assert (ours.prediction != published.prediction).any()
    assert (published.prediction[:10] == ten.prediction).all()


@dataclass(frozen=True)
class Crowded(Speaker):
    """Its logits move in their last bits with the number of rows, as some kernels' do."""

    by: float = 1e-3

    def extend(self, rows: list[list[int]], tokens: np.ndarray, **how: Any) -> Scores:
        scores = super().extend(rows, tokens, **how)
        ids = np.arange(scores.logits.shape[2])
        moved = scores.logits + np.float32(self.by) * np.cos(len(tokens) * ids)
        return Scores(moved.astype(np.float32), scores.total)


def test_the_probe_finds_rows_that_do_not_keep_their_bits() -> None:
    how = Sampling(draws=6, T=1.0, seed=0)
    seen = [observation(frame=1), observation(frame=2)]
    assert probe(Speaker(), seen, how).differing == ()
    found = probe(Crowded(), seen, how)
    assert found.differing == ("alone", "among fewer")
    assert 0 < found.flips < 1e-2


def test_the_probe_counts_a_batch_that_is_padded_to_one_shape_as_equal() -> None:
    how = Sampling(draws=6, T=1.0, seed=0, tile=16, frames=2)
    seen = [observation(frame=1), observation(frame=2)]
    assert probe(Crowded(), seen, how).differing == ()


def test_expected_flips_predict_how_often_two_kernels_draw_differently() -> None:
    stream = np.random.default_rng(0)
    one = stream.normal(0, 1, (200, 1, 12)).astype(np.float32)
    other = (one + stream.normal(0, 0.02, one.shape)).astype(np.float32)
    predicted = expected_flips(one, other, temperature=0.8)
    gumbel = stream.gumbel(size=(400, 200, 12))
    drawn_of = [(each[None, :, 0] / 0.8 + gumbel).argmax(axis=2) for each in (one, other)]
    measured = (drawn_of[0] != drawn_of[1]).mean()
    assert predicted == pytest.approx(measured, rel=0.15)
