"""`convert parquet`: every value of a store in a table, bit for bit, in three libraries."""

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from arflow_eval import convert, store
from arflow_eval.contracts import Frames, Space
from arflow_eval.exchange.parquet import write_parquet
from arflow_eval.refusal import Refusal
from arflow_eval.store.vocabulary import VARIABLES

pq = pytest.importorskip("pyarrow.parquet")

FRAMES, BLOCK, DRAWS, STEPS, ACTIONS, POSITIONS = 10, 4, 3, 4, 2, 5
SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)
SIZES = {"frame": FRAMES, "draw": DRAWS, "step": STEPS, "action": ACTIONS, "position": POSITIONS}
ODD_NAN = 0xFFC00001
FAILED = (2, 1)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        yield


def values() -> dict[str, np.ndarray]:
    """Every variable that a store can have; NaN of two kinds, a failed draw, a negative zero."""
    columns = {}
    for place, variable in enumerate(VARIABLES):
        drawn = np.random.default_rng(place).normal(0, 50, [SIZES[axis] for axis in variable.axes])
        columns[variable.name] = (drawn > 0 if variable.dtype == "bool" else drawn).astype(
            variable.dtype
        )
    prediction = columns["prediction"]
    prediction[:, :, -1] = np.nan
    prediction.view(np.uint32)[1, 0, 3, 0] = ODD_NAN
    prediction[0, 0, 0] = [-0.0, 0.0]
    prediction[FAILED] = np.nan
    columns["logprob"][FAILED] = np.nan
    return columns


def make(folder: Path, *, blocks: int | None = None, arm: str = "ar_draws3_t0.7") -> Path:
    order = np.arange(FRAMES)
    frames = Frames(
        repos=("b/second", "a/first"),
        tasks=("push", "pull"),
        repo=order % 2,
        task=order % 2,
        episode=50 - order // 4,
        frame_index=order % 4,
        index=order * 5,
        core=order % 3 == 0,
    )
    schema = store.Schema(
        frames=frames,
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes={"digest": "ab" * 32, "arm": arm, "config": {"T": 0.7}, "horizon": 3},
        state_copy=True,
        measures=frozenset(each.name for each in VARIABLES if each.optional),
        positions=POSITIONS,
    )
    path = folder / "predictions.zarr"
    store.open_or_create(path, schema)
    for rows in store.missing(path, shard_index=0, shard_count=1)[:blocks]:
        part = {name: each[rows.start : rows.stop] for name, each in values().items()}
        store.write_block(path, rows, part)
    store.finalise(path)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_parquet([make(tmp_path / "run")], tmp_path / "run.parquet")
    return tmp_path / "run.parquet"


def expected(name: str) -> np.ndarray:
    """A variable with the rows of the table."""
    column = values()[name]
    axes = next(each.axes for each in VARIABLES if each.name == name)
    if "draw" not in axes:
        column = np.repeat(column[:, None], DRAWS, axis=1)
    return column.reshape(FRAMES * DRAWS, -1)


def assert_bits(name: str, found: np.ndarray) -> None:
    wanted = expected(name)
    assert (found.dtype, found.size) == (wanted.dtype, wanted.size)
    assert found.tobytes() == wanted.tobytes(), name


NAMES = [each.name for each in VARIABLES]


def test_pyarrow_reads_every_bit(table: Path) -> None:
    read = pq.read_table(table)
    for name in NAMES:
        column = read[name].combine_chunks()
        flat = column.flatten() if hasattr(column, "flatten") else column
        assert flat.null_count == 0
        assert_bits(name, flat.to_numpy(zero_copy_only=False))


def test_polars_reads_every_bit(table: Path) -> None:
    polars = pytest.importorskip("polars")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = polars.read_parquet(table)
    for name in NAMES:
        assert_bits(name, read[name].to_numpy())
    assert read["repo"].to_list()[: DRAWS + 1] == ["b/second"] * DRAWS + ["a/first"]
    assert read.filter(polars.col("failed")).select("panel_row", "draw").row(0) == FAILED


def test_pandas_reads_every_bit(table: Path) -> None:
    pandas = pytest.importorskip("pandas")
    read = pandas.read_parquet(table)
    for name in NAMES:
        column = read[name].to_numpy()
        assert_bits(name, np.stack(column) if column.dtype == object else column)
    assert read["task"].iloc[DRAWS] == "pull"
    assert read.groupby("episode")["logprob"].size().to_dict() == {50: 12, 49: 12, 48: 6}


