import errno
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec
from zarr.errors import ZarrUserWarning

import arflow_eval
from arflow_eval import store
from arflow_eval.contracts import FrameId, Frames, Space
from arflow_eval.refusal import Refusal
from arflow_eval.store.vocabulary import VARIABLES

DIGEST = "ab" * 32
DRAWS, STEPS, ACTIONS, POSITIONS = 3, 4, 2, 5
MEASURES = frozenset(each.name for each in VARIABLES if each.optional)
SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)


def panel(frames: int = 12, *, order: tuple[int, ...] | None = None) -> Frames:
    """Frames of two repos; neither repos nor episodes are sorted in the panel's order."""
    number = np.array(order or range(frames), dtype=np.int64)
    return Frames(
        repos=("b/second", "a/first"),
        tasks=("push", "pull", "wait"),
        repo=number % 2,
        task=number % 3,
        episode=np.int64(100) - number // 4,
        frame_index=number % 4,
        index=number * 7,
        core=number % 2 == 0,
    )


def schema(
    frames: Frames | None = None,
    *,
    block: int = 3,
    shards: int = 1,
    state_copy: bool = True,
    digest: str = DIGEST,
    attributes: Mapping[str, object] | None = None,
) -> store.Schema:
    required = {"digest": digest, "arm": "ar_draws3_t0.7", "config": {"T": 0.7}, "horizon": 3}
    return store.Schema(
        frames=panel() if frames is None else frames,
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=block,
        attributes={**required, **(attributes or {})},
        state_copy=state_copy,
        measures=MEASURES,
        positions=POSITIONS,
        shards=shards,
    )


def values(frames: list[FrameId], *, state_copy: bool = True) -> dict[str, np.ndarray]:
    """Values that depend on a frame's identity alone; draw 0 of some frames has failed."""
    sizes = {"draw": DRAWS, "step": STEPS, "action": ACTIONS, "position": POSITIONS}
    columns = {}
    for place, variable in enumerate(VARIABLES):
        if state_copy or not variable.needs_state:
            shape = [sizes[axis] for axis in variable.axes[1:]]
            rows = [
                np.random.default_rng([place, frame.episode, frame.frame_index]).normal(size=shape)
                for frame in frames
            ]
            signed = np.array(rows).reshape(len(frames), *shape)
            columns[variable.name] = (signed > 0 if variable.dtype == "bool" else signed).astype(
                variable.dtype
            )
    failed = [row for row, frame in enumerate(frames) if frame.frame_index == 1]
    columns["prediction"][failed, 0] = np.nan
    return columns


def write(path: Path, frames: Frames, rows: range, *, state_copy: bool = True) -> None:
    store.write_block(path, rows, values(frames.ids(rows), state_copy=state_copy))


def write_missing(
    path: Path, frames: Frames, *, shard_index: int = 0, shard_count: int = 1
) -> None:
    for rows in store.missing(path, shard_index=shard_index, shard_count=shard_count):
        write(path, frames, rows)


def create(path: Path, chosen: store.Schema | None = None) -> store.Schema:
    """Create a small store, its blocks as large as asked, without waiting for the disk."""
    chosen = chosen or schema()
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        store.open_or_create(path, chosen)
    return chosen


def complete(path: Path, chosen: store.Schema | None = None) -> str:
    """Write and finalise a store, without waiting for the disk."""
    chosen = create(path, chosen)
    with mock.patch("os.fsync"):
        for rows in store.missing(path, shard_index=0, shard_count=1):
            write(path, chosen.frames, rows, state_copy=chosen.state_copy)
        fingerprint = store.finalise(path)
    assert fingerprint is not None
    return fingerprint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outputs" / "ar_draws3_t0.7" / "predictions.zarr"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "predictions.zarr"
    complete(path)
    return path


@pytest.fixture
def finished(path: Path, template: Path) -> Path:
    shutil.copytree(template, path)
    return path


def chunk(path: Path, name: str, block: int) -> Path:
    (found,) = (path / name).glob(f"c.{block}.*")
    return found


# --- layout ---------------------------------------------------------------------------------


