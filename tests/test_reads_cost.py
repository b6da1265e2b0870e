"""The read of what a run cost: one arm, no score, and a report that says what it is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import made_arms
from arflow_eval import read, refusal, store
from arflow_eval.reading import report_digest
from arflow_eval.reads.cost import table
from made_arms import TIMED

LINE: dict[str, Any] = {
    "rows": [0, TIMED],
    "seconds": {"prefill": [1.0] * TIMED, "draws": [3.0] * TIMED},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run, its frames timed. None of them is core."""
    folder = tmp_path / "run"
    return made_arms.written(made_arms.timed(folder)["run"], folder)


def carry_out(run: Any) -> dict[str, Any]:
    return made_arms.carry_out(made_arms.definition("cost"), {"run": run})


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
    assert (found["arm"], found["draws"], found["frames"]) == ("ar_draws5_t1", 5, TIMED)
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
        made_arms.carry_out(made_arms.definition("cost"), {"run": run, "control": run})
