import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from arflow_eval import cli


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments that a stand-in for `evaluate` was run with; it returns 4."""
    calls: list[list[str]] = []

    def main(argv: Sequence[str]) -> int:
        calls.append(list(argv))
        return 4

    module = ModuleType("arflow_eval.evaluate")
    module.main = main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arflow_eval.evaluate", module)
    return calls


def test_a_command_gets_the_arguments_after_it_and_returns_its_status(
    received: list[list[str]],
) -> None:
    assert cli.main(["evaluate", "--cfg", "job", "seed=1"]) == 4
    assert received == [["--cfg", "job", "seed=1"]]


def test_a_misspelt_command_names_the_nearest_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["evalute", "seed=1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: unknown command evalute; expected one of")
    assert "did you mean evaluate?" in line


def test_help_shows_every_command_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"  arflow-eval {command}" in shown


def test_no_command_shows_the_help_as_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: arflow-eval COMMAND" in capsys.readouterr().out


def test_the_version_is_printed_on_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("arflow-eval ")


def test_python_dash_m_is_the_console_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "arflow_eval", "evalute"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown command evalute")