def test_a_finished_store_opens_in_plain_xarray_with_the_documented_dimensions(
    finished: Path,
) -> None:
    dataset = xarray.open_zarr(finished)  # a warning would be an error
    sizes = {"frame": 12, "draw": 3, "step": 4, "action": 2, "position": 5, "byte": 16}
    assert dict(dataset.sizes) == sizes
    assert {str(name): found.dims for name, found in dataset.data_vars.items()} == {
        "prediction": ("frame", "draw", "step", "action"),
        "truth": ("frame", "step", "action"),
        "valid": ("frame", "step"),
        "state_copy": ("frame", "step", "action"),
        "state_copy_norm": ("frame", "step", "action"),
        "logprob": ("frame", "draw"),
        "logprob_sampling": ("frame", "draw"),
        "entropy": ("frame", "draw"),
        "top1_gap": ("frame", "draw"),
        "block_length": ("frame", "draw"),
        "grammar_mass": ("frame", "draw"),
        "reference_kl": ("frame", "draw"),
        "reference_log_ratio": ("frame", "draw"),
        "tokens": ("frame", "draw", "position"),
        "token_logprob": ("frame", "draw", "position"),
        "repo": ("frame",),
        "task": ("frame",),
        "frame_digest": ("frame", "byte"),
    }
    assert set(dataset.coords) == {"episode", "frame_index", "index", "panel_row", "core"}


def test_what_was_written_is_read_back_bit_for_bit(finished: Path) -> None:
    dataset = xarray.open_zarr(finished)
    for name, column in values(panel().ids()).items():
        assert dataset[name].dtype == column.dtype
        assert dataset[name].to_numpy().tobytes() == column.tobytes()


def test_identities_are_the_panels_own(finished: Path) -> None:
    dataset = store.open_run(finished)
    frames = panel()
    for name in ("repo", "task", "episode", "frame_index", "index", "core"):
        np.testing.assert_array_equal(dataset[name], getattr(frames, name))
    np.testing.assert_array_equal(dataset["panel_row"], np.arange(12))


def test_a_store_describes_itself(finished: Path) -> None:
    dataset = xarray.open_zarr(finished)
    for name in ("prediction", "truth", "state_copy", "state_copy_norm"):
        assert dataset[name].attrs["units"] == "pixel"
        assert dataset[name].attrs["action_names"] == ["x", "y"]
    assert all("long_name" in found.attrs for found in dataset.variables.values())
    assert dataset.attrs["config"] == {"T": 0.7}
    assert dataset.attrs["fps"] == 10.0


def test_unwritten_values_are_nan_and_unwritten_marks_are_zeros(path: Path) -> None:
    create(path)
    dataset = xarray.open_zarr(path)
    assert np.isnan(dataset["prediction"]).all()
    assert not dataset["frame_digest"].any()


def test_a_block_is_one_file_of_every_variable(finished: Path) -> None:
    for variable in VARIABLES:
        zeros = ".0" * (len(variable.axes) - 1)
        files = {file.name for file in (finished / variable.name).glob("c.*")}
        assert files == {f"c.{block}{zeros}" for block in range(4)}


def test_measures_are_absent_where_the_decode_records_none(path: Path) -> None:
    store.open_or_create(path, replace(schema(), measures=frozenset({"entropy"})))
    assert set(xarray.open_zarr(path).data_vars) & MEASURES == {"entropy"}


def test_a_measure_of_no_variable_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no measures \['entropi'\]"):
        replace(schema(), measures=frozenset({"entropi"}))


def test_state_copies_are_absent_where_the_spaces_differ(path: Path) -> None:
    chosen = schema(state_copy=False, attributes={"state_copy_absent": "7 states, 6 actions"})
    complete(path, chosen)
    dataset = xarray.open_zarr(path)
    assert "state_copy" not in dataset
    assert dataset.attrs["state_copy_absent"] == "7 states, 6 actions"


@given(frames=st.integers(1, 30_000), requested=st.integers(1, 1_000), shards=st.integers(1, 64))
def test_a_block_is_small_enough_for_eight_a_shard(
    frames: int, requested: int, shards: int
) -> None:
    block = store.block_frames(frames, requested=requested, shards=shards)
    assert 1 <= block <= min(256, requested)
    assert block == 1 or frames / block >= 8 * shards


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"complete": True}, "set by the store itself"),
        ({"loss": float("nan")}, "JSON"),
    ],
)
def test_attributes_that_cannot_be_kept_are_refused(
    attributes: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        schema(attributes=attributes)


def test_a_store_of_no_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="a store of no frame"):
        schema(panel(0))


