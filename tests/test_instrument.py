"""The draws instrument through `evaluate`, on the bundled policy: what is stored, what is equal."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arflow_eval import compose, evaluation, refusal, store
from arflow_eval.contracts import Observation, Panel, Policy, Sampling, Scores, TokenPolicy
from arflow_eval.decode.frames import decode
from arflow_eval.decode.probe import probe
from arflow_eval.evaluate import evaluate, load_panel, load_policy
from arflow_eval.sampling import sampling
from arflow_eval.settings import EvaluateSettings, evaluate_settings

WORDS = ["panel=pusht_q4", "decode=draws", "decode.draws=3"]


def settings_for(*words: str) -> EvaluateSettings:
    return evaluate_settings(compose.compose("evaluate", [*WORDS, *words]))


@pytest.fixture(scope="module")
def panel() -> Panel:
    return load_panel(settings_for())


@pytest.fixture(scope="module")
def ar_tiny(panel: Panel) -> TokenPolicy:
    policy = load_policy(settings_for(), panel)
    assert isinstance(policy, TokenPolicy)
    return policy


def run(root: Path, *words: str) -> evaluation.Outcome:
    return evaluate(compose.compose("evaluate", [*WORDS, f"store.root={root}", *words]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> evaluation.Outcome:
    words = ["store.tokens=true", "decode.mass=true", "decode.reference=state"]
    return run(tmp_path_factory.mktemp("whole"), *words)


def test_four_shards_in_other_batches_equal_one_process_bit_for_bit(tmp_path: Path) -> None:
    one = run(tmp_path / "one", "batch=8")
    for index in (3, 1, 0, 2):
        four = run(tmp_path / "four", "batch=3", "shard.count=4", f"shard.index={index}")
    assert four.fingerprint == one.fingerprint


def test_draws_of_a_batch_a_subset_another_order_and_number_have_the_same_bits(
    ar_tiny: TokenPolicy, panel: Panel
) -> None:
    how = sampling(settings_for("decode.draws=10", "store.tokens=true"), ar_tiny)
    seen = [panel.observe(row) for row in (3, 30, 12)]
    together = decode(ar_tiny, seen, how)
    for observations, fewer in (([seen[1]], how), (seen[::-1], how), ([seen[1]], _three(how))):
        found = decode(ar_tiny, observations, fewer)
        place = [each.frame for each in observations].index(seen[1].frame)
        kept = slice(fewer.draws)
        assert (found[place].prediction == together[1].prediction[kept]).all()
        assert (found[place].logprob == together[1].logprob[kept]).all()
        for name, values in found[place].measures.items():
            assert np.array_equal(values, together[1].measures[name][kept], equal_nan=True)


def _three(how: Sampling) -> Sampling:
    return replace(how, draws=3)


@pytest.mark.parametrize("level", ["keyed", "fixed_shape"])
def test_every_level_draws_the_same_tokens_here(
    ar_tiny: TokenPolicy, panel: Panel, level: str
) -> None:
    seen = [panel.observe(row) for row in (3, 30)]
    exact, other = (
        decode(ar_tiny, seen, sampling(settings_for(*words), ar_tiny))
        for words in (["store.tokens=true"], ["store.tokens=true", f"decode.determinism={level}"])
    )
    for one, two in zip(exact, other, strict=True):
        assert (one.measures["tokens"] == two.measures["tokens"]).all()
        assert np.allclose(one.logprob, two.logprob, atol=1e-4)


def test_the_level_tile_attention_and_dtype_are_in_the_store(whole: evaluation.Outcome) -> None:
    attributes = store.open_run(whole.store).attrs
    found = {name: attributes[name] for name in ("determinism", "tile", "attention", "dtype")}
    assert found == {
        "determinism": "exact",
        "tile": 4,
        "attention": "shared_prefix",
        "dtype": "float32",
    }


def test_threads_build_device_and_what_the_probe_found_lie_beside_it(
    whole: evaluation.Outcome,
) -> None:
    writer = json.loads((whole.folder / "writers" / "shard-0.json").read_text())
    assert (writer["threads"], writer["device"]) == (1, "cpu")
    assert writer["build"]["capability"]
    assert writer["versions"]["torch"]
    assert writer["probe"]["differing"] == []
    assert writer["probe"]["flips"] == 0


def test_what_is_recorded_of_each_draw_agrees_with_itself(whole: evaluation.Outcome) -> None:
    found = store.open_run(whole.store)
    tokens, each = (found[name].to_numpy() for name in ("tokens", "token_logprob"))
    spoken = tokens >= 0
    assert (spoken.sum(axis=2) == found["block_length"].to_numpy()).all()
    assert np.isnan(each[~spoken]).all()
    assert np.allclose(np.nansum(each, axis=2), found["logprob"].to_numpy(), atol=1e-3)
    assert np.allclose(found["logprob_sampling"], found["logprob"], atol=1e-9)  # T = 1
    assert ((found["grammar_mass"] > 0) & (found["grammar_mass"] <= 1 + 1e-6)).all()
    assert (found["entropy"] > 0).all()
    assert (found["top1_gap"] > 0).all()


def test_the_state_decides_what_this_policy_predicts(whole: evaluation.Outcome) -> None:
    found = store.open_run(whole.store)
    assert (found["reference_kl"] > 0).all()
    assert found["reference_log_ratio"].mean() > 1


def test_seconds_of_every_part_lie_beside_the_store(whole: evaluation.Outcome) -> None:
    lines = (whole.folder / "timings" / "shard-0.jsonl").read_text().splitlines()
    first = json.loads(lines[0])["seconds"]
    assert set(first) == {"prefill", "lines", "draws", "decode", "reference"}
    assert all(second > 0 for values in first.values() for second in values)


def test_a_condition_that_training_never_dropped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(refusal.Refusal, match="a condition that its training dropped: state"):
        run(tmp_path, "decode.reference=subgoal")
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Crowded:
    """A policy whose logits move in their last bits with the number of its rows."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def prefill(self, observation: Observation, *, masked: str | None = None) -> Any:
        return self.inner.prefill(observation, masked=masked)

    def extend(self, rows: Any, tokens: np.ndarray, **how: Any) -> Scores:
        scores = self.inner.extend(rows, tokens, **how)
        moved = (
            np.nextafter(scores.logits, np.float32(np.inf)) if len(tokens) > 16 else scores.logits
        )
        return Scores(moved, scores.total)


