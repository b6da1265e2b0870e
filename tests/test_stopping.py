"""A run that is asked to end: after the block, or at once, and it resumes to the same bits."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arflow_eval import cli, refusal, store
from arflow_eval.jobs import INTERRUPTED

RUN = ("evaluate", "model=hold_last", "panel=pusht_q4", "store.block=5")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def whole(root: Path) -> tuple[Path, str]:
    """A run's folder and its fingerprint."""
    (run,) = root.glob("hold_last-*")
    return run, str(store.open_run(run).attrs["fingerprint"])


def before_block(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Act while the given block is being written."""
    write, count = store.write_block, iter(range(100))

    def acting(*given: Any) -> bool:
        if next(count) == number:
            act()
        return write(*given)

    monkeypatch.setattr(store, "write_block", acting)


def interrupt(*, times: int = 1, number: int = signal.SIGINT) -> Callable[[], None]:
    return lambda: [os.kill(os.getpid(), number) for _ in range(times)] and None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_ends_the_run_after_the_block(
    here: Path, monkeypatch: pytest.MonkeyPatch, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        before_block(patch, 1, interrupt(number=number))
        assert cli.main(RUN) == INTERRUPTED
    assert "once more ends at once" in capsys.readouterr().err
    (run,) = Path("outputs").iterdir()
    assert store.progress(run / "predictions.zarr") == (10, 41)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert cli.main(RUN) == 0
    assert cli.main([*RUN, f"store.root={here / 'other'}"]) == 0
    assert whole(Path("outputs"))[1] == whole(here / "other")[1]


@pytest.mark.usefixtures("here")
def test_a_second_signal_ends_it_at_once_and_loses_only_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        before_block(patch, 1, interrupt(times=2))
        assert cli.main(RUN) == INTERRUPTED
    (run,) = Path("outputs").iterdir()
    assert store.progress(run / "predictions.zarr") == (5, 41)
    assert store.damaged(run / "predictions.zarr") == []
    assert cli.main(RUN) == 0


@pytest.mark.usefixtures("here")
def test_a_stop_file_ends_it_with_four_until_it_is_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        (run,) = Path("outputs").iterdir()
        (run / "STOP").touch()

    with monkeypatch.context() as patch:
        before_block(patch, 2, stop)
        assert cli.main(RUN) == refusal.WAITING
    (run,) = Path("outputs").iterdir()
    assert store.progress(run / "predictions.zarr") == (15, 41)
    assert cli.main(RUN) == refusal.WAITING
    assert "remove it and rerun" in capsys.readouterr().err
    (run / "STOP").unlink()
    assert cli.main(RUN) == 0


@pytest.mark.usefixtures("here")
def test_ctrl_c_ends_a_sweep_and_not_one_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    before_block(monkeypatch, 0, interrupt())
    words = ["evaluate", "--multirun", "model=hold_last,state_copy", "panel=pusht_q4"]
    assert cli.main(words) == INTERRUPTED
    assert len(list(Path("outputs").iterdir())) == 1
