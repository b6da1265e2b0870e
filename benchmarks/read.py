"""A whole report of two arms: ours beside what a researcher would do, at the published size.

25,800 frames x 10 draws x 50 steps x 6 actions of two made arms, 878 uneven repos, a core of two
thirds. Pooled errors, energy scores, and six paired differences (chunk and first step of the mean
of draws and of a single draw, plain and fair energy score), each with its interval by frame and by
cluster. The reference: numpy masked means, scoringrules (numba), scipy.stats.bootstrap. CPU time,
all ways in one process, interleaved, medians; memory in a process of its own.

    python benchmarks/read.py
    python benchmarks/read.py --frames 2580 --resamples 1000 --repeats 1
"""

import argparse
import ctypes
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest import mock

import numpy as np
from jaxtyping import Bool
from reference import (
    CONFIDENCE,
    MEASURES,
    SEED,
    SHARE,
    Arm,
    Columns,
    Report,
    exact_energies,
    made,
    reference,
    reference_interval,
    their_energies,
    their_plain,
)  # fmt: skip
from rich.console import Console
from rich.table import Table

from arflow_eval import store
from arflow_eval.contracts import Frames, Space
from arflow_eval.reading import run_read
from arflow_eval.reads.delta import Delta, compare
from arflow_eval.reads.paired import paired_delta
from arflow_eval.stats import compiled, energy, errors, ladder
from arflow_eval.stats.intervals import frame_bootstrap
from arflow_eval.stats.scoring import chosen_blocks

SETTINGS: Final[Mapping[str, Any]] = {"seed": SEED, "confidence": CONFIDENCE}


@dataclass(frozen=True)
class Row:
    """One bar: what was found, and how it should compare."""

    what: str
    found: float
    sign: str
    bar: float
    detail: str

    @property
    def words(self) -> tuple[str, str, str, str, str]:
        """A row of the table."""
        met = self.found >= self.bar if self.sign == ">=" else self.found <= self.bar
        shown = f"{self.found:.2f}" if self.found >= 0.01 else f"{self.found:.0e}"
        return (
            self.what,
            shown,
            f"{self.sign} {self.bar:g}",
            "met" if met else "MISSED",
            self.detail,
        )


def ours(arms: Mapping[str, Arm], *, resamples: int) -> Report:
    """Our report: one pass over blocks an arm, and all measures on shared resamples."""
    found = {role: _our_scores(arm) for role, arm in arms.items()}
    scored = found["control"][2]
    treatment, control = found["treatment"][0], found["control"][0]
    repo = arms["control"].repo[arms["control"].core]
    deltas = compare(
        [(treatment[name] - control[name])[scored] for name in MEASURES],
        cluster=repo[scored],
        group=repo[scored],
        resamples=resamples,
        **SETTINGS,
    )
    pooled = {role: numbers for role, (_, numbers, _) in found.items()}
    return {**pooled, **{name: _ends(it) for name, it in zip(MEASURES, deltas, strict=True)}}


def _our_scores(arm: Arm) -> tuple[Columns, tuple[float, ...], Bool[np.ndarray, "frame"]]:
    """Per-frame scores by measure, pooled numbers, and the scored frames, in one pass."""
    return _summed(*_joined(arm))


def _joined(arm: Arm) -> tuple[errors.Errors, ladder.DrawErrors, energy.Energy]:
    window = arm.truth.shape[1]
    blocks = [
        (
            errors.block_errors(*block, window=window),
            ladder.block_draw_errors(*block, window=window),
            energy.block_energy(*block, window=window),
        )
        for block in chosen_blocks(arm.dataset, arm.core)
    ]
    mean, single, score = zip(*blocks, strict=True)
    return errors.joined(mean), ladder.joined(single), energy.joined(score)


def _summed(
    mean: errors.Errors, single: ladder.DrawErrors, score: energy.Energy
) -> tuple[Columns, tuple[float, ...], Bool[np.ndarray, "frame"]]:
    each = single.mae.mean(axis=1), single.first.mean(axis=1)
    values = (mean.frame_mae, mean.first, *each, score.score, score.fair)
    energies = (ladder.pooled(form, score.elements) for form in (score.score, score.fair))
    pooled = (mean.chunk_mae, mean.first_mae, *energies)
    return dict(zip(MEASURES, values, strict=True)), pooled, mean.scored


