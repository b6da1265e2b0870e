"""The episode table of a dataset: lengths, tasks, and the files that hold rows and videos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from arflow_eval.panel.datasets import documents, tables
from arflow_eval.panel.datasets.documents import broken
from arflow_eval.panel.datasets.info import Info, place


@dataclass(frozen=True)
class Files:
    """Where each episode lies: chunk and file numbers, and the second its video starts at."""

    chunk: Int64[np.ndarray, "episode"]
    file: Int64[np.ndarray, "episode"]
    begins: Float64[np.ndarray, "episode"]


@dataclass(frozen=True)
class Episodes:
    """One entry an episode, numbered from 0. `tasks` are the texts its table lists, if any."""

    lengths: Int64[np.ndarray, "episode"]
    tasks: tuple[tuple[str, ...], ...]
    data: Files
    videos: Mapping[str, Files]

    @property
    def starts(self) -> Int64[np.ndarray, "episode"]:
        """The position of each episode's first frame in its dataset."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.lengths)


def read_episodes(folder: Path, info: Info) -> Episodes:
    """The episode table, of whichever version."""
    episodes = _many_a_file(folder, info) if info.many_a_file else _one_a_file(folder, info)
    if not len(episodes):
        raise broken(info.repo, "no episodes", expected="at least one")
    return episodes


def read_tasks(folder: Path, info: Info) -> dict[int, str]:
    """Task texts by task index; never by the row they stand in."""
    if info.many_a_file:
        indices, texts = _task_columns(folder / "meta" / "tasks.parquet", repo=info.repo)
    else:
        lines = documents.read_lines(folder / "meta" / "tasks.jsonl", repo=info.repo)
        indices = [
            documents.whole(line.get("task_index"), name="task_index", repo=info.repo)
            for line in lines
        ]
        texts = [line.get("task") for line in lines]
    if len(set(indices)) != len(indices):
        raise broken(info.repo, "a task index is listed twice", expected="every index once")
    named = (documents.text(text, name="a task", repo=info.repo) for text in texts)
    return dict(zip(indices, named, strict=True))


def check_counts(info: Info, episodes: Episodes) -> None:
    """The episode table agrees with what info.json counts. Raises damage."""
    found = (len(episodes), int(episodes.lengths.sum()))
    if found != (info.episodes, info.frames):
        raise broken(
            info.repo,
            f"the episode table has {found[0]:,} episodes and {found[1]:,} frames",
            expected=f"the {info.episodes:,} episodes and {info.frames:,} frames of info.json",
        )


def data_file(info: Info, episodes: Episodes, episode: int) -> str:
    """The parquet file of an episode, relative to the dataset's folder."""
    fields = _fields(info, episodes.data, episode)
    return place(info.data_path, fields, repo=info.repo)


def video_file(info: Info, episodes: Episodes, episode: int, *, camera: str) -> str:
    """The video file of an episode's camera (by its key), relative to the dataset's folder."""
    if info.video_path is None or camera not in episodes.videos:
        raise broken(info.repo, f"no video_path for {camera}", expected="a path of its videos")
    fields = {**_fields(info, episodes.videos[camera], episode), "video_key": camera}
    return place(info.video_path, fields, repo=info.repo)


def _fields(info: Info, files: Files, episode: int) -> dict[str, Any]:
    return {
        "episode_index": episode,
        "episode_chunk": episode // info.chunk,
        "chunk_index": int(files.chunk[episode]),
        "file_index": int(files.file[episode]),
    }


def _one_a_file(folder: Path, info: Info) -> Episodes:
    lines = documents.read_lines(folder / "meta" / "episodes.jsonl", repo=info.repo)
    lines = sorted(lines, key=lambda line: _number(line, "episode_index", info))
    _check_numbered([_number(line, "episode_index", info) for line in lines], info)
    count = len(lines)
    files = Files(
        chunk=np.arange(count) // info.chunk, file=np.arange(count), begins=np.zeros(count)
    )
    return Episodes(
        lengths=np.array([_number(line, "length", info, least=1) for line in lines], np.int64),
        tasks=tuple(_texts(line.get("tasks", []), info) for line in lines),
        data=files,
        videos={camera.key: files for camera in info.cameras if camera.video},
    )


