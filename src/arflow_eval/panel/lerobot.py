"""Panels of LeRobot datasets: frames of a plan, or every frame of some repos.

The corpus is the repos one after the other, as `panel.repos` lists them or in the order of their
names; a frame's `index` is its place in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from arflow_eval.contracts import (
    FrameId,
    Frames,
    Images,
    Observation,
    Panel,
    Space,
    Statistics,
    Targets,
)
from arflow_eval.panel import corpus
from arflow_eval.panel.contents import check_alike, panel_digest, shared_space
from arflow_eval.panel.datasets import cached
from arflow_eval.panel.datasets.episodes import check_counts
from arflow_eval.panel.datasets.info import Camera
from arflow_eval.panel.datasets.opened import Dataset, Rows, open_dataset, read_image, read_rows
from arflow_eval.panel.plan import read_plan

KEPT: Final = 64  # episodes whose states and actions stay in memory


@dataclass(frozen=True)
class Pictures:
    """The cameras of one frame; an image is decoded each time it is asked for, and not before."""

    dataset: Dataset
    frame: FrameId
    timestamp: float
    cameras: Mapping[str, Camera]

    def __getitem__(self, camera: str, /) -> UInt8[np.ndarray, "height width colour"]:
        return read_image(
            self.dataset,
            self.frame.episode,
            self.cameras[camera],
            frame_index=self.frame.frame_index,
            timestamp=self.timestamp,
        )

    def __contains__(self, camera: object, /) -> bool:
        return camera in self.cameras

    def __iter__(self) -> Iterator[str]:
        return iter(self.cameras)

    def __len__(self) -> int:
        return len(self.cameras)


@dataclass(frozen=True)
class LeRobot:
    """Frames over opened datasets. Rows are read an episode at a time, images one at a time."""

    name: str
    digest: str
    frames: Frames
    space: Space
    steps: int
    datasets: tuple[Dataset, ...]
    statistics: tuple[Statistics, ...]
    cameras: tuple[Mapping[str, Camera], ...]
    rows: Callable[[int, int], Rows]

    def observe(self, row: int) -> Observation:
        """The episode up to a panel row's frame, its images not decoded yet."""
        (frame,) = self.frames.ids([row])
        place = int(self.frames.repo[row])
        rows = self.rows(place, frame.episode)
        present = frame.frame_index
        task = self.datasets[place].task(int(rows.tasks[present]))
        corpus.check_task(task, self.frames.tasks[int(self.frames.task[row])], frame)
        return Observation(
            frame=frame,
            index=int(self.frames.index[row]),
            task=task,
            states=rows.states[: present + 1],
            actions=rows.actions[:present],
            statistics=self.statistics[place],
            images=self._images(place, frame, float(rows.timestamps[present])),
        )

    def targets(self, rows: Sequence[int]) -> Targets:
        """Recorded chunks; steps past the episode's end repeat its last action, invalid."""
        chunks = [self._chunk(row) for row in rows]
        return Targets(
            truth=np.stack([truth for truth, _ in chunks]),
            valid=np.stack([valid for _, valid in chunks]),
        )

    def _chunk(
        self, row: int
    ) -> tuple[Float32[np.ndarray, "step action"], Bool[np.ndarray, "step"]]:
        episode = int(self.frames.episode[row])
        actions = self.rows(int(self.frames.repo[row]), episode).actions
        steps = int(self.frames.frame_index[row]) + np.arange(self.steps)
        return actions[np.minimum(steps, len(actions) - 1)], steps < len(actions)

    def _images(self, place: int, frame: FrameId, timestamp: float) -> Images:
        return Pictures(self.datasets[place], frame, timestamp, self.cameras[place])


def lerobot(
    *,
    name: str,
    plan: str | None,
    digest: str | None,
    steps: int,
    root: str | None,
    repos: Sequence[str] | None,
    units: str,
    cameras: Sequence[str] | None,
    names: Sequence[str] | None,
    cache: str | None,
) -> Panel:
    """The frames of a plan file, or every frame of `repos` (by default of the one under `root`).

    `units` are those of states and actions; `names`, if given, stand in for the datasets' own
    names of their dimensions; `cameras`, if given, are the only ones a policy sees.
    """
    folder = corpus.root_folder(root)
    listed = None if plan is None else read_plan(Path(plan).expanduser(), digest=digest)
    chosen = corpus.repos_of(folder, repos, listed)
    kept = cached.default_folder() if cache is None else Path(cache).expanduser()
    datasets = tuple(open_dataset(folder, repo, cache=kept) for repo in chosen)
    for dataset in datasets:
        check_counts(dataset.info, dataset.episodes)
    check_alike(datasets, names=names)
    frames = corpus.columns(datasets, listed)
    shown = tuple(corpus.shown_cameras(dataset, cameras) for dataset in datasets)
    space = shared_space(datasets[0], units=units, names=names)
    return LeRobot(
        name=name,
        digest=panel_digest(datasets, frames, shown, space=space, steps=steps, cache=kept),
        frames=frames,
        space=space,
        steps=steps,
        datasets=datasets,
        statistics=tuple(corpus.statistics(dataset) for dataset in datasets),
        cameras=shown,
        rows=lru_cache(maxsize=KEPT)(lambda place, episode: read_rows(datasets[place], episode)),
    )
