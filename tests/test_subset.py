"""`convert subset`: a complete store cut to the frames of a smaller panel."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from arflow_eval import convert, store
from arflow_eval.contracts import FrameId, Frames, Space
from arflow_eval.exchange.panels import from_panel
from arflow_eval.exchange.selection import Selection, from_plan, from_store
from arflow_eval.exchange.subsetting import subset
from arflow_eval.published import Given, export_npz, import_npz
from arflow_eval.refusal import Refusal

FRAMES, BLOCK, DRAWS, STEPS, ACTIONS = 20, 3, 2, 4, 6
JOINTS = tuple("abcdef")
SPACE = Space(JOINTS, JOINTS, "degree", "degree", 30.0)
ROWS = [17, 2, 3, 11]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch("os.fsync"), mock.patch("arflow_eval.store.layout.BLOCKS_A_SHARD", 1):
        yield


def panel() -> Frames:
    order = np.arange(FRAMES)
    return Frames(
        repos=("b/second", "a/first"),
        tasks=("push", "pull"),
        repo=order % 2,
        task=order % 2,
        episode=50 - order // 4,
        frame_index=order % 4,
        index=order * 5,
        core=order % 3 == 0,
    )


def chunks(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def make(folder: Path, *, seed: int = 0, blocks: int | None = None) -> Path:
    """A store of one arm, complete unless `blocks` bounds what is written."""
    path = folder / "predictions.zarr"
    attributes: dict[str, Any] = {
        "digest": f"{seed:064x}",
        "arm": f"ar_draws2_t{seed}",
        "config": {"seed": seed},
        "horizon": STEPS,
        "panel": "large",
        "panel_digest": "ef" * 32,
    }
    schema = store.Schema(
        frames=panel(),
        space=SPACE,
        steps=STEPS,
        draws=DRAWS,
        block=BLOCK,
        attributes=attributes,
        state_copy=True,
    )
    columns = {
        "prediction": chunks(seed, FRAMES, DRAWS, STEPS, ACTIONS),
        "truth": chunks(1, FRAMES, STEPS, ACTIONS),
        "valid": chunks(2, FRAMES, STEPS) > -1,
        "state_copy": chunks(3, FRAMES, STEPS, ACTIONS),
        "state_copy_norm": chunks(4, FRAMES, STEPS, ACTIONS),
        "logprob": chunks(5, FRAMES, DRAWS).astype(np.float64),
    }
    columns["prediction"][3, 1] = np.nan
    store.open_or_create(path, schema)
    for rows in store.missing(path, shard_index=0, shard_count=1)[:blocks]:
        part = {name: values[rows.start : rows.stop] for name, values in columns.items()}
        store.write_block(path, rows, part)
    store.finalise(path)
    return folder


def plan(path: Path, *, core: list[Any], labeled: list[Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "core": core, "labeled": labeled}))
    return path


def chosen(rows: list[int] = ROWS) -> list[FrameId]:
    return panel().ids(rows)


def by_plan(folder: Path) -> Selection:
    frames = [list(frame) for frame in chosen()]
    return from_plan(plan(folder / "q4.json", core=frames[:3], labeled=frames[3:]))


def test_rows_keep_their_values_and_digests_in_the_order_of_the_plan(tmp_path: Path) -> None:
    whole = store.open_run(make(tmp_path / "whole"))
    found = subset(tmp_path / "whole", tmp_path / "cut", by_plan(tmp_path))
    cut = store.open_run(tmp_path / "cut")
    assert (found.frames, found.of) == (len(ROWS), FRAMES)
    for name in cut.variables:
        if name not in ("panel_row", "core"):
            expected = whole[name].to_numpy()
            expected = expected[ROWS] if whole[name].dims[:1] == ("frame",) else expected
            assert cut[name].to_numpy().tobytes() == expected.tobytes(), name
    assert cut["panel_row"].to_numpy().tolist() == [0, 1, 2, 3]
    assert cut["core"].to_numpy().tolist() == [True, True, True, False]


def test_a_subset_says_what_it_was_cut_from(tmp_path: Path) -> None:
    whole = store.open_run(make(tmp_path / "whole")).attrs
    found = subset(tmp_path / "whole", tmp_path / "cut", by_plan(tmp_path))
    cut = store.open_run(tmp_path / "cut").attrs
    assert cut["subset_of"]["fingerprint"] == whole["fingerprint"]
    assert cut["subset_of"]["digest"] == whole["digest"]
    assert (cut["subset_of"]["panel"], cut["subset_of"]["frames"]) == ("large", FRAMES)
    assert cut["subset_of"]["by"]["plan"] == "q4.json"
    assert (cut["panel"], cut["arm"], cut["config"]) == ("q4", whole["arm"], whole["config"])
    assert cut["digest"] not in (whole["digest"], cut["panel_digest"])
    assert cut["panel_digest"] != whole["panel_digest"]
    assert found.fingerprint == cut["fingerprint"] != whole["fingerprint"]


def test_arms_that_are_cut_alike_have_one_panel_digest(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 1):
        subset(make(tmp_path / f"w{seed}", seed=seed), tmp_path / f"c{seed}", by_plan(tmp_path))
        digests.append(store.open_run(tmp_path / f"c{seed}").attrs)
    assert digests[0]["panel_digest"] == digests[1]["panel_digest"]
    assert digests[0]["digest"] != digests[1]["digest"]


def test_a_store_is_cut_like_another_with_its_core(tmp_path: Path) -> None:
    subset(make(tmp_path / "w0"), tmp_path / "c0", by_plan(tmp_path))
    subset(make(tmp_path / "w1", seed=1), tmp_path / "c1", from_store(tmp_path / "c0"))
    one, other = (store.open_run(tmp_path / name) for name in ("c0", "c1"))
    for name in ("repo", "episode", "frame_index", "core", "panel_row"):
        assert (one[name] == other[name]).all()
    assert one.attrs["panel_digest"] == other.attrs["panel_digest"]
    assert other.attrs["subset_of"]["by"]["like"]["digest"] == one.attrs["digest"]


def test_a_bare_list_keeps_the_core_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([list(frame) for frame in chosen()]))
    subset(make(tmp_path / "whole"), tmp_path / "cut", from_plan(path))
    core = store.open_run(tmp_path / "cut")["core"].to_numpy().tolist()
    assert core == panel().core[ROWS].tolist()


def test_a_panel_of_the_configuration_gives_its_frames() -> None:
    small, large = from_panel("pusht_q4"), from_panel("pusht")
    assert small.panel == "pusht_q4"
    assert len(small.frames) == 41
    assert set(small.frames) < set(large.frames)
    with pytest.raises(Refusal, match="panel pusht_sealed is sealed"):
        from_panel("pusht_sealed")
    with pytest.raises(Refusal, match="pusht_q4"):
        from_panel("pusht_q5")


def test_an_imported_store_is_cut_with_its_published_mean(tmp_path: Path) -> None:
    names = panel()
    key = "pred:bijou@40000_draws2_t0.7"
    draws = chunks(7, FRAMES, DRAWS, STEPS, ACTIONS)
    identity = {
        "index": names.index,
        "repo_id": np.array(names.repos)[names.repo],
        "episode_index": names.episode,
        "frame_index": names.frame_index,
        "core": names.core,
        "truth": chunks(1, FRAMES, STEPS, ACTIONS),
        "valid": np.ones((FRAMES, STEPS), bool),
    }
    copies = {f"pred:state-copy{end}": chunks(3, FRAMES, STEPS, ACTIONS) for end in ("", "-norm")}
    mean = {key: (draws[:, 0] + draws[:, 1]) / np.float32(2)}
    scalars = {"policy": key[5:], "sample_draws": 2, "seed": 0, "noise_key": "stable"}
    np.savez(tmp_path / "in.npz", **identity, **copies, **mean)
    np.savez(tmp_path / "draws.npz", **identity, draws=draws, **scalars)
    given = Given(draws=tmp_path / "draws.npz")
    import_npz(tmp_path / "in.npz", tmp_path / "whole", given)
    subset(tmp_path / "whole", tmp_path / "cut", by_plan(tmp_path))
    export_npz([tmp_path / "cut"], tmp_path / "out.npz", draws=tmp_path / "out_draws.npz")
    with np.load(tmp_path / "out.npz") as file:
        assert file[key].tobytes() == mean[key][ROWS].tobytes()
        assert file["index"].tolist() == names.index[ROWS].tolist()
    with np.load(tmp_path / "out_draws.npz") as file:
        assert file["draws"].tobytes() == draws[ROWS].tobytes()


def test_a_cut_that_is_run_again_changes_nothing_and_another_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "whole")
    first, again = (subset(tmp_path / "whole", tmp_path / "cut", by_plan(tmp_path)) for _ in "ab")
    assert first == again
    with pytest.raises(Refusal, match="was made by configuration"):
        subset(tmp_path / "whole", tmp_path / "whole", by_plan(tmp_path))


def test_a_store_that_is_not_complete_is_not_cut(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="2 of 20 frames unwritten") as caught:
        subset(make(tmp_path / "whole", blocks=6), tmp_path / "cut", by_plan(tmp_path))
    assert caught.value.exit_code == 3
    assert not (tmp_path / "cut").exists()


def test_frames_that_the_store_lacks_are_named(tmp_path: Path) -> None:
    path = plan(tmp_path / "p.json", core=[["b/second", 50, 0], ["b/second", 99, 1]], labeled=[])
    with pytest.raises(Refusal, match=r"lacks 1 of 2 .* b/second episode 99 frame 1") as caught:
        subset(make(tmp_path / "whole"), tmp_path / "cut", from_plan(path))
    assert caught.value.exit_code == 3


def test_a_changed_value_is_not_cut_out(tmp_path: Path) -> None:
    make(tmp_path / "whole")
    chunk = tmp_path / "whole" / "predictions.zarr" / "truth" / "c.3.0.0"
    *before, last = chunk.read_bytes()
    chunk.write_bytes(bytes([*before, last ^ 1]))
    with pytest.raises(Refusal, match=r"row 11.* cannot be read") as caught:
        subset(tmp_path / "whole", tmp_path / "cut", by_plan(tmp_path))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("3", "the list that is no list"),
        ("{}", "lists no frames"),
        ('{"core": 3}', "core that is no list"),
        ('[["a", 1]]', "entry 0 of the list"),
        ('[["a", 1, 2], ["a", 1, true]]', "entry 1 of the list"),
        ('[["a", 1, 2.0]]', "entry 0"),
        ('[["a", "1", 2]]', "entry 0"),
        ('[["a", -1, 2]]', "entry 0"),
        ("[[null, 1, 2]]", "entry 0"),
        ('[["a", 1, 99999999999999999999]]', "entry 0"),
        ('[["a", 1, 2], ["a", 1, 2]]', "lists a frame twice"),
    ],
)
def test_a_plan_of_another_shape_is_a_usage_error(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(Refusal, match=said) as caught:
        from_plan(tmp_path / "plan.json")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["whole"], "convert subset whole"),
        (["whole", "cut"], "no frames named"),
        (["whole", "cut", "--frames", "p.json", "--like", "whole"], "--frames and --like"),
        (["whole", "cut", "--frame", "p.json"], "did you mean --frames?"),
        (["whole", "cut", "--frames", "p.json"], "there is no file p.json"),
        (["whole", "cut", "--like", "other"], "other/predictions.zarr is not a store"),
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
    make(Path("whole"))
    assert convert.main(["subset", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "whole")
    path = plan(tmp_path / "p.json", core=[list(frame) for frame in chosen()], labeled=[])
    words = ["subset", str(tmp_path / "whole"), str(tmp_path / "cut"), "--frames", str(path)]
    assert convert.main(words) == 0
    shown = capsys.readouterr().out
    assert "4 of 20 frames" in shown
    assert store.open_run(tmp_path / "cut").attrs["fingerprint"] in shown
