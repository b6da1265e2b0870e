"""Published files into stores and back: bit for bit, never by pickle, and refused in one line."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arflow_eval import convert, store, summary
from arflow_eval.compose import call_target, compose
from arflow_eval.contracts import Frames, Space
from arflow_eval.published import Given, export_npz, import_npz
from arflow_eval.published.archive import opened, slices
from arflow_eval.published.columns import block_ranges
from arflow_eval.published.names import parsed
from arflow_eval.reading import run_read
from arflow_eval.refusal import Refusal

FRAMES, DRAWS, STEPS, ACTIONS = 24, 3, 8, 6
GREEDY, SAMPLED = "pred:bijou@40000", "pred:bijou@40000_draws3_t0.7"
FLOW, TICKETS, RELEASE = "pred:f@8_draws3", "pred:f@8_draws3_ticket", "pred:molmo-so100@release"
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 4):
        yield


def chunks(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(20, 30, shape).astype(np.float32)


def published(*keys: str, frames: int = FRAMES) -> Arrays:
    """A file of predictions: unsorted repos, padded ends, bits that a careless copy would lose."""
    row = np.arange(frames)
    chunk = (frames, STEPS, ACTIONS)
    found: Arrays = {
        "truth": chunks(0, *chunk),
        "valid": np.arange(STEPS) < (STEPS - row % 3)[:, None],
        "index": row * 7 + 1000,
        "repo_id": np.array([["owner/b-second", "a/first"][place] for place in row // 4 % 2]),
        "episode_index": row // 8,
        "frame_index": row % 8 * 3,
        "core": row % 3 != 1,
        "pred:state-copy": np.repeat(chunks(1, frames, 1, ACTIONS), STEPS, axis=1),
        "pred:state-copy-norm": np.repeat(chunks(2, frames, 1, ACTIONS), STEPS, axis=1),
    }
    found["truth"][~found["valid"]] = np.nan
    found["truth"].view(np.uint32)[min(1, frames - 1), -1, 0] = 0xFFC00001  # a NaN of other bits
    for place, key in enumerate(keys):
        found[key] = chunks(10 + place, *chunk)
        found[key][0, 0, 0] = -0.0
    return found


def drawn(key: str = SAMPLED, of: Arrays | None = None) -> tuple[Arrays, Arrays]:
    """A file of predictions and the draws that they are the mean of, in another rounding."""
    arrays = published(GREEDY, key) if of is None else of
    stack = chunks(30, FRAMES, DRAWS, STEPS, ACTIONS)
    total = np.zeros((FRAMES, STEPS, ACTIONS), np.float32)
    for draw in range(DRAWS):
        total += stack[:, draw]
    arrays = {**arrays, key: total / np.float32(DRAWS)}
    identity = {name: arrays[name] for name in arrays if not name.startswith("pred:")}
    scalars = {
        "policy": np.array(key.removeprefix("pred:")),
        "sample_draws": np.array(DRAWS),
        "seed": np.array(0),
        "noise_key": np.array("stable"),
        "sample_steps": np.array(10),
        "target_time": np.array(0.25),
    }
    return arrays, {**identity, "draws": stack, **scalars}


def save(path: Path, arrays: Mapping[str, Any]) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def load(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    assert [key for key in expected if not same_bits(found[key], expected[key])] == []


def taken(path: Path, out: Path, **stated: Any) -> Any:
    return import_npz(path, out, Given(**stated))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    arrays, stack = drawn()
    return save(tmp_path / "banked.npz", arrays), save(tmp_path / "banked_draws.npz", stack)


# --- there and back -------------------------------------------------------------------------


def test_a_file_of_one_prediction_comes_back_bit_for_bit(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    export_npz([tmp_path / "run"], tmp_path / "out.npz")
    assert_same(load(tmp_path / "out.npz"), arrays)


def test_two_arms_and_their_draws_come_back_bit_for_bit(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    predictions, draws = pair
    taken(predictions, tmp_path / "greedy", arm=GREEDY)
    taken(predictions, tmp_path / "sampled", arm=SAMPLED, draws=draws)
    out, stack = tmp_path / "out.npz", tmp_path / "out_draws.npz"
    export_npz([tmp_path / "greedy", tmp_path / "sampled"], out, draws=stack)
    assert_same(load(out), load(predictions))
    assert_same(load(stack), load(draws))


def test_import_export_import_ends_with_an_equal_fingerprint(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    first = taken(pair[0], tmp_path / "one", arm=SAMPLED, draws=pair[1])
    out, stack = tmp_path / "out.npz", tmp_path / "out_draws.npz"
    export_npz([tmp_path / "one"], out, draws=stack)
    second = taken(out, tmp_path / "two", draws=stack)
    assert first.fingerprint == second.fingerprint
    assert second.draws == DRAWS


@settings(max_examples=8, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3)),
    bits=st.integers(0, 2**32 - 1),
    wide=st.booleans(),
)
def test_any_chunk_shape_and_any_bits_of_truth_survive_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: tuple[int, int, int],
    bits: int,
    wide: bool,  # noqa: FBT001 - hypothesis names it
) -> None:
    folder = tmp_path_factory.mktemp("any")
    frames, steps, actions = sizes
    arrays = published(GREEDY, frames=frames)
    arrays = {
        key: value[:, :steps, :actions] if value.ndim == 3 else value
        for key, value in arrays.items()
    }
    arrays["valid"] = arrays["valid"][:, :steps]
    arrays["truth"].view(np.uint32)[0, 0, 0] = bits
    arrays["episode_index"] = arrays["episode_index"].astype(np.int32)
    arrays["repo_id"] = arrays["repo_id"].astype("<U40" if wide else "<U14")
    taken(save(folder / "in.npz", arrays), folder / "run")
    export_npz([folder / "run"], folder / "out.npz")
    assert_same(load(folder / "out.npz"), arrays)


def test_a_prediction_of_nan_with_other_bits_keeps_them(tmp_path: Path) -> None:
    arrays = published(RELEASE)
    arrays[RELEASE].view(np.uint32)[:, 5:] = 0xFFC00000  # the NaN that x86 makes
    assert taken(save(tmp_path / "in.npz", arrays), tmp_path / "run").horizon == 5
    export_npz([tmp_path / "run"], tmp_path / "out.npz")
    assert_same(load(tmp_path / "out.npz"), arrays)


def test_single_values_beside_the_arrays_are_kept(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    arrays |= {"allow_pickle": np.array(False), "tickets_sha256": np.array("ab" * 32)}
    arrays |= {"share": np.array(np.nan), "rate": np.array(0.1, np.float32)}
    taken(save(tmp_path / "in.npz", {}) and write_raw(tmp_path, arrays), tmp_path / "run")
    export_npz([tmp_path / "run"], tmp_path / "out.npz")
    assert_same(load(tmp_path / "out.npz"), arrays)


def write_raw(folder: Path, arrays: Arrays) -> Path:
    """An npz that may hold a key which `savez` takes for one of its own settings."""
    path = folder / "raw.npz"
    with zipfile.ZipFile(path, "w") as file:
        for key, value in arrays.items():
            with file.open(f"{key}.npy", "w") as stream:
                np.lib.format.write_array(stream, value, allow_pickle=True)
    return path


def test_equal_stores_export_to_equal_files(tmp_path: Path) -> None:
    taken(save(tmp_path / "in.npz", published(GREEDY)), tmp_path / "run")
    for name in ("one.npz", "two.npz"):
        export_npz([tmp_path / "run"], tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


# --- a part of the panel --------------------------------------------------------------------


def part(stack: Arrays, rows: np.ndarray) -> Arrays:
    return {key: value if value.ndim == 0 else value[rows] for key, value in stack.items()}


ROWS = np.array([20, 3, 9, 8, 0, 14])


def test_a_shorter_draws_file_is_joined_on_index_in_its_own_order(tmp_path: Path) -> None:
    arrays, stack = drawn()
    short = part(stack, ROWS)
    found = taken(
        save(tmp_path / "in.npz", arrays),
        tmp_path / "run",
        arm=SAMPLED,
        draws=save(tmp_path / "draws.npz", short),
    )
    run = store.open_run(tmp_path / "run")
    assert found.frames == len(ROWS)
    assert run.attrs["published"]["subset"]
    assert run["index"].to_numpy().tolist() == short["index"].tolist()
    assert run["repo_name"].to_numpy().tolist() == short["repo_id"].tolist()
    for name, key in (("prediction", "draws"), ("truth", "truth"), ("valid", "valid")):
        assert same_bits(run[name].to_numpy(), short[key])
    assert same_bits(run["state_copy"].to_numpy(), arrays["pred:state-copy"][ROWS])


def test_a_joined_part_round_trips(tmp_path: Path) -> None:
    arrays, stack = drawn()
    short = part(stack, ROWS)
    draws = save(tmp_path / "draws.npz", short)
    first = taken(save(tmp_path / "in.npz", arrays), tmp_path / "one", arm=SAMPLED, draws=draws)
    export_npz([tmp_path / "one"], tmp_path / "out.npz", draws=tmp_path / "out_draws.npz")
    kept = {key: value for key, value in arrays.items() if key != GREEDY}
    assert_same(load(tmp_path / "out.npz"), part(kept, ROWS))
    assert_same(load(tmp_path / "out_draws.npz"), short)
    second = taken(tmp_path / "out.npz", tmp_path / "two", draws=tmp_path / "out_draws.npz")
    assert first.fingerprint == second.fingerprint


def test_a_draws_file_without_identity_columns_pairs_row_by_row(tmp_path: Path) -> None:
    arrays, stack = drawn()
    bare = {key: value for key, value in stack.items() if value.ndim in (0, 4)}
    draws = save(tmp_path / "draws.npz", bare)
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run", arm=SAMPLED, draws=draws)
    export_npz([tmp_path / "run"], tmp_path / "out.npz", draws=tmp_path / "out_draws.npz")
    assert_same(load(tmp_path / "out_draws.npz"), bare)


def _other_order(stack: Arrays) -> None:
    for key, value in stack.items():
        if value.ndim:
            stack[key] = value[::-1]


def _twice(stack: Arrays) -> None:
    stack.update(part(stack, np.array([0, 1, 1])))


def _absent(stack: Arrays) -> None:
    stack.update(part(stack, np.array([0, 1])))
    stack["index"] = np.array([1000, 5])


def _longer(stack: Arrays) -> None:
    stack.update(part(stack, np.arange(FRAMES + 1) % FRAMES))


def _no_index(stack: Arrays) -> None:
    stack.update(part(stack, np.arange(4)))
    del stack["index"]


def _core(stack: Arrays) -> None:
    stack["core"] = ~stack["core"]


def _masks(stack: Arrays) -> None:
    stack["valid"] = stack["valid"].copy()
    stack["valid"][7, 2] ^= True


def _truth(stack: Arrays) -> None:
    stack["truth"] = stack["truth"].copy()
    stack["truth"][7, 0, 2] += 1


def _drift(stack: Arrays) -> None:
    stack["draws"] = stack["draws"].copy()
    stack["draws"][7, 0, 0, 2] += 1


def _policy(stack: Arrays) -> None:
    stack["policy"] = np.array("bijou@60000_draws3_t0.7")


def _count(stack: Arrays) -> None:
    stack["sample_draws"] = np.array(10)


def _fewer(stack: Arrays) -> None:
    stack["draws"] = stack["draws"][:, :2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_order, "other rows or another order"),
        (_twice, "holds 1007 2 times"),
        (_absent, "such as index 5"),
        (_longer, "have 25 rows"),
        (_no_index, "holds 4 rows and no index"),
        (_core, "differ in core on 24 rows"),
        (_masks, "valid of the draws file differs"),
        (_truth, "truth of the draws file differs .* first at a/first"),
        (_drift, "mean of the draws is not the published prediction"),
        (_policy, "are of bijou@60000_draws3_t0.7"),
        (_count, "states sample_draws 10"),
        (_fewer, "holds 2 draws a frame"),
    ],
)
def test_draws_of_another_run_are_refused(
    tmp_path: Path, change: Callable[[Arrays], None], said: str
) -> None:
    arrays, stack = drawn()
    arrays["truth"] = np.nan_to_num(arrays["truth"])
    stack["truth"] = arrays["truth"]
    change(stack)
    with pytest.raises(Refusal, match=said) as refused:
        taken(
            save(tmp_path / "in.npz", arrays),
            tmp_path / "run",
            arm=SAMPLED,
            draws=save(tmp_path / "draws.npz", stack),
        )
    assert refused.value.exit_code == 3
    assert not (tmp_path / "run").exists()


# --- what a store says ----------------------------------------------------------------------


def test_an_imported_store_is_read_as_an_evaluated_one(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    taken(pair[0], tmp_path / "greedy", arm=GREEDY)
    taken(pair[0], tmp_path / "sampled", arm=SAMPLED, draws=pair[1])
    arms = {"treatment": tmp_path / "sampled", "control": tmp_path / "greedy"}
    words = ["read=paired_delta", *(f"arms.{role}={path}" for role, path in arms.items())]
    definition = {**compose("read", words)["read"], "resamples": 50}
    report = run_read(definition, arms, measure=call_target(definition["_target_"]))["extended"]
    assert "same_baselines" in report["guards_passed"]
    assert report["definition"]["window"] == STEPS
    assert report["arms"]["control"]["arm"] == "bijou@40000"


def test_the_registered_study_of_sampled_draws_reads_banked_files(tmp_path: Path) -> None:
    key, core = "pred:bijou@40000_draws10_t1", published()["core"]
    arrays = published(GREEDY, key)
    scored = core[:, None] & arrays["valid"]
    stack = arrays[key][:, None] + chunks(5, FRAMES, 10, STEPS, ACTIONS)
    arrays[key] = stack.mean(axis=1)
    scalars = {"policy": key.removeprefix("pred:"), "sample_draws": 10, "seed": 0}
    draws = save(tmp_path / "draws.npz", {"draws": stack, **scalars, "noise_key": "stable"})
    path = save(tmp_path / "in.npz", arrays)
    for name, arm, stated in (("A", GREEDY, {}), ("B", key, {"draws": draws})):
        error = np.abs(arrays[arm] - arrays["truth"])
        first = core & arrays["valid"][:, 0]
        summaries = {"chunk_mae": error[scored].mean(), "first_mae": error[first, 0].mean()}
        entry = {"policy": arm.removeprefix("pred:")}
        entry |= {each: round(float(value), 4) for each, value in summaries.items()}
        report = {"summaries": [entry], "checkpoint": "x/run/step_040000", "core_frames": 16}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
        taken(path, tmp_path / name, arm=arm, report=tmp_path / f"{name}.json", **stated)
    words = ["read=ar_sampled_draws", *(f"arms.{role}=x" for role in ("greedy", "draws"))]
    words += ["read.guards.panel.one_of=null"]  # any panel
    definition = {**compose("read", words)["read"], "resamples": 50, "oracles": {}}
    found = run_read(
        definition,
        {"greedy": tmp_path / "A", "draws": tmp_path / "B"},
        measure=call_target(definition["_target_"]),
    )
    assert found["read5_execution_oracles"] == {
        "row_pairing": "full byte-match",
        "state_copy_byte_match": True,
        "state_copy_norm_byte_match": True,
        "ar_temperature": 1.0,
        "sample_draws": 10,
        "draws_policy": "bijou@40000_draws10_t1",
        "checkpoint": "run/step_040000",
        "report_crosscheck": "both arms reproduced (|d| < 5e-3)",
    }
    assert found["arms_pooled"]["greedy"]["pred_key"] == GREEDY


def test_its_errors_are_those_of_the_published_arrays(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    found = summary.summarise(tmp_path / "run", window=None)
    scored = arrays["core"][:, None] & arrays["valid"]
    error = np.abs(arrays[GREEDY] - arrays["truth"])[scored].astype(np.float64)
    assert found.chunk_mae == pytest.approx(error.mean(), abs=1e-12)
    assert found.frames == arrays["core"].sum()


def test_its_attributes_say_where_it_is_from(pair: tuple[Path, Path], tmp_path: Path) -> None:
    report = {
        "checkpoint": "/home/someone/fontaine/step_040000",
        "sample_plan": "plans/holdout_k4l2.json",
        "ar_temperature": 0.7,
        "sample_draws": DRAWS,
        "core_frames": int(load(pair[0])["core"].sum()),
        "summaries": [{"policy": "bijou@40000_draws3_t0.7", "chunk_mae": 5.5, "first_mae": 2.25}],
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    taken(
        pair[0],
        tmp_path / "run",
        arm=SAMPLED,
        draws=pair[1],
        report=tmp_path / "report.json",
    )
    found = store.open_run(tmp_path / "run").attrs
    assert found["arm"] == "bijou@40000_draws3_t0.7"
    assert (found["family"], found["temperature"], found["sample_draws"]) == ("token", 0.7, DRAWS)
    assert (found["seed"], found["noise_key"], found["pooled"]) == (0, "stable", False)
    assert found["checkpoint"] == "fontaine/step_040000"
    assert found["panel"] == "holdout_k4l2"
    assert found["published"]["report"]["summary"] == {"chunk_mae": 5.5, "first_mae": 2.25}
    assert found["published"]["files"]["predictions"]["name"] == "banked.npz"
    assert len(found["published"]["files"]["draws"]["sha256"]) == 64
    assert found["published"]["left_out"] == [f"{GREEDY} float32 [24, 8, 6]"]
    assert "someone" not in json.dumps(found)


def test_arms_of_one_panel_agree_in_its_digest_and_others_do_not(tmp_path: Path) -> None:
    arrays = published(GREEDY, SAMPLED)
    path = save(tmp_path / "in.npz", arrays)
    other = save(tmp_path / "other.npz", {**arrays, "core": ~arrays["core"]})
    taken(path, tmp_path / "a", arm=GREEDY)
    taken(path, tmp_path / "b", arm=SAMPLED)
    taken(other, tmp_path / "c", arm=GREEDY)
    a, b, c = (store.open_run(tmp_path / name).attrs["panel_digest"] for name in "abc")
    assert a == b
    assert a != c


def test_a_mean_without_its_draws_says_so(tmp_path: Path) -> None:
    path = save(tmp_path / "in.npz", published(SAMPLED))
    assert taken(path, tmp_path / "run").draws == 1
    attributes = store.open_run(tmp_path / "run").attrs
    assert (attributes["pooled"], attributes["sample_draws"]) == (True, DRAWS)
    with pytest.raises(Refusal, match="imported without its draws"):
        export_npz([tmp_path / "run"], tmp_path / "out.npz", draws=tmp_path / "draws.npz")
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("key", "family", "temperature"),
    [
        (GREEDY, None, 0.0),
        (GREEDY, "token", 0.0),
        (GREEDY, "flow", None),
        (RELEASE, None, None),
        (FLOW, None, None),
        (SAMPLED, None, 0.7),
    ],
)
def test_a_name_without_draws_is_greedy_unless_it_is_said_to_be_of_a_flow(
    tmp_path: Path, key: str, family: str | None, temperature: float | None
) -> None:
    path = save(tmp_path / "in.npz", published(key))
    found = taken(path, tmp_path / "run", family=family)
    assert store.open_run(tmp_path / "run").attrs["temperature"] == temperature
    assert found.assumed_greedy == (key == GREEDY and family is None)


def test_a_family_that_contradicts_the_name_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "in.npz", published(SAMPLED))
    with pytest.raises(Refusal, match="expected token, as the name says"):
        taken(path, tmp_path / "run", family="flow")


def test_published_numbers_of_more_rows_are_no_summary_of_a_part(tmp_path: Path) -> None:
    arrays, stack = drawn()
    report = {"summaries": [{"policy": SAMPLED.removeprefix("pred:"), "chunk_mae": 5.5}]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    taken(
        save(tmp_path / "in.npz", arrays),
        tmp_path / "run",
        arm=SAMPLED,
        draws=save(tmp_path / "draws.npz", part(stack, ROWS)),
        report=tmp_path / "report.json",
    )
    found = store.open_run(tmp_path / "run").attrs
    assert found["summary"] is None
    assert found["published"]["report"]["summary"] == {"chunk_mae": 5.5}


def test_an_analysis_report_is_understood_too(tmp_path: Path) -> None:
    report = {
        "arms_pooled": {"greedy": {"chunk_mae": 6.0, "first_mae": 2.0, "pred_key": GREEDY}},
        "read5_execution_oracles": {"checkpoint": "run/step_040000", "sample_draws": 10},
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    path = save(tmp_path / "in.npz", published(GREEDY))
    taken(path, tmp_path / "run", report=tmp_path / "report.json")
    found = store.open_run(tmp_path / "run").attrs
    assert found["published"]["report"]["summary"] == {"chunk_mae": 6.0, "first_mae": 2.0}
    assert found["checkpoint_digest"] == "run/step_040000 (by name)"


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("{", 5, "cannot be read"),
        ('{"summaries": []}', 2, "has no summary of bijou@40000"),
        ('{"summaries": [{"policy": "bijou@60000"}]}', 2, "bijou@60000 comes closest"),
        ('{"summaries": [{"policy": "bijou@40000"}], "core_frames": 3}', 3, "core_frames 3"),
        (None, 2, "there is no file"),
    ],
)
def test_a_report_of_something_else_is_refused(
    tmp_path: Path, content: str | None, code: int, said: str
) -> None:
    report = tmp_path / "report.json"
    if content is not None:
        report.write_text(content)
    with pytest.raises(Refusal, match=said) as refused:
        taken(save(tmp_path / "in.npz", published(GREEDY)), tmp_path / "run", report=report)
    assert refused.value.exit_code == code


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (GREEDY, ("bijou@40000", None, None, False, None)),
        (SAMPLED, ("bijou@40000", 3, 0.7, False, "token")),
        (FLOW, ("f@8", 3, None, False, "flow")),
        (TICKETS, ("f@8", 3, None, True, "flow")),
        (RELEASE, ("molmo-so100@release", None, None, False, "flow")),
        ("pred:bijou@9_selfsubgoal", ("bijou@9", None, None, False, None)),
        ("pred:bijou@9_selfsubgoal_draws10_t1", ("bijou@9", 10, 1.0, False, "token")),
        ("pred:ar_tiny@1a2b3c4d_draws10_t1to0.5", ("ar_tiny@1a2b3c4d", 10, 1.0, False, "token")),
    ],
)
def test_a_key_says_checkpoint_draws_temperature_and_family(
    key: str, expected: tuple[Any, ...]
) -> None:
    name = parsed(key)
    assert (name.checkpoint, name.draws, name.T, name.ticket, name.family) == expected
    assert name.key == key


@pytest.mark.parametrize(
    "key",
    [
        "pred:bijou",
        "pred:@4",
        "pred:bijou@",
        "pred:bijou@4_draws",
        "pred:bijou@4_draws0_t1",
        "pred:bijou@4_draws10_t0.70",
        "pred:bijou@4_draws10_thot",
        "pred:bijou@4_draws10_ticket2",
    ],
)
def test_a_key_that_does_not_say_what_made_it_is_refused(key: str) -> None:
    with pytest.raises(Refusal, match="expected pred:NAME@TAG"):
        parsed(key)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, "holds 2 predictions beside the baselines: pred:bijou@40000, pred:bijou@40000_d"),
        ("bijou@4000", "did you mean --arm 'pred:bijou@40000'"),
        ("pred:state-copy", "holds no prediction pred:state-copy"),
    ],
)
def test_which_arm_must_be_said_where_there_are_several(
    tmp_path: Path, asked: str | None, said: str
) -> None:
    path = save(tmp_path / "in.npz", published(GREEDY, SAMPLED))
    with pytest.raises(Refusal, match=said) as refused:
        taken(path, tmp_path / "run", arm=asked)
    assert refused.value.exit_code == 2


# --- horizons and failed draws --------------------------------------------------------------


def test_the_horizon_is_the_last_step_with_values(tmp_path: Path) -> None:
    arrays = published(RELEASE)
    arrays[RELEASE][:, 5:] = np.nan
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    assert store.open_run(tmp_path / "run").attrs["horizon"] == 5
    with pytest.raises(Refusal, match="horizon of 5 steps"):
        summary.summarise(tmp_path / "run", window=6)


def test_a_token_draw_that_is_nan_throughout_is_a_failed_one(tmp_path: Path) -> None:
    arrays, stack = drawn()
    stack["draws"][3, 1] = np.nan
    arrays[SAMPLED][3] = stack["draws"][3, [0, 2]].mean(axis=0)
    found = taken(
        save(tmp_path / "in.npz", arrays),
        tmp_path / "run",
        arm=SAMPLED,
        draws=save(tmp_path / "draws.npz", stack),
    )
    assert (found.failed, found.horizon) == (1, STEPS)
    assert summary.summarise(tmp_path / "run", window=None).failed == 1


def _failed(chunk: np.ndarray) -> None:
    chunk[4] = np.nan


def _hole(chunk: np.ndarray) -> None:
    chunk[4, 2, 1] = np.nan


def _short(chunk: np.ndarray) -> None:
    chunk[4, 6:] = np.nan


def _endless(chunk: np.ndarray) -> None:
    chunk[4, 2, 1] = np.inf


def _nothing(chunk: np.ndarray) -> None:
    chunk[:] = np.nan


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        (RELEASE, _failed, "has no value"),
        (RELEASE, _short, "has 6 steps"),
        (GREEDY, _hole, "has NaN among its values"),
        (GREEDY, _endless, "a prediction is infinite"),
        (GREEDY, _nothing, "every prediction is NaN"),
    ],
)
def test_nan_inside_the_horizon_is_refused_and_its_frame_named(
    tmp_path: Path, key: str, change: Callable[[np.ndarray], None], said: str
) -> None:
    arrays = published(key)
    change(arrays[key])
    with pytest.raises(Refusal, match=said) as refused:
        taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    assert refused.value.exit_code == 3
    assert change is _nothing or "a/first episode 0 frame 12" in str(refused.value)


# --- files that are not as published --------------------------------------------------------


def _objects(arrays: Arrays) -> None:
    arrays["repo_id"] = arrays["repo_id"].astype(object)


def _missing(arrays: Arrays) -> None:
    arrays["repo"] = arrays.pop("repo_id")


def _no_baseline(arrays: Arrays) -> None:
    del arrays["pred:state-copy-norm"]


def _double(arrays: Arrays) -> None:
    arrays[GREEDY] = arrays[GREEDY].astype(np.float64)


def _big_endian(arrays: Arrays) -> None:
    arrays["truth"] = arrays["truth"].astype(">f4")


def _numbers(arrays: Arrays) -> None:
    arrays["valid"] = arrays["valid"].astype(np.int8)


def _small_index(arrays: Arrays) -> None:
    arrays["index"] = arrays["index"].astype(np.int32)


def _rows(arrays: Arrays) -> None:
    arrays["core"] = arrays["core"][:-1]


def _steps(arrays: Arrays) -> None:
    arrays[GREEDY] = arrays[GREEDY][:, :-1]


def _axes(arrays: Arrays) -> None:
    arrays["truth"] = arrays["truth"][0]


def _columns(arrays: Arrays) -> None:
    arrays["truth"] = np.asfortranarray(arrays["truth"])


def _empty(arrays: Arrays) -> None:
    arrays.update({key: value[:0] for key, value in arrays.items()})


def _same_index(arrays: Arrays) -> None:
    arrays["index"][1] = arrays["index"][0]


def _same_frame(arrays: Arrays) -> None:
    for key in ("repo_id", "episode_index", "frame_index"):
        arrays[key][1] = arrays[key][0]


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (_objects, 2, "repo_id of raw.npz is object, which takes pickle"),
        (_missing, 2, "has no repo_id; repo comes closest"),
        (_no_baseline, 2, "has no pred:state-copy-norm"),
        (_double, 2, "is float64; expected float32"),
        (_big_endian, 2, "truth of raw.npz is >f4; expected float32"),
        (_numbers, 2, "valid of raw.npz is int8; expected bool"),
        (_small_index, 2, "index of raw.npz is int32; expected int64"),
        (_rows, 2, r"core of raw.npz has the shape \[23\]; expected \[frame\] = \[24\]"),
        (_steps, 2, r"\[24, 7, 6\]; expected \[frame, step, action\] = \[24, 8, 6\]"),
        (_axes, 2, r"truth of raw.npz has the shape \[8, 6\]"),
        (_columns, 2, "Fortran order"),
        (_empty, 2, "at least one frame"),
        (_same_index, 3, "holds 1000 2 times"),
        (_same_frame, 3, "holds 1 frames twice"),
    ],
)
def test_a_file_outside_the_contract_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[Arrays], None], code: int, said: str
) -> None:
    arrays = published(GREEDY)
    change(arrays)
    with pytest.raises(Refusal, match=said) as refused:
        taken(write_raw(tmp_path, arrays), tmp_path / "run")
    assert refused.value.exit_code == code
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [_objects, _numbers, _columns, _big_endian])
def test_the_line_that_resaves_a_file_mends_it(
    tmp_path: Path, change: Callable[[Arrays], None]
) -> None:
    arrays = published(GREEDY)
    expected = dict(arrays)
    change(arrays)
    with pytest.raises(Refusal) as refused:
        taken(write_raw(tmp_path, arrays), tmp_path / "run")
    _, _, code = shlex.split(refused.value.remedy.partition("resave it: ")[2])
    subprocess.run([sys.executable, "-c", code], check=True)
    taken(tmp_path / "raw_resaved.npz", tmp_path / "run")
    export_npz([tmp_path / "run"], tmp_path / "out.npz")
    assert_same(load(tmp_path / "out.npz"), expected)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_no_pickle_is_ever_loaded(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    arrays["repo_id"] = np.array([Trap(tmp_path / "trapped")] * FRAMES, dtype=object)
    arrays["extra"] = np.array([Trap(tmp_path / "trapped")], dtype=object)
    with pytest.raises(Refusal, match="pickle"):
        taken(write_raw(tmp_path, arrays), tmp_path / "run")
    arrays["repo_id"] = published(GREEDY)["repo_id"]
    assert taken(write_raw(tmp_path, arrays), tmp_path / "run").left_out == ("extra object [1]",)
    assert not (tmp_path / "trapped").exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def _no_zip(path: Path) -> None:
    path.write_bytes(b"no zip at all")


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        place = file.getinfo(f"{GREEDY}.npy").header_offset
    content[place + 300] ^= 1
    path.write_bytes(content)


def _rewritten(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path) as file:
        parts = {each: file.read(each) for each in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for each, old in parts.items():
            file.writestr(each, content if each == name else old)


def _lying_header(path: Path) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999,), }"
    _rewritten(path, "index.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def _broken_header(path: Path) -> None:
    _rewritten(path, "index.npy", b"\x93NUMPY\x01\x00\x04\x00{'a'")


def _negative(path: Path) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }"
    _rewritten(path, "index.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def _other_method(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        parts = {each: file.read(each) for each in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as file:
        for each, old in parts.items():
            file.writestr(each, old)


@pytest.mark.parametrize(
    "damage", [_cut, _no_zip, _flipped, _lying_header, _broken_header, _negative, _other_method]
)
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = write_raw(tmp_path, published(GREEDY))
    damage(path)
    with pytest.raises(Refusal, match=r"raw.npz cannot be read") as refused:
        taken(path, tmp_path / "run")
    assert refused.value.exit_code == 5


def test_a_mask_of_other_bytes_than_0_and_1_is_damage(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    arrays["valid"].view(np.uint8)[3, 1] = 2
    with pytest.raises(Refusal, match="bytes other than 0 and 1") as refused:
        taken(write_raw(tmp_path, arrays), tmp_path / "run")
    assert refused.value.exit_code == 5


def test_a_name_that_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = write_raw(tmp_path, published(GREEDY))
    header = b"{'descr': '<U3000000', 'fortran_order': False, 'shape': (24,), }"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path) as file:
        parts = {each: file.read(each) for each in file.namelist() if each != "repo_id.npy"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for each, old in parts.items():
            file.writestr(each, old)
        with file.open("repo_id.npy", "w") as stream:
            stream.write(start)
            for _ in range(24):
                stream.write(bytes(12_000_000))
    tracemalloc.start()
    with pytest.raises(Refusal, match="takes 288,000,000 bytes") as refused:
        taken(path, tmp_path / "run")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert refused.value.exit_code == 2


# --- memory, interruption, folders ----------------------------------------------------------


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
def test_a_member_is_read_a_block_at_a_time(tmp_path: Path, savez: Callable[..., None]) -> None:
    stack = chunks(0, 4000, 10, STEPS, ACTIONS)
    savez(tmp_path / "draws.npz", draws=stack)
    archive = opened(tmp_path / "draws.npz")
    row_bytes = archive.members["draws"].row_bytes
    ranges = block_ranges(4000, row_bytes=row_bytes)
    tracemalloc.start()
    read = [float(block[-1, -1, -1, -1]) for block in slices(archive, "draws", ranges)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == [float(stack[part.stop - 1, -1, -1, -1]) for part in ranges]
    assert peak < 6 * 256 * row_bytes  # of 4000 * row_bytes


def test_a_killed_import_resumes(pair: tuple[Path, Path], tmp_path: Path) -> None:
    write, calls = store.write_block, []

    def dying(*arguments: Any) -> None:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        write(*arguments)

    stated = {"arm": SAMPLED, "draws": pair[1]}
    with mock.patch("arflow_eval.store.write_block", dying), pytest.raises(KeyboardInterrupt):
        taken(pair[0], tmp_path / "run", **stated)
    done = store.progress(tmp_path / "run" / "predictions.zarr")[0]
    assert 0 < done < FRAMES
    resumed = taken(pair[0], tmp_path / "run", **stated)
    assert resumed.computed == FRAMES - done
    assert resumed.fingerprint == taken(pair[0], tmp_path / "again", **stated).fingerprint
    assert taken(pair[0], tmp_path / "run", **stated).computed == 0


def test_a_folder_never_mixes_two_files(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    arrays[GREEDY][9, 1, 2] += 1
    with pytest.raises(Refusal, match="was made by configuration"):
        taken(save(tmp_path / "changed.npz", arrays), tmp_path / "run")
    with pytest.raises(Refusal, match="imported with another panel"):
        taken(tmp_path / "in.npz", tmp_path / "run", panel="q4")


def test_the_same_arrays_in_another_zip_are_the_same_store(tmp_path: Path) -> None:
    arrays = published(GREEDY)
    taken(save(tmp_path / "in.npz", arrays), tmp_path / "run")
    more = {**arrays, SAMPLED: arrays[GREEDY]}
    assert taken(write_raw(tmp_path, more), tmp_path / "run", arm=GREEDY).computed == 0


# --- export ---------------------------------------------------------------------------------


def evaluated(
    folder: Path, *, draws: int = 1, order: np.ndarray | None = None, **changed: Any
) -> Path:
    """A store as evaluate writes one, of 12 frames of PushT; draw 0 of frame 2 has failed."""
    row = np.arange(12) if order is None else order
    frames = Frames(
        repos=("lerobot/pusht",),
        tasks=("push",),
        repo=row * 0,
        task=row * 0,
        episode=row // 4,
        frame_index=row % 4,
        index=row * 5,
        core=row % 2 == 0,
    )
    suffix = "" if draws == 1 else f"_draws{draws}_t1"
    attributes = {
        "digest": "ab" * 32,
        "arm": f"ar_tiny{suffix}",
        "config": {"model": {"name": "ar_tiny"}, "decode": {"noise": "philox"}},
        "horizon": STEPS,
        "checkpoint_digest": "0123456789abcdef",
        "seed": 3,
        **changed,
    }
    space = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)
    schema = store.Schema(
        frames, space, STEPS, draws, block=4, attributes=attributes, state_copy=True
    )
    path = folder / "predictions.zarr"
    store.open_or_create(path, schema)
    every = {
        "prediction": chunks(1, 12, draws, STEPS, 2),
        "truth": chunks(2, 12, STEPS, 2),
        "valid": np.ones((12, STEPS), bool),
        "logprob": np.zeros((12, draws)),
        "state_copy": chunks(3, 12, STEPS, 2),
        "state_copy_norm": chunks(4, 12, STEPS, 2),
    }
    if draws > 1:
        every["prediction"][2, 0] = np.nan
    for rows in store.blocks(path, shard_index=0, shard_count=1):
        block = row[rows.start : rows.stop]
        store.write_block(path, rows, {key: value[block] for key, value in every.items()})
    store.finalise(path)
    return folder


def test_an_evaluated_run_is_exported_as_its_mean_over_draws(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "run", draws=3)
    found = export_npz([run], tmp_path / "out.npz", draws=tmp_path / "draws.npz")
    (key,) = found.keys
    assert key == "pred:ar_tiny@01234567_draws3_t1"
    stack, arrays = load(tmp_path / "draws.npz"), load(tmp_path / "out.npz")
    mean = np.nanmean(stack["draws"].astype(np.float64), axis=1).astype(np.float32)
    assert same_bits(arrays[key], mean)
    assert {each: stack[each].item() for each in ("policy", "sample_draws", "seed")} == {
        "policy": "ar_tiny@01234567_draws3_t1",
        "sample_draws": 3,
        "seed": 3,
    }
    assert not any(value.dtype.hasobject for value in (arrays | stack).values())


def test_an_evaluated_run_comes_back_with_its_draws(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "run", draws=3)
    export_npz([run], tmp_path / "out.npz", draws=tmp_path / "draws.npz")
    space = {"actions": ("x", "y"), "units": "pixel", "fps": 10.0}
    taken(tmp_path / "out.npz", tmp_path / "back", draws=tmp_path / "draws.npz", **space)
    before, after = store.open_run(run), store.open_run(tmp_path / "back")
    for name in ("prediction", "truth", "valid", "state_copy", "index", "core", "repo_name"):
        assert same_bits(before[name].to_numpy(), after[name].to_numpy())
    both = (summary.summarise(each, window=None) for each in (run, tmp_path / "back"))
    assert len({(each.chunk_mae, each.first_mae, each.failed) for each in both}) == 1
    assert after.attrs["fps"] == 10.0


def test_runs_in_another_order_are_laid_side_by_side(tmp_path: Path) -> None:
    first = evaluated(tmp_path / "first")
    order = np.random.default_rng(0).permutation(12)
    second = evaluated(tmp_path / "second", draws=3, order=order)
    found = export_npz([first, second], tmp_path / "out.npz")
    arrays = load(tmp_path / "out.npz")
    assert arrays["index"].tolist() == (np.arange(12) * 5).tolist()
    stack = chunks(1, 12, 3, STEPS, 2)
    stack[2, 0] = np.nan
    mean = np.nanmean(stack.astype(np.float64), axis=1).astype(np.float32)
    assert same_bits(arrays[found.keys[1]], mean)


def test_a_published_mean_follows_its_frames_into_another_order(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    arrays, stack = drawn()
    order = np.random.default_rng(0).permutation(FRAMES)
    taken(pair[0], tmp_path / "greedy", arm=GREEDY)
    shuffled = part(arrays, order)
    taken(
        save(tmp_path / "s.npz", shuffled),
        tmp_path / "sampled",
        arm=SAMPLED,
        draws=save(tmp_path / "sd.npz", part(stack, order)),
    )
    export_npz([tmp_path / "greedy", tmp_path / "sampled"], tmp_path / "out.npz")
    assert_same(load(tmp_path / "out.npz"), arrays)


def test_a_lost_or_changed_published_mean_is_damage(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    taken(pair[0], tmp_path / "run", arm=SAMPLED, draws=pair[1])
    beside = tmp_path / "run" / "pooled.npy"
    content = bytearray(beside.read_bytes())
    content[-1] ^= 1
    beside.write_bytes(content)
    for _ in range(2):
        with pytest.raises(Refusal, match="not the published mean") as refused:
            export_npz([tmp_path / "run"], tmp_path / "out.npz")
        assert refused.value.exit_code == 5
        beside.unlink(missing_ok=True)


def test_stores_that_do_not_fit_together_are_not_exported(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one")
    alike = evaluated(tmp_path / "alike")
    with pytest.raises(Refusal, match="another key for each"):
        export_npz([one, alike], tmp_path / "out.npz")
    taken(save(tmp_path / "in.npz", published(GREEDY)), tmp_path / "other")
    with pytest.raises(Refusal, match="action_names"):
        export_npz([one, tmp_path / "other"], tmp_path / "out.npz")
    nameless = evaluated(tmp_path / "nameless", config={})
    with pytest.raises(Refusal, match="does not name its model"):
        export_npz([nameless], tmp_path / "out.npz")
    with pytest.raises(Refusal, match="a key without _drawsN"):
        export_npz([nameless], tmp_path / "out.npz", arm="x@1_draws10_t1")
    assert not (tmp_path / "out.npz").exists()
    assert export_npz([nameless], tmp_path / "out.npz", arm="x@1").keys == ("pred:x@1",)
    with pytest.raises(Refusal, match="exists"):
        export_npz([nameless], tmp_path / "out.npz", arm="x@1")


def test_an_unfinished_store_is_not_exported(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "run")
    store.clear(run / "predictions.zarr", [0])
    with pytest.raises(Refusal, match="unwritten") as refused:
        export_npz([run], tmp_path / "out.npz")
    assert refused.value.exit_code == 3


# --- the command line -----------------------------------------------------------------------


def test_the_command_line_imports_and_exports(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "out.npz")
    words = ["npz", str(pair[0]), "--arm", SAMPLED, run, "--draws", str(pair[1]), "--fps", "15"]
    assert convert.main(words) == 0
    shown = capsys.readouterr().out
    assert "bijou@40000_draws3_t0.7: 24 frames, 3 draws, 8 steps" in shown
    assert "left out     pred:bijou@40000 float32 [24, 8, 6]" in shown
    assert store.open_run(run).attrs["fps"] == 15.0
    assert convert.main(words) == 0
    assert "complete already" in capsys.readouterr().out
    assert convert.main(["npz", run, out, "--draws", str(tmp_path / "out_draws.npz")]) == 0
    assert_same(load(tmp_path / "out_draws.npz"), load(pair[1]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected convert npz IN.npz OUT"),
        (["npy", "a.npz", "b"], "did you mean npz?"),
        (["npz", "a.npz"], "convert npz a.npz"),
        (["npz", "a.npz", "b.npz"], "convert npz a.npz b.npz"),
        (["npz", "a.npz", "out", "--arms", "x"], "did you mean --arm?"),
        (["npz", "a.npz", "out", "--arm"], "--arm"),
        (["npz", "a.npz", "out"], "there is no file a.npz"),
        (["npz", "run", "out.npz", "--report", "r.json"], "--report with an export"),
        (["npz", "run", "out.npz"], "no store at run"),
    ],
)
def test_a_wrong_word_is_one_line_and_status_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--fps", "0"], "--fps 0"), (["--actions", "a,b"], "6 different names")],
)
def test_a_wrong_space_is_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "in.npz", published(GREEDY))
    assert convert.main(["npz", str(path), str(tmp_path / "run"), *flags]) == 2
    assert said in capsys.readouterr().err


def test_help_shows_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "convert npz IN.npz OUT" in shown
    assert "convert npz RUN [RUN ...] OUT.npz" in shown


def test_convert_is_a_module_and_needs_no_model_stack(tmp_path: Path) -> None:
    path = save(tmp_path / "in.npz", published(GREEDY))
    code = (
        "import sys, arflow_eval.convert as c; status = c.main(sys.argv[1:]);"
        "assert not {'torch', 'transformers'} & set(sys.modules); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "npz", str(path), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": str(Path(convert.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fingerprint" in done.stdout
    shutil.rmtree(tmp_path / "run")
