"""Panels as frozen files: the rule that makes one, and the download of what one needs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arflow_eval import convert, refusal
from arflow_eval.contracts import FrameId
from arflow_eval.exchange import panel as convert_panel
from arflow_eval.panel import prefetch
from arflow_eval.panel.building import Built, Rule, build, keyed
from arflow_eval.panel.plan import Plan, read_plan, write_plan

pa = pytest.importorskip("pyarrow", reason="needs the extra lerobot")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra lerobot")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(
    root: Path,
    repo: str,
    *,
    lengths: tuple[int, ...] = (30,) * 10,
    fps: float = 30,
    cameras: int = 0,
    progress: bool = False,
) -> None:
    """A dataset of version 2.1; annotated frames are those past the tenth."""
    folder = root / repo
    (folder / "meta").mkdir(parents=True)
    vector = {"dtype": "float32", "shape": [2], "names": ["a", "b"]}
    picture = {"dtype": "video", "shape": [4, 4, 3]}
    label = {"progress": {"dtype": "float32", "shape": [1]}} if progress else {}
    info = {
        "codebase_version": "v2.1",
        "fps": fps,
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "data_path": "data/episode_{episode_index:06d}.parquet",
        "video_path": "videos/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {"observation.state": vector, "action": vector, **label}
        | {f"observation.images.{c}": picture for c in range(cameras)},
    }
    entry = {"mean": [0.0, 0.0], "std": [1.0, 1.0], "count": [30]}
    stats = {"observation.state": entry, "action": entry}
    for name, lines in (
        ("info.json", [info]),
        ("tasks.jsonl", [{"task_index": 0, "task": "reach"}]),
        ("episodes.jsonl", [{"episode_index": e, "length": n} for e, n in enumerate(lengths)]),
        ("episodes_stats.jsonl", [{"stats": stats} for _ in lengths]),
    ):
        (folder / "meta" / name).write_text("\n".join(map(json.dumps, lines)))
    (folder / "data").mkdir()
    for episode, length in enumerate(lengths):
        values = np.zeros((length, 2), dtype=np.float32).tolist()
        columns = {
            "observation.state": pa.array(values, pa.list_(pa.float32())),
            "action": pa.array(values, pa.list_(pa.float32())),
            "timestamp": np.arange(length) / fps,
            "frame_index": np.arange(length),
            "episode_index": np.full(length, episode),
            "task_index": np.zeros(length, dtype=int),
        }
        if progress:
            columns["progress"] = pa.array([None] * 10 + [0.5] * (length - 10), pa.float32())
        pq.write_table(pa.table(columns), folder / "data" / f"episode_{episode:06d}.parquet")


def built(root: Path, *repos: str, **rule: Any) -> Built:
    return build(root, repos, Rule(**rule), cache=root / ".cache")


def test_the_rule_takes_core_frames_of_the_held_out_episodes(tmp_path: Path) -> None:
    write(tmp_path, "a/b")
    found = built(tmp_path, "a/b", holdout_episodes=0.3, frames_per_episode=4)
    held = np.random.default_rng(keyed(0, "a/b")).permutation(10)[:3]
    assert {frame.episode for frame in found.core} == set(held.tolist())
    assert len(found.core) == len(set(found.core)) == 12
    assert found.labeled == ()
    assert found.unlabeled == ("a/b",)


def test_labeled_frames_are_annotated_and_none_is_a_core_frame(tmp_path: Path) -> None:
    write(tmp_path, "a/b", progress=True)
    found = built(tmp_path, "a/b", holdout_episodes=0.3, frames_per_episode=12)
    assert len(found.labeled) == 6
    assert all(frame.frame_index >= 10 for frame in found.labeled)
    assert not set(found.labeled) & set(found.core)


def test_adding_a_repo_changes_no_other_repos_frames(tmp_path: Path) -> None:
    write(tmp_path, "a/b")
    write(tmp_path, "c/d")
    one, both = built(tmp_path, "a/b"), built(tmp_path, "c/d", "a/b")
    assert one.core == both.core[len(both.core) // 2 :]
    assert [f[1:] for f in both.core[:4]] != [f[1:] for f in both.core[4:]]


def test_what_the_filters_leave_out_is_said_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, "a/slow", fps=10)
    write(tmp_path, "b/blind")
    write(tmp_path, "c/short", lengths=(9, 9), cameras=2)
    write(tmp_path, "d/good", cameras=2)
    write(tmp_path, "e/lies", cameras=2)
    (tmp_path / "e/lies/meta/episodes.jsonl").write_text('{"episode_index": 0, "length": 5}')
    repos = ("a/slow", "b/blind", "c/short", "d/good", "e/lies")
    found = built(tmp_path, *repos, camera_counts=(1, 2))
    reasons = [line.split(": ")[1].split(";")[0] for line in found.left_out]
    assert reasons == [
        "10 fps",
        "0 cameras",
        "no episode is held out",
        "the episode table has 1 episodes and 5 frames",
    ]
    assert {frame.repo for frame in found.core} == {"d/good"}


def run(*words: str) -> int:
    return convert.main(["panel", *words])


def test_a_built_panel_is_the_published_file_and_is_built_again_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a/b", progress=True)
    cache = ["--cache", str(tmp_path / ".cache")]
    out = tmp_path / "plan.json"
    for _ in range(2):
        assert run(str(tmp_path), str(out), "--seed", "7", *cache) == 0
    document = json.loads(out.read_text())
    assert list(document)[-2:] == ["core", "labeled"]
    assert document["plan_seed"] == 7
    assert (document["fps"], document["episodes"]) == ([30.0], "holdout")
    shown = capsys.readouterr().out
    assert "6 frames (4 core, 2 labeled) of 1 episodes of 1 repos" in shown
    assert read_plan(out, digest=None).digest in shown
    assert run(str(out)) == 0
    assert "6 frames  a/b" in capsys.readouterr().out


def test_a_frozen_panel_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a/b")
    words = (str(tmp_path), str(tmp_path / "plan.json"), "--cache", str(tmp_path / ".cache"))
    assert run(*words) == 0
    frozen = (tmp_path / "plan.json").read_bytes()
    assert run(*words, "--seed", "1") == refusal.USAGE
    assert "never overwritten" in capsys.readouterr().err
    assert (tmp_path / "plan.json").read_bytes() == frozen
    assert sorted(each.name for each in tmp_path.iterdir()) == [".cache", "a", "plan.json"]


def test_a_quarter_has_one_of_the_four_core_frames_of_each_episode(tmp_path: Path) -> None:
    core = [FrameId(repo, e, f) for repo in ("a/b", "c/d") for e in (9, 2) for f in (5, 1, 7, 3)]
    write_plan(tmp_path / "plan.json", core=core, settings={"version": 1, "fps": [30.0]})
    whole = read_plan(tmp_path / "plan.json", digest=None)
    words = (str(tmp_path / "plan.json"), str(tmp_path / "q4.json"), "--keep", "0.25")
    assert run(*words) == 0
    quarter = read_plan(tmp_path / "q4.json", digest=None)
    assert quarter.settings["subset_of"] == whole.digest
    assert quarter.settings["fps"] == [30.0]
    assert [frame[:2] for frame in quarter.core] == [("a/b", 9), ("a/b", 2), ("c/d", 9), ("c/d", 2)]
    assert set(quarter.core) <= set(core)
    assert run(*words) == 0


def test_missing_labels_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a/b")
    run(str(tmp_path), str(tmp_path / "plan.json"), "--cache", str(tmp_path / ".cache"))
    assert "no column progress in any repo" in capsys.readouterr().out


def test_no_frames_at_all_is_a_guard(tmp_path: Path) -> None:
    write(tmp_path, "a/b", fps=10)
    words = (str(tmp_path), str(tmp_path / "plan.json"), "--cache", str(tmp_path / ".cache"))
    assert run(*words) == refusal.GUARD


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("x",),
        ("a.json", "b.json"),
        (".", "plan.json", "--holdout", "2"),
        (".", "plan.json", "--fps", "x"),
        (".", "plan.json", "--seed", "1,2"),
        (".", "plan.json", "--seeed", "1"),
        ("absent", "plan.json"),
        ("absent.json", ".", "--prefetch"),
        ("absent.json",),
        ("absent.json", "out.json", "--keep", "0.5"),
    ],
)
def test_words_that_are_no_form_are_a_usage_error(words: tuple[str, ...]) -> None:
    assert run(*words) == refusal.USAGE


def test_the_help_has_the_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "--prefetch --revisions" in capsys.readouterr().out


class Hub:
    """In place of huggingface_hub: copies what the patterns name, and remembers what was asked."""

    def __init__(self, source: Path, *, lacks: str = "") -> None:
        self.source = source
        self.lacks = lacks
        self.asked: list[dict[str, Any]] = []

    def snapshot_download(self, *, repo_id: str, local_dir: str, **given: Any) -> None:
        self.asked.append({"repo_id": repo_id, **given})
        for pattern in given["allow_patterns"]:
            for path in (self.source / repo_id).glob(pattern):
                out = Path(local_dir) / path.relative_to(self.source / repo_id)
                if path.is_file() and path.name != self.lacks:
                    out.parent.mkdir(parents=True, exist_ok=True)
                    out.write_bytes(path.read_bytes())


def plan_of(path: Path, *episodes: int, repo: str = "a/b") -> Plan:
    core = [FrameId(repo, episode, 0) for episode in episodes]
    write_plan(path, core=core, settings={"version": 1})
    return read_plan(path, digest=None)


def fetch(tmp_path: Path, hub: Hub, *, videos: bool = True, **revisions: str) -> Any:
    return prefetch.fetch(
        plan_of(tmp_path / "plan.json", 2, 5, 2 + 5),
        tmp_path / "here",
        revisions=revisions or {"a/b": COMMIT},
        videos=videos,
        cache=tmp_path / ".cache",
        download=hub.snapshot_download,
    )


def test_a_download_takes_the_files_of_the_plans_episodes_at_the_pinned_commit(
    tmp_path: Path,
) -> None:
    write(tmp_path / "hub", "a/b", cameras=1)
    hub = Hub(tmp_path / "hub")
    for episode in (2, 5, 7):
        video = tmp_path / f"hub/a/b/videos/observation.images.0/episode_{episode:06d}.mp4"
        video.parent.mkdir(parents=True, exist_ok=True)
        video.write_bytes(b"a video")
    found = fetch(tmp_path, hub)
    assert [(each.repo, each.episodes, each.files) for each in found] == [("a/b", 3, 6)]
    assert {asked["revision"] for asked in hub.asked} == {COMMIT}
    assert {asked["repo_type"] for asked in hub.asked} == {"dataset"}
    assert hub.asked[0]["allow_patterns"] == ["meta/*"]
    kept = sorted(path.name for path in (tmp_path / "here/a/b/data").iterdir())
    assert kept == [f"episode_{episode:06d}.parquet" for episode in (2, 5, 7)]


def test_rows_alone_can_be_downloaded(tmp_path: Path) -> None:
    write(tmp_path / "hub", "a/b", cameras=1)
    hub = Hub(tmp_path / "hub")
    assert fetch(tmp_path, hub, videos=False)[0].files == 3


def test_a_file_that_the_hub_lacks_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "hub", "a/b")
    with pytest.raises(refusal.Refusal, match="has no data/episode_000005") as refused:
        fetch(tmp_path, Hub(tmp_path / "hub", lacks="episode_000005.parquet"))
    assert refused.value.exit_code == refusal.DAMAGE


def test_a_repo_without_a_revision_is_a_usage_error_before_any_download(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    with pytest.raises(refusal.Refusal, match="no revision of a/b"):
        fetch(tmp_path, hub, other=COMMIT)
    assert hub.asked == []


@pytest.mark.parametrize("repo", ["../b", "a", "a/../b", "/etc/passwd", "a/b/c"])
def test_a_repo_that_is_no_name_is_refused(repo: str) -> None:
    with pytest.raises(refusal.Refusal, match="owner/name"):
        prefetch.check_pins([repo], {repo: COMMIT})


def test_a_hub_that_says_no_is_still_waiting(tmp_path: Path) -> None:
    def unreachable(**_: Any) -> None:
        raise OSError("no route")

    hub = SimpleNamespace(snapshot_download=unreachable)
    with pytest.raises(refusal.Refusal, match="no route") as refused:
        fetch(tmp_path, hub)
    assert refused.value.exit_code == refusal.WAITING


@pytest.mark.parametrize("text", ["{", '{"a/b": "main"}', '{"a/b": 3}'])
def test_a_revision_must_be_a_commit(tmp_path: Path, text: str) -> None:
    (tmp_path / "pins.json").write_text(text)
    with pytest.raises(refusal.Refusal, match="expected a") as refused:
        prefetch.read_revisions(tmp_path / "pins.json")
    assert refused.value.exit_code == refusal.USAGE


def test_pins_are_written_once_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(tmp_path / "plan.json", 0)
    head = SimpleNamespace(sha=COMMIT)
    library = SimpleNamespace(HfApi=lambda: SimpleNamespace(dataset_info=lambda _: head))
    monkeypatch.setattr(prefetch, "library", lambda *_, **__: library)
    words = (str(tmp_path / "plan.json"), "--pin", str(tmp_path / "pins.json"))
    assert run(*words) == 0
    assert prefetch.read_revisions(tmp_path / "pins.json") == {"a/b": COMMIT}
    assert run(*words) == refusal.USAGE


def test_the_command_downloads_through_the_hubs_own_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "hub", "a/b")
    plan_of(tmp_path / "plan.json", 1)
    (tmp_path / "pins.json").write_text(json.dumps({"a/b": COMMIT}))
    monkeypatch.setattr(prefetch, "library", lambda *_, **__: Hub(tmp_path / "hub"))
    words = [str(tmp_path / "plan.json"), str(tmp_path / "here"), "--prefetch"]
    words += ["--revisions", str(tmp_path / "pins.json"), "--cache", str(tmp_path / ".cache")]
    assert convert_panel.main(words) == 0
    assert "1 files of 1 episodes  a/b" in capsys.readouterr().out
