"""`verify` names what has changed: every variable, every kind of harm, down to the frame."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from arflow_eval import provenance, store, verify
from arflow_eval.contracts import Frames, Space
from arflow_eval.store.vocabulary import IDENTITIES, VARIABLES

FRAMES, BLOCK, DRAWS, STEPS, ACTIONS, POSITIONS = 10, 4, 2, 3, 2, 5
SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)
SIZES = {"frame": FRAMES, "draw": DRAWS, "step": STEPS, "action": ACTIONS, "position": POSITIONS}
IDENTITY = {"decode": {"T": 0.7}, "seed": 0}  # of the configuration
NAMES = [each.name for each in VARIABLES]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        yield


def panel() -> Frames:
    order = np.arange(FRAMES)
    return Frames(
        repos=("b/second", "a/first"),
        tasks=("push",),
        repo=order % 2,
        task=order * 0,
        episode=50 - order // 4,
        frame_index=order % 4,
        index=order * 5,
        core=order % 3 == 0,
    )


def make(folder: Path, *, blocks: int | None = None, sealed: bool = True) -> Path:
    """A run with every variable that a store can have."""
    schema = store.Schema(
        frames=panel(),
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes={
            "digest": provenance.digest(IDENTITY),
            "identity": IDENTITY,
            "arm": "ar_draws2_t1",
            "config": {},
            "horizon": STEPS,
        },
        state_copy=True,
        measures=frozenset(each.name for each in VARIABLES if each.optional),
        positions=POSITIONS,
    )
    path = folder / "predictions.zarr"
    store.open_or_create(path, schema)
    for rows in store.missing(path, shard_index=0, shard_count=1)[:blocks]:
        columns = {}
        for place, each in enumerate(VARIABLES):
            shape = [len(rows), *(SIZES[axis] for axis in each.axes[1:])]
            drawn = np.random.default_rng([place, rows.start]).normal(0, 9, shape)
            columns[each.name] = (drawn > 0 if each.dtype == "bool" else drawn).astype(each.dtype)
        store.write_block(path, rows, columns)
    if sealed:
        store.finalise(path)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run that no test touches."""
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        return make(tmp_path_factory.mktemp("kept") / "run")


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "run")


