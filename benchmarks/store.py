"""The store beside what a researcher would write instead, and the bars it is held to.

Synthetic predictions of the published size, 25,800 frames x 10 draws x 50 steps x 6 actions:
smooth trajectories with noise, 310 MB. All formats in one process, interleaved; medians, and
ratios of medians. Reads come from the page cache unless a row says cold.

    python benchmarks/store.py --folder /a/local/disk --repeats 5
    python benchmarks/store.py --evaluate        # only what the loop of an evaluation costs
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest import mock

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table

from arflow_eval import store
from arflow_eval.contracts import Frames, Space
from arflow_eval.store.access import files, read_root

DRAWS, STEPS, ACTIONS, BLOCK = 10, 50, 6, 256
NAME: Final = "predictions.zarr"
SLOW: Final = {"savez_compressed", "h5py gzip"}  # written once: a minute rather than a second
Way = Callable[[Path], Any]


def predictions(frames: int, *, seed: int = 0) -> np.ndarray:
    """Smooth trajectories with noise."""
    stream = np.random.default_rng(seed)
    found = np.empty((frames, DRAWS, STEPS, ACTIONS), np.float32)
    time_ = np.linspace(0, 3, STEPS, dtype=np.float32)[:, None]
    for start in range(0, frames, BLOCK):
        part = found[start : start + BLOCK]
        speed = stream.normal(size=(len(part), DRAWS, 1, ACTIONS)).astype(np.float32)
        noise = stream.normal(scale=0.01, size=part.shape).astype(np.float32)
        part[:] = np.sin(speed * time_) + noise
    return found


def schema(frames: int) -> store.Schema:
    """A store of that many frames, without measures of a decode."""
    number = np.arange(frames)
    joints = tuple(f"joint_{place}" for place in range(ACTIONS))
    return store.Schema(
        frames=Frames(
            repos=tuple(f"somebody/dataset_{place}" for place in range(20)),
            tasks=("pick", "place"),
            repo=number % 20,
            task=number % 2,
            episode=number // 2_000,
            frame_index=number % 2_000,
            index=number,
            core=number % 2 == 0,
        ),
        space=Space(joints, joints, "rad", "rad", 30.0),
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes={"digest": "ab" * 32, "arm": "synthetic", "config": {}, "horizon": STEPS},
        state_copy=True,
    )


def block_of(prediction: np.ndarray) -> dict[str, np.ndarray]:
    """Every column of a block whose predictions are given."""
    truth = np.ascontiguousarray(prediction[:, 0])
    return {
        "prediction": prediction,
        "truth": truth,
        "valid": np.ones(truth.shape[:2], dtype=bool),
        "state_copy": np.repeat(truth[:, :1], STEPS, axis=1),
        "state_copy_norm": np.repeat(truth[:, 1:2], STEPS, axis=1),
        "logprob": np.full(prediction.shape[:2], np.nan),
    }


def write_store(path: Path, prediction: np.ndarray) -> list[float]:
    """Write a whole store by its protocol and return the seconds of every commit."""
    store.open_or_create(path, schema(len(prediction)))
    took = []
    for rows in store.missing(path, shard_index=0, shard_count=1):
        columns = block_of(prediction[rows.start : rows.stop])
        took.append(seconds_of(lambda: store.write_block(path, rows, columns)))  # noqa: B023
    store.finalise(path)
    return took


def write_chunks(path: Path, prediction: np.ndarray) -> None:
    """Write the chunks of the predictions, two at a time, as commits do but for their waits."""
    laid = files(read_root(path), "prediction")
    assert laid is not None  # noqa: S101 - we just made it

    def put(number: int) -> None:
        rows = laid.rows(number)
        temporary = laid.file(number).with_suffix(".partial")
        with temporary.open("wb", buffering=0) as file:
            file.write(laid.encode(prediction[rows.start : rows.stop]))
        temporary.replace(laid.file(number))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(laid.count)))


def write_h5(path: Path, prediction: np.ndarray, **how: Any) -> None:
    """Write an HDF5 file in chunks of a block."""
    with h5py.File(path, "w") as file:
        chunks = (BLOCK, *prediction.shape[1:])
        file.create_dataset("prediction", data=prediction, chunks=chunks, **how)


def read_h5(path: Path) -> np.ndarray:
    """Read an HDF5 file whole."""
    with h5py.File(path) as file:
        return np.asarray(file["prediction"][:])


def read_npz(path: Path) -> np.ndarray:
    """Read the predictions of an npz."""
    with np.load(path) as loaded:
        return np.asarray(loaded["prediction"])


def read_store(path: Path) -> np.ndarray:
    """Read the predictions of a run, its checks included."""
    return np.asarray(store.open_run(path)["prediction"].to_numpy())


def ways(prediction: np.ndarray) -> Mapping[str, tuple[str, Way, Way]]:
    """File name, write and read of every format."""
    return {
        "npy": ("a.npy", lambda path: np.save(path, prediction), np.load),
        "savez": ("b.npz", lambda path: np.savez(path, prediction=prediction), read_npz),
        "savez_compressed": (
            "c.npz",
            lambda path: np.savez_compressed(path, prediction=prediction),
            read_npz,
        ),
        "h5py": ("d.h5", lambda path: write_h5(path, prediction), read_h5),
        "h5py gzip": (
            "e.h5",
            lambda path: write_h5(path, prediction, compression=4, shuffle=True),
            read_h5,
        ),
        "store": (NAME, lambda path: write_chunks(path, prediction), read_store),
    }


def seconds_of(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def settle(path: Path, *, forget: bool) -> None:
    """Have the files of a format on disk and, if asked, no longer in the page cache."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            if forget:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """A folder for the files, gone in the end."""
    found = Path(tempfile.mkdtemp(prefix="store-benchmark-", dir=folder))
    try:
        yield found
    finally:
        shutil.rmtree(found)


def formats(folder: Path, prediction: np.ndarray, *, repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of write, read and cold read of every format, each kind interleaved.

    Nothing is left to be written while something is timed.
    """
    took: dict[tuple[str, str], list[float]] = {}
    known = ways(prediction)
    for repeat in range(repeats):
        for name, (file, write, _) in known.items():
            if not (repeat and name in SLOW):
                empty(folder / file)
                seconds = seconds_of(lambda: write(folder / file))  # noqa: B023
                took.setdefault((name, "write"), []).append(seconds)
                settle(folder / file, forget=False)
    kinds = ["read", "cold"] if hasattr(os, "posix_fadvise") else ["read"]
    for kind, _ in [(kind, repeat) for kind in kinds for repeat in range(repeats)]:
        for name, (file, _, read) in known.items():
            if kind == "cold":
                settle(folder / file, forget=True)
            took.setdefault((name, kind), []).append(seconds_of(lambda: read(folder / file)))  # noqa: B023
    found: dict[str, dict[str, float]] = {}
    for (name, what), every in took.items():
        found.setdefault(name, {})[what] = median(every)
    return found


