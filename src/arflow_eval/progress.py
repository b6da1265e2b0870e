"""Long work says how far it is: a bar on a terminal, plain lines elsewhere. Both on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES: Final = 10.0

Advance = Callable[[int], None]


@contextmanager
def frames_done(
    title: str, *, done: int, total: int, console: Console | None = None
) -> Iterator[Advance]:
    """A function to call with the number of frames just finished, of `total` with `done` before.

    Shows frames, rate over this session and time left.
    """
    console = Console(stderr=True) if console is None else console
    if console.is_terminal:
        with _bar(console) as bar:
            task = bar.add_task(title, total=total, completed=done, rate="")
            yield _advance_bar(bar, task, started=time.monotonic())
    else:
        yield _print_lines(title, console, done=done, total=total)


def duration(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("frames {task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )


def _advance_bar(bar: Progress, task: object, *, started: float) -> Advance:
    finished = 0

    def advance(frames: int) -> None:
        nonlocal finished
        finished += frames
        rate = finished / max(time.monotonic() - started, 1e-9)
        bar.update(task, advance=frames, rate=f"{rate:.1f}/s")  # type: ignore[arg-type]

    return advance


def _print_lines(title: str, console: Console, *, done: int, total: int) -> Advance:
    started = last = time.monotonic()
    before = done

    def advance(frames: int) -> None:
        nonlocal done, last
        done += frames
        now = time.monotonic()
        if done < total and now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = (done - before) / max(now - started, 1e-9)
        left = duration((total - done) / rate) if rate > 0 else "unknown"
        console.print(
            f"{title}: {done:,} of {total:,} frames, {rate:.1f} frames/s, {left} left",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )

    return advance
