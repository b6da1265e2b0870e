"""Lists of repos that a read states, and which frames of an arm are theirs.

A repo is listed by its name or by the SHA-256 (hex) of its name, so that a list can be shipped
without names.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import xarray
from jaxtyping import Bool

from arflow_eval import refusal

Listed = Sequence[str] | str  # names, or the path of a JSON list of them


def named(source: Listed) -> list[str]:
    """The entries of a list of repos, or of the JSON file that holds one, each once and sorted.

    Raises:
        Refusal: there is no such file, or what it holds is no list of names (usage).
    """
    names: object = list(source) if not isinstance(source, str) else _loaded(source)
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise refusal.usage(
            f"{source if isinstance(source, str) else names} is no list of repos",
            expected="names of repos or their SHA-256, or a JSON file with a list of them",
            remedy='give for example ["owner/one", "owner/two"]',
        )
    return sorted(set(names))


def frames_of(arm: xarray.Dataset, names: Collection[str]) -> Bool[np.ndarray, "frame"]:
    """Which frames of an arm are of the listed repos."""
    repos, code = np.unique(arm["repo_name"].to_numpy(), return_inverse=True)
    listed = set(names)
    theirs = [not listed.isdisjoint((str(repo), _digest(str(repo)))) for repo in repos]
    chosen: Bool[np.ndarray, "frame"] = np.array(theirs, dtype=bool)[code]
    return chosen


def counted(arm: xarray.Dataset, names: Collection[str]) -> dict[str, int]:
    """How many repos, frames and core frames of an arm's panel the named repos have."""
    chosen = frames_of(arm, names)
    return {
        "repos": len(np.unique(arm["repo_name"].to_numpy()[chosen])),
        "frames": int(chosen.sum()),
        "core_frames": int((chosen & arm["core"].to_numpy()).sum()),
    }


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _loaded(path: str) -> object:
    try:
        found: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refusal.usage(
            f"cannot read the list of repos {path}",
            expected="a JSON file with a list of names",
            remedy="check the path",
        ) from error
    return found
