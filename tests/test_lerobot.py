"""Panels of LeRobot datasets, on small ones of every version that the tests write themselves."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arflow_eval import compose, open_run, refusal
from arflow_eval.codec.normalise import of_dataset
from arflow_eval.contracts import FrameId, Panel
from arflow_eval.evaluate import evaluate, load_panel
from arflow_eval.panel import extras
from arflow_eval.panel.datasets import cached, opened
from arflow_eval.panel.datasets.info import place
from arflow_eval.panel.lerobot import LeRobot, lerobot
from arflow_eval.panel.plan import write_plan
from arflow_eval.settings import evaluate_settings

pa = pytest.importorskip("pyarrow", reason="needs the extra lerobot")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra lerobot")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
LENGTHS = (7, 5, 9)
TASKS = {5: "pick", 2: "place"}  # indices that are no rows
FPS = 30
SIZE = 32
VERSIONS = ("v2.0", "v2.1", "v3.0")


@dataclass(frozen=True)
class Written:
    """What a test's dataset holds, by episode."""

    root: Path
    repo: str
    states: list[np.ndarray]
    actions: list[np.ndarray]


def grey(camera: int, episode: int, frame: int) -> int:
    """The shade of every image: no two frames of a camera look alike."""
    return 20 + 100 * camera + 10 * frame + 3 * episode


def write(
    root: Path,
    version: str,
    *,
    repo: str = "me/reach",
    cameras: Sequence[str] = (),
    video: bool = True,
    seed: int = 0,
    **info: Any,
) -> Written:
    """A dataset of three episodes; episode 1 changes its task, the tables of a file are shared."""
    folder = root / repo
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=(n, 3)).astype(np.float32) for n in LENGTHS]
    actions = [rng.normal(size=(n, 3)).astype(np.float32) for n in LENGTHS]
    tables = [rows(e, states[e], actions[e], cameras if not video else ()) for e in range(3)]
    document = about(version, cameras, video=video) | info
    put(folder / "meta" / "info.json", json.dumps(document))
    (third if version == "v3.0" else second)(folder, version, tables, cameras if video else ())
    return Written(root, repo, states, actions)


def rows(
    episode: int, states: np.ndarray, actions: np.ndarray, pictures: Sequence[str]
) -> dict[str, Any]:
    count = len(states)
    tasks = [2 if episode == 1 and frame > 2 else 5 for frame in range(count)]
    return {
        "observation.state": pa.FixedSizeListArray.from_arrays(states.ravel(), 3),
        "action": pa.array(actions.tolist(), pa.list_(pa.float32())),
        "timestamp": pa.array(np.arange(count, dtype=np.float32) / FPS),
        "frame_index": pa.array(range(count)),
        "episode_index": pa.array([episode] * count),
        "index": pa.array(np.arange(count) + sum(LENGTHS[:episode])),
        "task_index": pa.array(tasks),
        **{
            f"observation.images.{name}": pa.array(
                [{"bytes": png(grey(c, episode, f)), "path": None} for f in range(count)]
            )
            for c, name in enumerate(pictures)
        },
    }


def about(version: str, cameras: Sequence[str], *, video: bool) -> dict[str, Any]:
    vector = {"dtype": "float32", "shape": [3], "names": ["pan.pos", "lift.pos", "gripper.pos"]}
    picture = {"dtype": "video" if video else "image", "shape": [SIZE, SIZE, 3]}
    many = version == "v3.0"
    chunk = "chunk-{chunk_index:03d}" if many else "chunk-{episode_chunk:03d}"
    file = "file-{file_index:03d}" if many else "episode_{episode_index:06d}"
    return {
        "codebase_version": version,
        "fps": FPS,
        "total_episodes": 3,
        "total_frames": sum(LENGTHS),
        "chunks_size": 1000,
        "data_path": f"data/{chunk}/{file}.parquet",
        "video_path": f"videos/{{video_key}}/{chunk}/{file}.mp4",
        "features": {
            "observation.state": vector,
            "action": vector,
            **{f"observation.images.{name}": picture for name in cameras},
        },
    }


