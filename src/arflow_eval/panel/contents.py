"""What several datasets share in one panel, and the digest of what its frames point into."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from arflow_eval import refusal
from arflow_eval.contracts import Frames, Space
from arflow_eval.panel.datasets.cached import file_digest, video_digest
from arflow_eval.panel.datasets.info import Camera
from arflow_eval.panel.datasets.opened import Dataset, data_path, video_path
from arflow_eval.provenance import digest


def check_alike(datasets: Sequence[Dataset], *, names: Sequence[str] | None) -> None:
    """Every repo has the rate, dimensions and names of the first. A guard refusal names the repo.

    With `names`, the datasets' own names do not count, their number does.
    """
    first = _form(datasets[0], names)
    for dataset in datasets:
        for what, value in _form(dataset, names).items():
            if value != first[what]:
                raise refusal.guard(
                    f"{dataset.repo} has {what} {value}",
                    expected=f"{first[what]} as {datasets[0].repo}",
                    remedy="leave the repo out of the panel"
                    + (", or give panel.names=[…] for all" if what.endswith("names") else ""),
                )


def shared_space(dataset: Dataset, *, units: str, names: Sequence[str] | None) -> Space:
    """Names, units and rate of a panel whose repos are alike."""
    state, action = dataset.info.state_names, dataset.info.action_names
    if names is not None:
        for own in (state, action):
            if len(own) != len(names):
                raise refusal.guard(
                    f"panel.names={list(names)} for {len(own)} dimensions of {dataset.repo}",
                    expected="a name for each dimension",
                    remedy=f"give {len(own)} names, or none",
                )
        state = action = tuple(names)
    return Space(
        state_names=state,
        action_names=action,
        state_units=units,
        action_units=units,
        fps=dataset.info.fps,
    )


def panel_digest(
    datasets: Sequence[Dataset],
    frames: Frames,
    cameras: Sequence[Mapping[str, Camera]],
    *,
    space: Space,
    steps: int,
    cache: Path,
) -> str:
    """SHA-256 over the frames and every file they point into; where files lie does not count."""
    columns = [frames.repo, frames.episode, frames.frame_index, frames.index]
    listed = b"".join(column.astype("<i8").tobytes() for column in columns)
    return digest(
        {
            "frames": hashlib.sha256(listed + frames.core.tobytes()).hexdigest(),
            "space": [*map(list, (space.state_names, space.action_names)), space.action_units],
            "steps": steps,
            "repos": [
                [
                    dataset.repo,
                    dataset.digest,
                    list(shown),
                    list(
                        _files(
                            dataset, np.unique(frames.episode[frames.repo == place]), shown, cache
                        )
                    ),
                ]
                for place, (dataset, shown) in enumerate(zip(datasets, cameras, strict=True))
            ],
        }
    )


def _files(
    dataset: Dataset, episodes: np.ndarray, cameras: Mapping[str, Camera], cache: Path
) -> Iterator[str | None]:
    """Digests of the files of some episodes; None of a video that is not there."""
    chosen = episodes.tolist()
    for path in sorted({data_path(dataset, episode) for episode in chosen}):
        yield file_digest(path)
    for camera in cameras.values():
        if camera.video:
            for path in sorted({video_path(dataset, episode, camera) for episode in chosen}):
                yield video_digest(path, cache=cache) if path.is_file() else None


def _form(dataset: Dataset, names: Sequence[str] | None) -> dict[str, object]:
    info = dataset.info
    own = {"state names": info.state_names, "action names": info.action_names}
    return {
        "fps": info.fps,
        "state dimensions": len(info.state_names),
        "action dimensions": len(info.action_names),
        **(own if names is None else {}),
    }
