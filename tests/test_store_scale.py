"""A store of any length takes the memory of one block, as it is written, ended and read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arflow_eval
from arflow_eval import store
from arflow_eval.contracts import Frames, Space
from arflow_eval.stats.scoring import arm_errors

DRAWS, STEPS, ACTIONS, BLOCK = 10, 50, 6, 256
PUBLISHED = 25_800  # frames of the published evaluation
ALLOWED = 300  # MB above what the process held before it began
BYTES = 4 * STEPS * ACTIONS * (DRAWS + 3)  # of a frame, about: predictions, truth, state copies


def schema(frames: int) -> store.Schema:
    number = np.arange(frames)
    return store.Schema(
        frames=Frames(
            repos=("somebody/dataset",),
            tasks=("pick",),
            repo=number * 0,
            task=number * 0,
            episode=number // 2_000,
            frame_index=number % 2_000,
            index=number,
            core=number % 2 == 0,
        ),
        space=Space(("x",) * ACTIONS, ("x",) * ACTIONS, "rad", "rad", 30.0),
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes={"digest": "ab" * 32, "arm": "synthetic", "config": {}, "horizon": STEPS},
        state_copy=True,
    )


def columns(frames: int) -> dict[str, np.ndarray]:
    stream = np.random.default_rng(0)
    walk = stream.normal(size=(frames, DRAWS, STEPS, ACTIONS)).astype(np.float32).cumsum(axis=2)
    truth = walk.mean(axis=1)
    return {
        "prediction": walk,
        "truth": truth,
        "valid": np.ones((frames, STEPS), dtype=bool),
        "state_copy": np.repeat(truth[:, :1], STEPS, axis=1),
        "state_copy_norm": np.repeat(truth[:, :1], STEPS, axis=1),
        "logprob": np.full((frames, DRAWS), np.nan),
    }


def megabytes(field: str) -> float:
    """What the system says of this process: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def lived(path: Path, frames: int) -> dict[str, Any]:
    """Write, end and read a store; megabytes above the start after each."""
    some, start, found = columns(BLOCK), megabytes("VmRSS"), {}
    store.open_or_create(path, schema(frames))
    for rows in store.missing(path, shard_index=0, shard_count=1):
        store.write_block(path, rows, {name: each[: len(rows)] for name, each in some.items()})
    found["written"] = megabytes("VmHWM") - start
    assert store.finalise(path)
    found["ended"] = megabytes("VmHWM") - start
    run = store.open_run(path)
    errors = arm_errors(run, np.ones(frames, dtype=bool), window=STEPS)
    found["read"] = megabytes("VmHWM") - start
    assert len(errors) == frames
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("times", [1, 10])
def test_a_store_is_written_ended_and_read_within_flat_memory(tmp_path: Path, times: int) -> None:
    frames = times * PUBLISHED
    needed, free = 1.2 * frames * BYTES, shutil.disk_usage(tmp_path).free
    if free < needed:
        pytest.skip(f"{free / 1e9:.1f} GB of disk are free, {needed / 1e9:.1f} GB are needed")
    path = tmp_path / "predictions.zarr"
    source = Path(arflow_eval.__file__).parents[1]
    try:
        answer = subprocess.run(
            [sys.executable, __file__, str(path), str(frames)],
            env={**os.environ, "PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            check=False,
            timeout=290,
        )
    finally:
        shutil.rmtree(path, ignore_errors=True)
    assert answer.returncode == 0, answer.stderr[-2_000:]
    found = json.loads(answer.stdout)
    assert max(found.values()) <= ALLOWED, found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(lived(Path(sys.argv[1]), int(sys.argv[2]))))