def second(folder: Path, version: str, tables: list[Any], cameras: Sequence[str]) -> None:
    """One parquet and one video an episode, JSON lines of tables."""
    texts = [["pick"], ["pick", "place"], ["pick"]]
    lines = [{"episode_index": e, "tasks": texts[e], "length": LENGTHS[e]} for e in range(3)]
    put(folder / "meta" / "episodes.jsonl", "\n".join(map(json.dumps, lines)))
    listed = [{"task_index": index, "task": text} for index, text in TASKS.items()]
    put(folder / "meta" / "tasks.jsonl", "\n".join(map(json.dumps, listed)))
    if version == "v2.0":
        put(folder / "meta" / "stats.json", json.dumps(statistics(quantiles=False)))
    else:
        each = [{"episode_index": e, "stats": statistics(e, count=LENGTHS[e])} for e in range(3)]
        put(folder / "meta" / "episodes_stats.jsonl", "\n".join(map(json.dumps, each)))
    for episode, table in enumerate(tables):
        parquet(folder / f"data/chunk-000/episode_{episode:06d}.parquet", table)
        for c, name in enumerate(cameras):
            shades = [grey(c, episode, f) for f in range(LENGTHS[episode])]
            key = f"observation.images.{name}"
            mp4(folder / f"videos/{key}/chunk-000/episode_{episode:06d}.mp4", shades)


def third(folder: Path, version: str, tables: list[Any], cameras: Sequence[str]) -> None:
    """Episodes 0 and 1 in one file of rows and of video, episode 2 in the next."""
    del version
    files, starts = [0, 0, 1], [0, LENGTHS[0], LENGTHS[0] + LENGTHS[1]]
    table = {
        "episode_index": [0, 1, 2],
        "tasks": [["pick"], ["pick", "place"], ["pick"]],
        "length": list(LENGTHS),
        "data/chunk_index": [0, 0, 0],
        "data/file_index": files,
        "dataset_from_index": starts,
        "dataset_to_index": [start + n for start, n in zip(starts, LENGTHS, strict=True)],
    }
    for c, name in enumerate(cameras):
        of = f"videos/observation.images.{name}"
        table[f"{of}/chunk_index"] = [0, 0, 0]
        table[f"{of}/file_index"] = files
        table[f"{of}/from_timestamp"] = [0.0, LENGTHS[0] / FPS, 0.0]
        for file, episodes in enumerate(([0, 1], [2])):
            shades = [grey(c, e, f) for e in episodes for f in range(LENGTHS[e])]
            mp4(folder / f"{of}/chunk-000/file-{file:03d}.mp4", shades)
    parquet(folder / "meta/episodes/chunk-000/file-000.parquet", table)
    tasks = {"task_index": list(TASKS), "__index_level_0__": list(TASKS.values())}
    parquet(folder / "meta/tasks.parquet", tasks)
    put(folder / "meta" / "stats.json", json.dumps(statistics(quantiles=True)))
    joined = [pa.table(tables[e]) for e in (0, 1)]
    parquet(folder / "data/chunk-000/file-000.parquet", pa.concat_tables(joined))
    parquet(folder / "data/chunk-000/file-001.parquet", tables[2])


def statistics(shift: int = 0, *, quantiles: bool = False, count: int | None = None) -> Any:
    entry: dict[str, Any] = {"mean": [shift, 1.0, 2.0], "std": [1.0, 2.0, 3.0]}
    if quantiles:
        entry |= {"q01": [-1.0, -2.0, -3.0], "q99": [1.0, 2.0, 3.0]}
    if count is not None:
        entry["count"] = [count]
    return {"observation.state": entry, "action": entry}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def parquet(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path)


