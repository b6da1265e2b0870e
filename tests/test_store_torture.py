"""Nothing is lost and nothing is invented: crashes, kills, zombies, full disks and rotten bits.

What forks runs as a script of its own, so that no child inherits this process's threads.
"""

import errno
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray
import zarr

import arflow_eval
from arflow_eval import store
from arflow_eval.contracts import FrameId, Frames, Space
from arflow_eval.refusal import Refusal
from arflow_eval.store import claims, writing
from arflow_eval.store.access import block_values, opened, read_marks, variables
from arflow_eval.store.vocabulary import IDENTITIES, MARKS, VARIABLES

CRASHED, BROKEN = 77, 9
DIGEST = "ab" * 32
SIZES = {"draw": 3, "step": 4, "action": 2, "position": 5}
MEASURES = frozenset(each.name for each in VARIABLES if each.optional)
WRITTEN = [variable.name for variable in VARIABLES]


def panel(count: int) -> Frames:
    number = np.arange(count, dtype=np.int64)
    return Frames(
        repos=("b/second", "a/first"),
        tasks=("push", "pull"),
        repo=number % 2,
        task=number % 2,
        episode=np.int64(100) - number // 4,
        frame_index=number % 4,
        index=number * 7,
        core=number % 2 == 0,
    )


def schema(count: int, *, block: int, everything: bool = False) -> store.Schema:
    return store.Schema(
        frames=panel(count),
        space=Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0),
        steps=SIZES["step"],
        draws=SIZES["draw"],
        block=block,
        attributes={"digest": DIGEST, "arm": "ar", "config": {}, "horizon": 3},
        state_copy=everything,
        measures=MEASURES if everything else frozenset(),
        positions=SIZES["position"],
    )


def values(chosen: store.Schema, rows: range, *, writer: int = 0) -> dict[str, np.ndarray]:
    """Values that depend on a frame's identity and the writer alone."""
    return {
        variable.name: np.array(
            [_value(place, frame, variable.axes, writer) for frame in chosen.frames.ids(rows)]
        ).astype(variable.dtype)
        for place, variable in enumerate(chosen.variables)
    }


def _value(place: int, frame: FrameId, axes: tuple[str, ...], writer: int) -> np.ndarray:
    shape = [SIZES[axis] for axis in axes[1:]]
    seed = [place, frame.episode, frame.frame_index, writer]
    return 3 * np.random.default_rng(seed).normal(size=shape)


def create(path: Path, chosen: store.Schema) -> None:
    with mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        store.open_or_create(path, chosen)


def write(
    path: Path, chosen: store.Schema, *, shard: int = 0, of: int = 1, writer: int = 0
) -> None:
    for rows in store.missing(path, shard_index=shard, shard_count=of):
        store.write_block(path, rows, values(chosen, rows, writer=writer))


def finish(path: Path, chosen: store.Schema) -> str | None:
    create(path, chosen)
    write(path, chosen)
    return store.finalise(path)


def expected(chosen: store.Schema) -> str:
    """The fingerprint straight from the values."""
    frames = chosen.frames.ids()
    digests = store.frame_digests(frames, values(chosen, range(len(frames))))
    return store.fingerprint(frames, digests, config_digest=DIGEST)


def marked(path: Path) -> set[int]:
    return set(np.flatnonzero(read_marks(opened(path)).written).tolist())


def writer_of(path: Path, chosen: store.Schema, rows: range) -> int | None:
    """The writer whose values a block has, every one of them."""
    group = opened(path)
    found = {each.name: block_values(group, each.name, rows) for each in variables(group)}
    for writer in (0, 1):
        wanted = values(chosen, rows, writer=writer)
        if all(found[name].tobytes() == column.tobytes() for name, column in wanted.items()):
            return writer
    return None


# --- stopping a process wherever it touches the disk ----------------------------------------

Act = Callable[[str], None]
WRITES = ("create", "write", "half", "fsync", "mkdir")  # what a full disk refuses