def _number(line: Mapping[str, Any], name: str, info: Info, *, least: int = 0) -> int:
    return documents.whole(line.get(name), name=name, repo=info.repo, least=least)


def _texts(tasks: Any, info: Info) -> tuple[str, ...]:
    found = documents.listed(tasks, name="tasks of an episode", repo=info.repo)
    return tuple(documents.text(task, name="a task", repo=info.repo) for task in found)


def _check_numbered(numbers: Sequence[int], info: Info) -> None:
    if list(numbers) != list(range(len(numbers))):
        raise broken(
            info.repo, "its episodes are not numbered in turn", expected="0, 1, 2, … each once"
        )


def _many_a_file(folder: Path, info: Info) -> Episodes:
    """The parquet files of meta/episodes, without the columns of statistics in them."""
    paths = sorted((folder / "meta" / "episodes").glob("*/*.parquet"))
    if not paths:
        raise broken(info.repo, "no files in meta/episodes", expected="parquet files")
    parts = [_episode_columns(path, info) for path in paths]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["episode_index"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    _check_numbered(columns["episode_index"].tolist(), info)
    lengths = columns["dataset_to_index"] - columns["dataset_from_index"]
    episodes = Episodes(
        lengths=lengths.astype(np.int64),
        tasks=tuple(_texts(list(tasks), info) for tasks in columns["tasks"]),
        data=_files(columns, "data"),
        videos={
            camera.key: _files(columns, f"videos/{camera.key}")
            for camera in info.cameras
            if camera.video
        },
    )
    turned = (episodes.starts != columns["dataset_from_index"]).any()
    if (lengths < 1).any() or turned or (columns["length"] != lengths).any():
        raise broken(
            info.repo,
            "lengths and dataset_from_index of its episodes disagree",
            expected="episodes one after the other",
        )
    return episodes


def _files(columns: Mapping[str, Any], of: str) -> Files:
    return Files(
        chunk=columns[f"{of}/chunk_index"],
        file=columns[f"{of}/file_index"],
        begins=columns.get(f"{of}/from_timestamp", np.zeros(len(columns[f"{of}/file_index"]))),
    )


def _episode_columns(path: Path, info: Info) -> dict[str, Any]:
    """The columns of one file of the table; a missing length or data file has its default."""
    repo = info.repo
    present = set(tables.column_names(path, repo=repo))
    videos = [f"videos/{camera.key}" for camera in info.cameras if camera.video]
    places = [f"{of}/{part}" for of in ("data", *videos) for part in ("chunk_index", "file_index")]
    begins = [f"{of}/from_timestamp" for of in videos]
    needed = ["episode_index", "dataset_from_index", "dataset_to_index", *places[2:], *begins]
    chosen = [*needed, *({"length", "tasks", *places[:2]} & present)]
    table = tables.read_table(path, columns=chosen, repo=repo)
    whole = [name for name in chosen if name != "tasks" and name not in begins]
    found: dict[str, Any] = {name: tables.integers(table, name, repo=repo) for name in whole}
    found |= {name: tables.floats(table, name, repo=repo) for name in begins}
    if any(not np.isfinite(found[name]).all() or (found[name] < 0).any() for name in begins):
        raise broken(repo, "a from_timestamp is no time", expected="seconds from 0")
    episode = found["episode_index"]
    found.setdefault("length", found["dataset_to_index"] - found["dataset_from_index"])
    found.setdefault("data/chunk_index", episode // info.chunk)
    found.setdefault("data/file_index", np.zeros_like(episode))
    tasks = np.empty(len(episode), dtype=object)
    tasks[:] = (
        [list(row or ()) for row in table.column("tasks").to_pylist()]
        if ("tasks" in chosen)
        else [[] for _ in episode]
    )
    return found | {"tasks": tasks}


def _task_columns(path: Path, *, repo: str) -> tuple[list[int], list[Any]]:
    """Indices and texts; some writers keep the texts as the index of a data frame."""
    present = tables.column_names(path, repo=repo)
    named = [name for name in ("task", "__index_level_0__") if name in present]
    if not named:
        raise broken(repo, "tasks.parquet has no texts", expected="a column task")
    table = tables.read_table(path, columns=["task_index", named[0]], repo=repo)
    indices = tables.integers(table, "task_index", repo=repo)
    return indices.tolist(), table.column(named[0]).to_pylist()
