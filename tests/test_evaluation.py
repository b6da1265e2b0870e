"""The loop of an evaluation, with policies that count what they are asked."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xarray

from arflow_eval import compose, evaluation, provenance, refusal, store
from arflow_eval.contracts import Observation, Panel, Policy
from arflow_eval.decode.frames import decode
from arflow_eval.evaluate import evaluate, load_panel
from arflow_eval.evaluation import Outcome
from arflow_eval.settings import BUNDLED, EvaluateSettings, evaluate_settings
from arflow_eval.summary import summarise


@dataclass
class Counting:
    """Holds the state, and counts the frames it predicted; may break at the n-th."""

    horizon: int = 50
    action_dim: int = 2
    breaks_at: int | None = None
    predicted: list[int] = field(default_factory=list)

    def predict(self, observation: Observation) -> np.ndarray:
        if len(self.predicted) == self.breaks_at:
            raise RuntimeError("killed")
        self.predicted.append(observation.index)
        return np.repeat(observation.state[None], self.horizon, axis=0)


def settings_for(root: Path, *overrides: str) -> EvaluateSettings:
    words = ["model=state_copy", "panel=pusht_q4", f"store.root={root}", *overrides]
    return evaluate_settings(compose.compose("evaluate", words))


def run(settings: EvaluateSettings, policy: Policy | None, panel: Panel | None = None) -> Outcome:
    def load() -> Policy:
        assert policy is not None, "a complete store needs no policy"
        return policy

    panel = load_panel(settings) if panel is None else panel
    return evaluation.run(settings, panel, load=load, decode=decode)


def test_a_run_predicts_every_frame_once_and_ends_with_a_fingerprint(tmp_path: Path) -> None:
    policy = Counting()
    outcome = run(settings_for(tmp_path), policy)
    assert outcome.computed == len(set(policy.predicted)) == 41
    assert outcome.fingerprint is not None


def test_a_rerun_computes_nothing_and_loads_no_policy(tmp_path: Path) -> None:
    first = run(settings_for(tmp_path), Counting())
    again = run(settings_for(tmp_path), None)
    assert (again.computed, again.fingerprint) == (0, first.fingerprint)


def test_a_broken_run_resumes_and_ends_with_an_equal_fingerprint(tmp_path: Path) -> None:
    whole = run(settings_for(tmp_path / "whole"), Counting())
    settings = settings_for(tmp_path / "broken", "store.block=4")
    with pytest.raises(RuntimeError, match="killed"):
        run(settings, Counting(breaks_at=18))
    rest = Counting()
    resumed = run(settings, rest)
    assert len(rest.predicted) == 41 - 16
    assert resumed.fingerprint == whole.fingerprint


def test_a_disk_full_at_any_write_is_one_line_and_the_run_resumes(tmp_path: Path) -> None:
    whole = run(settings_for(tmp_path / "whole"), Counting())
    settings, write = settings_for(tmp_path / "full"), os.write
    for room in itertools.count():
        left = iter(range(room))

        def limited(descriptor: int, content: bytes, left: Iterator[int] = left) -> int:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, content)

        try:
            with mock.patch("os.write", limited):
                outcome = run(settings, Counting())
            break
        except refusal.Refusal as refused:
            assert refused.exit_code == 1  # noqa: PT017 - it ends in one line or not at all
    assert room > 10
    assert outcome.fingerprint == whole.fingerprint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_disk_full_as_seconds_are_recorded_is_one_line(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    with pytest.raises(RuntimeError, match="killed"):
        run(settings, Counting(breaks_at=18))
    (seconds,) = tmp_path.glob("*/timings/shard-0.jsonl")
    seconds.unlink()
    seconds.symlink_to("/dev/full")
    with pytest.raises(refusal.Refusal, match="No space left on device") as caught:
        run(settings, Counting())
    assert caught.value.exit_code == 1


def test_four_shards_equal_one_process(tmp_path: Path) -> None:
    whole = run(settings_for(tmp_path / "whole"), Counting())
    fingerprints = [
        run(settings_for(tmp_path / "s", "shard.count=4", f"shard.index={i}"), Counting())
        for i in (2, 0, 3, 1)
    ]
    assert [each.fingerprint is None for each in fingerprints] == [True, True, True, False]
    assert fingerprints[-1].fingerprint == whole.fingerprint


@pytest.mark.parametrize(
    "override",
    ["seed=1", "panel=pusht", "model=hold_last", "panel.steps=40", "decode.determinism=keyed"],
)
def test_what_can_change_numbers_makes_another_store(tmp_path: Path, override: str) -> None:
    mine, other = settings_for(tmp_path), settings_for(tmp_path, override)
    found = [evaluation.identity(each, load_panel(each)) for each in (mine, other)]
    assert found[0] != found[1]


LEVEL = "decode.determinism="


@pytest.mark.parametrize(
    ("level", "override"),
    [
        ("exact", "window=30"),
        ("exact", "store.block=3"),
        ("exact", "shard.count=2"),
        ("exact", "batch=3"),
        ("exact", "device=cuda"),
        ("keyed", "batch=3"),
        ("fixed_shape", "threads=2"),
    ],
)
def test_what_cannot_change_numbers_is_no_part_of_a_stores_name(
    tmp_path: Path, level: str, override: str
) -> None:
    mine, other = (settings_for(tmp_path, LEVEL + level, *more) for more in ([], [override]))
    found = [evaluation.identity(each, load_panel(each)) for each in (mine, other)]
    assert found[0] == found[1]


def test_a_shorter_horizon_leaves_nan_past_it(tmp_path: Path) -> None:
    outcome = run(settings_for(tmp_path), Counting(horizon=30))
    prediction = store.open_run(outcome.store)["prediction"].to_numpy()
    assert np.isfinite(prediction[:, :, :30]).all()
    assert np.isnan(prediction[:, :, 30:]).all()


def test_the_store_opens_with_xarray_alone_and_holds_truth_and_baselines(tmp_path: Path) -> None:
    outcome = run(settings_for(tmp_path), Counting())
    panel = load_panel(settings_for(tmp_path))
    found = xarray.open_zarr(outcome.store, chunks=None)
    targets = panel.targets(range(41))
    assert (found["truth"].to_numpy() == targets.truth).all()
    assert (found["valid"].to_numpy() == targets.valid).all()
    assert (found["state_copy"].to_numpy() == found["prediction"].to_numpy()[:, 0]).all()
    assert found["prediction"].dims == ("frame", "draw", "step", "action")
    assert found.attrs["arm"] == "state_copy"


def test_the_summary_agrees_with_a_direct_mean(tmp_path: Path) -> None:
    outcome = run(settings_for(tmp_path), Counting())
    found = xarray.open_zarr(outcome.store, chunks=None)
    error = np.abs(found["prediction"][:, 0] - found["truth"]).to_numpy().astype(float)
    scored = found["valid"].to_numpy()
    summary = summarise(outcome.store, window=None)
    assert summary.chunk_mae == pytest.approx(error[scored].mean(), abs=1e-6)
    assert summary.first_mae == pytest.approx(error[:, 0].mean(), abs=1e-6)
    assert summary.baselines["state_copy"] == summary.chunk_mae
    short = summarise(outcome.store, window=10)
    assert short.chunk_mae == pytest.approx(error[:, :10][scored[:, :10]].mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("policy", "override", "message"),
    [
        (Counting(action_dim=6), "seed=0", "predicts 6 action dimensions; expected the 2"),
        (Counting(horizon=80), "seed=0", "predicts 80 steps; expected at most the 50"),
        (Counting(horizon=30), "window=40", "window=40 with a horizon of 30"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_before_a_store_exists(
    tmp_path: Path, policy: Counting, override: str, message: str
) -> None:
    with pytest.raises(refusal.Refusal, match=message) as refused:
        run(settings_for(tmp_path, override), policy)
    assert refused.value.exit_code == refusal.GUARD
    assert list(tmp_path.iterdir()) == []


def test_a_window_past_the_horizon_is_refused_of_a_finished_store_too(tmp_path: Path) -> None:
    outcome = run(settings_for(tmp_path), Counting(horizon=30))
    with pytest.raises(refusal.Refusal, match="window=31 of a store with a horizon"):
        summarise(outcome.store, window=31)


def test_a_family_that_the_policy_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(refusal.Refusal, match="family=flow for Counting"):
        run(settings_for(tmp_path, "model.family=flow"), Counting())


def test_the_code_that_fills_the_columns_is_part_of_a_stores_name(
    tmp_path: Path,
) -> None:
    package = tmp_path / "arflow_eval"
    shutil.copytree(provenance.PACKAGE, package, ignore=shutil.ignore_patterns("data", "bundled"))
    here = provenance.code_digest(["arflow_eval.model.flow", evaluation.COLUMNS], package=package)
    rule = package / "model" / "baseline.py"
    rule.write_text(
        rule.read_text().replace("observation.state, steps", "-observation.state, steps")
    )
    there = provenance.code_digest(["arflow_eval.model.flow", evaluation.COLUMNS], package=package)
    assert here != there


def test_a_stores_configuration_is_resolved_and_names_no_folder_of_a_person(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path, "model=flow_tiny", f"model.path={BUNDLED}/flow_tiny")
    found = evaluation.resolved(settings)
    assert found["model"]["path"] == "flow_tiny"
    assert found["decode"]["steps"] == 10
    assert "window" not in found
    assert str(BUNDLED.parent) not in str(found)


def test_a_writer_record_that_is_there_is_whole(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    run(settings, Counting())
    (record,) = tmp_path.glob("*/writer.json")
    assert json.loads(record.read_text())["threads"] == 1
    assert not list(tmp_path.glob("*/.writer-*"))


@dataclass(frozen=True)
class Spoilt:
    """A panel with a state that is not a number."""

    inner: Panel

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def observe(self, row: int) -> Observation:
        seen = self.inner.observe(row)
        states = seen.states.copy()
        states[-1] = np.nan if row == 7 else states[-1]
        return replace(seen, states=states)


def test_a_nan_state_is_a_guard_failure_that_names_the_frame(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    panel = load_panel(settings)
    with pytest.raises(refusal.Refusal, match=f"episode {panel.frames.episode[7]} up to frame"):
        run(settings, Counting(), Spoilt(panel))


def test_another_thread_count_may_not_write_into_the_same_store(tmp_path: Path) -> None:
    words = ["store.block=4", "decode.determinism=exact"]
    settings = settings_for(tmp_path, *words)
    with pytest.raises(RuntimeError, match="killed"):
        run(settings, Counting(breaks_at=10))
    other = settings_for(tmp_path, *words, "threads=2")
    with pytest.raises(refusal.Refusal, match="first writer in threads"):
        run(other, Counting())


def test_at_keyed_another_thread_count_may_write_and_is_recorded(tmp_path: Path) -> None:
    words = ["store.block=4", "decode.determinism=keyed"]
    with pytest.raises(RuntimeError, match="killed"):
        run(settings_for(tmp_path, *words), Counting(breaks_at=10))
    outcome = run(settings_for(tmp_path, *words, "threads=2"), Counting())
    writers = json.loads((outcome.folder / "writers" / "shard-0.json").read_text())
    assert (writers["threads"], outcome.fingerprint is None) == (2, False)


def test_frames_of_a_batch_of_fixed_shape_name_the_store(tmp_path: Path) -> None:
    mine, other = (
        settings_for(tmp_path, f"{LEVEL}fixed_shape", f"batch={batch}") for batch in (2, 3)
    )
    found = [evaluation.identity(each, load_panel(each)) for each in (mine, other)]
    assert found[0] != found[1]


def test_a_killed_process_resumes_to_the_fingerprint_of_an_unbroken_one(tmp_path: Path) -> None:
    words = ["model=flow_tiny", "decode=draws", "decode.draws=16", "decode.steps=60"]
    words += ["panel=pusht_q4", "store.block=4"]
    whole = evaluate(compose.compose("evaluate", [*words, f"store.root={tmp_path}/whole"]))
    command = [sys.executable, "-m", "arflow_eval.evaluate", *words, "store.root=killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    path = tmp_path / "killed" / whole.folder.name / "timings" / "shard-0.jsonl"
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    done, total = store.progress(path.parent.parent / "predictions.zarr")
    assert 0 < done < total
    resumed = evaluate(compose.compose("evaluate", [*words, f"store.root={tmp_path}/killed"]))
    assert resumed.computed == total - done
    assert resumed.fingerprint == whole.fingerprint