@contextmanager
def watched(act: Act) -> Iterator[None]:
    """Call `act` before every put, rename, removal and fsync, and in the middle of every put.

    Nothing waits for the disk: a process that dies takes nothing of the page cache with it.
    """
    opening, writing_, io_opening = os.open, os.write, io.open

    def opened_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            act("create")
        return opening(path, flags, *rest, **named)

    def io_opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if set(mode) & set("wax+"):
            act("create")
        return io_opening(file, mode, *rest, **named)

    def written(descriptor: int, content: Any) -> int:
        act("write")
        half = writing_(descriptor, memoryview(content)[: len(content) // 2])
        act("half")
        return half + writing_(descriptor, memoryview(content)[half:])

    def before(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            act(name)
            return None if name == "fsync" else real(*given, **named)

        return call

    with ExitStack() as stack:
        stack.enter_context(mock.patch("os.open", opened_))
        stack.enter_context(mock.patch("os.write", written))
        stack.enter_context(mock.patch("io.open", io_opened))
        for name in ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir"):
            stack.enter_context(mock.patch(f"os.{name}", before(name)))
        stack.enter_context(mock.patch.object(writing, "WRITERS", 1))  # one order of events
        yield


def forked(work: Callable[[], object]) -> int:
    """The exit code of a child that does some work; a refusal's own, or `BROKEN`."""
    child = started(work)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def started(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        work()
        code = 0
    except Refusal as refused:
        code = refused.exit_code
    finally:
        os._exit(code)


# --- works: what a process may be at when it dies -------------------------------------------


def mark_first(
    pool: Executor,
    path: Path,
    group: zarr.Group,
    rows: range,
    staged: Mapping[str, Any],
) -> bool:
    """A commit in the wrong order."""
    del path, group, rows
    writing._publish(pool, [staged[MARKS]])
    writing._publish(pool, [each for name, each in staged.items() if name != MARKS])
    return True


def mutated(mutant: str) -> Any:
    """One thing done wrong, or nothing."""
    wrong: dict[str, tuple[str, Any]] = {
        "mark_first": ("_commit", mark_first),
        "unclaimed": ("claimed", lambda *_: nullcontext()),
    }
    return mock.patch.object(writing, *wrong[mutant]) if mutant else nullcontext()


def prepared(work: str, path: Path, chosen: store.Schema) -> None:
    """What is there before a work begins."""
    if work == "create":
        return
    create(path, chosen)
    if work in {"finalise", "clear", "remark"}:
        write(path, chosen)
    if work == "clear":
        store.finalise(path)
    if work == "remark":  # the marks of the first block cannot be read
        file = next((path / MARKS).glob("c.0.*"))
        file.write_bytes(file.read_bytes()[:-1])


WORKS: dict[str, Callable[[Path, store.Schema], object]] = {
    "create": create,
    "write": write,
    "remark": write,
    "finalise": lambda path, _: store.finalise(path),
    "clear": lambda path, _: store.clear(path, [0]),
}


def falsely_complete(path: Path) -> set[int]:
    """Rows that a reader takes for written and whose values are not what their mark says."""
    return set(store.damaged(path)) & marked(path)


def check(path: Path, chosen: store.Schema, before: set[int]) -> None:
    """No marked row without its values, none lost; and a rerun ends as if nothing happened."""
    if path.exists():
        assert not falsely_complete(path)
        assert before <= marked(path)
    with mock.patch("os.fsync"):
        assert finish(path, chosen) == expected(chosen)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert not list(path.rglob("*.partial"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.open_zarr(path)


def faults(fault: str, point: int) -> Act:
    """What happens at a point: the process is gone, or the disk is full from there on."""
    passed = 0

    def act(name: str) -> None:
        nonlocal passed
        if fault != "crash" and name not in WRITES:
            return
        passed += 1
        if passed <= point:
            return
        if fault == "crash":
            os._exit(CRASHED)
        raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)))

    return act


def at_work(work: str, path: Path, chosen: store.Schema, act: Act, mutant: str) -> None:
    with watched(act), mutated(mutant):
        WORKS[work](path, chosen)


def enumerated(work: str, folder: Path, fault: str, mutant: str) -> dict[str, Any]:
    """Stop a work at every point where it touches the disk, in a store of its own each time.

    Returns the exit codes of the processes that met the fault, one a point, and the points that
    left a store which is not as it must be.
    """
    chosen = schema(2, block=2)
    fresh = folder / "fresh" / "predictions.zarr"
    fresh.parent.mkdir()
    assert forked(lambda: prepared(work, fresh, chosen)) == 0
    before = {0, 1} if work == "finalise" else set()
    guilty: list[int] = []
    codes: list[int] = []
    while True:
        path = folder / str(len(codes)) / "predictions.zarr"
        shutil.copytree(fresh.parent, path.parent)

        code = forked(partial(at_work, work, path, chosen, faults(fault, len(codes)), mutant))
        if code == 0:
            return {"codes": codes, "guilty": guilty}
        if forked(partial(check, path, chosen, before)):
            guilty.append(len(codes))
        codes.append(code)


# --- zombies --------------------------------------------------------------------------------


def overtaken(folder: Path, mutant: str) -> dict[str, Any]:
    """Pause a writer at every point where it touches the disk, while its replacement commits.

    Returns how many points there were, at how many the replacement was told to wait, and the
    points after which the block was damaged, mixed, or written by both or by neither.
    """
    chosen, rows = schema(2, block=2), range(2)
    fresh = folder / "fresh.zarr"
    with mock.patch("os.fsync"):
        create(fresh, chosen)
    guilty: list[int] = []
    waited = point = 0
    while True:
        path = folder / str(point) / "predictions.zarr"
        shutil.copytree(fresh, path)
        told: list[bool | None] = []
        act = once(partial(overtake, path, chosen, told), point=point)
        with mock.patch.object(claims, "PATIENCE", 0.0), mutated(mutant), watched(act):
            mine = store.write_block(path, rows, values(chosen, rows))
        if not told:
            return {"points": point, "waited": waited, "guilty": guilty}
        waited += told == [None]
        wrong = [mine, bool(told[0])].count(True) != 1
        if wrong or store.damaged(path) or writer_of(path, chosen, rows) != (0 if mine else 1):
            guilty.append(point)
        point += 1


def overtake(path: Path, chosen: store.Schema, told: list[bool | None]) -> None:
    """Commit the block as another writer: whether it did, or None where it was told to wait."""
    try:
        told.append(store.write_block(path, range(2), values(chosen, range(2), writer=1)))
    except Refusal as refused:
        if refused.exit_code != 4:
            raise
        told.append(None)


def once(work: Callable[[], None], *, point: int) -> Act:
    """Do some work at one point."""
    passed, busy = 0, False

    def act(name: str) -> None:
        nonlocal passed, busy
        del name
        if busy:
            return
        passed += 1
        if passed == point + 1:
            busy = True
            work()
            busy = False

    return act


def stopped(folder: Path) -> dict[str, Any]:
    """Stop a process with the signal, before and while it holds a block, and start another."""
    chosen = schema(2, block=2)
    found: dict[str, Any] = {}
    for where, event in (("staging", "write"), ("holding", "replace")):
        for end in (signal.SIGCONT, signal.SIGKILL):
            path = folder / where / end.name / "predictions.zarr"
            assert forked(partial(create, path, chosen)) == 0
            zombie = started(partial(halting, path, chosen, event=event))
            os.waitpid(zombie, os.WUNTRACED)
            codes = [forked(partial(replacement, path, chosen))]
            os.kill(zombie, end)
            os.waitpid(zombie, 0)
            codes.append(forked(partial(replacement, path, chosen)))
            found[f"{where} {end.name}"] = [*codes, writer_in_child(path, chosen, range(2))]
    return found


def halting(path: Path, chosen: store.Schema, *, event: str) -> None:
    """A writer that stops itself as it is about to touch the disk in some way."""
    with watched(first(lambda _: os.kill(os.getpid(), signal.SIGSTOP), event)):
        store.write_block(path, range(2), values(chosen, range(2)))


def replacement(path: Path, chosen: store.Schema) -> None:
    with mock.patch.object(claims, "PATIENCE", 0.2):
        write(path, chosen, writer=1)


def first(act: Act, name: str) -> Act:
    """Act at the first event of a name only."""
    seen = False

    def passed(found: str) -> None:
        nonlocal seen
        if found == name and not seen:
            seen = True
            act(found)

    return passed


def writer_in_child(path: Path, chosen: store.Schema, rows: range) -> int:
    """The writer of a whole and undamaged block; `BROKEN` where there is none."""

    def ask() -> None:
        writer = writer_of(path, chosen, rows)
        assert not store.damaged(path)
        assert writer is not None
        os._exit(writer)

    return forked(ask)


# --- random kills ---------------------------------------------------------------------------


def killed(folder: Path, kills: int, twins: bool, mutant: str) -> dict[str, Any]:  # noqa: FBT001
    """Kill four shards at work, again and again, until enough of them died of it.

    With `twins`, every shard has two writers whose values differ, and a block must be of one.
    """
    chosen, path = schema(48, block=1), folder / "predictions.zarr"
    random_ = random.Random(20_26)  # noqa: S311 - moments, not secrets
    report = {"kills": 0, "rounds": 0, "finished": 0, "guilty": 0}
    assert forked(partial(create, path, chosen)) == 0
    writers = [(shard, writer) for shard in range(4) for writer in range(1 + twins)]
    kept: set[int] = set()
    found = folder / "kept.json"
    while report["kills"] < kills and not report["guilty"]:
        children = [started(partial(shard_work, path, chosen, mutant, *one)) for one in writers]
        time.sleep(random_.uniform(0.005, 0.25))
        report["kills"] += sum(map(ended, children))
        report["rounds"] += 1
        whole = forked(partial(judged, path, chosen, kept, found, twins=twins)) == 0
        report["guilty"] += not whole
        kept = set(json.loads(found.read_text())) if whole else set()
        if len(kept) == len(chosen.frames):
            report["finished"] += 1
            kept = set()
            shutil.rmtree(path)
            assert forked(partial(create, path, chosen)) == 0
    return report


def shard_work(path: Path, chosen: store.Schema, mutant: str, shard: int, writer: int) -> None:
    with mutated(mutant):
        write(path, chosen, shard=shard, of=4, writer=writer)
        store.finalise(path)


def ended(child: int) -> bool:
    """Whether it was at work until it was killed. Any other end than success is a failure."""
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, code
    return code != 0


def judged(path: Path, chosen: store.Schema, kept: set[int], found: Path, *, twins: bool) -> None:
    """Every row that was marked still is, and what is marked is whole and of one writer."""
    now = marked(path)
    assert kept <= now
    assert not store.damaged(path)
    if twins:
        assert all(writer_of(path, chosen, range(row, row + 1)) is not None for row in now)
    elif len(now) == len(chosen.frames):
        assert store.finalise(path) == expected(chosen)
    found.write_text(json.dumps(sorted(now)))


# --- the tests of what forks ----------------------------------------------------------------


def script(name: str, folder: Path, *arguments: object, timeout: float = 280) -> dict[str, Any]:
    """Run one of the functions above as a program, free of this process's threads."""
    source = Path(arflow_eval.__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, __file__, name, str(folder), json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert answer.returncode == 0, answer.stderr[-2_000:]
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


LEAST = {"create": 60, "write": 40, "remark": 40, "finalise": 8, "clear": 10}  # points


@pytest.mark.parametrize("work", LEAST)
def test_no_crash_point_leaves_a_false_or_a_lost_row(tmp_path: Path, work: str) -> None:
    found = script("enumerated", tmp_path, work, "crash", "")
    assert found["guilty"] == []
    assert set(found["codes"]) == {CRASHED}
    assert len(found["codes"]) >= LEAST[work]


@pytest.mark.parametrize("work", LEAST)
def test_a_disk_full_at_any_write_is_one_line_and_the_store_resumes(
    tmp_path: Path, work: str
) -> None:
    found = script("enumerated", tmp_path, work, "ENOSPC", "")
    assert found["guilty"] == []
    assert set(found["codes"]) == {1}  # a refusal, never a traceback


def test_a_writer_that_marks_first_is_caught_by_the_same_crashes(tmp_path: Path) -> None:
    assert script("enumerated", tmp_path, "write", "crash", "mark_first")["guilty"]


def test_a_writer_and_its_replacement_never_mix_values(tmp_path: Path) -> None:
    found = script("overtaken", tmp_path, "")
    assert found["guilty"] == []
    assert found["points"] >= 40
    assert 0 < found["waited"] < found["points"]


def test_writers_that_claim_nothing_are_caught_mixing_values(tmp_path: Path) -> None:
    assert script("overtaken", tmp_path, "unclaimed")["guilty"]


def test_a_stopped_process_blocks_its_replacement_only_while_it_holds_the_block(
    tmp_path: Path,
) -> None:
    assert script("stopped", tmp_path) == {
        "staging SIGCONT": [0, 0, 1],
        "staging SIGKILL": [0, 0, 1],
        "holding SIGCONT": [4, 0, 0],
        "holding SIGKILL": [4, 0, 1],
    }


@pytest.mark.parametrize("kills", [24, pytest.param(240, marks=pytest.mark.slow)])
def test_shards_killed_at_random_lose_and_invent_nothing(tmp_path: Path, kills: int) -> None:
    found = script("killed", tmp_path, kills, False, "")
    assert (found["guilty"], found["kills"] >= kills) == (0, True)


@pytest.mark.parametrize("kills", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_twin_writers_killed_at_random_leave_every_block_to_one(tmp_path: Path, kills: int) -> None:
    found = script("killed", tmp_path, kills, True, "")
    assert (found["guilty"], found["kills"] >= kills) == (0, True)


def test_a_writer_that_marks_first_is_caught_by_the_same_kills(tmp_path: Path) -> None:
    assert script("killed", tmp_path, 400, False, "mark_first")["guilty"]


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "predictions.zarr"
    with mock.patch("os.fsync"):
        finish(path, schema(6, block=2, everything=True))
    return path


@pytest.fixture
def finished(tmp_path: Path, template: Path) -> Path:
    path = tmp_path / "run" / "predictions.zarr"
    shutil.copytree(template, path)
    return path


def second(path: Path, name: str) -> Path:
    """The file of an array's second block, or its only one."""
    return next((path / name).glob("c.0" if name in IDENTITIES else "c.1.*"))


def read(path: Path, name: str) -> np.ndarray:
    return store.open_run(path)[name].to_numpy()


def refused(work: Callable[[], object]) -> bool:
    """Whether a read says no, rather than answering."""
    try:
        work()
    except (Refusal, ValueError):
        return True
    return False


def flips(content: bytes) -> Iterator[bytes]:
    """The content with one bit turned, for bits from its first byte to its last."""
    for bit in np.linspace(0, 8 * len(content) - 1, 16).astype(int).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def cuts(content: bytes) -> Iterator[bytes]:
    """The content ending too early, at nothing, and too late."""
    yield from (content[:end] for end in (0, 1, 4, len(content) // 2, len(content) - 1))
    yield content + bytes(1)


@pytest.mark.parametrize("harm", [flips, cuts])
@pytest.mark.parametrize("name", WRITTEN)
def test_no_changed_chunk_is_read_as_right(
    finished: Path, name: str, harm: Callable[[bytes], Iterator[bytes]]
) -> None:
    file = second(finished, name)
    for content in harm(file.read_bytes()):
        file.write_bytes(content)
        assert refused(partial(read, finished, name))
        assert store.damaged(finished) == [2, 3]


@pytest.mark.parametrize("harm", [flips, cuts])
@pytest.mark.parametrize("name", [MARKS, *IDENTITIES])
def test_no_changed_mark_or_identity_is_read_as_right(
    finished: Path, name: str, harm: Callable[[bytes], Iterator[bytes]]
) -> None:
    file = second(finished, name)
    for content in harm(file.read_bytes()):
        file.write_bytes(content)
        assert refused(partial(store.open_run, finished))
        assert name in IDENTITIES or store.damaged(finished) == [2, 3]


@pytest.mark.parametrize("name", [*WRITTEN, MARKS, *IDENTITIES])
def test_no_lost_chunk_is_read_as_unwritten(finished: Path, name: str) -> None:
    second(finished, name).unlink()
    assert refused(partial(store.open_run, finished))
    if name in IDENTITIES:
        assert refused(partial(store.damaged, finished))
    else:  # rows whose mark is gone are unwritten
        assert store.damaged(finished) == ([] if name == MARKS else [2, 3])


@pytest.mark.parametrize("name", WRITTEN)
def test_the_right_chunk_of_another_block_is_damage(finished: Path, name: str) -> None:
    file = second(finished, name)
    other = file.with_name(file.name.replace("c.1", "c.0"))
    if file.read_bytes() != other.read_bytes():
        file.write_bytes(other.read_bytes())
        assert store.damaged(finished)


# --- disks ----------------------------------------------------------------------------------


def mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_loses_nothing(small_disk: Path) -> None:
    chosen, path = schema(64, block=1), small_disk / "run" / "predictions.zarr"
    create(path, chosen)
    with pytest.raises(Refusal, match="No space left on device") as caught:
        write(path, chosen)
    assert caught.value.exit_code == 1
    done = marked(path)
    assert 0 < len(done) < 64
    assert store.damaged(path) == []
    mount("-o", "remount,size=16m", str(small_disk))
    assert done <= marked(path)
    assert finish(path, chosen) == expected(chosen)


def test_a_store_that_fits_on_no_disk_is_one_line(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(380 * 1024))
    with pytest.raises(Refusal, match="No space left on device"):
        create(small_disk / "run" / "predictions.zarr", schema(64, block=1))
    assert not list((small_disk / "run").glob("*"))


def test_a_read_only_disk_is_one_line(small_disk: Path) -> None:
    chosen, path = schema(4, block=2), small_disk / "run" / "predictions.zarr"
    create(path, chosen)
    store.write_block(path, range(2), values(chosen, range(2)))
    mount("-o", "remount,ro", str(small_disk))
    for work in (
        lambda: write(path, chosen),
        lambda: store.clear(path, [0]),
        lambda: create(small_disk / "other" / "predictions.zarr", chosen),
    ):
        with pytest.raises(Refusal, match="Read-only file system") as caught:
            work()
        assert caught.value.exit_code == 1
    assert marked(path) == {0, 1}


def test_a_complete_store_on_a_read_only_disk_is_read(small_disk: Path, template: Path) -> None:
    path = small_disk / "run" / "predictions.zarr"
    shutil.copytree(template, path)
    path.with_name(f".{path.name}.abc.sealing").write_text("left by a killed process")
    mount("-o", "remount,ro", str(small_disk))
    assert store.finalise(path) == store.open_run(path).attrs["fingerprint"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line(tmp_path: Path) -> None:
    chosen, path = schema(4, block=2), tmp_path / "run" / "predictions.zarr"
    create(path, chosen)
    folders = [each for each in path.rglob("*") if each.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with pytest.raises(Refusal, match="Permission denied"):
            write(path, chosen)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert finish(path, chosen) == expected(chosen)


# --- file systems without locks -------------------------------------------------------------


def test_without_locks_a_store_is_written_all_the_same(tmp_path: Path) -> None:
    chosen, path = schema(4, block=2), tmp_path / "predictions.zarr"
    with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
        assert finish(path, chosen) == expected(chosen)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_mixed_block_is_never_taken_for_whole(tmp_path: Path) -> None:
    chosen, path = schema(4, block=2), tmp_path / "predictions.zarr"
    other = tmp_path / "other" / "predictions.zarr"
    for where, writer in ((path, 0), (other, 1)):
        create(where, chosen)
        write(where, chosen, writer=writer)
    shutil.copy(second(other, "truth"), second(path, "truth"))
    assert store.damaged(path) == [2, 3]
    with pytest.raises(Refusal, match="2 rows of"):
        store.finalise(path)
    assert finish(path, chosen) == expected(chosen)


def test_a_claim_that_its_holder_removed_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "predictions.zarr"
    with claims.claimed(path, "block-0"):
        file = next(tmp_path.glob(".predictions.zarr.claims/*"))
        claims.sweep(path)
        assert file.exists()  # a held claim stays
        with pytest.raises(Refusal, match=rf"process {os.getpid()} on .* holds block-0"):
            claims.claimed(path, "block-0", patience=0.0).__enter__()
        with claims.claimed(path, "block-1", patience=0.0):
            pass
    file.parent.mkdir()
    file.write_text("its holder was killed")
    claims.sweep(path)
    assert not list(tmp_path.iterdir())


if __name__ == "__main__":
    asked, where, given = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    SCRIPTS: dict[str, Callable[..., dict[str, Any]]] = {
        "enumerated": lambda folder, work, *rest: enumerated(work, folder, *rest),
        "overtaken": overtaken,
        "stopped": stopped,
        "killed": killed,
    }
    sys.stdout.write(json.dumps(SCRIPTS[asked](where, *given)))
