"""The cost gate: what a whole run will cost, projected from its own first frames.

The projection is spent + frames left / rate x devices, in device-hours; strictly more than the
limit exceeds it. It is made once, and written beside the store with its arithmetic: a run that is
started again and the other shards follow it. It is no part of a store's identity.
"""

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal

NAME: Final = "gate.json"
HOUR: Final = 3600.0
Clock = Callable[[], float]


@dataclass(frozen=True)
class Verdict:
    """A gate's decision and its arithmetic.

    Attributes:
        limit: device-hours allowed.
        projected: device-hours of the whole run; more than the limit exceeds it.
        spent: device-hours until the decision, of all devices.
        frames_measured: frames finished after the first of this process.
        seconds_measured: what they took.
        frames_left: of all shards, when it was decided.
        devices: processes that share the run.
    """

    limit: float
    projected: float
    spent: float
    frames_measured: int
    seconds_measured: float
    frames_left: int
    devices: int

    @property
    def exceeded(self) -> bool:
        """Strictly more than the limit; exactly the limit passes."""
        return self.projected > self.limit

    def __str__(self) -> str:
        rate = self.frames_measured / self.seconds_measured
        return (
            f"{self.projected:.4g} device-hours projected: {self.spent:.4g} spent and"
            f" {self.frames_left:,} frames left at {rate:.4g} frames/s a device"
        )


def verdict(
    *,
    limit: float,
    elapsed: float,
    measured: int,
    seconds: float,
    left: int,
    devices: int,
) -> Verdict:
    """The decision after `measured` frames in `seconds`, `elapsed` seconds into the run.

    All devices are taken to go at this one's rate, so frames left cost left / rate device-seconds
    however many share them.
    """
    spent = elapsed * devices / HOUR
    ahead = left * seconds / measured / HOUR
    return Verdict(limit, spent + ahead, spent, measured, seconds, left, devices)


@dataclass
class Meter:
    """Frames finished by this process, and when; its clock starts at the first finished frame."""

    clock: Clock
    begun: float
    first: float | None = None
    before: int = 0
    done: int = 0
    last: float = 0.0

    def advance(self, frames: int) -> None:
        """Some frames are finished."""
        self.done += frames
        self.last = self.clock()
        if self.first is None:
            self.first, self.before = self.last, self.done

    @property
    def measured(self) -> int:
        """Frames finished after the first ones."""
        return self.done - self.before

    @property
    def seconds(self) -> float:
        """What they took."""
        return 0.0 if self.first is None else self.last - self.first


def read(folder: Path) -> Verdict | None:
    """The verdict beside a store, where there is one.

    Raises:
        Refusal: it cannot be read (damage).
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        del found["exceeded"]
        return Verdict(**found)
    except (ValueError, TypeError, KeyError) as error:
        raise refusal.damage(
            f"{path} cannot be read ({error})",
            expected="the verdict of a cost gate",
            remedy="remove it, and the gate decides anew",
        ) from error


def record(folder: Path, made: Verdict) -> Verdict:
    """Write a verdict once; returns the one that stands, which another shard's may be.

    One on another limit is replaced: the gate was moved.
    """
    path, whole = folder / NAME, folder / f".gate-{uuid.uuid4().hex}.tmp"
    whole.write_text(json.dumps({**asdict(made), "exceeded": made.exceeded}, indent=1) + "\n")
    try:
        path.hardlink_to(whole)
    except FileExistsError:
        standing = read(folder)
        if standing is not None and standing.limit == made.limit:
            return standing
        whole.replace(path)
    finally:
        whole.unlink(missing_ok=True)
    return made


def stopped(found: Verdict) -> refusal.Refusal:
    """The refusal of a run that would cost too much. Its store stays and resumes."""
    return refusal.Refusal(
        str(found),
        expected=f"at most {found.limit:g} (gate.device_hours)",
        remedy="run on a smaller panel, raise gate.device_hours, or set gate.on_exceed=warn;"
        " the store resumes",
        exit_code=refusal.WAITING,
    )


def gated(
    folder: Path,
    *,
    limit: float | None,
    frames: int,
    devices: int,
    left: Callable[[], int],
    exceeded: Callable[[Verdict], None],
    clock: Clock,
) -> tuple[Callable[[int], None], Callable[[], None]]:
    """What is called as frames finish, and what is called between blocks and decides once.

    Args:
        folder: the run's.
        limit: device-hours; None never decides.
        frames: frames to measure before deciding.
        devices: processes that share the run.
        left: frames that no shard has finished.
        exceeded: what happens then, once; a verdict that stands from before counts at once.
        clock: seconds.
    """
    meter = Meter(clock=clock, begun=clock())
    standing = read(folder)
    open_yet = limit is not None
    if limit is not None and standing is not None and standing.limit == limit:
        open_yet = False
        if standing.exceeded:
            exceeded(standing)

    def check() -> None:
        nonlocal open_yet
        if not open_yet or limit is None or meter.measured < frames or meter.seconds <= 0:
            return
        open_yet = False
        found = record(
            folder,
            verdict(
                limit=limit,
                elapsed=clock() - meter.begun,
                measured=meter.measured,
                seconds=meter.seconds,
                left=left(),
                devices=devices,
            ),
        )
        if found.exceeded:
            exceeded(found)

    return meter.advance, check