def mp4(path: Path, shades: list[int]) -> None:
    """A video of plain images, a key frame every second one, as LeRobot writes them."""
    av = pytest.importorskip("av", reason="needs the extra video")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=FPS)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 2
        stream.codec_context.max_b_frames = 0
        for shade in shades:
            image = np.full((SIZE, SIZE, 3), shade, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


def png(shade: int) -> bytes:
    av = pytest.importorskip("av", reason="needs the extra video")
    out = io.BytesIO()
    with av.open(out, "w", format="image2pipe") as container:
        stream = container.add_stream("png", rate=FPS)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "rgb24"
        image = np.full((SIZE, SIZE, 3), shade, dtype=np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return out.getvalue()


def opened_panel(root: Path, **given: Any) -> LeRobot:
    settings: dict[str, Any] = {
        "name": "lerobot",
        "plan": None,
        "digest": None,
        "steps": 4,
        "root": str(root),
        "repos": None,
        "units": "degree",
        "cameras": None,
        "names": None,
        "cache": str(root / ".cache"),
    }
    panel = lerobot(**settings | given)
    assert isinstance(panel, LeRobot)
    return panel


def refused(panel: Any, *, match: str, code: int) -> None:
    with pytest.raises(refusal.Refusal, match=match) as found:
        panel()
    assert found.value.exit_code == code


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_rows_that_were_written(tmp_path: Path, version: str) -> None:
    written = write(tmp_path, version)
    panel = opened_panel(tmp_path)
    assert len(panel.frames) == sum(LENGTHS)
    for row, frame in enumerate(panel.frames.ids()):
        seen = panel.observe(row)
        assert np.array_equal(seen.states, written.states[frame.episode][: frame.frame_index + 1])
        assert np.array_equal(seen.actions, written.actions[frame.episode][: frame.frame_index])
        assert (seen.index, seen.frame) == (row, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_task_is_found_by_its_index_and_not_by_its_row(tmp_path: Path, version: str) -> None:
    write(tmp_path, version)
    panel = opened_panel(tmp_path)
    texts = [panel.frames.tasks[code] for code in panel.frames.task]
    assert texts == ["pick"] * 10 + ["place"] * 2 + ["pick"] * 9
    assert [panel.observe(row).task for row in (0, 9, 10)] == ["pick", "pick", "place"]


@pytest.mark.parametrize("version", VERSIONS)
def test_valid_steps_are_as_many_as_the_episode_has_left(tmp_path: Path, version: str) -> None:
    written = write(tmp_path, version)
    panel = opened_panel(tmp_path, steps=6)
    targets = panel.targets(range(len(panel.frames)))
    formula = sum(min(6, n - f) for n in LENGTHS for f in range(n))
    assert targets.valid.sum() == formula
    for row, frame in enumerate(panel.frames.ids()):
        chunk = written.actions[frame.episode][frame.frame_index :][:6]
        assert np.array_equal(targets.truth[row, : len(chunk)], chunk)
        assert (targets.truth[row, len(chunk) :] == chunk[-1]).all()
        assert targets.valid[row].sum() == len(chunk)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_image_is_that_of_its_frame_and_no_neighbour(tmp_path: Path, version: str) -> None:
    write(tmp_path, version, cameras=["wrist", "front"])
    panel = opened_panel(tmp_path)
    for row, frame in enumerate(panel.frames.ids()):
        seen = panel.observe(row).images
        assert list(seen) == ["front", "wrist"]
        for name, camera in (("wrist", 0), ("front", 1)):
            image = seen[name]
            assert image.shape == (SIZE, SIZE, 3)
            assert image.dtype == np.uint8
            shade = grey(camera, frame.episode, frame.frame_index)
            assert abs(image.mean() - shade) < 5  # a neighbour's is 10 away


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_images_kept_in_rows_are_decoded_from_their_bytes(tmp_path: Path, version: str) -> None:
    write(tmp_path, version, cameras=["front"], video=False)
    panel = opened_panel(tmp_path)
    assert (panel.observe(9).images["front"] == grey(0, 1, 2)).all()


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_playlist_in_place_of_an_image_or_video_opens_nothing(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    playlist = b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n"
    write(tmp_path / "films", version, cameras=["front"])
    for path in (tmp_path / "films").rglob("*.mp4"):
        path.write_bytes(playlist)
    images = opened_panel(tmp_path / "films").observe(0).images
    refused(lambda: images["front"], match="cannot be decoded", code=refusal.DAMAGE)
    monkeypatch.setattr(f"{__name__}.png", lambda _: playlist)
    write(tmp_path / "stills", version, cameras=["front"], video=False)
    images = opened_panel(tmp_path / "stills").observe(0).images
    refused(lambda: images["front"], match="starts with", code=refusal.DAMAGE)


def test_no_image_is_decoded_before_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "v3.0", cameras=["front"])
    asked: list[int] = []
    monkeypatch.setattr(opened.video, "image_at", lambda *_, **__: asked.append(1))
    images = opened_panel(tmp_path).observe(3).images
    assert "front" in images
    assert "wrist" not in images
    assert len(images) == 1
    assert asked == []


def test_a_missing_frame_time_is_damage_and_never_a_neighbour(tmp_path: Path) -> None:
    write(tmp_path, "v2.1", cameras=["front"], fps=30)
    path = tmp_path / "me/reach/videos/observation.images.front/chunk-000/episode_000000.mp4"
    mp4(path, [50] * 4)
    panel = opened_panel(tmp_path)
    assert panel.observe(3).images["front"].shape == (SIZE, SIZE, 3)
    refused(lambda: panel.observe(4).images["front"], match="no frame at", code=refusal.DAMAGE)


@pytest.mark.parametrize("time", [np.nan, -1.0, 1e30])
def test_a_time_that_is_none_is_damage(tmp_path: Path, time: float) -> None:
    written = write(tmp_path, "v2.1", cameras=["front"])
    table = rows(0, written.states[0], written.actions[0], ())
    table["timestamp"] = pa.array([time] * LENGTHS[0])
    parquet(tmp_path / "me/reach/data/chunk-000/episode_000000.parquet", table)
    images = opened_panel(tmp_path).observe(3).images
    refused(lambda: images["front"], match="the time", code=refusal.DAMAGE)


def test_a_time_between_two_frames_is_damage(tmp_path: Path) -> None:
    written = write(tmp_path, "v2.1", cameras=["front"])
    table = rows(0, written.states[0], written.actions[0], ())
    table["timestamp"] = pa.array(np.arange(LENGTHS[0]) / FPS + 0.002)
    parquet(tmp_path / "me/reach/data/chunk-000/episode_000000.parquet", table)
    images = opened_panel(tmp_path).observe(3).images
    refused(lambda: images["front"], match="nearest", code=refusal.DAMAGE)


def test_a_video_that_is_none_is_damage_and_one_that_is_absent_is_named(tmp_path: Path) -> None:
    write(tmp_path, "v2.1", cameras=["front"])
    path = tmp_path / "me/reach/videos/observation.images.front/chunk-000/episode_000000.mp4"
    whole = opened_panel(tmp_path).digest
    path.write_bytes(b"no video")
    panel = opened_panel(tmp_path)
    refused(lambda: panel.observe(0).images["front"], match="decoded", code=refusal.DAMAGE)
    path.unlink()
    absent = opened_panel(tmp_path)
    refused(lambda: absent.observe(0).images["front"], match="has no videos", code=refusal.USAGE)
    assert len({whole, panel.digest, absent.digest}) == 3
    assert len(opened_panel(tmp_path, cameras=[]).observe(0).images) == 0


def test_quantiles_travel_where_a_dataset_has_them_and_are_refused_where_needed(
    tmp_path: Path,
) -> None:
    for version in VERSIONS:
        write(tmp_path / version, version)
    new, old = (opened_panel(tmp_path / each).observe(0).statistics for each in ("v3.0", "v2.1"))
    assert of_dataset(new, repo="me/reach").q01.tolist() == [-1.0, -2.0, -3.0]
    refused(lambda: of_dataset(old, repo="me/reach"), match="me/reach", code=refusal.GUARD)


def test_statistics_of_version_two_one_are_put_together_by_count(tmp_path: Path) -> None:
    write(tmp_path, "v2.1")
    table = opened_panel(tmp_path).observe(0).statistics
    weights = np.array(LENGTHS) / sum(LENGTHS)
    mean = float(weights @ np.arange(3))
    spread = np.sqrt(float(weights @ (1.0 + (np.arange(3) - mean) ** 2)))
    assert table.action_mean[0] == pytest.approx(mean)
    assert table.action_std[0] == pytest.approx(spread)


def test_a_dataset_without_statistics_is_guarded(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    (tmp_path / "me/reach/meta/stats.json").unlink()
    refused(lambda: opened_panel(tmp_path), match="no mean and std", code=refusal.GUARD)


def two_repos(root: Path, **info: Any) -> None:
    write(root, "v3.0", repo="a/one")
    write(root, "v2.1", repo="b/two", seed=1, **info)


def test_repos_of_several_versions_make_one_corpus(tmp_path: Path) -> None:
    two_repos(tmp_path)
    panel = opened_panel(tmp_path, repos=["b/two", "a/one"])
    assert panel.frames.index.tolist() == list(range(2 * sum(LENGTHS)))
    assert panel.frames.repos == ("b/two", "a/one")
    assert panel.observe(21).frame == FrameId("a/one", 0, 0)


def test_a_repo_that_differs_is_guarded_by_name(tmp_path: Path) -> None:
    two_repos(tmp_path, fps=10)
    panel = ["a/one", "b/two"]
    refused(lambda: opened_panel(tmp_path, repos=panel), match="b/two has fps", code=refusal.GUARD)


def test_other_names_are_guarded_unless_the_panel_gives_its_own(tmp_path: Path) -> None:
    vector = {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]}
    two_repos(tmp_path, features={"observation.state": vector, "action": vector})
    repos = ["a/one", "b/two"]
    refused(lambda: opened_panel(tmp_path, repos=repos), match="b/two has", code=refusal.GUARD)
    panel = opened_panel(tmp_path, repos=repos, names=["p", "l", "g"])
    assert panel.space.action_names == ("p", "l", "g")


def test_a_camera_that_a_repo_lacks_is_guarded(tmp_path: Path) -> None:
    write(tmp_path, "v2.0", cameras=["front"])
    found = lambda: opened_panel(tmp_path, cameras=["wrist"])  # noqa: E731 - refused later
    refused(found, match="no camera wrist", code=refusal.GUARD)


def plan_of(path: Path, frames: list[tuple[int, int]], *, labeled: int = 0) -> Path:
    listed = [FrameId("me/reach", *each) for each in frames]
    core, rest = listed[: len(listed) - labeled], listed[len(listed) - labeled :]
    write_plan(path, core=core, labeled=rest, settings={"version": 1})
    return path


def test_a_plan_lists_the_frames_and_where_its_data_lies_names_nothing(tmp_path: Path) -> None:
    frames = [(2, 8), (0, 3), (1, 4)]
    panels = []
    for place_ in ("here", "there"):
        write(tmp_path / place_, "v3.0")
        plan = plan_of(tmp_path / f"{place_}.json", frames, labeled=1)
        panels.append(opened_panel(tmp_path / place_, plan=str(plan)))
    assert panels[0].digest == panels[1].digest
    assert [tuple(each)[1:] for each in panels[0].frames.ids()] == frames
    assert panels[0].frames.core.tolist() == [True, True, False]
    assert panels[0].frames.index.tolist() == [20, 3, 11]


@pytest.mark.parametrize("frame", [(3, 0), (0, 7)])
def test_a_frame_that_the_data_lacks_is_refused(tmp_path: Path, frame: tuple[int, int]) -> None:
    write(tmp_path, "v2.1")
    plan = plan_of(tmp_path / "plan.json", [frame])
    panel = lambda: opened_panel(tmp_path, plan=str(plan))  # noqa: E731 - refused later
    refused(panel, match="the plan lists", code=refusal.USAGE)


def test_a_changed_action_is_another_panel(tmp_path: Path) -> None:
    written = write(tmp_path, "v2.1")
    before = opened_panel(tmp_path).digest
    written.actions[0][0, 0] += 1
    table = rows(0, written.states[0], written.actions[0], ())
    parquet(tmp_path / "me/reach/data/chunk-000/episode_000000.parquet", table)
    assert opened_panel(tmp_path).digest != before


def test_the_second_opening_reads_no_table_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "v3.0")
    first = opened_panel(tmp_path)
    monkeypatch.setattr(opened, "read_episodes", None)
    again = opened_panel(tmp_path)
    assert again.digest == first.digest
    assert np.array_equal(again.observe(10).states, first.observe(10).states)
    assert again.frames.tasks == first.frames.tasks


def test_a_cache_that_is_garbled_or_closed_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    first = opened_panel(tmp_path)
    for file in (tmp_path / ".cache").glob("*.json"):
        file.write_text('{"format": 1, "value": {"lengths": [1, 2], "tasks": [[], []]}}')
    assert opened_panel(tmp_path).digest == first.digest
    (tmp_path / "file").write_text("no folder")
    assert opened_panel(tmp_path, cache=str(tmp_path / "file")).digest == first.digest


def test_the_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cached.default_folder() == tmp_path / "arflow_eval"


def test_counts_that_disagree_with_the_tables_are_damage(tmp_path: Path) -> None:
    write(tmp_path, "v2.1", total_frames=99)
    refused(lambda: opened_panel(tmp_path), match="99 frames", code=refusal.DAMAGE)


def test_an_episode_with_other_rows_than_its_table_says_is_damage(tmp_path: Path) -> None:
    written = write(tmp_path, "v2.1")
    table = rows(0, written.states[0][:-1], written.actions[0][:-1], ())
    parquet(tmp_path / "me/reach/data/chunk-000/episode_000000.parquet", table)
    panel = opened_panel(tmp_path)
    refused(lambda: panel.observe(0), match="episode 0 .* has 6 rows", code=refusal.DAMAGE)


FIELDS = {"video_key": "front", "episode_index": 3, "episode_chunk": 0}


def test_a_path_template_fills_its_fields_with_zeros() -> None:
    template = "videos/{video_key}/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.mp4"
    found = place(template, FIELDS, repo="a/b")
    assert found == "videos/front/chunk-000/episode_000003.mp4"


@pytest.mark.parametrize(
    "template",
    [
        "../{episode_index}.parquet",
        "/etc/passwd",
        "data/../../x",
        "data\\x",
        "C:/x",
        "{unknown}",
        "{episode_index.__class__}",
        "{episode_index:99999999d}",
        "{video_key!r}",
        "",
    ],
)
def test_a_path_template_that_could_leave_the_root_is_damage(template: str) -> None:
    refused(lambda: place(template, FIELDS, repo="a/b"), match="path", code=refusal.DAMAGE)


def test_a_camera_key_that_leaves_the_root_is_damage() -> None:
    fields = {**FIELDS, "video_key": "../../secret"}
    found = lambda: place("videos/{video_key}.mp4", fields, repo="a/b")  # noqa: E731
    refused(found, match="inside the dataset", code=refusal.DAMAGE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("codebase_version", "v1.6"),
        ("fps", 0),
        ("fps", "30"),
        ("total_episodes", -1),
        ("total_frames", 10**12),
        ("chunks_size", 0),
        ("features", []),
        ("features", {"action": {"shape": [3]}}),
        ("data_path", None),
    ],
)
def test_an_info_file_with_other_values_is_damage(tmp_path: Path, key: str, value: Any) -> None:
    write(tmp_path, "v2.1", **{key: value})
    refused(lambda: opened_panel(tmp_path), match="me/reach", code=refusal.DAMAGE)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_an_info_file_that_is_no_object_is_damage(tmp_path: Path, text: str) -> None:
    write(tmp_path, "v2.1")
    put(tmp_path / "me/reach/meta/info.json", text)
    refused(lambda: opened_panel(tmp_path), match="info.json", code=refusal.DAMAGE)


def test_a_missing_library_is_refused_with_the_line_that_installs_it() -> None:
    with pytest.raises(refusal.Refusal, match=r'pip install "arflow-eval\[video\]"'):
        extras.library("no_such_library_here", extra="video")


@pytest.mark.parametrize("repos", [["../x"], ["me/absent"], ["me/reach", "me/reach"]])
def test_repos_that_are_not_there_are_a_usage_error(tmp_path: Path, repos: list[str]) -> None:
    write(tmp_path, "v2.1")
    refused(lambda: opened_panel(tmp_path, repos=repos), match="repo", code=refusal.USAGE)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_flipped_or_cut_file_is_read_or_refused_and_nothing_else(
    tmp_path: Path, version: str
) -> None:
    write(tmp_path, version, cameras=["front"])
    files = sorted(path for path in (tmp_path / "me").rglob("*") if path.is_file())
    rng = np.random.default_rng(0)
    for turn in range(60):
        path = files[turn % len(files)]
        whole = path.read_bytes()
        torn = bytearray(whole[: rng.integers(len(whole))] if turn % 2 else whole)
        for place_ in rng.integers(0, max(len(torn), 1), 4 if torn else 0):
            torn[place_] = rng.integers(256)
        path.write_bytes(torn)
        try:
            panel = opened_panel(tmp_path, cache=str(tmp_path / str(turn)))
            for row in (0, 8, 20):
                images = panel.observe(row).images
                assert {images[name].shape[2] for name in images} <= {3}
        except refusal.Refusal:
            pass
        finally:
            path.write_bytes(whole)
    assert len(opened_panel(tmp_path).observe(20).images["front"]) == SIZE


def words(root: Path, out: Path, *more: str) -> list[str]:
    cache = f"panel.cache={out / 'cache'}"
    return ["panel=lerobot", f"panel.root={root}", f"store.root={out}", cache, *more]


def panel_of(*overrides: str) -> Panel:
    return load_panel(evaluate_settings(compose.compose("evaluate", list(overrides))))


def test_evaluate_runs_on_a_dataset_and_keeps_no_folder_of_it(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    overrides = words(tmp_path, tmp_path / "out", "model=hold_last", "panel.steps=4")
    outcome = evaluate(compose.compose("evaluate", overrides))
    assert outcome.computed == sum(LENGTHS)
    attributes = open_run(outcome.store).attrs
    assert str(tmp_path) not in json.dumps(dict(attributes), default=str)


def test_a_limit_is_spread_evenly_over_any_panel(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    whole = panel_of(*words(tmp_path, tmp_path / "out"))
    cut = panel_of(*words(tmp_path, tmp_path / "out", "panel.limit=5"))
    assert cut.frames.index.tolist() == [0, 4, 8, 12, 16]
    assert cut.digest != whole.digest
    assert np.array_equal(cut.observe(2).states, whole.observe(8).states)
    assert np.array_equal(cut.targets([2, 0]).truth, whole.targets([8, 0]).truth)
    bundled = panel_of("panel=pusht", "panel.limit=100")
    assert bundled.frames.index.tolist() == panel_of("panel=pusht").frames.index[:100].tolist()


def test_a_limit_above_the_panel_cuts_nothing() -> None:
    assert panel_of("panel=pusht", "panel.limit=164").digest == panel_of("panel=pusht").digest


def test_a_subset_keeps_core_flags_and_places(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    plan = plan_of(tmp_path / "plan.json", [(0, 3), (2, 1), (2, 8)], labeled=1)
    part = plan_of(tmp_path / "q.json", [(2, 8), (0, 3)])
    panel = panel_of(*words(tmp_path, tmp_path / "o", f"panel.plan={plan}", f"panel.subset={part}"))
    assert panel.frames.index.tolist() == [3, 20]
    assert panel.frames.core.tolist() == [True, False]
    assert panel.name == "lerobot-q"


def test_a_subset_of_a_bundled_panel_is_a_plan_like_any(tmp_path: Path) -> None:
    frames = panel_of("panel=pusht_q4").frames.ids()
    write_plan(tmp_path / "q4.json", core=frames, settings={"version": 1})
    cut = panel_of("panel=pusht", f"panel.subset={tmp_path / 'q4.json'}")
    assert cut.frames.ids() == frames


def test_a_subset_with_strange_frames_is_guarded(tmp_path: Path) -> None:
    write(tmp_path, "v3.0")
    plan = plan_of(tmp_path / "plan.json", [(0, 3)])
    part = plan_of(tmp_path / "q.json", [(0, 4)])
    cut = words(tmp_path, tmp_path, f"panel.plan={plan}", f"panel.subset={part}")
    refused(lambda: panel_of(*cut), match="episode 0 frame 4", code=refusal.GUARD)


@pytest.mark.parametrize(
    "override", ["panel.root=.", "panel.repos=[a/b]", "panel.units=degree", "panel.cameras=[]"]
)
def test_keys_of_data_of_ones_own_are_refused_with_bundled_data(override: str) -> None:
    refused(lambda: panel_of("panel=pusht", override), match="bundled", code=refusal.USAGE)


REAL = SHARED / "TristanGabl__lerobot_robot_learning" / "robot_learning_2026"
ROS = SHARED / "nimiCurtis__so101_rosbag2lerobot_dataset/local_dataset_ros2/data"
ROS = ROS / "lerobot_dataset_example"
KOCH = SHARED / "jackvial__lerobot-data-studio/tests/template_datasets/v2_1"


def real(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not beside this checkout")
    return folder


def test_a_real_so101_dataset_of_version_three_opens_with_its_video(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    panel = opened_panel(real(REAL / "dummy_data"), cache=str(tmp_path), steps=50)
    assert len(panel.frames) == 296
    assert panel.targets(range(296)).valid.sum() == sum(min(50, 296 - f) for f in range(296))
    first, last = (panel.observe(row).images["front"] for row in (0, 295))
    assert first.shape == last.shape == (640, 480, 3)
    assert not np.array_equal(first, last)
    assert panel.observe(0).statistics.action_q01 is not None


def test_images_of_a_real_shared_video_are_those_of_its_frames_in_turn(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="needs the extra video")
    panel = opened_panel(real(ROS), cache=str(tmp_path))
    wanted = [0, 1, 323, 324, 1619, 1620, 1781]
    found = {row: panel.observe(row).images["wrist"] for row in wanted}
    assert len({panel.frames.episode[row] for row in wanted}) > 2
    film = ROS / "videos/observation.images.wrist/chunk-000/file-000.mp4"
    with av.open(str(film)) as container:
        for row, frame in enumerate(container.decode(video=0)):
            if row in found:
                assert np.array_equal(found[row], frame.to_ndarray(format="rgb24"))


def test_a_real_koch_dataset_of_version_two_one_opens(tmp_path: Path) -> None:
    panel = opened_panel(real(KOCH), cache=str(tmp_path))
    assert len(panel.frames) == 1217
    assert list(panel.observe(0).images) == ["screwdriver", "side", "top"]
    assert panel.observe(0).statistics.action_q01 is None


def test_six_real_datasets_make_one_panel(tmp_path: Path) -> None:
    root = real(REAL)
    panel = opened_panel(root, repos=opened.repos_under(root), cache=str(tmp_path))
    assert len(panel.frames) == 29_571
