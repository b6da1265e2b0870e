"""A second process for checks of a file system: it does one thing a line, and says what it saw.

It is run by its path, needs nothing but the standard library, and ends with its input.
"""

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 60.0  # after which a second process counts as stuck


class PeerError(Exception):
    """The second process ended, or did not answer in time."""


class Peer:
    """The second process, seen from the first."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this file, by this Python
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def begin(self, word: str, path: Path, **settings: Any) -> None:
        """Have the other process do something, and do not wait for it."""
        stream = self._process.stdin
        if stream is None:
            raise PeerError("the second process takes no words")
        try:
            stream.write(json.dumps([word, str(path), settings]) + "\n")
        except BrokenPipeError as error:
            raise PeerError("the second process has ended") from error

    def answer(self) -> Any:
        """What the other process saw."""
        stream = self._process.stdout
        if stream is None or not select.select([stream], [], [], SECONDS)[0]:
            raise PeerError(f"the second process did not answer in {SECONDS:.0f} s")
        line = stream.readline()
        if not line:
            raise PeerError("the second process has ended")
        return json.loads(line)

    def ask(self, word: str, path: Path, **settings: Any) -> Any:
        """Have the other process do something; returns what it saw."""
        self.begin(word, path, **settings)
        return self.answer()

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def second_process() -> Iterator[Peer]:
    """A second process, killed in the end."""
    other = Peer()
    try:
        yield other
    finally:
        other.kill()


def claim(path: Path, *, names: int, at: float) -> list[int]:
    """Create as many of some names as nobody else has, from a moment on; returns which."""
    won = []
    while time.monotonic() < at:  # one clock for all processes
        pass
    for number in range(names):
        try:
            os.close(os.open(path / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        won.append(number)
    return won


def watch(path: Path, *, until: str, length: int) -> dict[str, int]:
    """Read a file over and over until another appears; counts reads that were not whole.

    A whole content is one letter, `length` times.
    """
    reads = broken = 0
    stop = time.monotonic() + SECONDS / 2
    while not Path(until).exists() and time.monotonic() < stop:
        try:
            content = path.read_text()
        except FileNotFoundError:
            content = ""
        reads += 1
        broken += len(content) != length or content != content[0] * length
    return {"reads": reads, "broken": broken}


def lock(path: Path) -> bool:
    """Take an exclusive lock without waiting, and hold it until this process ends."""
    descriptor = os.open(path, os.O_RDWR)  # left open: it is the lock
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def read(path: Path) -> str | None:
    """The content of a file, None where there is none."""
    return path.read_text() if path.exists() else None


def listing(path: Path) -> list[str]:
    """The names in a folder."""
    return sorted(each.name for each in path.iterdir())


WORDS: dict[str, Callable[..., Any]] = {
    "claim": claim,
    "watch": watch,
    "lock": lock,
    "read": read,
    "listing": listing,
}


def main() -> None:
    """Do what every line of the input says, until it ends."""
    for line in sys.stdin:
        word, path, settings = json.loads(line)
        try:
            seen = WORDS[word](Path(path), **settings)
        except OSError as error:
            seen = {"error": error.strerror or str(error)}
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
