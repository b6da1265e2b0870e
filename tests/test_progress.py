import io

import pytest
from rich.console import Console

from arflow_eval import progress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.0, "59 s"),
        (185.0, "3 min 05 s"),
        (7800.0, "2 h 10 min"),
        (3.6e6, "1,000 h 00 min"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words


def test_without_a_terminal_the_last_line_has_frames_rate_and_time_left() -> None:
    out = io.StringIO()
    with progress.frames_done("arm", done=2, total=5, console=Console(file=out)) as advance:
        for _ in range(3):
            advance(1)
    assert out.getvalue().startswith("arm: 5 of 5 frames, ")
    assert out.getvalue().endswith("frames/s, 0 s left\n")


def test_lines_are_not_printed_for_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    out = io.StringIO()
    with progress.frames_done("arm", done=0, total=100, console=Console(file=out)) as advance:
        for _ in range(35):
            advance(1)
    lines = out.getvalue().splitlines()
    assert lines == [
        f"arm: {done} of 100 frames, 1.0 frames/s, {progress.duration(100.0 - done)} left"
        for done in (10, 20, 30)
    ]


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with progress.frames_done("arm", done=0, total=3, console=console) as advance:
        advance(3)
    assert "3/3" in out.getvalue()
    assert "/s" in out.getvalue()