def test_a_row_is_a_draw_of_a_frame_and_says_which(table: Path) -> None:
    read = pq.read_table(table).to_pydict()
    rows = [(frame, draw) for frame in range(FRAMES) for draw in range(DRAWS)]
    assert list(zip(read["panel_row"], read["draw"], strict=True)) == rows
    assert [rows[place] for place, failed in enumerate(read["failed"]) if failed] == [FAILED]
    assert read["core"] == [frame % 3 == 0 for frame, _ in rows]
    assert read["index"] == [frame * 5 for frame, _ in rows]
    assert set(read["arm"]) == {"ar_draws3_t0.7"}


def test_a_row_carries_the_digest_of_its_frame(table: Path) -> None:
    marks = store.open_run(table.with_suffix(""))["frame_digest"].to_numpy()
    found = pq.read_table(table)["frame_digest"].to_pylist()
    assert found == [bytes(mark) for mark in marks for _ in range(DRAWS)]


def test_the_schema_says_what_the_run_was(table: Path) -> None:
    schema = pq.read_schema(table)
    run = store.open_run(table.with_suffix(""))
    said = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    assert said["format"] == "arflow_eval parquet 1"
    for key in ("arm", "digest", "fingerprint", "action_units"):
        assert said[key] == run.attrs[key]
    assert json.loads(said["action_names"]) == ["x", "y"]
    assert json.loads(said["attributes"]).items() >= run.attrs.items()
    field = {
        key.decode(): each.decode() for key, each in schema.field("prediction").metadata.items()
    }
    assert (field["axes"], field["sizes"], field["units"]) == ("step action", "[4, 2]", "pixel")


def test_a_row_group_is_a_block(table: Path) -> None:
    metadata = pq.read_metadata(table)
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert rows == [4 * DRAWS, 4 * DRAWS, 2 * DRAWS]


def test_several_runs_are_a_folder_that_polars_scans(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    runs = [make(tmp_path / name, arm=name) for name in ("a", "b")]
    found = write_parquet(runs, tmp_path / "tables")
    assert found == {tmp_path / "tables" / f"{name}.parquet": FRAMES * DRAWS for name in "ab"}
    read = polars.scan_parquet(tmp_path / "tables" / "*.parquet").group_by("arm").len().collect()
    assert sorted(read.rows()) == [("a", 30), ("b", 30)]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(chunk: Path) -> None:
    """Change the last byte of a chunk."""
    *before, last = chunk.read_bytes()
    chunk.write_bytes(bytes([*before, last ^ 1]))


def test_a_damaged_store_leaves_no_file(tmp_path: Path) -> None:
    runs = [make(tmp_path / name) for name in ("a", "b")]
    flip(tmp_path / "b" / "predictions.zarr" / "truth" / "c.2.0.0")
    for out in ("b.parquet", "tables"):
        with pytest.raises(Refusal, match=r"row 8.* cannot be read") as caught:
            write_parquet(runs if out == "tables" else runs[1:], tmp_path / out)
        assert caught.value.exit_code == 5
    assert left(tmp_path) == ["a", "b"]


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    full = OSError(28, "No space left on device")
    with (
        mock.patch("pyarrow.parquet.ParquetWriter.write_table", side_effect=full),
        pytest.raises(Refusal, match="No space left"),
    ):
        write_parquet([run], tmp_path / "run.parquet")
    assert left(tmp_path) == ["run"]


def test_an_incomplete_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="6 of 10 frames unwritten") as caught:
        write_parquet([make(tmp_path / "run", blocks=1)], tmp_path / "run.parquet")
    assert caught.value.exit_code == 3


def test_without_pyarrow_the_line_that_installs_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Refusal, match=r"pip install 'arflow-eval\[parquet\]'"):
        write_parquet([tmp_path / "run"], tmp_path / "run.parquet")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "convert parquet; expected"),
        (["run"], "convert parquet run"),
        (["run", "run", "out.parquet"], "convert parquet run run out.parquet"),
        (["run", "run", "out"], "two runs have the name run"),
        (["run", "run"], "run exists"),
        (["rum", "out.parquet"], "did you mean run?"),
        (["run", "out", "--arm", "x"], "unknown flag --arm"),
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
    make(Path("run"))
    assert convert.main(["parquet", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert left(tmp_path) == ["run"]


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words: list[Any] = ["parquet", make(tmp_path / "run"), tmp_path / "out.parquet"]
    assert convert.main([str(word) for word in words]) == 0
    assert f"wrote        {words[2]} (30 rows)" in capsys.readouterr().out