def plain_chunks(folder: Path, source: Path) -> None:
    """Copy the arrays of a store through zarr alone."""
    group, copy = zarr.open_group(source, mode="r"), zarr.create_group(folder)
    for name, stored in group.arrays():
        with zarr.config.set({"array.write_empty_chunks": True}):
            copied = copy.create_array(
                name,
                shape=stored.shape,
                chunks=stored.chunks,
                dtype=stored.dtype,
                fill_value=stored.fill_value,
                serializer=BytesCodec(endian="little"),
                compressors=[BloscCodec(cname="lz4", shuffle="shuffle"), Crc32cCodec()],
                chunk_key_encoding={"name": "default", "separator": "."},
            )
            copied[:] = stored[:]


def test_chunks_are_the_bytes_that_zarr_writes(finished: Path, tmp_path: Path) -> None:
    plain_chunks(tmp_path / "plain.zarr", finished)
    for file in (tmp_path / "plain.zarr").glob("*/c.*"):
        assert (finished / file.parent.name / file.name).read_bytes() == file.read_bytes()


def test_the_last_chunk_is_as_long_as_zarr_makes_it(path: Path, tmp_path: Path) -> None:
    complete(path, schema(panel(11)))
    plain_chunks(tmp_path / "plain.zarr", path)
    files = sorted((tmp_path / "plain.zarr").glob("*/c.*"))
    assert len(files) == 16 * 4 + 7
    for file in files:
        assert (path / file.parent.name / file.name).read_bytes() == file.read_bytes()


