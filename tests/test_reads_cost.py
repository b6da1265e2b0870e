"""The read of what a run cost: one arm, no score, and a report that says what it is not."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

from arflow_eval import read, refusal, store
from arflow_eval.contracts import Frames, Space
from arflow_eval.reading import report_digest, run_read
from arflow_eval.reads.cost import cost, table

FRAMES, STEPS = 8, 4
DEFINITION: dict[str, Any] = {"name": "cost", "question": "What does a frame cost?"}
LINE: dict[str, Any] = {
    "rows": [0, FRAMES],
    "seconds": {"prefill": [1.0] * FRAMES, "draws": [3.0] * FRAMES},
}
STEP = {"draws": 5, "first": 0.1, "all": 0.3}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run, its frames timed. None of them is core."""
    folder = tmp_path / "run"
    order = np.arange(FRAMES)
    frames = Frames(
        repos=("owner/repo",),
        tasks=("push",),
        repo=order * 0,
        task=order * 0,
        episode=order,
        frame_index=order,
        index=order,
        core=order < 0,
    )
    schema = store.Schema(
        frames=frames,
        space=Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0),
        steps=STEPS,
        draws=5,
        block=1,
        attributes={"digest": "ab" * 32, "arm": "ar_draws5_t1", "config": {}, "horizon": STEPS},
        state_copy=False,
    )
    columns = {
        "prediction": np.zeros((1, 5, STEPS, 2), np.float32),
        "truth": np.zeros((1, STEPS, 2), np.float32),
        "valid": np.ones((1, STEPS), bool),
        "logprob": np.zeros((1, 5)),
    }
    with mock.patch("os.fsync"):
        store.open_or_create(folder / "predictions.zarr", schema)
        for rows in store.blocks(folder / "predictions.zarr", shard_index=0, shard_count=1):
            store.write_block(folder / "predictions.zarr", rows, columns)
        store.finalise(folder / "predictions.zarr")
    (folder / "timings").mkdir()
    (folder / "timings" / "shard-0.jsonl").write_text(json.dumps(LINE) + "\n")
    (folder / "timings" / "step-0.json").write_text(json.dumps(STEP))
    return folder


def carry_out(run: Any) -> dict[str, Any]:
    return run_read(DEFINITION, {"run": run}, measure=cost)


def shown(report: dict[str, Any]) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(report))
    return captured.get()


def test_the_command_reports_seconds_by_part_and_a_draw_at_the_margin(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["read=cost", f"arms.run={run}", f"store.root={tmp_path / 'reads'}"]
    assert read.main(argv) == 0
    (path,) = tmp_path.glob("reads/cost-*/report.json")
    report = json.loads(path.read_text())
    found = report["arms_cost"]["run"]
    assert (found["arm"], found["draws"], found["frames"]) == ("ar_draws5_t1", 5, FRAMES)
    assert found["parts"]["draws"] == {"total": 24.0, "mean": 3.0, "median": 3.0, "share": 0.75}
    assert found["seconds_per_frame"] == 4.0
    assert (found["device_hours"], found["frames_per_device_hour"]) == (32 / 3600, 900.0)
    assert found["first_draw_seconds"] == pytest.approx(1.0)
    assert found["further_draw_seconds"] == pytest.approx(0.5)
    assert found["further_to_first"] == pytest.approx(0.5)
    out = capsys.readouterr().out
    for words in ("75.0%", "first draw 1 s", "others 0.5 s (ratio 0.5)", "900 frames a device"):
        assert words in out


def test_a_read_of_one_arm_runs_no_guard_of_pairs_or_of_scores(run: Path) -> None:
    report = carry_out(run)
    assert report["extended"]["guards_passed"] == ["complete", "no_duplicates"]
    assert report["extended"]["definition"] == {"measure": "arflow_eval.reads.cost.cost"}


def test_the_report_claims_seconds_on_this_machine_and_no_fingerprint(run: Path) -> None:
    report = carry_out(run)
    claim = "seconds on this machine; not part of the store's fingerprint"
    assert report["extended"]["claim_boundary"] == claim
    assert claim in shown(report)
    assert "success rates" not in json.dumps(report)


def test_other_seconds_of_one_store_go_to_another_report(run: Path) -> None:
    first = carry_out(run)
    assert report_digest(carry_out(run)) == report_digest(first)
    (run / "timings" / "shard-0.jsonl").write_text(json.dumps({**LINE, "rows": [0, 8]}) + "\n")
    assert report_digest(carry_out(run)) == report_digest(first)
    slower = {"rows": [7, 8], "seconds": {"prefill": [1.0], "draws": [4.0]}}
    with (run / "timings" / "shard-0.jsonl").open("a") as file:
        file.write(json.dumps(slower) + "\n")
    assert report_digest(carry_out(run)) != report_digest(first)


def test_without_a_measured_step_the_margin_is_null_and_said_as_such(run: Path) -> None:
    (run / "timings" / "step-0.json").unlink()
    report = carry_out(run)
    found = report["arms_cost"]["run"]
    assert found["first_draw_seconds"] is None
    assert found["further_to_first"] is None
    assert "a draw at the margin: n/a, no step was measured" in shown(report)


def test_a_run_without_timings_is_guarded(run: Path) -> None:
    (run / "timings" / "shard-0.jsonl").unlink()
    with pytest.raises(refusal.Refusal, match="no recorded seconds") as refused:
        carry_out(run)
    assert refused.value.exit_code == refusal.GUARD


def test_a_run_in_memory_has_no_timings_beside_it(run: Path) -> None:
    arm = store.open_run(run).load()
    arm.encoding = {}
    with pytest.raises(refusal.Refusal, match="give the path") as refused:
        carry_out(arm)
    assert refused.value.exit_code == refusal.USAGE


def test_a_second_arm_is_a_usage_error(run: Path) -> None:
    with pytest.raises(refusal.Refusal, match="no arm is called control"):
        run_read(DEFINITION, {"run": run, "control": run}, measure=cost)
