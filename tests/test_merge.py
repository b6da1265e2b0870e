"""`convert merge`: the shards of several machines end as the store of one process."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from arflow_eval import convert, store
from arflow_eval.compose import compose
from arflow_eval.contracts import FrameId, Frames, Space
from arflow_eval.costs import read_timings
from arflow_eval.evaluate import evaluate
from arflow_eval.exchange.merging import merge
from arflow_eval.refusal import Refusal

FRAMES, BLOCK, DRAWS, STEPS, ACTIONS = 22, 3, 2, 4, 2
SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", 10.0)
WRITER = {"device": "cpu", "build": None, "machine": "x86_64", "threads": 1, "versions": {}}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        yield


def panel(shift: int = 0) -> Frames:
    order = np.arange(FRAMES) + shift
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


def schema(*, block: int = BLOCK, digest: str = "ab" * 32, shift: int = 0) -> store.Schema:
    return store.Schema(
        frames=panel(shift),
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=block,
        attributes={
            "digest": digest,
            "arm": "ar_draws2_t1",
            "config": {"T": 1.0},
            "horizon": STEPS,
            "panel": "pusht",
            "determinism": "exact",
        },
        state_copy=True,
    )


def values(frames: Sequence[FrameId], *, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Values that hang on a frame's identity alone."""
    shapes = {
        "prediction": (DRAWS, STEPS, ACTIONS),
        "truth": (STEPS, ACTIONS),
        "state_copy": (STEPS, ACTIONS),
        "state_copy_norm": (STEPS, ACTIONS),
        "logprob": (DRAWS,),
    }
    columns = {
        name: np.array(
            [
                np.random.default_rng([place, frame.episode, frame.frame_index]).normal(size=shape)
                for frame in frames
            ]
        ).astype(np.float64 if name == "logprob" else np.float32)
        for place, (name, shape) in enumerate(shapes.items())
    }
    columns["prediction"] += np.float32(shift)
    columns["valid"] = columns["truth"][..., 0] > -1
    return columns


def make(
    folder: Path,
    *,
    shard: int = 0,
    shards: int = 1,
    drift: float = 0.0,
    blocks: int | None = None,
    **chosen: Any,
) -> Path:
    """A store with the blocks of one shard written; blocks may bound their number."""
    path = folder / "predictions.zarr"
    store.open_or_create(path, schema(**chosen))
    for rows in store.missing(path, shard_index=shard, shard_count=shards)[:blocks]:
        store.write_block(path, rows, values(panel().ids(rows), shift=drift))
    store.finalise(path)
    (folder / "writer.json").write_text(json.dumps(WRITER))
    return folder


def time_rows(folder: Path, rows: range, seconds: float, *, shard: int = 0) -> None:
    (folder / "timings").mkdir(exist_ok=True)
    entry = {"rows": [rows.start, rows.stop], "seconds": {"draws": [seconds] * len(rows)}}
    (folder / "timings" / f"shard-{shard}.jsonl").write_text(json.dumps(entry) + "\n")


def four(folder: Path, **chosen: Any) -> list[Path]:
    return [make(folder / f"m{shard}", shard=shard, shards=4, **chosen) for shard in range(4)]


def fingerprint(folder: Path) -> str:
    return str(store.open_run(folder).attrs["fingerprint"])


def test_four_shards_have_the_fingerprint_of_one_process(tmp_path: Path) -> None:
    expected = fingerprint(make(tmp_path / "one"))
    found = merge(four(tmp_path), tmp_path / "out")
    assert found.fingerprint == expected == fingerprint(tmp_path / "out")
    assert sum(found.copied.values()) == FRAMES
    assert found.missing == ()


def test_the_order_of_the_stores_changes_nothing(tmp_path: Path) -> None:
    shards = four(tmp_path)
    one, two = (
        merge(order, tmp_path / name) for order, name in ((shards, "a"), (shards[::-1], "b"))
    )
    assert one.fingerprint == two.fingerprint is not None


def test_attributes_and_identities_are_those_of_the_shards(tmp_path: Path) -> None:
    one = store.open_run(make(tmp_path / "one"))
    merge(four(tmp_path), tmp_path / "out")
    merged = store.open_run(tmp_path / "out")
    assert merged.attrs == one.attrs
    assert merged.identical(one)


@pytest.mark.parametrize("sizes", [(3, 5), (1, 4), (2, 6)])
def test_stores_of_other_blocks_merge_without_a_row_lost(
    sizes: tuple[int, int], tmp_path: Path
) -> None:
    shards = [
        make(tmp_path / str(shard), shard=shard, shards=2, block=block)
        for shard, block in enumerate(sizes)
    ]
    held = np.logical_or(*[store.open_run(each, incomplete=True)["written"] for each in shards])
    found = merge(shards, tmp_path / "out")
    written = store.open_run(tmp_path / "out", incomplete=True)["written"].to_numpy()
    assert (written == held.to_numpy()).all()
    assert sum(map(len, found.missing)) == int((~held).sum())


def test_what_is_missing_is_said_and_the_store_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = fingerprint(make(tmp_path / "one"))
    shards = [str(path) for path in four(tmp_path)]
    out = tmp_path / "out"
    assert convert.main(["merge", *shards[:3], str(out)]) == 4
    shown = capsys.readouterr().out
    assert "missing      rows 9-11, 21-21" in shown
    assert "4 of 22 rows are missing" in shown
    assert "ar_draws2_t1-pusht-abababab" in shown
    with pytest.raises(Refusal, match="4 of 22 frames unwritten"):
        store.open_run(out)
    path = out / "predictions.zarr"
    for rows in store.missing(path, shard_index=0, shard_count=1):  # as evaluate would
        store.write_block(path, rows, values(panel().ids(rows)))
    assert store.finalise(path) == expected


