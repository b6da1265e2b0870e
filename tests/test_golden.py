"""Frozen output: the read of two baselines on the bundled panel, whose every bit is ours.

A change that moves a number here says so in CHANGELOG.md. To write the file anew:
`ARFLOW_EVAL_WRITE_GOLDEN=1 python -m pytest tests/test_golden.py`.
"""

import json
import os
from pathlib import Path

import pytest

from arflow_eval import compose, read
from arflow_eval.evaluate import evaluate

GOLDEN = Path(__file__).parent / "golden" / "paired_delta_hold_last_state_copy.json"


def run(model: str) -> str:
    return str(evaluate(compose.compose("evaluate", [f"model={model}", "panel=pusht"])).folder)


def test_the_read_of_two_baselines_is_the_frozen_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arms = [f"arms.treatment={run('hold_last')}", f"arms.control={run('state_copy')}"]
    assert read.main(["read=paired_delta", *arms]) == 0
    (path,) = tmp_path.glob("outputs/paired_delta-*/report.json")
    assert f"report: {path.relative_to(tmp_path)}" in capsys.readouterr().out
    found = json.loads(path.read_text())
    for arm in found["extended"][
        "arms"
    ].values():  # names of runs, which hold the digest of the code
        del arm["path"], arm["digest"], arm["fingerprint"]
    if os.environ.get("ARFLOW_EVAL_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(GOLDEN.read_text())


def test_frames_that_do_not_match_end_with_exit_code_three_and_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quarter = evaluate(compose.compose("evaluate", ["model=hold_last", "panel=pusht_q4"])).folder
    arms = [f"arms.treatment={quarter}", f"arms.control={run('state_copy')}"]
    assert read.main(["read=paired_delta", *arms]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "123" in line
    assert not list(tmp_path.glob("outputs/paired_delta-*"))