def told(capsys: pytest.CaptureFixture[str], *argv: str | Path, code: int) -> Any:
    assert verify.main([*map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def chunk(run: Path, name: str, number: int) -> Path:
    (path,) = (run / "predictions.zarr" / name).glob(f"c.{number}*")
    return path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def flip_last(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


HARMS: list[Callable[[Path], Any]] = [flip, flip_last, truncate, empty, Path.unlink]


def frames(rows: list[int]) -> list[dict[str, Any]]:
    return [
        {"row": row, "repo": frame.repo, "episode": frame.episode, "frame": frame.frame_index}
        for row, frame in zip(rows, panel().ids(rows), strict=True)
    ]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [*NAMES, "frame_digest"])
def test_a_harmed_chunk_is_named_with_its_variable_and_frames(
    name: str, harm: Callable[[Path], Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(chunk(run, name, 1))
    (found,) = told(capsys, run, code=5)
    assert (found["state"], found["kind"], found["frames"]) == ("damaged", "store", FRAMES)
    (damage,) = found["damage"]
    assert damage["variables"] == [name]
    assert damage["how"] == ("chunk missing" if harm is Path.unlink else "chunk unreadable")
    assert damage["frames"] == frames([4, 5, 6, 7])


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", IDENTITIES)
def test_a_harmed_identity_column_is_named(
    name: str, harm: Callable[[Path], Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(chunk(run, name, 0))
    (found,) = told(capsys, run, code=5)
    assert [damage["variables"] for damage in found["damage"]] == [[name]]


@pytest.mark.parametrize("harm", [flip, truncate, empty])
def test_harmed_metadata_is_damage_in_one_line(
    harm: Callable[[Path], Any], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "predictions.zarr" / "zarr.json"
    path.write_text(path.read_text().replace("{", "[", 1)) if harm is flip else harm(path)
    assert verify.main([str(run)]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "zarr.json cannot be read" in line


def test_lost_metadata_is_damage_even_in_a_folder_of_runs(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "predictions.zarr" / "zarr.json").unlink()
    for path in (run, run.parent, run / "predictions.zarr"):
        assert verify.main([str(path)]) == 5
        assert "has lost its zarr.json" in capsys.readouterr().err


def test_values_that_were_written_anew_may_be_of_any_variable(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(chunk(run, "truth", 0), chunk(run, "truth", 1))  # a good chunk, of other frames
    (found,) = told(capsys, run, code=5)
    (damage,) = found["damage"]
    assert damage["variables"] == NAMES
    assert damage["how"] == "digest differs, any of these may have changed"
    assert damage["frames"] == frames([4, 5, 6, 7])


def test_two_variables_in_two_blocks_are_told_apart(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(chunk(run, "truth", 0))
    chunk(run, "valid", 2).unlink()
    assert verify.main([str(run)]) == 5
    assert capsys.readouterr().out.splitlines() == [
        f"damaged   {run}: 6 of 10 frames damaged",
        "  truth: chunk unreadable (4 frames)",
        "    row 0        b/second episode 50 frame 0",
        "    row 1        a/first episode 50 frame 1",
        "    row 2        b/second episode 50 frame 2",
        "    row 3        a/first episode 50 frame 3",
        "  valid: chunk missing (2 frames)",
        "    row 8        b/second episode 48 frame 0",
        "    row 9        a/first episode 48 frame 1",
    ]


def test_a_chunk_that_the_disk_cannot_read_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = chunk(run, "truth", 1)
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path == broken:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with mock.patch("pathlib.Path.read_bytes", read_bytes):
        (found,) = told(capsys, run, code=5)
    assert found["damage"][0]["variables"] == ["truth"]


def test_a_changed_fingerprint_is_damage(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "predictions.zarr" / "zarr.json"
    recorded = str(store.open_run(run).attrs["fingerprint"])
    path.write_text(path.read_text().replace(recorded, "0" * 64))
    (found,) = told(capsys, run, code=5)
    assert found["damage"][0]["how"] == "marks give another fingerprint than was recorded"


def test_a_configuration_that_does_not_give_its_digest_is_damage(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "predictions.zarr" / "zarr.json"
    path.write_text(path.read_text().replace('"T": 0.7', '"T": 0.8'))
    (found,) = told(capsys, run, code=5)
    assert found["damage"][0]["variables"] == ["zarr.json"]
    assert found["damage"][0]["how"] == "its identity does not give its digest"


def test_an_intact_store_is_said_so_with_its_fingerprint(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (kept, kept / "predictions.zarr"):
        assert verify.main([str(path)]) == 0
        fingerprint = store.open_run(kept).attrs["fingerprint"]
        said = f"intact    {kept}: 10 frames, fingerprint {fingerprint}\n"
        assert capsys.readouterr().out == said


def test_what_is_unwritten_is_listed_and_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path / "run", blocks=2)
    assert verify.main([str(run)]) == 4
    said = f"waiting   {run}: 8 of 10 frames intact; unwritten rows 8-9\n"
    assert capsys.readouterr().out == said
    (found,) = told(capsys, run, code=4)
    assert found["unwritten"] == [[8, 10]]


def test_damage_in_an_unfinished_store_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path / "run", blocks=2)
    flip(chunk(run, "logprob", 0))
    (found,) = told(capsys, run, code=5)
    assert found["unwritten"] == [[8, 10]]
    assert found["damage"][0]["frames"] == frames([0, 1, 2, 3])


def test_data_without_its_mark_is_unwritten_and_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path / "run", blocks=2)
    chunk(run, "frame_digest", 1).unlink()
    truncate(chunk(run, "truth", 1))
    (found,) = told(capsys, run, code=4)
    assert found["unwritten"] == [[4, 10]]


def test_a_store_that_is_written_and_not_sealed_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([str(make(tmp_path / "run", sealed=False))]) == 4
    assert "10 of 10 frames intact; not yet checked and sealed" in capsys.readouterr().out


def test_the_worst_of_several_decides_and_none_hides_another(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        shutil.copytree(kept, tmp_path / name)
    flip(chunk(tmp_path / "a", "truth", 0))
    make(tmp_path / "c", blocks=1)
    assert verify.main([str(tmp_path), str(tmp_path / "none")]) == 5
    shown = capsys.readouterr()
    states = [line.split()[0] for line in shown.out.splitlines() if not line.startswith(" ")]
    assert states == ["damaged", "intact", "waiting"]
    assert "none is no run and holds none" in shown.err


def test_a_report_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text("{}")
    for path in (tmp_path, tmp_path / "report.json"):
        assert verify.main([str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is a report, which verify cannot check yet" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "verify without a path"),
        (["x", "--jsn"], "did you mean --json?"),
        (["x"], "x is no run and holds none"),
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
    assert verify.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--help"]) == 0
    assert "5 changed or damaged" in " ".join(capsys.readouterr().out.split())
