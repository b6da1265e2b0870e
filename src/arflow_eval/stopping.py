"""Ending a run between two blocks: by a STOP file in its folder, or by Ctrl-C."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from arflow_eval import refusal

STOP: Final = "STOP"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def between_blocks(folder: Path) -> Iterator[Callable[[], None]]:
    """Within it a first Ctrl-C (or SIGTERM) is kept until the yielded function is called.

    Call it before every block. It raises KeyboardInterrupt after such a signal, and a refusal
    (exit code 4) where the folder holds a file STOP. A second signal ends the run at once, which
    loses the block that is being made and nothing else.
    """
    asked: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        del frame
        asked.append(number)
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)
        sys.stderr.write("\nending after this block; once more ends at once, which loses it\n")

    def check() -> None:
        if asked:
            raise KeyboardInterrupt
        if (folder / STOP).exists():
            raise refusal.Refusal(
                f"{folder / STOP} asks this run to end",
                expected="no such file while it runs",
                remedy="remove it and rerun the same evaluate command, it resumes",
                exit_code=refusal.WAITING,
            )

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other may set a handler
        before = {each: signal.signal(each, keep) for each in SIGNALS}
    try:
        yield check
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
