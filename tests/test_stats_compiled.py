"""Compiled loops beside the numpy code they stand for: the same bits, or they are not used."""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from arflow_eval import read, refusal
from arflow_eval.reads.draws_fairness import draws_fairness
from arflow_eval.reads.energy_score_flow import energy_score_flow
from arflow_eval.reads.paired import paired_delta
from arflow_eval.stats import compiled, energy, errors, ladder, resampling

numba = pytest.importorskip("numba", reason="the extra compiled is not installed")
BLOCKS = (errors.block_errors, ladder.block_draw_errors, energy.block_energy)
SETTINGS: dict[str, Any] = {
    "window": 9,
    "resamples": 300,
    "seed": 0,
    "confidence": 0.95,
    "cluster": "repo",
}


@pytest.fixture(autouse=True, scope="module")
def _whatever_the_size() -> Iterator[None]:
    """Compiled loops for small work too, and the switch as it was afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "WORTH", 0)
        yield
    compiled.switch(on=True)


def _kernels() -> Any:
    compiled.switch(on=True)
    found = compiled.kernels(1)
    assert found is not None, "the compiled loops do not sum as this numpy does"
    return found


def _with_and_without(run: Callable[[], Any]) -> tuple[Any, Any]:
    _kernels()
    found = run()
    compiled.switch(on=False)
    plain = run()
    compiled.switch(on=True)
    return found, plain


def _block(seed: int, shape: tuple[int, int, int, int], *, unscored: float) -> tuple[Any, ...]:
    """Draws about a truth, a ragged mask, failed draws, and numbers where nothing is scored."""
    rng = np.random.default_rng(seed)
    frames, draws, steps, actions = shape
    truth = (40 * rng.normal(size=(frames, steps, actions))).astype(np.float32)
    prediction = truth[:, None] + rng.normal(size=shape).astype(np.float32)
    valid = rng.random((frames, steps)) < rng.choice([0.5, 0.9, 1.0])
    truth[~valid] = unscored
    if rng.random() < 0.5:
        truth[rng.random(truth.shape) < 0.01] = np.nan
    hidden = np.broadcast_to(~valid[:, None], prediction.shape[:3])
    prediction[hidden] = unscored
    failed = rng.random((frames, draws)) < 0.2
    failed[:, -1] = False
    prediction[:, :, 0, 0] = np.where(np.isfinite(prediction[:, :, 0, 0]), 1.5, 0.0)
    prediction[failed] = np.nan
    return prediction, truth, valid


def _bytes(scores: Any) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(column).tobytes() for name, column in vars(scores).items()}


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 60), st.integers(1, 9)),
    st.sampled_from([0.0, np.nan, np.inf, 1e30]),
    st.floats(0, 1),
)
def test_blocks_have_the_bits_of_numpy(
    seed: int, shape: tuple[int, int, int, int], unscored: float, share: float
) -> None:
    block = _block(seed, shape, unscored=unscored)
    window = max(round(share * shape[2]), 1)
    for score in BLOCKS:
        found, plain = _with_and_without(lambda: score(*block, window=window))  # noqa: B023
        assert _bytes(found) == _bytes(plain), score.__name__


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("module", [errors, ladder, energy])
def test_a_scored_prediction_that_is_not_finite_is_refused_alike(
    module: ModuleType, broken: float
) -> None:
    block = _block(3, (4, 3, 8, 2), unscored=0.0)
    valid = np.ones_like(block[2])
    truth = np.nan_to_num(block[1])
    block[0][1, -1, 3] = broken
    score = BLOCKS[(errors, ladder, energy).index(module)]

    def refused() -> str:
        with pytest.raises(refusal.Refusal, match="1 of 4 frames have a NaN") as found:
            module.joined([score(block[0], truth, valid, window=8)])
        return str(found.value)

    found, plain = _with_and_without(refused)
    assert found == plain


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3_000),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**32 - 1),
)
def test_resampled_sums_have_the_bits_of_numpy(
    clusters: int, columns: int, resamples: int, seed: int, values: int
) -> None:
    held = list(np.random.default_rng(values).normal(size=(columns, clusters)))
    found, plain = _with_and_without(
        lambda: resampling.resampled_sums(held, resamples=resamples, seed=seed)
    )
    chosen = np.random.default_rng(seed).integers(0, clusters, (resamples, clusters))
    for column, one, other in zip(held, found, plain, strict=True):
        assert one.tobytes() == other.tobytes()
        assert one.tobytes() == column.take(chosen).sum(axis=1).tobytes()


def test_the_published_size_has_the_bits_of_numpy() -> None:
    delta = np.random.default_rng(5).normal(-0.1, 2.0, 17_204)
    found, plain = _with_and_without(
        lambda: resampling.resampled_sums([delta], resamples=400, seed=0)
    )
    assert found[0].tobytes() == plain[0].tobytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_indices_that_numpy_draws_again_are_left_out(clusters: int, seed: int) -> None:
    clusters = clusters % 500 + 1
    halves = np.random.default_rng(seed).integers(0, 2**32, 64, dtype=np.uint32)
    halves[::5] = 0  # the low half of 0 is too small for every size but powers of two
    chosen, plain = np.zeros(clusters, np.uint32), np.empty(64, np.int64)
    scaled = _kernels().resamples._scaled
    count = min(64, clusters)
    kept = scaled(halves, 0, count, chosen, 0)
    assert kept == resampling._scaled(halves[:count], plain, below=clusters)
    assert np.array_equal(chosen[:kept], plain[:kept])


@pytest.mark.parametrize("count", [1, 7, 8, 9, 127, 128, 129, 300, 1_000, 1_029, 6_000, 17_204])
def test_a_row_is_summed_in_numpys_order(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    order = compiled.order(count)
    assert order[0].sum() == count
    assert _kernels().blocks.row_sum(values, order, np.empty(64)) == values.sum()


def _arm(*, seed: int, draws: int = 4, frames: int = 420) -> xarray.Dataset:
    """An arm on more than 200 repos, so that clusters are resampled too."""
    prediction, truth, valid = _block(0, (frames, draws, 12, 3), unscored=np.nan)
    noise = np.random.default_rng(seed).normal(size=prediction.shape).astype(np.float32)
    rows = np.arange(frames)
    return xarray.Dataset(
        {
            "prediction": (("frame", "draw", "step", "action"), prediction + noise),
            "truth": (("frame", "step", "action"), truth),
            "valid": (("frame", "step"), valid),
        },
        coords={
            "episode": ("frame", rows),
            "core": ("frame", rows % 9 != 0),
            "repo_name": ("frame", np.array([f"owner/{row // 2}" for row in rows])),
        },
        attrs={"arm": f"made{seed}", "action_units": "degree", "action_names": ["a", "b", "c"]},
    )


def test_whole_reports_do_not_show_whether_the_extra_is_installed() -> None:
    one, other, greedy = (_arm(seed=seed) for seed in range(3))
    more: dict[str, Any] = {"first_draws": None, "subset_mode": False}

    def reports() -> str:
        found = [
            paired_delta(one, other, **SETTINGS),
            draws_fairness(one, other, **SETTINGS, **more),
            energy_score_flow(greedy.isel(draw=[-1]), one, other, **SETTINGS, **more, anchors={}),
        ]
        return json.dumps(found)

    found, plain = _with_and_without(reports)
    assert found == plain


def test_loops_are_loaded_once_the_work_of_a_process_pays_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "WORTH", 100)
    monkeypatch.setitem(compiled._state, "seen", 0)
    assert [compiled.kernels(40) is None for _ in range(4)] == [True, True, False, False]


def test_the_switch_leaves_it_to_numpy() -> None:
    compiled.switch(on=False)
    assert compiled.kernels(10) is None


def test_a_read_takes_the_switch_from_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["read=energy_score", "oracle=true", "read.resamples=200"]
    assert read.main([*words, "compiled=false"]) == 0
    assert compiled.kernels(1) is None
    assert read.main(words) == 0
    assert compiled.kernels(1) is not None
    assert read.main([*words, "compiled=perhaps"]) == refusal.USAGE


def test_loops_that_do_not_sum_as_numpy_does_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "order", lambda count: np.array([[count], [0]]))
    assert compiled._checked.__wrapped__() is None


def test_a_numba_that_cannot_be_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    assert compiled._checked.__wrapped__() is None


def test_loops_are_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    code = importlib.import_module("arflow_eval.stats.kernel_code")

    def nowhere(function: Any, *, cache: bool = False, **settings: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(function, **settings)

    monkeypatch.setattr(code, "njit", nowhere)
    assert code.jit(lambda value: value + 1)(1) == 2
