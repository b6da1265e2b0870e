"""The numbers of one dataset as the checks see them, and a fault as they report it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64

from arflow_eval.panel.datasets.opened import Dataset, read_rows

GRIPPER: Final = re.compile(r"grip|claw|finger|jaw", re.IGNORECASE)
VELOCITY: Final = re.compile(
    r"(?:^|[._ -])(?:vel|velocity|speed|effort|torque|current)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Fault:
    """One fault: of which check, in which set, episode and joint, and what was found."""

    check: str
    repo: str
    found: str
    expected: str
    episode: int | None = None
    joint: str | None = None


@dataclass(frozen=True)
class Recording:
    """Rows of some episodes, one after the other, in declared units."""

    repo: str
    units: str
    fps: float
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    states: Float32[np.ndarray, "index state"]
    actions: Float32[np.ndarray, "index action"]
    timestamps: Float64[np.ndarray, "index"]
    episode: Int64[np.ndarray, "index"]

    @property
    def shared(self) -> bool:
        """Whether states and actions have as many dimensions."""
        return len(self.state_names) == len(self.action_names)

    def columns(self) -> Iterator[tuple[str, str, Float64[np.ndarray, "index"]]]:
        """`state` or `action`, the joint's name, its values: of every dimension of both."""
        for kind, names, values in (
            ("state", self.state_names, self.states),
            ("action", self.action_names, self.actions),
        ):
            for place, name in enumerate(names):
                yield kind, name, values[:, place].astype(np.float64)

    def steps(self) -> Int64[np.ndarray, "element"]:
        """Rows whose successor is of the same episode."""
        return np.flatnonzero(np.diff(self.episode) == 0)

    def episodes(self) -> Iterator[tuple[int, slice]]:
        """Each episode and its rows."""
        bounds = [0, *(np.flatnonzero(np.diff(self.episode)) + 1).tolist(), len(self.episode)]
        for first, last in pairwise(bounds):
            if last > first:
                yield int(self.episode[first]), slice(first, last)

    def finite(self) -> "Recording":
        """Without the rows that hold a value that is not finite."""
        both = np.isfinite(self.states).all(axis=1) & np.isfinite(self.actions).all(axis=1)
        if both.all():
            return self
        names = ("states", "actions", "timestamps", "episode")
        return replace(self, **{name: getattr(self, name)[both] for name in names})


def recorded(dataset: Dataset, *, units: str, episodes: Sequence[int] | None = None) -> Recording:
    """The rows of a dataset, of all its episodes or of some."""
    chosen = range(len(dataset.episodes)) if episodes is None else episodes
    rows = [read_rows(dataset, episode) for episode in chosen]
    return Recording(
        repo=dataset.repo,
        units=units,
        fps=dataset.info.fps,
        state_names=dataset.info.state_names,
        action_names=dataset.info.action_names,
        states=np.concatenate([each.states for each in rows]),
        actions=np.concatenate([each.actions for each in rows]),
        timestamps=np.concatenate([each.timestamps for each in rows]),
        episode=np.repeat(np.array(chosen, np.int64), [len(each.states) for each in rows]),
    )


def is_arm(name: str) -> bool:
    """Whether a dimension is a joint's position: no gripper, no velocity."""
    return not GRIPPER.search(name) and not VELOCITY.search(name)
