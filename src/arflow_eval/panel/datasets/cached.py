"""What a dataset's meta folder says, kept as JSON under the digest of the folder's files.

The cache only saves time: what does not fit is read anew, and a folder that cannot be written is
done without. It is never part of what a panel is.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from arflow_eval.contracts import Statistics
from arflow_eval.panel.datasets import statistics as tables
from arflow_eval.panel.datasets.documents import broken
from arflow_eval.panel.datasets.episodes import Episodes, Files

FORMAT: Final = 1  # of a cached file; another is read anew
READ: Final = ("info.json", "stats.json", "*.jsonl", "tasks.parquet", "episodes/*/*.parquet")

Meta = tuple[Episodes, dict[int, str], Statistics | None]


def default_folder() -> Path:
    """The user's cache folder: $XDG_CACHE_HOME or ~/.cache, then arflow_eval."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "arflow_eval"


def meta_digest(folder: Path, *, repo: str) -> str:
    """SHA-256 (hex) over the names and bytes of the meta files that are read."""
    found = sorted({path for pattern in READ for path in (folder / "meta").glob(pattern)})
    if not found:
        raise broken(repo, "no meta/info.json", expected="a LeRobot dataset's folder")
    listed = [[path.relative_to(folder).as_posix(), file_digest(path)] for path in found]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def video_digest(path: Path, *, cache: Path) -> str:
    """SHA-256 (hex) of a large file, kept under its path, size and time of change."""
    state = path.stat()
    identity = f"{path.resolve()}:{state.st_size}:{state.st_mtime_ns}"
    key = f"file-{hashlib.sha256(identity.encode()).hexdigest()}"
    found = load(key, cache=cache)
    if isinstance(found, str) and len(found) == 64:
        return found
    digest = file_digest(path)
    save(key, digest, cache=cache)
    return digest


def meta(digest: str, *, cache: Path, read: Callable[[], Meta]) -> Meta:
    """The cached meta of a digest, or what `read` returns, cached from now on."""
    key = f"meta-{digest}"
    document = load(key, cache=cache)
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        return _from_json(document)
    found = read()
    save(key, _to_json(*found), cache=cache)
    return found


def load(key: str, *, cache: Path) -> Any:
    """A cached value, or None where there is none that can be read."""
    try:
        document = json.loads((cache / f"{key}.json").read_text(encoding="utf-8"))
        return document["value"] if document["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def save(key: str, value: Any, *, cache: Path) -> None:
    """Keep a value whole or not at all."""
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=cache, suffix=".part", delete=False, encoding="utf-8"
        ) as file:
            json.dump({"format": FORMAT, "value": value}, file)
        Path(file.name).replace(cache / f"{key}.json")


def _to_json(
    episodes: Episodes, tasks: dict[int, str], statistics: Statistics | None
) -> dict[str, Any]:
    return {
        "lengths": episodes.lengths.tolist(),
        "tasks": [list(each) for each in episodes.tasks],
        "data": _files_to_json(episodes.data),
        "videos": {key: _files_to_json(files) for key, files in episodes.videos.items()},
        "task_index": list(tasks.items()),
        "statistics": tables.to_json(statistics),
    }


def _files_to_json(files: Files) -> list[Any]:
    return [files.chunk.tolist(), files.file.tolist(), files.begins.tolist()]


def _from_json(document: Any) -> Meta:
    episodes = Episodes(
        lengths=np.array(document["lengths"], np.int64),
        tasks=tuple(tuple(map(str, each)) for each in document["tasks"]),
        data=_files_from_json(document["data"]),
        videos={key: _files_from_json(files) for key, files in document["videos"].items()},
    )
    sizes = {len(files.file) for files in (episodes.data, *episodes.videos.values())}
    if sizes != {len(episodes)} or len(episodes.tasks) != len(episodes):
        raise ValueError("columns of unequal length")
    tasks = {int(index): str(text) for index, text in document["task_index"]}
    return episodes, tasks, tables.from_json(document["statistics"])


def _files_from_json(columns: Any) -> Files:
    chunk, file, begins = columns
    return Files(
        chunk=np.array(chunk, np.int64),
        file=np.array(file, np.int64),
        begins=np.array(begins, np.float64),
    )