def evaluated(root: Path, *shard: str) -> Any:
    chosen = ["model=state_copy", "panel=pusht_q4", f"store.root={root}", *shard]
    return evaluate(compose("evaluate", chosen))


def test_evaluate_goes_on_with_what_a_merge_left(tmp_path: Path) -> None:
    whole = evaluated(tmp_path / "one")
    shards = [
        evaluated(tmp_path / f"m{shard}", f"shard.index={shard}", "shard.count=3").folder
        for shard in (0, 2)
    ]
    found = merge(shards, tmp_path / "all" / whole.folder.name)
    missing = sum(map(len, found.missing))
    assert found.resumed_as == whole.folder.name
    assert 0 < missing < 41
    rest = evaluated(tmp_path / "all")
    assert (rest.computed, rest.fingerprint) == (missing, whole.fingerprint)


def test_a_merge_goes_on_in_the_store_that_it_left(tmp_path: Path) -> None:
    expected = fingerprint(make(tmp_path / "one"))
    shards = four(tmp_path)
    assert merge(shards[:2], tmp_path / "out").fingerprint is None
    found = merge(shards[1:], tmp_path / "out")
    assert found.fingerprint == expected
    assert found.copied[str(shards[1])] == 0


def test_an_unfinished_store_counts_with_the_rows_that_it_has(tmp_path: Path) -> None:
    expected = fingerprint(make(tmp_path / "one"))
    part = make(tmp_path / "part", blocks=3)
    rest = make(tmp_path / "rest")
    found = merge([part, rest], tmp_path / "out")
    assert found.copied == {str(part): 9, str(rest): FRAMES - 9}
    assert found.fingerprint == expected


def test_a_row_that_differs_between_two_stores_is_refused_by_name(tmp_path: Path) -> None:
    one = make(tmp_path / "one", blocks=2)
    other = make(tmp_path / "other", drift=1.0)
    with pytest.raises(Refusal, match=r"6 rows, b/second episode 50 frame 0 \(row 0\)") as caught:
        merge([one, other], tmp_path / "out")
    assert caught.value.exit_code == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("chosen", "said", "code"),
    [
        ({"digest": "cd" * 32}, "was made by configuration cdcdcdcdcdcd", 2),
        ({"shift": 1}, "hold other frames, variables or sizes", 3),
    ],
)
def test_another_configuration_or_panel_is_refused(
    chosen: dict[str, Any], said: str, code: int, tmp_path: Path
) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        merge([make(tmp_path / "a"), make(tmp_path / "b", **chosen)], tmp_path / "out")
    assert caught.value.exit_code == code
    assert not (tmp_path / "out").exists()


def test_frames_of_repos_with_other_names_are_another_panel(tmp_path: Path) -> None:
    named = replace(panel(), repos=("b/second", "a/other"))
    with mock.patch(f"{__name__}.panel", return_value=named):
        other = make(tmp_path / "b")
    with pytest.raises(Refusal, match="hold other frames"):
        merge([make(tmp_path / "a"), other], tmp_path / "out")


def test_a_changed_byte_of_a_source_never_reaches_the_result(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", blocks=2), make(tmp_path / "b", shard=1, shards=2)
    chunk = one / "predictions.zarr" / "truth" / "c.1.0.0"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(Refusal, match="truth that cannot be read") as caught:
        merge([one, other], tmp_path / "out")
    assert caught.value.exit_code == 5
    written = store.open_run(tmp_path / "out", incomplete=True)["written"].to_numpy()
    assert written.nonzero()[0].tolist() == [0, 1, 2]


def test_a_lost_chunk_of_a_source_is_damage(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a"), make(tmp_path / "b", blocks=1)
    (one / "predictions.zarr" / "valid" / "c.4.0").unlink()
    with pytest.raises(Refusal, match=r"row 12.* differ from their digests"):
        merge([other, one], tmp_path / "out")


def test_machines_that_differ_in_what_decides_bits_are_not_mixed(tmp_path: Path) -> None:
    shards = four(tmp_path)
    (shards[2] / "writer.json").write_text(json.dumps(WRITER | {"threads": 2}))
    with pytest.raises(Refusal, match=r"m2 and .*m0 .* differ in threads") as caught:
        merge(shards, tmp_path / "out")
    assert caught.value.exit_code == 3


def test_seconds_of_shards_with_one_number_stay_apart(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", blocks=1), make(tmp_path / "b")
    time_rows(one, range(3), 1.0)
    time_rows(other, range(3, FRAMES), 2.0)
    (other / "status.json").write_text("{}")
    for _ in range(2):  # again changes nothing
        found = merge([one, other], tmp_path / "out")
    assert found.left_out == ("b/status.json",)
    timings = read_timings(tmp_path / "out")
    assert timings.rows.tolist() == list(range(FRAMES))
    assert timings.seconds["draws"].tolist() == [1.0] * 3 + [2.0] * (FRAMES - 3)
    assert len(list((tmp_path / "out" / "timings").iterdir())) == 2
    assert json.loads((tmp_path / "out" / "writer.json").read_text()) == WRITER


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "out"], "convert merge a out"),
        (["a", "a", "out"], "a store is named twice"),
        (["a", "b", "b"], "a store is named twice"),
        (["a", "c", "out"], "is not a store"),
        (["a", "b", "out", "--frames", "x"], "unknown flag --frames"),
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
    make(Path("a"))
    shutil.copytree("a", "b")
    assert convert.main(["merge", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("out").exists()