def test_a_finished_store_opens_in_tensorstore(finished: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    for name, column in values(panel().ids()).items():
        where = {"driver": "file", "path": f"{finished / name}/"}
        opened = tensorstore.open({"driver": "zarr3", "kvstore": where}, open=True, read=True)
        found = opened.result().read().result()
        assert (found.dtype, found.tobytes()) == (column.dtype, column.tobytes())


def test_a_copy_with_other_chunks_and_codecs_is_read_and_checked(
    finished: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy" / "predictions.zarr"
    with xarray.open_zarr(finished, chunks=None) as dataset:
        for name in dataset.variables:
            dataset[name].encoding.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZarrUserWarning)  # consolidated metadata in Zarr v3
            dataset.load().to_zarr(copy, zarr_format=3, consolidated=True)
    assert store.damaged(copy) == []
    assert store.open_run(copy).identical(store.open_run(finished))
    with pytest.raises(Refusal, match="other chunks or codecs"):
        store.clear(copy, [0])


# --- digests --------------------------------------------------------------------------------


def test_a_frame_digest_is_the_documented_sha256() -> None:
    frame = FrameId("a/first", 3, 5)
    columns = {"logprob": np.array([[1.0, 2.0]]), "valid": np.array([[True, False, True]])}
    text = (
        b"a/first\x003\x005\x00valid\x00bool\x00(3,)\x00\x01\x00\x01logprob\x00float64\x00(2,)\x00"
        + np.array([1.0, 2.0], dtype="<f8").tobytes()
    )
    found = store.frame_digests([frame], columns)
    assert found[0].tobytes() == hashlib.sha256(text).digest()[:16]


def test_every_nan_counts_as_the_same_one() -> None:
    quiet, other = np.array([0x7FC00000, 0xFFC12345], dtype=np.uint32).view(np.float32)
    frame = [FrameId("a", 0, 0)]
    one, two = (
        store.frame_digests(frame, {"truth": np.full((1, 2, 2), nan, np.float32)})
        for nan in (quiet, other)
    )
    np.testing.assert_array_equal(one, two)


def test_byte_order_in_memory_changes_no_digest() -> None:
    frames = panel().ids()
    columns = values(frames)
    swapped = {
        name: column.astype(column.dtype.newbyteorder(">")) for name, column in columns.items()
    }
    np.testing.assert_array_equal(
        store.frame_digests(frames, columns), store.frame_digests(frames, swapped)
    )


@settings(max_examples=30, deadline=None)
@given(
    row=st.integers(0, 11),
    name=st.sampled_from([variable.name for variable in VARIABLES]),
)
def test_a_changed_value_changes_the_digest_of_its_frame_alone(row: int, name: str) -> None:
    frames = panel().ids()
    columns = values(frames)
    before = store.frame_digests(frames, columns)
    place = (row, *(0 for _ in columns[name].shape[1:]))
    columns[name][place] = not columns[name][place] if name == "valid" else 77.0
    changed = (store.frame_digests(frames, columns) != before).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [row]


@settings(max_examples=6, deadline=None)
@given(
    block=st.integers(1, 12),
    shards=st.integers(1, 3),
    order=st.permutations(range(12)),
    placing=st.permutations(range(12)),
)
def test_block_size_shards_write_order_and_panel_order_leave_the_fingerprint_alone(
    tmp_path_factory: pytest.TempPathFactory,
    block: int,
    shards: int,
    order: list[int],
    placing: list[int],
) -> None:
    path = tmp_path_factory.mktemp("any") / "predictions.zarr"
    frames = panel(order=tuple(placing))
    create(path, schema(frames, block=block, shards=shards))
    with mock.patch("os.fsync"):
        owned = [
            rows
            for shard in range(shards)
            for rows in store.blocks(path, shard_index=shard, shard_count=shards)
        ]
        for rows in sorted(owned, key=lambda rows: order[rows.start]):
            write(path, frames, rows)
        found = store.finalise(path)
    assert found == plain_fingerprint()


def plain_fingerprint(count: int = 12, *, state_copy: bool = True) -> str:
    """The fingerprint of a panel's frames, straight from their values."""
    frames = panel(count).ids()
    digests = store.frame_digests(frames, values(frames, state_copy=state_copy))
    return store.fingerprint(frames, digests, config_digest=DIGEST)


def test_another_config_has_another_fingerprint(tmp_path: Path) -> None:
    one = complete(tmp_path / "one" / "predictions.zarr")
    two = complete(tmp_path / "two" / "predictions.zarr", schema(digest="cd" * 32))
    assert one != two


# --- writing --------------------------------------------------------------------------------


def test_shards_share_every_block_between_them(path: Path) -> None:
    create(path, schema(block=1))
    owned = [store.blocks(path, shard_index=shard, shard_count=3) for shard in range(3)]
    assert sorted(row for rows in itertools.chain(*owned) for row in rows) == list(range(12))
    assert [rows.start for rows in owned[1]] == [1, 4, 7, 10]


def test_a_rerun_finds_only_what_is_missing(path: Path) -> None:
    chosen = create(path)
    write(path, chosen.frames, range(3, 6))
    store.open_or_create(path, chosen)
    left = store.missing(path, shard_index=0, shard_count=1)
    assert left == [range(3), range(6, 9), range(9, 12)]
    assert store.progress(path) == (3, 12)


def test_the_first_comers_block_size_stands(path: Path) -> None:
    create(path, schema(block=3))
    create(path, schema(block=1))
    assert store.blocks(path, shard_index=0, shard_count=1)[0] == range(3)


def test_what_is_written_is_never_overwritten(path: Path) -> None:
    frames = create(path).frames
    write(path, frames, range(3))
    other = values(frames.ids(range(3)))
    other["truth"] += 1
    store.write_block(path, range(3), other)
    first = values(frames.ids(range(3)))["truth"]
    np.testing.assert_array_equal(xarray.open_zarr(path)["truth"][:3], first)
    assert store.damaged(path) == []


@pytest.mark.parametrize(
    "rows", [range(1, 4), range(6), range(12, 15), range(-3, 0), range(0, 6, 2), range(0)]
)
def test_rows_that_are_no_block_are_refused(path: Path, rows: range) -> None:
    create(path)
    with pytest.raises(ValueError, match="is no block; blocks have 3 frames"):
        store.write_block(path, rows, {})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"truth": np.zeros((3, 4, 3), np.float32)}, r"truth is float32 \(3, 4, 3\)"),
        ({"logprob": np.zeros((3, 3), np.float32)}, "logprob is float32"),
        ({"logprobs": np.zeros((3, 3))}, "columns .* this store has"),
    ],
)
def test_columns_of_another_name_shape_or_type_are_refused(
    path: Path, changed: dict[str, np.ndarray], said: str
) -> None:
    create(path)
    with pytest.raises(ValueError, match=said):
        store.write_block(path, range(3), {**values(panel().ids(range(3))), **changed})
    assert store.progress(path) == (0, 12)