def _ends(delta: Delta) -> tuple[float, ...]:
    ends = (delta.by_frame.low, delta.by_frame.high, delta.by_cluster.low, delta.by_cluster.high)
    return (delta.mean, *(np.nan if end is None else end for end in ends))


def _by(way: Callable[..., Any], *, on: bool) -> Callable[..., Any]:
    def carried(*given: Any, **settings: Any) -> Any:
        compiled.switch(on=on)
        return way(*given, **settings)

    return carried


WAYS: Final[Mapping[str, Callable[..., Any]]] = {
    "reference": reference,
    "numpy": _by(ours, on=False),
    "compiled": _by(ours, on=True),
}


def block_energies(arm: Arm) -> energy.Energy:
    """Our energy scores, plain and fair, of an arm's core."""
    window = arm.truth.shape[1]
    blocks = chosen_blocks(arm.dataset, arm.core)
    return energy.joined([energy.block_energy(*block, window=window) for block in blocks])


def interleaved(
    ways: Mapping[str, Callable[[], Any]], *, repeats: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Median CPU seconds of each way after one run to warm up, and what each returned."""
    found = {name: way() for name, way in ways.items()}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.process_time()
            way()
            took[name].append(time.process_time() - started)
    return {name: median(each) for name, each in took.items()}, found


def status(key: str) -> float:
    """MB of this process, such as VmRSS now or VmHWM at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def weighed(way: str, options: argparse.Namespace) -> None:
    """Print what one way takes, in MB above the start: runs in its own process.

    That of loading its code and of a report of 600 frames; of the whole report after it; of one
    interval by frame, after all that.
    """
    arms = made(sizes(options))
    few = {role: Arm(*(each[:600] for each in vars(arm).values())) for role, arm in arms.items()}
    delta = np.random.default_rng(0).normal(size=int(arms["control"].core.sum()))
    ways: dict[str, Callable[[], Any]] = {
        "reference": lambda: reference_interval((delta,), np.mean, resamples=options.resamples),
        "numpy": _by(lambda: _frame_interval(delta, options), on=False),
        "compiled": _by(lambda: _frame_interval(delta, options), on=True),
    }
    start = fresh()
    if way == "compiled":
        compiled.kernels(compiled.WORTH)  # load at once, for few frames too
    WAYS[way](few, resamples=options.resamples)
    loaded = status("VmHWM") - start
    WAYS[way](arms, resamples=options.resamples)
    report = status("VmHWM") - start
    start = fresh()
    ways[way]()
    print(loaded, report, status("VmHWM") - start)


def fresh() -> float:
    """MB held now, free memory given back; the most that was held starts anew."""
    trim: Any = ctypes.CDLL(None)["malloc_trim"]
    trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def _frame_interval(delta: Any, options: argparse.Namespace) -> Any:
    return frame_bootstrap(delta, resamples=options.resamples, **SETTINGS)


def peaks(options: argparse.Namespace) -> dict[str, list[float]]:
    """MB by way: a report of few frames, the whole report, one interval by frame."""
    found = {}
    for way in WAYS:
        words = [f"--{name}={vars(options)[name]}" for name in ("frames", "draws", "steps")]
        words += [f"--actions={options.actions}", f"--resamples={options.resamples}"]
        command = [sys.executable, __file__, f"--weigh={way}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        found[way] = [float(word) for word in done.stdout.split()]
    return found


def stored(folder: Path, arm: Arm, *, role: str) -> Path:
    """A finished store of an arm, as `evaluate` writes them."""
    frames, draws, steps, actions = arm.prediction.shape
    number = np.arange(frames, dtype=np.int64)
    names = tuple(f"a{place}" for place in range(actions))
    panel = Frames(
        repos=tuple(f"made/{place}" for place in range(int(arm.repo.max()) + 1)), tasks=("task",),
        repo=arm.repo, task=0 * number, episode=number // 100, frame_index=number % 100,
        index=number, core=arm.core,
    )  # fmt: skip
    attributes = {"digest": "ab" * 32, "arm": role, "config": {}, "horizon": steps}
    path = folder / role / "predictions.zarr"
    schema = store.Schema(
        frames=panel, space=Space(names, names, "degree", "degree", 30.0), steps=steps, draws=draws,
        block=256, attributes=attributes, state_copy=False,
    )  # fmt: skip
    with mock.patch("os.fsync"):
        store.open_or_create(path, schema)
        for rows in store.missing(path, shard_index=0, shard_count=1):
            block = slice(rows.start, rows.stop)
            columns = {name: getattr(arm, name)[block] for name in ("prediction", "truth", "valid")}
            columns["logprob"] = np.zeros((len(rows), draws))
            store.write_block(path, rows, columns)
        store.finalise(path)
    return path.parent


def store_times(arms: Mapping[str, Arm], options: argparse.Namespace) -> dict[str, float]:
    """CPU seconds of a paired read of two stores, of reading their files, and of decoding them."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {role: stored(Path(folder), arm, role=role) for role, arm in arms.items()}
        definition = {
            "name": "paired_delta", "question": "-", "window": None, "cluster": "repo",
            "resamples": options.resamples, **SETTINGS,
        }  # fmt: skip
        files = [
            file
            for run in runs.values()
            for name in ("prediction", "truth", "valid")
            for file in (run / "predictions.zarr" / name / "c").parent.iterdir()
            if file.name != "zarr.json"
        ]

        def read() -> Any:
            return run_read(definition, runs, measure=paired_delta)

        def decode() -> None:
            for run in runs.values():
                arm = store.open_run(run)
                for start in range(0, arm.sizes["frame"], 256):
                    arm["prediction"].variable.isel(frame=slice(start, start + 256)).to_numpy()

        ways = {
            "decoding": decode,
            "bytes": lambda: sum(len(file.read_bytes()) for file in files),
            "numpy": _by(read, on=False),
            "compiled": _by(read, on=True),
        }
        took, found = interleaved(ways, repeats=options.repeats)
        return {**took, "megabytes": found["bytes"] / 1e6}


def relative(one: Report, other: Report) -> float:
    """Largest difference of pooled numbers and means, relative to the larger."""
    pairs = [
        (a, b)
        for name in one
        for a, b in zip(one[name], other[name], strict=True)
        if name in {"treatment", "control"}
    ]
    return max(abs(a - b) / max(abs(a), abs(b)) for a, b in pairs)


def sizes(options: argparse.Namespace) -> tuple[int, int, int, int]:
    """Frames, draws, steps and actions."""
    return options.frames, options.draws, options.steps, options.actions


def report_rows(arms: Mapping[str, Arm], options: argparse.Namespace) -> list[Row]:
    """The whole report, and whether the ways agree."""
    ways = {
        name: (lambda way=way: way(arms, resamples=options.resamples)) for name, way in WAYS.items()
    }
    took, found = interleaved(ways, repeats=options.repeats)
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
    same = found["numpy"] == found["compiled"]
    apart = relative(found["numpy"], found["reference"])
    return [
        Row("whole report, numpy", took["reference"] / took["numpy"], ">=", 3, said),
        Row("whole report, compiled", took["reference"] / took["compiled"], ">=", 10, said),
        Row("same bits with and without the extra", float(same), ">=", 1, "1 = every number"),
        Row("pooled numbers, relative difference", apart, "<=", 1e-6, "to the reference's float32"),
    ]


def energy_rows(arm: Arm, options: argparse.Namespace) -> list[Row]:
    """Plain and fair energy scores of one arm."""
    ways = {
        "reference": lambda: their_energies(arm),
        "numpy": _by(lambda: block_energies(arm), on=False),
        "compiled": _by(lambda: block_energies(arm), on=True),
        "plain": their_plain(arm, np.float32),
        "plain float64": their_plain(arm, np.float64),
    }
    took, found = interleaved(ways, repeats=options.repeats)
    exact = exact_energies(arm, frames=200)
    off = np.abs(found["numpy"].score[: len(exact)] / exact - 1).max()
    off_theirs = np.abs(found["reference"][0][: len(exact)] / exact - 1).max()
    said = ", ".join(f"{way} {took[way]:.3f} s" for way in ("reference", "numpy", "compiled"))
    alone = "theirs: the plain form alone, already masked; ours: both, and the mask"
    return [
        Row("energy scores, numpy", took["reference"] / took["numpy"], ">=", 2, said),
        Row("energy scores, compiled", took["reference"] / took["compiled"], ">=", 2, said),
        *(
            Row(f"{way} / {name}", took[theirs] / took[way], ">=", 2, alone)
            for theirs, name in (("plain", "plain alone"), ("plain float64", "plain, float64"))
            for way in ("numpy", "compiled")
        ),
        Row("energy scores, relative error", off, "<=", 1e-7, f"scoringrules: {off_theirs:.0e}"),
    ]


def bootstrap_rows(options: argparse.Namespace) -> list[Row]:
    """One interval by frame."""
    delta = np.random.default_rng(0).normal(size=round(SHARE * options.frames))
    ways = {
        "reference": lambda: reference_interval((delta,), np.mean, resamples=options.resamples),
        "numpy": _by(lambda: _frame_interval(delta, options), on=False),
        "compiled": _by(lambda: _frame_interval(delta, options), on=True),
    }
    took, _ = interleaved(ways, repeats=max(options.repeats, 3))
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
    return [
        Row("one interval, numpy", took["reference"] / took["numpy"], ">=", 1.3, said),
        Row("one interval, compiled", took["reference"] / took["compiled"], ">=", 3, said),
    ]


def memory_rows(options: argparse.Namespace) -> list[Row]:
    """Resident memory above the start of a process that holds the arms."""
    found = peaks(options)
    reports = ", ".join(f"{way} {each[1]:.0f}" for way, each in found.items())
    alone = ", ".join(f"{way} {each[2]:.0f}" for way, each in found.items())
    loading = f"of which 600 frames, with what has to be loaded: {found['compiled'][0]:.0f}"
    return [
        Row("report, MB above start, numpy", found["numpy"][1], "<=", 120, reports),
        Row("report, MB above start, compiled", found["compiled"][1], "<=", 120, loading),
        Row("one interval, MB, numpy", found["numpy"][2], "<=", 50, alone),
        Row("one interval, MB, compiled", found["compiled"][2], "<=", 50, alone),
    ]


def store_rows(arms: Mapping[str, Arm], options: argparse.Namespace) -> list[Row]:
    """`read=paired_delta` of two stores, in units of reading their chunk files."""
    took = store_times(arms, options)
    said = f"bytes {took['bytes']:.2f} s for {took['megabytes']:.0f} MB, "
    said += ", ".join(f"{name} {took[name]:.2f} s" for name in ("decoding", "numpy", "compiled"))
    return [
        Row("whole read of stores, numpy", took["numpy"] / took["bytes"], "<=", 5, said),
        Row("whole read of stores, compiled", took["compiled"] / took["bytes"], "<=", 5, said),
    ]


def machine() -> str:
    """The processor, its cores, and the versions that count."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    names = ("numpy", "scipy", "numba", "scoringrules", "xarray", "zarr")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    python = platform.python_version()
    return f"{model}, {os.cpu_count()} cores, Python {python}, {versions}"


def main() -> None:
    """Measure, print one table, and say which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = {"frames": 25_800, "draws": 10, "steps": 50, "actions": 6}
    for name, value in {**defaults, "repeats": 3, "resamples": 10_000}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--weigh", choices=tuple(WAYS), help="print one way's memory, in MB")
    options = parser.parse_args()
    if options.weigh:
        weighed(options.weigh, options)
        return
    arms = made(sizes(options))
    table = Table(title=" x ".join(map(str, sizes(options))), caption=machine())
    for column in ("what", "found", "bar", "", "of which"):
        table.add_column(column, justify="right" if column in {"found", "bar"} else "left")
    rows = [
        *report_rows(arms, options),
        *energy_rows(arms["treatment"], options),
        *bootstrap_rows(options),
        *store_rows(arms, options),
        *memory_rows(options),
    ]
    for row in rows:
        table.add_row(*row.words)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
