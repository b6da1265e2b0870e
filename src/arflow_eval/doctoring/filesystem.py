"""What the store asks of a file system, tried out by two real processes.

Local file systems keep these promises; network ones keep some of them, or only with some options.
"""

import fcntl
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arflow_eval import refusal
from arflow_eval.doctoring.peer import PeerError, claim, second_process
from arflow_eval.store.disk import sync

NAMES: Final = 200  # that both processes want, and files in a listing
REPLACING: Final = 1.0  # seconds for which a file is replaced under a reader
LENGTH: Final = 4096  # of its content
PATIENCE: Final = 5.0  # seconds within which another process must see something
SKEW: Final = 5.0  # seconds between the clocks of this machine and of the disk
ROOM: Final = 2**30  # bytes


class Broken(Exception):  # noqa: N818 - a finding about a disk, no error of the program
    """What a file system did and should not have done."""


@dataclass(frozen=True)
class Check:
    """One promise: what it is needed for, and a function that tries it in an empty folder.

    The function says what it saw, and raises `Broken` where the promise is not kept.
    """

    name: str
    needed_for: str
    required: bool
    tried: Callable[[Path], str]


@dataclass(frozen=True)
class Outcome:
    """What came of a check."""

    check: Check
    passed: bool
    seen: str


def examine(folder: Path) -> list[Outcome]:
    """Try every check below a folder, and remove all that was made.

    Raises:
        Refusal: a guard, where nothing can be created there.
    """
    place = folder / f".doctor-{uuid.uuid4().hex}"
    try:
        place.mkdir()
    except OSError as error:
        raise refusal.guard(
            f"{folder} cannot be written ({error.strerror})",
            expected="a folder in which stores can be made",
            remedy="choose another store.root",
        ) from error
    try:
        return [_outcome(check, place / str(number)) for number, check in enumerate(CHECKS)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _outcome(check: Check, place: Path) -> Outcome:
    try:
        place.mkdir()
        return Outcome(check, passed=True, seen=check.tried(place))
    except (Broken, PeerError, OSError) as error:
        return Outcome(check, passed=False, seen=str(error))


def exclusive_create(place: Path) -> str:
    """Of two processes that create one name, exactly one succeeds."""
    with second_process() as other:
        other.ask("listing", place)  # it runs
        start = time.monotonic() + 0.1
        other.begin("claim", place, names=NAMES, at=start)
        mine = claim(place, names=NAMES, at=start)
        theirs = other.answer()
    if sorted([*mine, *theirs]) != list(range(NAMES)):
        both = len(set(mine) & set(theirs))
        raise Broken(f"{both} of {NAMES} names were given to both processes")
    return f"{NAMES} names, {len(mine)} to one and {len(theirs)} to the other"


def hard_link(place: Path) -> str:
    """A second name for a file appears whole, and never over another."""
    whole, name = place / "whole", place / "name"
    whole.write_text("content")
    name.hardlink_to(whole)
    try:
        name.hardlink_to(whole)
    except FileExistsError:
        return "a taken name is refused"
    raise Broken("a taken name was linked over")


def rename_of_a_file(place: Path) -> str:
    """Who reads a file that is being replaced sees the old or the new one, whole."""
    path, ended, fresh = place / "file", place / "ended", place / "fresh"
    path.write_text("a" * LENGTH)
    replaced = 0
    with second_process() as other:
        other.ask("read", path)  # it runs
        other.begin("watch", path, until=str(ended), length=LENGTH)
        stop = time.monotonic() + REPLACING
        while time.monotonic() < stop:
            replaced += 1
            fresh.write_text("ab"[replaced % 2] * LENGTH)
            sync(fresh)
            fresh.replace(path)
        ended.touch()
        seen = other.answer()
    if "error" in seen or seen["broken"] or not seen["reads"]:
        raise Broken(str(seen.get("error", f"{seen['broken']} of {seen['reads']} reads were torn")))
    return f"replaced {replaced:,} times under {seen['reads']:,} reads"


def rename_of_a_folder(place: Path) -> str:
    """A folder moves to a free name in one step, and never onto one that holds something."""
    for name in ("one", "two"):
        (place / name).mkdir()
        (place / name / "owner").write_text(name)
    (place / "one").rename(place / "taken")
    try:
        (place / "two").rename(place / "taken")
    except OSError:
        if (place / "taken" / "owner").read_text() == "one":
            return "a taken name is refused"
    raise Broken("a folder was moved onto one that holds files")


def fsync(place: Path) -> str:
    """Files and folders can be forced to the disk."""
    started = time.monotonic()
    (place / "file").write_bytes(bytes(LENGTH))
    sync(place / "file")
    sync(place)
    return f"{1000 * (time.monotonic() - started):.0f} ms for a file and its folder"


def lock(place: Path) -> str:
    """A lock that one process holds keeps the other out, and is free once its holder is killed."""
    path = place / "lock"
    path.touch()
    with path.open("r+") as file:
        with second_process() as other:
            if other.ask("lock", path) is not True:
                raise Broken("another process cannot take a lock")
            if _locked(file.fileno()):
                raise Broken("two processes hold one lock")
            other.kill()
        stop = time.monotonic() + PATIENCE
        while not _locked(file.fileno()):
            if time.monotonic() > stop:
                raise Broken(f"a killed process still holds its lock after {PATIENCE:.0f} s")
            time.sleep(0.05)
    return "held by one, free once it is killed"


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def visibility(place: Path) -> str:
    """What one process writes over and over, the other reads at once."""
    slowest = 0.0
    with second_process() as other:
        for number in range(20):
            path = place / f"mark-{number // 2}"  # a new one, then a new content
            if other.ask("read", path) == str(number):
                raise Broken("a content was seen before it was written")
            path.write_text(str(number))
            sync(path)
            started = time.monotonic()
            while other.ask("read", path) != str(number):
                if time.monotonic() > started + PATIENCE:
                    raise Broken(f"a write is not seen after {PATIENCE:.0f} s")
            slowest = max(slowest, time.monotonic() - started)
    return f"20 writes, seen after at most {1000 * slowest:.0f} ms"


def directory_listing(place: Path) -> str:
    """The other process lists every file that is there, and none that is gone."""
    names = sorted(str(number) for number in range(NAMES))
    with second_process() as other:
        for name in names:
            (place / name).touch()
        if other.ask("listing", place) != names:
            raise Broken("another process lists other files than were made")
        for name in names[1:]:
            (place / name).unlink()
        if other.ask("listing", place) != names[:1]:
            raise Broken("another process lists files that are gone")
    return f"{NAMES} files, then one"


def free_space(place: Path) -> str:
    """There is room for a store."""
    free = shutil.disk_usage(place).free
    if free < ROOM:
        raise Broken(f"{free / 2**30:.2f} GiB free")
    return f"{free / 2**30:,.0f} GiB free"


def time_stamps(place: Path) -> str:
    """A file is dated by a clock that agrees with this machine's, and later ones later."""
    first, second = place / "first", place / "second"
    first.touch()
    time.sleep(0.02)
    second.touch()
    made = [path.stat().st_mtime for path in (first, second)]
    skew = made[0] - time.time()
    if abs(skew) > SKEW:
        raise Broken(f"the disk's clock is {skew:+.0f} s off")
    if made[0] > made[1]:
        raise Broken("a later file has an earlier date")
    return f"within {SKEW:.0f} s of this machine's clock"


CHECKS: Final = (
    Check("exclusive create", "one owner of a name", required=True, tried=exclusive_create),
    Check("hard link", "writer.json, by whoever is first", required=True, tried=hard_link),
    Check("rename of a file", "marks and metadata, whole", required=True, tried=rename_of_a_file),
    Check("rename of a folder", "one store, whole", required=True, tried=rename_of_a_folder),
    Check("fsync", "data before its mark", required=True, tried=fsync),
    Check("flock", "one writer a block", required=True, tried=lock),
    Check("visibility", "shards that see each other", required=True, tried=visibility),
    Check("directory listing", "status, sweeping", required=False, tried=directory_listing),
    Check("free space", "a store of a usual size", required=False, tried=free_space),
    Check("time stamps", "ages in status", required=False, tried=time_stamps),
)