def test_a_store_never_mixes_two_configurations(path: Path) -> None:
    create(path)
    with pytest.raises(Refusal, match=r"abababababab….*cdcdcdcdcdcd….*never mixes two") as caught:
        store.open_or_create(path, schema(digest="cd" * 32))
    assert caught.value.exit_code == 2


def test_a_folder_that_is_no_store_is_left_alone(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "notes.txt").write_text("mine")
    with pytest.raises(Refusal, match="is not a store"):
        store.open_or_create(path, schema())
    assert [file.name for file in path.parent.rglob("*")] == ["predictions.zarr", "notes.txt"]


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_one_line_and_the_store_resumes(path: Path, cause: int) -> None:
    chosen = create(path)
    with (
        mock.patch("os.fsync", side_effect=OSError(cause, os.strerror(cause))),
        pytest.raises(Refusal, match=os.strerror(cause)) as caught,
    ):
        write(path, chosen.frames, range(3))
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    assert store.progress(path) == (0, 12)
    assert complete(path, chosen) == plain_fingerprint()


# --- races ---------------------------------------------------------------------------------


def in_another_process(work: str, path: Path) -> list[int]:
    """Run one of the scripts at the end of this file, free of this process's threads."""
    source = Path(arflow_eval.__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, __file__, work, str(path)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    codes: list[int] = json.loads(answer.stdout)
    return codes


def test_racing_processes_create_one_store(path: Path) -> None:
    assert in_another_process("race", path) == [0, 0]
    assert [file.name for file in path.parent.iterdir()] == ["predictions.zarr"]
    assert store.progress(path) == (0, 12)


def test_racing_configurations_leave_one_winner(path: Path) -> None:
    assert sorted(in_another_process("race_of_two", path)) == [0, 2]
    assert [file.name for file in path.parent.iterdir()] == ["predictions.zarr"]


# --- damage ---------------------------------------------------------------------------------


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("harm", [flip, truncate, empty, Path.unlink])
@pytest.mark.parametrize("name", ["prediction", "valid", "logprob"])
def test_a_damaged_chunk_names_its_rows(
    finished: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harm(chunk(finished, name, 1))
    assert store.damaged(finished) == [3, 4, 5]


def test_a_whole_store_has_no_damage(finished: Path) -> None:
    assert store.damaged(finished) == []


def test_a_chunk_from_another_store_is_damage(tmp_path: Path, finished: Path) -> None:
    other = tmp_path / "other" / "predictions.zarr"
    chosen = schema(panel(order=tuple(reversed(range(12)))))
    complete(other, chosen)
    chunk(finished, "truth", 0).write_bytes(chunk(other, "truth", 0).read_bytes())
    assert 0 in store.damaged(finished)


def test_a_damaged_mark_is_named_and_redone(finished: Path) -> None:
    flip(chunk(finished, "frame_digest", 1))
    (rows,) = store.missing(finished, shard_index=0, shard_count=1)
    assert store.damaged(finished) == list(rows)
    assert complete(finished) == plain_fingerprint()


def test_a_lost_mark_means_unwritten(finished: Path) -> None:
    chunk(finished, "frame_digest", 1).unlink()
    assert store.damaged(finished) == []
    with pytest.raises(Refusal, match="3 of 12 frames unwritten") as caught:
        store.open_run(finished)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("harm", [flip, Path.unlink])
@pytest.mark.parametrize("name", ["task", "core"])
def test_changed_identities_are_refused(
    finished: Path, name: str, harm: Callable[[Path], None]
) -> None:
    harm(finished / name / "c.0")
    for check in (store.damaged, store.open_run):
        with pytest.raises(Refusal, match="identity columns") as caught:
            check(finished)
        assert caught.value.exit_code == 5


def test_unreadable_metadata_is_refused(finished: Path) -> None:
    truncate(finished / "zarr.json")
    with pytest.raises(Refusal, match=r"zarr\.json cannot be read") as caught:
        store.damaged(finished)
    assert caught.value.exit_code == 5


def test_cleared_rows_are_redone_to_the_same_fingerprint(finished: Path) -> None:
    store.clear(finished, [4])
    assert store.progress(finished) == (9, 12)
    assert xarray.open_zarr(finished).attrs["complete"] is False
    assert complete(finished) == plain_fingerprint()


def test_rows_beyond_the_panel_cannot_be_cleared(finished: Path) -> None:
    with pytest.raises(ValueError, match=r"rows \[12\]"):
        store.clear(finished, [3, 12])
    assert store.progress(finished) == (12, 12)


# --- finalising -----------------------------------------------------------------------------


def test_an_unfinished_store_is_not_finalised(path: Path) -> None:
    create(path)
    write(path, panel(), range(3, 6))
    assert store.finalise(path) is None
    assert xarray.open_zarr(path).attrs["complete"] is False


def test_finalising_twice_changes_nothing(finished: Path) -> None:
    before = (finished / "zarr.json").read_bytes()
    assert store.finalise(finished) == plain_fingerprint()
    assert (finished / "zarr.json").read_bytes() == before


def test_finalising_records_the_fingerprint_and_sweeps(path: Path) -> None:
    chosen = create(path)
    (path / "truth" / "c.0.0.abc.partial").write_text("half")
    (path.parent / ".predictions.zarr.abc.creating").mkdir()
    complete(path, chosen)
    attributes = xarray.open_zarr(path).attrs
    assert (attributes["fingerprint"], attributes["complete"]) == (plain_fingerprint(), True)
    assert not list(path.rglob("*.partial"))
    assert [file.name for file in path.parent.iterdir()] == ["predictions.zarr"]


def test_damage_found_when_finalising_is_refused_then_redone(path: Path) -> None:
    chosen = create(path)
    with mock.patch("os.fsync"):
        write_missing(path, chosen.frames)
    flip(chunk(path, "truth", 2))
    with pytest.raises(Refusal, match=r"3 rows of .* the first is row 6") as caught:
        store.finalise(path)
    assert caught.value.exit_code == 5
    assert store.missing(path, shard_index=0, shard_count=1) == [range(6, 9)]
    assert complete(path, chosen) == plain_fingerprint()


def test_rows_redone_with_other_values_do_not_pass_for_the_complete_store(finished: Path) -> None:
    chunk(finished, "frame_digest", 1).unlink()
    (rows,) = store.missing(finished, shard_index=0, shard_count=1)
    other = values(panel().ids(rows))
    other["truth"] += 1
    store.write_block(finished, rows, other)
    for check in (store.finalise, store.open_run):
        with pytest.raises(Refusal, match="fingerprint") as caught:
            check(finished)
        assert caught.value.exit_code == 5


# --- opening --------------------------------------------------------------------------------


@pytest.mark.parametrize("given_as", ["run", "store", "text"])
def test_a_run_opens_by_its_folder_or_its_store(finished: Path, given_as: str) -> None:
    where = {"run": finished.parent, "store": finished, "text": str(finished.parent)}[given_as]
    assert store.open_run(where).sizes["frame"] == 12


@settings(max_examples=40, deadline=None)
@given(
    frame=st.one_of(
        st.integers(-12, 11),
        st.lists(st.integers(-12, 11), max_size=15),
        st.builds(slice, *[st.none() | st.integers(-14, 14)] * 2, st.sampled_from([1, 3])),
        st.sampled_from([slice(None, None, -1), slice(10, 2, -2)]),
    ),
    step=st.sampled_from([slice(None), 0, [2, 0], slice(3, 0, -2)]),
    action=st.sampled_from([slice(None), 1]),
    name=st.sampled_from(["prediction", "truth"]),
)
def test_any_part_of_a_run_is_what_plain_xarray_reads(
    template: Path, frame: object, step: object, action: object, name: str
) -> None:
    place = {"frame": frame, "step": step, "action": action}
    ours, plain = (
        found[name].isel(place) for found in (store.open_run(template), xarray.open_zarr(template))
    )
    assert ours.drop_vars(["repo_name", "task_name"]).identical(plain)
    assert ours.to_numpy().tobytes() == plain.to_numpy().tobytes()


def test_a_run_is_the_dataset_that_plain_xarray_opens_and_names(finished: Path) -> None:
    named = store.open_run(finished)
    plain = xarray.open_zarr(finished)
    assert named.drop_vars(["repo_name", "task_name"]).identical(plain)
    for name, found in plain.variables.items():
        assert named[name].dtype == found.dtype
        for key in ("chunks", "preferred_chunks"):
            assert named[name].encoding[key] == found.encoding[key]


def test_points_of_a_run_are_what_plain_xarray_reads(finished: Path) -> None:
    points = {
        "frame": xarray.DataArray([11, 0, 5, 5], dims="point"),
        "draw": xarray.DataArray([0, 2, 1, 0], dims="point"),
    }
    ours, plain = (
        found["prediction"].isel(points).to_numpy()
        for found in (store.open_run(finished), xarray.open_zarr(finished))
    )
    np.testing.assert_array_equal(ours, plain)


def test_names_are_attached_as_coordinates(finished: Path) -> None:
    dataset = store.open_run(finished)
    assert dataset["repo_name"].to_numpy().tolist()[:3] == ["b/second", "a/first", "b/second"]
    assert dataset["task_name"].to_numpy().tolist()[:4] == ["push", "pull", "wait", "push"]
    assert {"repo_name", "task_name"} <= set(dataset.coords)


def test_values_are_read_when_they_are_used(finished: Path) -> None:
    dataset = store.open_run(finished)
    assert not dataset["prediction"].variable._in_memory
    assert dataset["prediction"].chunks is None


def test_an_incomplete_run_is_refused_with_what_is_left(path: Path) -> None:
    create(path)
    write(path, panel(), range(3))
    said = r"9 of 12 frames unwritten.*rerun the same evaluate command, it resumes"
    with pytest.raises(Refusal, match=said) as caught:
        store.open_run(path)
    assert caught.value.exit_code == 3


def test_a_run_nobody_finalised_is_refused(path: Path) -> None:
    chosen = create(path)
    with mock.patch("os.fsync"):
        write_missing(path, chosen.frames)
    with pytest.raises(Refusal, match="not yet checked") as caught:
        store.open_run(path)
    assert caught.value.exit_code == 3


def test_an_incomplete_run_opens_on_request_and_says_which_rows_count(path: Path) -> None:
    create(path)
    write(path, panel(), range(3, 6))
    dataset = store.open_run(path, incomplete=True)
    assert np.flatnonzero(dataset["written"]).tolist() == [3, 4, 5]


def test_a_misspelt_run_is_answered_with_the_nearest(finished: Path) -> None:
    with pytest.raises(Refusal, match=r"did you mean .*ar_draws3_t0\.7\?") as caught:
        store.open_run(finished.parent.with_name("ar_draw3_t0.7"))
    assert caught.value.exit_code == 2


# --- what runs in another process -----------------------------------------------------------


def forked(work: Callable[[], object]) -> int:
    """A child that does some work; its exit code is 0, a refusal's own, or 9 for anything else."""
    child = os.fork()
    if child:
        return child
    code = 9
    try:
        work()
        code = 0
    except Refusal as refused:
        code = refused.exit_code
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def race(path: Path, digests: list[str]) -> list[int]:
    start = time.monotonic() + 0.2

    def create(digest: str) -> None:
        while time.monotonic() < start:
            pass
        store.open_or_create(path, schema(digest=digest))

    children = [forked(lambda digest=digest: create(digest)) for digest in digests]
    return [exit_code(child) for child in children]


if __name__ == "__main__":
    asked, where = sys.argv[1], Path(sys.argv[2])
    works = {
        "race": lambda: race(where, [DIGEST, DIGEST]),
        "race_of_two": lambda: race(where, [DIGEST, "cd" * 32]),
    }
    sys.stdout.write(json.dumps(works[asked]()))