def crowded_run(root: Path, policy: Policy, *words: str) -> evaluation.Outcome:
    settings = settings_for(f"store.root={root}", *words)
    return evaluation.run(settings, load_panel(settings), load=lambda: policy, decode=decode)


def test_exact_refuses_a_policy_whose_rows_do_not_keep_their_bits(
    ar_tiny: TokenPolicy, tmp_path: Path
) -> None:
    with pytest.raises(refusal.Refusal, match="other bits alone than in a batch") as refused:
        crowded_run(tmp_path, Crowded(ar_tiny))
    assert refused.value.exit_code == refusal.GUARD
    assert not list(tmp_path.iterdir())


def test_keyed_takes_such_a_policy_and_says_how_many_tokens_would_flip(
    ar_tiny: TokenPolicy, panel: Panel
) -> None:
    how = sampling(settings_for("decode.determinism=keyed"), ar_tiny)
    found = probe(Crowded(ar_tiny), [panel.observe(0), panel.observe(1)], how)
    assert found is not None
    assert found.differing
    assert found.flips is not None
    assert 0 < found.flips < 1e-5


def test_a_ticket_bank_names_the_arm_and_the_store_by_its_content(tmp_path: Path) -> None:
    bank = np.random.default_rng(0).normal(size=(3, 50, 2)).astype(np.float32)
    outcomes = []
    for name, scale in (("a.npy", 1), ("b.npy", 1), ("c.npy", 2)):
        np.save(tmp_path / name, bank * np.float32(scale))
        words = ["model=flow_tiny", "decode.steps=2", f"decode.tickets={tmp_path / name}"]
        outcomes.append(run(tmp_path / "out", *words))
    folders = [outcome.folder.name for outcome in outcomes]
    assert folders[0] == folders[1] != folders[2]
    assert re.match(r"flow_tiny_draws3_ticket-pusht_q4-", folders[0])
    config = store.open_run(outcomes[0].store).attrs["config"]
    assert config["decode"]["tickets"] == "a.npy"


def test_a_ticket_bank_that_does_not_fit_is_refused_before_a_store_exists(tmp_path: Path) -> None:
    np.save(tmp_path / "bank.npy", np.zeros((2, 50, 2), np.float32))
    words = ["model=flow_tiny", f"decode.tickets={tmp_path / 'bank.npy'}"]
    with pytest.raises(refusal.Refusal, match="2"):
        run(tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_a_linear_schedule_names_the_arm_by_both_its_ends(tmp_path: Path) -> None:
    words = ["decode.schedule=linear", "decode.T=1", "decode.T_final=0.2"]
    settings = settings_for(f"store.root={tmp_path}", *words)
    assert evaluation.arm_name(settings) == "ar_tiny_draws3_t1to0.2"
