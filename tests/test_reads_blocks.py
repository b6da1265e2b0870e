"""A read streams: neither storage order nor block size moves a bit, and memory stays flat."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import arflow_eval
from arflow_eval.reading import run_read
from arflow_eval.reads.energy_score_flow import energy_score_flow
from arflow_eval.reads.paired import paired_delta

CHUNK = ("frame", "step", "action")
SETTINGS: dict[str, Any] = {
    "name": "blocks",
    "question": "?",
    "window": None,
    "resamples": 50,
    "seed": 0,
    "confidence": 0.95,
    "cluster": "repo",
}
SOURCE = Path(arflow_eval.__file__).parents[1]


def make_arm(frames: int, *, seed: int, draws: int = 4, steps: int = 20) -> xarray.Dataset:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 50, (frames, steps, 3)).astype(np.float32)
    spread = np.random.default_rng(seed).normal(0, 5, (frames, draws, steps, 3))
    valid = np.arange(steps) < rng.integers(1, 2 * steps, frames)[:, None]
    rows = np.arange(frames)
    return xarray.Dataset(
        {
            "prediction": (("frame", "draw", *CHUNK[1:]), truth[:, None] + spread.astype("f4")),
            "truth": (CHUNK, truth),
            "valid": (CHUNK[:2], valid),
        },
        coords={
            "episode": ("frame", rows // 4),
            "frame_index": ("frame", rows % 4),
            "panel_row": ("frame", rows),
            "core": ("frame", rows % 8 != 7),
            "repo_name": ("frame", np.array([f"owner/{row // 16}" for row in rows])),
        },
        attrs={
            "arm": f"made_{seed}",
            "complete": True,
            "fingerprint": f"{seed}" * 64,
            "digest": "0" * 64,
            "horizon": steps,
            "action_names": ["x", "y", "z"],
            "action_units": "degree",
            "fps": 10.0,
        },
    )


def stored(arm: xarray.Dataset, path: Path, *, block: int) -> xarray.Dataset:
    """The arm on disk in chunks of `block` frames, opened and not read."""
    names = arm["repo_name"]
    chunks = {
        name: {"chunks": (block, *variable.shape[1:])} for name, variable in arm.data_vars.items()
    }
    arm.drop_vars("repo_name").to_zarr(path, encoding=chunks, consolidated=False)
    opened: xarray.Dataset = xarray.open_zarr(path, chunks=None, consolidated=False)
    coordinates = [name for name in arm.coords if name != "repo_name"]
    placed: xarray.Dataset = opened.set_coords(coordinates).assign_coords(repo_name=names)
    return placed


def reports(arms: list[xarray.Dataset]) -> str:
    """What a paired read and one of energy scores find."""
    roles = dict(zip(("treatment", "control"), arms, strict=True))
    paired = run_read(SETTINGS, roles, measure=paired_delta)
    several = {"greedy": arms[0].isel(draw=[0]), "draws": arms[0], "flow": arms[1]}
    energies = run_read({**SETTINGS, "first_draws": None}, several, measure=energy_score_flow)
    return json.dumps([paired, energies])


def test_neither_storage_order_nor_block_size_moves_a_bit_of_a_report(tmp_path: Path) -> None:
    arms = [make_arm(96, seed=seed) for seed in (1, 2)]
    clean = reports(arms)
    for number, block in enumerate((1, 7, 32, 96)):
        order = np.random.default_rng(number).permutation(96)
        written = [
            stored(arm.isel(frame=order), tmp_path / f"{block}_{role}", block=block)
            for role, arm in enumerate(arms)
        ]
        assert reports(written) == clean
        in_order = [
            stored(arm, tmp_path / f"{block}_{role}_in_order", block=block)
            for role, arm in enumerate(arms)
        ]
        assert reports(in_order) == clean


def _peak(path: Path, *, frames: int) -> int:
    """Most bytes that a paired read of two stores held at a time."""
    arms = {
        role: stored(make_arm(frames, seed=seed, draws=20), path / f"{frames}_{role}", block=32)
        for seed, role in enumerate(("treatment", "control"))
    }
    tracemalloc.start()
    run_read(SETTINGS, arms, measure=paired_delta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    few, many = 512, 2_048
    _peak(tmp_path / "warm", frames=256)
    growth = _peak(tmp_path, frames=many) - _peak(tmp_path, frames=few)
    values = 20 * 20 * 3 * np.dtype(np.float32).itemsize  # of one frame's predictions
    assert growth < 0.25 * (many - few) * values  # identities and per-frame errors only


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import arflow_eval.read, arflow_eval.reads.energy_score_flow, arflow_eval.reads.draws_fairness
assert not {{"torch", "transformers", "numba"}} & set(sys.modules), "before the read"
import test_reads_blocks as here
here.reports([here.make_arm(96, seed=seed) for seed in (1, 2)])
assert not {{"torch", "transformers", "numba"}} & set(sys.modules), "after a small read"
"""


def test_a_small_read_loads_neither_a_model_stack_nor_a_compiler(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(folder=str(Path(__file__).parent))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_only_the_kernels_name_the_compiler(name: str) -> None:
    naming = {
        path.stem
        for path in (SOURCE / "arflow_eval").rglob("*.py")
        if f"import {name}" in path.read_text(encoding="utf-8")
        or f"from {name}" in path.read_text(encoding="utf-8")
    }
    assert naming <= {"kernel_code", "kernels", "kernels_resampled"}
