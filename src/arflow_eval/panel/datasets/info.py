"""What meta/info.json says of a dataset: version, rate, joints, cameras, and where files lie."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from arflow_eval.panel.datasets.documents import (
    broken,
    listed,
    number,
    read_object,
    shown,
    text,
    whole,
)

VERSIONS: Final = ("v2.0", "v2.1", "v3.0")
STATE: Final = "observation.state"
ACTION: Final = "action"
IMAGES: Final = "observation.images."
WIDEST: Final = 1024  # dimensions of a state or an action
FIELD: Final = re.compile(r"\{([a-z_]+)(?::0?([0-9]))?d?\}")


@dataclass(frozen=True)
class Camera:
    """One camera: its feature's key, the name policies know it by, and how it is kept."""

    key: str
    name: str
    video: bool
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Info:
    """meta/info.json, checked. `cameras` are in the sorted order of their keys."""

    repo: str
    version: str
    fps: float
    episodes: int
    frames: int
    chunk: int
    data_path: str
    video_path: str | None
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    cameras: tuple[Camera, ...]
    columns: frozenset[str]

    @property
    def many_a_file(self) -> bool:
        """Whether a file holds several episodes (version 3)."""
        return self.version == "v3.0"


def read_info(folder: Path, *, repo: str) -> Info:
    """The checked meta/info.json of a dataset folder."""
    document = read_object(folder / "meta" / "info.json", repo=repo)
    features = document.get("features")
    if not isinstance(features, dict):
        raise broken(repo, "info.json has no features", expected="an object of features")
    video_path = document.get("video_path")
    return Info(
        repo=repo,
        version=_version(document.get("codebase_version"), repo=repo),
        fps=number(document.get("fps"), name="fps", repo=repo, least=1e-3, most=1e5),
        episodes=whole(document.get("total_episodes"), name="total_episodes", repo=repo),
        frames=whole(document.get("total_frames"), name="total_frames", repo=repo),
        chunk=whole(document.get("chunks_size", 1000), name="chunks_size", repo=repo, least=1),
        data_path=text(document.get("data_path"), name="data_path", repo=repo),
        video_path=None if video_path is None else text(video_path, name="video_path", repo=repo),
        state_names=_names(features, STATE, repo=repo),
        action_names=_names(features, ACTION, repo=repo),
        cameras=_cameras(features, repo=repo),
        columns=frozenset(features),
    )


def place(template: str, fields: Mapping[str, Any], *, repo: str) -> str:
    """A path template of info.json with its fields filled, relative and inside the root.

    Only `{name}` and `{name:03d}` are fields. Raises damage at any other brace, at an absolute
    path and at one that leaves the root.
    """

    def fill(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in fields:
            raise broken(repo, f"path {shown(template)}", expected=f"fields {', '.join(fields)}")
        value = fields[name]
        return str(value).zfill(int(width or 0)) if isinstance(value, int) else str(value)

    filled = FIELD.sub(fill, template)
    path = PurePosixPath(filled)
    unsafe = path.is_absolute() or ".." in path.parts or re.search(r"[{}\\\0:*?\[\]]", filled)
    if unsafe or not path.parts:
        raise broken(repo, f"path {shown(filled)}", expected="a path inside the dataset's folder")
    return path.as_posix()


def _version(value: Any, *, repo: str) -> str:
    version = f"v{value}" if isinstance(value, str) and value[:1].isdigit() else value
    if version not in VERSIONS:
        raise broken(
            repo,
            f"codebase_version is {shown(value)}",
            expected=f"one of {', '.join(VERSIONS)}",
        )
    return str(version)


def _names(features: Mapping[str, Any], key: str, *, repo: str) -> tuple[str, ...]:
    """The names of a vector's dimensions; `state_0`, … where the dataset gives none."""
    shape = _shape(features, key, repo=repo)
    if len(shape) != 1:
        raise broken(repo, f"{key} has the shape {shape}", expected="a vector")
    names = features[key].get("names")
    if isinstance(names, dict) and len(names) == 1:
        (names,) = names.values()
    if names is None:
        return tuple(f"{key.rpartition('.')[2]}_{place}" for place in range(shape[0]))
    found = tuple(text(name, name=f"names of {key}", repo=repo) for name in _flat(names))
    if len(found) != shape[0]:
        raise broken(repo, f"{key} has {len(found)} names", expected=f"{shape[0]}, its dimensions")
    return found


def _flat(names: Any) -> list[Any]:
    return list(names) if isinstance(names, (list, dict)) else [names]


def _shape(features: Mapping[str, Any], key: str, *, repo: str) -> tuple[int, ...]:
    feature = features.get(key)
    if not isinstance(feature, dict):
        raise broken(repo, f"no feature {key}", expected="observation.state and action")
    sizes = listed(feature.get("shape"), name=f"shape of {key}", repo=repo)
    most = 1 << 16 if key.startswith("observation.image") else WIDEST
    return tuple(
        whole(size, name=f"shape of {key}", repo=repo, least=1, most=most) for size in sizes
    )


def _cameras(features: Mapping[str, Any], *, repo: str) -> tuple[Camera, ...]:
    found = []
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, dict) and feature.get("dtype") in ("video", "image"):
            sizes = listed(feature.get("shape"), name=f"shape of {key}", repo=repo)
            shape = tuple(
                whole(size, name=f"shape of {key}", repo=repo, least=1, most=1 << 16)
                for size in sizes
            )
            name = key.removeprefix(IMAGES)
            found.append(Camera(key, name, video=feature["dtype"] == "video", shape=shape))
    return tuple(found)
