"""A dataset opened: its tables in memory, its rows and images read when they are asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from arflow_eval import refusal
from arflow_eval.contracts import Statistics
from arflow_eval.panel.datasets import cached, tables, video
from arflow_eval.panel.datasets.documents import broken
from arflow_eval.panel.datasets.episodes import (
    Episodes,
    data_file,
    read_episodes,
    read_tasks,
    video_file,
)
from arflow_eval.panel.datasets.info import ACTION, STATE, Camera, Info, read_info
from arflow_eval.panel.datasets.statistics import read_statistics

BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "task_index")


@dataclass(frozen=True)
class Dataset:
    """One repo. `digest` is of its meta files; `tasks` has the texts by task index."""

    repo: str
    folder: Path
    info: Info
    episodes: Episodes
    tasks: dict[int, str]
    statistics: Statistics | None
    digest: str

    def task(self, index: int) -> str:
        """The text of a task index."""
        if index not in self.tasks:
            raise broken(self.repo, f"no task has the index {index}", expected="a listed task")
        return self.tasks[index]


@dataclass(frozen=True)
class Rows:
    """The rows of one episode, from its first frame to its last."""

    states: Float32[np.ndarray, "index state"]
    actions: Float32[np.ndarray, "index action"]
    timestamps: Float64[np.ndarray, "index"]
    tasks: Int64[np.ndarray, "index"]


def find_folder(root: Path, repo: str) -> Path:
    """The folder of a repo: `root/owner/name`, or the root where it is a dataset itself."""
    if (root / "meta" / "info.json").is_file():
        return root
    parts = Path(repo).parts
    if not parts or ".." in parts or Path(repo).is_absolute():
        raise refusal.usage(f"repo {repo}", expected="owner/name", remedy="check panel.repos")
    folder = root / repo
    if not (folder / "meta" / "info.json").is_file():
        raise refusal.usage(
            f"no dataset {repo} under panel.root={root}",
            expected="a folder with meta/info.json",
            remedy="check panel.root, or download it with arflow-eval convert panel --prefetch",
        )
    return folder


def repos_under(root: Path) -> list[str]:
    """Every dataset under a root, by its path below it; the root's own name where it is one."""
    if (root / "meta" / "info.json").is_file():
        return [root.resolve().name]
    found = [path.parent.parent for path in root.rglob("meta/info.json")]
    return sorted(folder.relative_to(root).as_posix() for folder in found)


def open_dataset(root: Path, repo: str, *, cache: Path) -> Dataset:
    """Open a repo under a root: its tables, from the cache where the meta files are known."""
    folder = find_folder(root, repo)
    info = read_info(folder, repo=repo)
    digest = cached.meta_digest(folder, repo=repo)

    def read() -> cached.Meta:
        return read_episodes(folder, info), read_tasks(folder, info), read_statistics(folder, info)

    episodes, tasks, statistics = cached.meta(digest, cache=cache, read=read)
    return Dataset(repo, folder, info, episodes, tasks, statistics, digest)


def data_path(dataset: Dataset, episode: int) -> Path:
    """The parquet file that holds an episode's rows."""
    if episode >= len(dataset.episodes):
        raise refusal.usage(
            f"{dataset.repo} episode {episode}",
            expected=f"one of its {len(dataset.episodes)} episodes",
            remedy="choose a plan made for this version of the data",
        )
    path = dataset.folder / data_file(dataset.info, dataset.episodes, episode)
    return _present(path, dataset)


def read_rows(dataset: Dataset, episode: int) -> Rows:
    """The rows of an episode, as many as its table says and in their order. Raises damage."""
    repo, info = dataset.repo, dataset.info
    path = data_path(dataset, episode)
    columns = (STATE, ACTION, *BOOKKEEPING)
    table = tables.read_table(path, columns=columns, repo=repo, episode=episode)
    frames = tables.integers(table, "frame_index", repo=repo)
    if not np.array_equal(frames, np.arange(dataset.episodes.lengths[episode])):
        raise broken(
            repo,
            f"episode {episode} of {path.name} has {len(frames):,} rows, or not in turn",
            expected=f"frames 0 to {dataset.episodes.lengths[episode] - 1:,}",
        )
    return Rows(
        states=tables.vectors(table, STATE, size=len(info.state_names), repo=repo),
        actions=tables.vectors(table, ACTION, size=len(info.action_names), repo=repo),
        timestamps=tables.floats(table, "timestamp", repo=repo),
        tasks=tables.integers(table, "task_index", repo=repo),
    )


def read_annotated(dataset: Dataset, episode: int, name: str) -> Bool[np.ndarray, "index"]:
    """Which frames of an episode have a finite number in a column, such as a progress label."""
    path = data_path(dataset, episode)
    columns = (name, "frame_index", "episode_index")
    table = tables.read_table(path, columns=columns, repo=dataset.repo, episode=episode)
    return tables.present(table, name, repo=dataset.repo)


def video_path(dataset: Dataset, episode: int, camera: Camera) -> Path:
    """The video file of an episode's camera."""
    name = video_file(dataset.info, dataset.episodes, episode, camera=camera.key)
    return dataset.folder / name


def read_image(
    dataset: Dataset, episode: int, camera: Camera, *, frame_index: int, timestamp: float
) -> UInt8[np.ndarray, "height width colour"]:
    """One camera's image of one frame, from the video at exactly its time or from its row."""
    where = f"{dataset.repo} episode {episode} frame {frame_index} camera {camera.name}"
    if camera.video:
        path = _present(video_path(dataset, episode, camera), dataset)
        begins = float(dataset.episodes.videos[camera.key].begins[episode])
        return video.image_at(path, begins + timestamp, where=where)
    return video.image_of(_encoded(dataset, episode, camera, frame_index), where=where)


def _encoded(dataset: Dataset, episode: int, camera: Camera, frame_index: int) -> bytes:
    columns = (camera.key, "episode_index")
    table = tables.read_table(
        data_path(dataset, episode), columns=columns, repo=dataset.repo, episode=episode
    )
    cell: Any = table.column(camera.key)[frame_index].as_py()
    encoded = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(encoded, bytes):
        raise broken(dataset.repo, f"{camera.key} holds no image bytes", expected="PNG or JPEG")
    return encoded


def _present(path: Path, dataset: Dataset) -> Path:
    if not path.is_file():
        raise refusal.usage(
            f"dataset {dataset.repo} has no {path.relative_to(dataset.folder).as_posix()}",
            expected="every file that its episodes lie in",
            remedy="download it with arflow-eval convert panel --prefetch",
        )
    return path
