"""From opened datasets and a plan to the columns of a panel: which repos, frames and tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from arflow_eval import refusal
from arflow_eval.contracts import FrameId, Frames, Statistics
from arflow_eval.panel.datasets.documents import broken
from arflow_eval.panel.datasets.info import Camera
from arflow_eval.panel.datasets.opened import Dataset, read_rows, repos_under
from arflow_eval.panel.plan import Plan

Columns = tuple[
    Int64[np.ndarray, "frame"],
    Int64[np.ndarray, "frame"],
    Int64[np.ndarray, "frame"],
    Bool[np.ndarray, "frame"],
]


def root_folder(root: str | None) -> Path:
    """The folder that `panel.root` names."""
    folder = None if root is None else Path(root).expanduser()
    if folder is None or not folder.is_dir():
        raise refusal.usage(
            "panel.root is not given" if folder is None else f"panel.root={root} is no folder",
            expected="the folder that holds owner/name of every repo, or one dataset",
            remedy="give panel.root=FOLDER",
        )
    return folder


def repos_of(root: Path, repos: Sequence[str] | None, plan: Plan | None) -> list[str]:
    """The repos of the corpus in its order. Raises usage where none, or several, could be meant."""
    if repos is None and plan is not None:
        found = sorted({frame.repo for frame in plan.frames})
    elif repos is None:
        found = repos_under(root)
        if len(found) != 1:
            raise refusal.usage(
                f"panel.root={root} with neither panel.plan nor panel.repos",
                expected=f"a choice among its {len(found)} datasets",
                remedy="give panel.plan=FILE or panel.repos=[owner/name,…]",
            )
    else:
        found = list(repos)
    if len(set(found)) != len(found) or not found:
        raise refusal.usage(
            f"panel.repos={list(found)}", expected="every repo once", remedy="list each one once"
        )
    if (root / "meta" / "info.json").is_file() and len(found) > 1:
        raise refusal.usage(
            f"panel.root={root} is one dataset, and {len(found)} repos are asked for",
            expected="a folder that holds them all",
            remedy="give the folder above owner/name",
        )
    return found


def columns(datasets: Sequence[Dataset], plan: Plan | None) -> Frames:
    """The identity columns of a plan's frames, or of every frame, all core."""
    repo, episode, frame_index, core = _every(datasets) if plan is None else _listed(datasets, plan)
    totals = [int(dataset.episodes.lengths.sum()) for dataset in datasets]
    offsets = np.concatenate([[0], np.cumsum(totals)[:-1]]).astype(np.int64)
    index = offsets[repo] + frame_index
    for place, dataset in enumerate(datasets):
        mine = repo == place
        index[mine] += dataset.episodes.starts[episode[mine]]
    tasks, task = _tasks(datasets, repo, episode, frame_index)
    return Frames(
        repos=tuple(dataset.repo for dataset in datasets),
        tasks=tasks,
        repo=repo,
        task=task,
        episode=episode,
        frame_index=frame_index,
        index=index,
        core=core,
    )


def shown_cameras(dataset: Dataset, names: Sequence[str] | None) -> Mapping[str, Camera]:
    """The cameras of a repo that policies see, in the sorted order of the dataset's keys.

    Raises a guard refusal where the repo lacks one of `names`.
    """
    found = {camera.name: camera for camera in dataset.info.cameras}
    for name in names or ():
        if name not in found:
            raise refusal.guard(
                f"{dataset.repo} has no camera {name}",
                expected=f"one of {', '.join(found) or 'none, it has no cameras'}",
                remedy="name cameras that every repo has, or leave the repo out of the panel",
            )
    return {name: each for name, each in found.items() if names is None or name in names}


def statistics(dataset: Dataset) -> Statistics:
    """A repo's own statistics. A guard refusal where it has none: none are made from frames."""
    if dataset.statistics is None:
        raise refusal.guard(
            f"{dataset.repo} has no mean and std of its states and actions",
            expected="meta/stats.json or meta/episodes_stats.jsonl with both",
            remedy="leave the repo out of the panel, or add its statistics file",
        )
    return dataset.statistics


def check_task(found: str, expected: str, frame: FrameId) -> None:
    """A frame's row names the task that its episode lists. Raises damage."""
    if found != expected:
        raise broken(
            frame.repo,
            f"frame {frame.frame_index} of episode {frame.episode} has the task {found!r:.60}",
            expected=f"{expected!r:.60}, which the episode table lists",
        )


def _every(datasets: Sequence[Dataset]) -> Columns:
    lengths = [dataset.episodes.lengths for dataset in datasets]
    repo = np.repeat(np.arange(len(datasets)), [int(each.sum()) for each in lengths])
    episode = np.concatenate([np.repeat(np.arange(len(each)), each) for each in lengths])
    frame_index = np.concatenate([np.arange(one) for each in lengths for one in each.tolist()])
    return repo, episode, frame_index, np.ones(len(repo), dtype=bool)


def _listed(datasets: Sequence[Dataset], plan: Plan) -> Columns:
    places = {dataset.repo: place for place, dataset in enumerate(datasets)}
    for frame in plan.frames:
        _check_frame(frame, datasets, places)
    repo = np.array([places[frame.repo] for frame in plan.frames], dtype=np.int64)
    episode = np.array([frame.episode for frame in plan.frames], dtype=np.int64)
    frame_index = np.array([frame.frame_index for frame in plan.frames], dtype=np.int64)
    return repo, episode, frame_index, np.arange(len(repo)) < len(plan.core)


def _check_frame(frame: FrameId, datasets: Sequence[Dataset], places: Mapping[str, int]) -> None:
    if frame.repo not in places:
        raise refusal.usage(
            f"the plan lists {frame.repo}",
            expected="the repos of panel.repos alone",
            remedy="add it to panel.repos, or leave panel.repos out",
        )
    lengths = datasets[places[frame.repo]].episodes.lengths
    if frame.episode >= len(lengths) or frame.frame_index >= lengths[frame.episode]:
        raise refusal.usage(
            f"the plan lists {frame.repo} episode {frame.episode} frame {frame.frame_index}",
            expected=f"frames of its {len(lengths)} episodes",
            remedy="choose a plan made for this version of the data",
        )


def _tasks(
    datasets: Sequence[Dataset],
    repo: Int64[np.ndarray, "frame"],
    episode: Int64[np.ndarray, "frame"],
    frame_index: Int64[np.ndarray, "frame"],
) -> tuple[tuple[str, ...], Int64[np.ndarray, "frame"]]:
    """The texts of a panel, and each frame's. Rows are read of episodes with several tasks only."""
    codes: dict[str, int] = {}
    task = np.zeros(len(repo), dtype=np.int64)
    pairs, inverse = np.unique(np.stack([repo, episode]), axis=1, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(inverse.reshape(-1)))[:-1])
    for (place, one), rows in zip(pairs.T.tolist(), groups, strict=True):
        dataset = datasets[place]
        listed = dataset.episodes.tasks[one]
        if len(listed) == 1:
            task[rows] = codes.setdefault(listed[0], len(codes))
        else:
            indices = read_rows(dataset, one).tasks[frame_index[rows]].tolist()
            texts = [dataset.task(index) for index in indices]
            task[rows] = [codes.setdefault(text, len(codes)) for text in texts]
    return tuple(codes), task
