"""Claims: who may put a block in its place, now.

A claim is a lock of the operating system on a file beside the store. The kernel gives it back
when its holder dies, however it dies, so no claim is ever stale and nothing has to guess whether
one is. A writer holds the claim of a block from the last look at its marks until the new ones are
on disk. A slow process and the one started in its place so come one after the other: the second
finds the block marked, and drops its own values.

Where a file system has no locks the claim is not exclusive; `docs/store.md` says what then holds.
"""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from arflow_eval import refusal

PATIENCE: Final = 60.0  # seconds; a commit takes milliseconds
PAUSE: Final = 0.01  # seconds between two tries
HELD: Final = {errno.EWOULDBLOCK, errno.EACCES}
NO_LOCKS: Final = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextmanager
def claimed(store: Path, part: str, *, patience: float | None = None) -> Iterator[None]:
    """Hold the claim of one part of a store, once no other process does.

    Args:
        store: the store; its claims lie in a folder beside it.
        part: what is claimed, such as `block-3`.
        patience: seconds to wait for the process that holds it.

    Raises:
        Refusal: another process holds it for longer than that, such as one that was stopped.
    """
    file = _folder(store) / f"{part}.lock"
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    while (descriptor := _held(file)) is None:
        if time.monotonic() >= deadline:
            raise _taken(store, part, file)
        time.sleep(PAUSE)
    try:
        _sign(descriptor)
        yield
    finally:
        _release(file, descriptor)


def sweep(store: Path) -> None:
    """Remove the files of claims whose holders died."""
    for file in _folder(store).glob("*.lock"):
        descriptor = _held(file)
        if descriptor is not None:  # nobody's: who holds a claim removes its file
            _release(file, descriptor)


def _folder(store: Path) -> Path:
    return store.with_name(f".{store.name}.claims")


def _held(file: Path) -> int | None:
    """A descriptor that holds the lock on a file, or None where another process has it."""
    while True:
        with suppress(FileExistsError):
            file.parent.mkdir()
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # its folder went as the last claim was given back
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                if error.errno in HELD:
                    return None
                raise
        if _same(file, descriptor):
            return descriptor
        os.close(descriptor)  # the last holder removed the file before it let go


def _same(file: Path, descriptor: int) -> bool:
    """Whether a name still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _release(file: Path, descriptor: int) -> None:
    try:
        file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    with suppress(OSError):  # another claim is still in it
        file.parent.rmdir()


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _taken(store: Path, part: str, file: Path) -> refusal.Refusal:
    try:
        holder = file.read_text() or "another process"
    except FileNotFoundError:
        holder = "another process"
    return refusal.waiting(
        f"{holder} holds {part} of {store}",
        expected="to commit it within a minute",
        remedy="end that process if it is stopped, then rerun the same evaluate command",
    )
