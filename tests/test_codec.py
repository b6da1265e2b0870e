from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arflow_eval.codec import fast, normalise
from arflow_eval.codec.bins import BinCodec, to_bins


@pytest.fixture(scope="module")
def codec() -> fast.FastCodec:
    stream = np.random.default_rng(0)
    walks = np.cumsum(stream.normal(0, 0.05, (200, 20, 3)), axis=1).clip(-1, 1)
    return fast.fit(walks, scale=10.0, size=200)


def smooth_chunk(seed: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(0, 0.05, (20, 3)), axis=0).clip(-1, 1)


@given(seed=st.integers(0, 10_000))
def test_a_chunk_comes_back_within_its_quantisation(codec: fast.FastCodec, seed: int) -> None:
    chunk = smooth_chunk(seed)
    error = codec.decode(codec.encode(chunk)) - chunk
    # the transform is orthonormal: rounding each coefficient by at most half a quantum
    assert np.sqrt((error**2).mean()) <= 0.5 / codec.scale + 0.05


@given(seed=st.integers(0, 10_000))
def test_the_lengths_of_a_chunks_tokens_spend_the_exact_budget(
    codec: fast.FastCodec, seed: int
) -> None:
    tokens = codec.encode(smooth_chunk(seed))
    assert codec.lengths()[tokens].sum() == codec.budget == 60


def test_a_block_one_token_short_is_refused_not_padded(codec: fast.FastCodec) -> None:
    with pytest.raises(ValueError, match="a whole chunk has 60"):
        codec.decode(codec.encode(smooth_chunk(1))[:-1])


def test_every_symbol_is_a_token_of_its_own(codec: fast.FastCodec) -> None:
    assert (codec.lengths() == 1).sum() == codec.high - codec.low + 1


def test_a_saved_codec_decodes_the_same(codec: fast.FastCodec, tmp_path: Path) -> None:
    codec.tokenizer.save(str(tmp_path / "fast.json"))
    numbers = {name: getattr(codec, name) for name in ("scale", "low", "high", "steps", "actions")}
    again = fast.load(tmp_path, numbers)
    tokens = codec.encode(smooth_chunk(2))
    assert (again.decode(tokens) == codec.decode(tokens)).all()


def test_quantiles_map_to_the_ends_and_clip_beyond_them() -> None:
    table = normalise.Quantiles(q01=np.array([0.0, 5.0]), q99=np.array([10.0, 5.0]))
    found = table.normalise(np.array([[0.0, 5.0], [10.0, 5.0], [15.0, 99.0]]))
    assert found.tolist() == [[-1, 0], [1, 0], [1, 0]]


def test_restoring_a_normalised_value_gives_it_back_and_constants_their_constant() -> None:
    table = normalise.Quantiles(q01=np.array([-3.0, 5.0]), q99=np.array([7.0, 5.0]))
    values = np.array([[2.0, 5.0], [-3.0, 5.0]])
    assert np.allclose(table.restore(table.normalise(values)), values)


def test_bins_cover_the_interval_with_both_ends() -> None:
    assert to_bins(np.array([-1.0, -0.001, 0.0, 1.0]), bins=4).tolist() == [0, 1, 2, 3]


def test_a_binned_chunk_comes_back_as_the_middles_of_its_bins() -> None:
    codec = BinCodec(bins=4, steps=2, actions=1)
    assert codec.encode(np.array([[-1.0], [0.1]])) == [0, 2]
    assert codec.decode([0, 2]).tolist() == [[-0.75], [0.25]]


@pytest.mark.parametrize("tokens", [[0], [0, 1, 2], [0, 4], [-1, 0]])
def test_tokens_that_are_no_whole_binned_chunk_are_refused(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="a whole chunk has 2 bins"):
        BinCodec(bins=4, steps=2, actions=1).decode(tokens)
