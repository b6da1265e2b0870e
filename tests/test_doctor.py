"""`doctor`: a good file system passes, a bad one is told from it, and nothing is left behind."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from arflow_eval import doctor
from arflow_eval.doctoring import filesystem
from arflow_eval.doctoring.filesystem import Broken, Check
from arflow_eval.doctoring.peer import Peer, PeerError


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "REPLACING", 0.2)
    monkeypatch.setattr(filesystem, "PATIENCE", 0.5)


def test_a_local_file_system_passes_and_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main([str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    failed = [each for each in found["checks"] if not each["passed"] and each["required"]]
    assert failed == []
    assert [each["check"] for each in found["checks"]] == [
        *("exclusive create", "hard link", "rename of a file", "rename of a folder", "fsync"),
        *("flock", "visibility", "directory listing", "free space", "time stamps"),
    ]
    assert list(tmp_path.iterdir()) == []


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Try only some of the checks."""
    chosen = tuple(each for each in filesystem.CHECKS if each.name in names)
    assert len(chosen) == len(names)
    monkeypatch.setattr(filesystem, "CHECKS", chosen)


def test_the_table_says_what_each_check_is_needed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(monkeypatch, "hard link", "time stamps")
    monkeypatch.chdir(tmp_path)
    assert doctor.main([]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("file system of .\n")
    assert "writer.json, by whoever is first" in shown
    Path("outputs").mkdir()
    assert doctor.main([]) == 0
    assert capsys.readouterr().out.startswith("file system of outputs\n")


def _replacing(source: Path, target: Path) -> Path:
    """A rename that moves a folder onto whatever is there."""
    for path in target.glob("*") if target.is_dir() else ():
        path.unlink()
    os.rename(source, target)  # noqa: PTH104 - the method is replaced by this
    return target


def _torn(source: Path, target: Path) -> Path:
    """A replacement that empties the file first."""
    target.write_text("")
    time.sleep(0.001)
    os.replace(source, target)  # noqa: PTH105 - the method is replaced by this
    return target


def _linked_over(path: Path, target: Path) -> None:
    path.write_bytes(target.read_bytes())


def _unsynced(_: Path) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def _unseen(path: Path, _: str) -> None:
    path.touch()


FULL = mock.Mock(free=2**20)
BAD: list[tuple[str, str, Any, str]] = [
    ("rename of a folder", "pathlib.Path.rename", _replacing, "onto one that holds files"),
    ("rename of a file", "pathlib.Path.replace", _torn, "reads were torn"),
    ("hard link", "pathlib.Path.hardlink_to", _linked_over, "linked over"),
    ("fsync", "arflow_eval.doctoring.filesystem.sync", _unsynced, "Invalid argument"),
    ("flock", "fcntl.flock", lambda *_: None, "two processes hold one lock"),
    ("exclusive create", "arflow_eval.doctoring.filesystem.claim", None, "given to both"),
    ("visibility", "pathlib.Path.write_text", _unseen, "a write is not seen"),
    ("directory listing", "pathlib.Path.touch", lambda *_: None, "other files"),
    ("free space", "shutil.disk_usage", lambda _: FULL, "0.00 GiB free"),
    ("time stamps", "time.time", lambda: 1e9, "clock is"),
]


@pytest.mark.parametrize(("name", "target", "fault", "said"), BAD)
def test_a_broken_promise_is_found(
    name: str, target: str, fault: Callable[..., Any] | None, said: str, tmp_path: Path
) -> None:
    (check,) = (each for each in filesystem.CHECKS if each.name == name)
    if fault is None:  # every process gets every name

        def fault(_: Path, *, names: int, at: float) -> list[int]:
            time.sleep(max(0.0, at - time.monotonic()))
            return list(range(names))

    with mock.patch(target, fault), pytest.raises((Broken, OSError), match=said):
        check.tried(tmp_path)


def test_a_lock_that_outlives_its_holder_is_found(tmp_path: Path) -> None:
    (check,) = (each for each in filesystem.CHECKS if each.name == "flock")
    taken = mock.patch("fcntl.flock", side_effect=BlockingIOError)
    with taken, pytest.raises(Broken, match="a killed process still holds its lock"):
        check.tried(tmp_path)


def failing(_: Path) -> str:
    raise Broken("it did not")


@pytest.mark.parametrize(("code", "word"), [(3, "FAIL"), (0, "warn")])
def test_only_what_the_store_needs_decides(
    code: int,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check = Check("patience", "waiting", required=code == 3, tried=failing)
    monkeypatch.setattr(filesystem, "CHECKS", (check,))
    assert doctor.main([str(tmp_path)]) == code
    shown = capsys.readouterr()
    assert word in shown.out
    assert "it did not" in shown.out
    assert (f"{tmp_path} fails patience" in shown.err) is (code == 3)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_guard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied")
    with mock.patch("pathlib.Path.mkdir", side_effect=refused):
        assert doctor.main([str(tmp_path)]) == 3
    assert "cannot be written (Permission denied)" in capsys.readouterr().err


def test_a_second_process_that_ends_is_said() -> None:
    other = Peer()
    other.kill()
    with pytest.raises((PeerError, ValueError)):
        other.ask("listing", Path())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "there is no folder none"),
        ([".", "."], "doctor with 2 folders"),
        (["model=ar_tiny"], "doctor model=ar_tiny, which tests no adapters yet"),
        ([".", "--jsn"], "did you mean --json?"),
    ],
)
def test_wrong_words_are_one_line_and_status_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