def empty(path: Path) -> None:
    """Remove what a format wrote before; of a store the chunks of the predictions."""
    for file in path.glob("prediction/c.*") if path.is_dir() else [path]:
        file.unlink(missing_ok=True)


def commits(folder: Path, prediction: np.ndarray) -> tuple[float, float]:
    """Median seconds of a block's commit, and of the same without a wait for the disk."""
    took: dict[bool, list[float]] = {True: [], False: []}
    path = folder / "commits" / NAME
    store.open_or_create(path, schema(len(prediction)))
    for number, rows in enumerate(store.missing(path, shard_index=0, shard_count=1)):
        columns = block_of(prediction[rows.start : rows.stop])
        waits = number % 2 == 0
        with mock.patch("os.fsync", os.fsync if waits else lambda _: None):
            took[waits].append(seconds_of(lambda: store.write_block(path, rows, columns)))  # noqa: B023
    shutil.rmtree(path.parent)
    return median(took[True]), median(took[False])


def first_opening(path: Path) -> float:
    """Seconds of the first `open_run` of a fresh process, once its imports are done."""
    program = (
        "import sys, time; from arflow_eval import store; started = time.perf_counter();"
        "store.open_run(sys.argv[1]); print(time.perf_counter() - started)"
    )
    command = [sys.executable, "-c", program, str(path)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603


def bars(folder: Path, frames: int, *, repeats: int) -> Iterator[Table]:
    """The formats side by side, then the bars."""
    prediction = predictions(frames)
    path = folder / NAME
    commit, computing = commits(folder, prediction)
    protocol = sum(write_store(path, prediction))
    scan = median(
        seconds_of(lambda: store.missing(path, shard_index=0, shard_count=1)) for _ in range(15)
    )
    settle(path, forget=False)
    first = median(first_opening(path) for _ in range(7))
    again = median(seconds_of(lambda: store.open_run(path)) for _ in range(15))
    found = formats(folder, prediction, repeats=repeats)
    yield side_by_side(found, size=prediction.nbytes)
    ours, plain = found["store"], found["npy"]
    table = listed(f"bars, {frames:,} frames x {DRAWS} x {STEPS} x {ACTIONS}")
    row(table, "full read / np.load", ours["read"] / plain["read"], most=4.5)
    faster = found["savez_compressed"]["read"] / ours["read"]
    row(table, "savez_compressed read / full read", faster, least=7)
    if "cold" in ours:
        row(table, "cold read / np.load", ours["cold"] / plain["cold"], most=1.2)
    else:
        table.add_row("cold read / np.load", "the page cache cannot be dropped here", "", "")
    row(table, "prediction write, two threads / np.save", ours["write"] / plain["write"], most=3)
    row(table, "block commit, ms", 1e3 * commit, most=25)
    row(table, "  of which waits for the disk, ms", 1e3 * (commit - computing))
    row(table, "resume scan, ms", 1e3 * scan, most=50)
    row(table, "open_run after imports, the first of a process, ms", 1e3 * first, most=10)
    row(table, "open_run after imports, another one, ms", 1e3 * again, most=10)
    row(table, "whole store by the protocol, s", protocol)
    yield table


def listed(title: str) -> Table:
    """An empty table of bars."""
    table = Table(title=title)
    for column in ("what", "found", "bar", "met"):
        table.add_column(column, justify="left" if column == "what" else "right")
    return table


def row(
    table: Table, what: str, found: float, *, most: float | None = None, least: float | None = None
) -> None:
    """One line of the table, held to a bar where there is one."""
    bar = f"<= {most:g}" if most is not None else f">= {least:g}" if least is not None else ""
    met = (most is None or found <= most) and (least is None or found >= least)
    table.add_row(what, f"{found:.2f}", bar, ("met" if met else "MISSED") if bar else "")


def side_by_side(found: Mapping[str, Mapping[str, float]], *, size: int) -> Table:
    """Every format against np.save and np.load."""
    table = Table(title=f"{size / 1e6:.0f} MB of predictions, no waits for the disk")
    for column in ("format", "write s", "/ np.save", "read s", "/ np.load", "cold s", "/ cold"):
        table.add_column(column, justify="left" if column == "format" else "right")
    for name, each in found.items():
        parts = [
            text
            for what in ("write", "read", "cold")
            for text in (
                (f"{each[what]:.2f}", f"{each[what] / found['npy'][what]:.2f}")
                if what in each
                else ("", "")
            )
        ]
        table.add_row(name, *parts)
    return table


def main() -> None:
    """Measure, print the tables, and say which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; a local disk")
    parser.add_argument("--frames", type=int, default=25_800)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--evaluate", action="store_true", help="the loop of an evaluation")
    options = parser.parse_args()
    console = Console(width=100)
    with scratch(options.folder) as folder:
        if options.evaluate:
            console.print(loop(folder, repeats=options.repeats))
            return
        for table in bars(folder, options.frames, repeats=options.repeats):
            console.print(table)


def loop(folder: Path, *, repeats: int) -> Table:
    """Shares of an evaluation of ar_tiny after its start-up: forward passes and everything else."""
    runs = [evaluated(folder / str(number)) for number in range(repeats)]
    total = median(each["total"] for each in runs)
    table = listed(f"ar_tiny, 10 draws, pusht: {total:.1f} s after start-up, median of {repeats}")
    outside = median(100 * (1 - each["decode"] / each["total"]) for each in runs)
    inside = median(100 * (each["decode"] - each["forward"]) / each["total"] for each in runs)
    row(table, "outside the decode: observe, columns, commit, finalise, %", outside, most=5)
    row(table, "in the decode beside forward passes: noise, grammar, sampling, %", inside)
    return table


def evaluated(root: Path) -> dict[str, float]:
    """Seconds of one evaluation after its start-up: in all, in the decode, in forward passes."""
    from arflow_eval import compose, evaluation  # noqa: PLC0415 - torch, on request only
    from arflow_eval.evaluate import load_panel, load_policy  # noqa: PLC0415
    from arflow_eval.settings import evaluate_settings  # noqa: PLC0415

    words = ["model=ar_tiny", "decode=draws", "panel=pusht", f"store.root={root}"]
    settings = evaluate_settings(compose.compose("evaluate", words))
    panel = load_panel(settings)
    policy: Any = load_policy(settings, panel)
    clock = {"decode": 0.0, "forward": 0.0, "total": 0.0}
    decode = compose.call_target(settings.decode.target)

    def timed(*given: Any) -> Any:
        started = time.perf_counter()
        if not clock["total"]:  # start-up ends here
            clock.update(forward=0.0, total=started)
        found = decode(*given)
        clock["decode"] += time.perf_counter() - started
        return found

    with forwards(policy, clock):
        evaluation.run(settings, panel, load=lambda: policy, decode=timed)
    return {**clock, "total": time.perf_counter() - clock["total"]}


@contextmanager
def forwards(policy: Any, clock: dict[str, float]) -> Iterator[None]:
    """Count the seconds of a policy's forward passes."""
    started = [0.0]

    def before(*_: object) -> None:
        started[0] = time.perf_counter()

    def after(*_: object) -> None:
        clock["forward"] += time.perf_counter() - started[0]

    hooks = [
        policy.trunk.body.register_forward_pre_hook(before),
        policy.trunk.body.register_forward_hook(after),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


if __name__ == "__main__":
    main()
