"""What `status` says of runs made through the store, complete and not."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

from arflow_eval import status, store
from arflow_eval.contracts import Frames, Space

FRAMES, BLOCK, DRAWS, STEPS = 16, 2, 3, 4
SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)
SECONDS = {"prefill": 1.0, "lines": 0.5, "draws": 2.0, "decode": 0.5}  # of every frame: 4 in all


def make_run(folder: Path, *, blocks: int = 8, arm: str = "ar_draws3_t0.7") -> Path:
    """A run with so many of its 8 blocks written, sealed if all are, and nothing timed."""
    order = np.arange(FRAMES)
    frames = Frames(
        repos=("owner/repo",),
        tasks=("push",),
        repo=order * 0,
        task=order * 0,
        episode=order // 4,
        frame_index=order % 4,
        index=order,
        core=order >= 0,
    )
    required = {"digest": arm.encode().hex(), "arm": arm, "config": {}, "horizon": STEPS}
    schema = store.Schema(
        frames=frames,
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes={**required, "panel": "pusht"},
        state_copy=False,
    )
    columns = {
        "prediction": np.zeros((BLOCK, DRAWS, STEPS, 2), np.float32),
        "truth": np.zeros((BLOCK, STEPS, 2), np.float32),
        "valid": np.ones((BLOCK, STEPS), bool),
        "logprob": np.zeros((BLOCK, DRAWS)),
    }
    path = folder / "predictions.zarr"
    with mock.patch("os.fsync"):
        store.open_or_create(path, schema)
        for rows in store.blocks(path, shard_index=0, shard_count=1)[:blocks]:
            store.write_block(path, rows, columns)
        store.finalise(path)
    return folder


def time_frames(run: Path, *, frames: int) -> None:
    """Record `SECONDS` of so many frames, and a step that is twice as long with three draws."""
    seconds = {name: [each] * frames for name, each in SECONDS.items()}
    timings = run / "timings"
    timings.mkdir()
    line = json.dumps({"rows": [0, frames], "seconds": seconds}) + "\n"
    (timings / "shard-0.jsonl").write_text(line)
    (timings / "step-0.json").write_text('{"draws": 3, "first": 0.1, "all": 0.2}')


def told(capsys: pytest.CaptureFixture[str], *argv: str | Path, code: int = 0) -> Any:
    """What the command says as JSON."""
    assert status.main([*map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_an_incomplete_run_is_told_with_its_rate_and_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", blocks=6)
    time_frames(run, frames=12)
    (found,) = told(capsys, run)
    assert (found["arm"], found["panel"], found["path"]) == ("ar_draws3_t0.7", "pusht", str(run))
    assert (found["frames_done"], found["frames_total"]) == (12, 16)
    assert (found["state"], found["frames_per_second"]) == ("incomplete", 0.25)
    assert found["seconds_left"] == 16.0
    assert found["cost"]["device_hours"] == 48 / 3600
    shares = {name: part["share"] for name, part in found["cost"]["parts"].items()}
    assert shares == {"prefill": 0.25, "lines": 0.125, "draws": 0.5, "decode": 0.125}
    margin = [found["cost"][f"{which}_draw_seconds"] for which in ("first", "further")]
    assert margin == [1.0, 0.5]
    assert found["cost"]["further_to_first"] == 0.5


def test_a_complete_run_has_nothing_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    time_frames(make_run(tmp_path / "run"), frames=16)
    (found,) = told(capsys, tmp_path / "run" / "predictions.zarr")
    assert (found["state"], found["frames_done"], found["seconds_left"]) == ("complete", 16, 0.0)


def test_a_run_that_is_written_and_not_sealed_is_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "finalise", lambda _: None)
    (found,) = told(capsys, make_run(tmp_path / "run"))
    assert (found["state"], found["frames_done"]) == ("unchecked", 16)


def test_a_run_is_told_with_its_name_digest_and_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("a-long-name-of-a-merged-store"), blocks=6)
    last = time.time() - 7260
    for path in (run / "predictions.zarr").rglob("*"):
        os.utime(path, (last - 50, last - 50))
    os.utime(run / "predictions.zarr" / "frame_digest" / "c.3.0", (last, last))
    (found,) = told(capsys, run)
    assert found["name"] == "a-long-name-of-a-merged-store"
    assert found["digest"] == store.open_run(run, incomplete=True).attrs["digest"]
    assert found["age_seconds"] == pytest.approx(7260, abs=30)
    assert status.main([str(run)]) == 0
    assert "2 h 01 min a-long-name-of-a-merged-store" in capsys.readouterr().out
    os.utime(run / "predictions.zarr" / "zarr.json", (last + 9999, last + 9999))
    (found,) = told(capsys, run)
    assert found["age_seconds"] == 0.0  # the disk's clock is ahead


def test_nothing_is_invented_for_a_run_without_timings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = told(capsys, make_run(tmp_path / "run", blocks=1))
    for name in ("cost", "frames_per_second", "seconds_left"):
        assert found[name] is None
    assert status.main([str(tmp_path / "run")]) == 0
    assert "n/a" in capsys.readouterr().out


def test_a_folder_lists_all_runs_below_it_and_each_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a", "machine/c"):
        make_run(tmp_path / name, blocks=0, arm=name)
    found = told(capsys, tmp_path, tmp_path / "a")
    assert [each["arm"] for each in found] == ["a", "b", "machine/c"]


def test_the_runs_of_outputs_are_listed_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("outputs/run"), blocks=0)
    (found,) = told(capsys)
    assert found["path"] == "outputs/run"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no/such"], "no/such is no run and holds none"),
        (["rum"], "did you mean run?"),
        (["empty"], "run evaluate first"),
        (["run", "--jsn"], "did you mean --json?"),
        (["run", "--json=yes"], "see arflow-eval status --help"),
    ],
)
def test_what_is_no_run_is_a_usage_error_in_one_line(
    argv: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("empty").mkdir()
    assert status.main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.parametrize("file", ["timings/shard-0.jsonl", "predictions.zarr/zarr.json"])
def test_a_damaged_run_ends_with_5_and_hides_no_other(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        time_frames(make_run(tmp_path / name, arm=name), frames=16)
    (tmp_path / "a" / file).write_text("{\n")
    assert status.main([str(tmp_path), "--json"]) == 5
    shown = capsys.readouterr()
    assert [each["arm"] for each in json.loads(shown.out)] == ["b"]
    (line,) = shown.err.splitlines()
    assert str(tmp_path / "a" / file) in line


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_loses_no_word_at_a_terminals_width(tmp_path: Path, width: int) -> None:
    run = make_run(tmp_path / "run", blocks=6, arm="ar_tiny_draws10_t0.7")
    time_frames(run, frames=12)
    console = Console(width=width)
    with console.capture() as captured:
        console.print(status.table([status.run_status(run)]))
    shown = captured.get()
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for words in ("ar_tiny_draws10_t0.7", "12/16", "incomplete", "0.25", "16 s", "50.0", "0.5"):
        assert words in shown


def test_help_says_what_a_path_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--help"]) == 0
    assert "predictions.zarr" in capsys.readouterr().out


def test_status_loads_no_model_stack_and_no_hydra() -> None:
    code = (
        "import sys, arflow_eval.status;"
        "sys.exit(bool({'torch', 'transformers', 'hydra', 'omegaconf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
