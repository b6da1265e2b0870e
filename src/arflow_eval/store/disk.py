"""Reaching the disk: data is on it before anything claims so, and a full one is said plainly."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from arflow_eval import refusal

UNWRITABLE: Final = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.ENOTDIR,
}


def sync(path: Path) -> None:
    """Force a file's content, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Force a folder and everything below it to the disk, the deepest first."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


def put(path: Path, content: bytes) -> None:
    """Write a new file, on disk before this returns; its folder's entry is not."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def will_need(path: Path) -> None:
    """Ask the system to fetch a file that will be read soon, where it takes such hints."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)


def replace_text(path: Path, text: str, *, temporary: Path) -> None:
    """Replace a file's content in one step, by way of a temporary on the same file system."""
    try:
        put(temporary, text.encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a refusal; every other error passes unchanged."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise refusal.Refusal(
            f"{path} cannot be written ({error.strerror})",
            expected="a writable disk with room for the store",
            remedy="make room, then rerun the same evaluate command, it resumes",
            exit_code=1,
        ) from error
