"""Where registrations and the stores of their arms lie. Stores are known by what they say."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.values import plain_name

ENVIRONMENT: Final = "ARFLOW_EVAL_EXPERIMENTS"
DEPTHS: Final = ("predictions.zarr", "*/predictions.zarr", "*/*/predictions.zarr")


def experiments(root: str | None) -> Path:
    """The folder of registrations: given, of the environment, or the nearest `experiments`."""
    given = root or os.environ.get(ENVIRONMENT)
    if given:
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise refusal.usage(
                f"no folder {given}", expected="a folder of registrations", remedy="check the path"
            )
        return folder
    here = Path.cwd()
    near = (folder / "experiments" for folder in (here, *here.parents))
    found = next((folder for folder in near if folder.is_dir()), None)
    if found is None:
        raise refusal.usage(
            "no folder experiments here or above",
            expected="a folder of registrations",
            remedy=f"set experiments.root, or {ENVIRONMENT}",
        )
    return found


def experiment(name: str, *, root: str | None) -> Path:
    """The folder of one registration, by its name."""
    above = experiments(root)
    folder = above / plain_name(name, key="experiment")
    if not folder.is_dir():
        known = sorted(other.parent.name for other in above.glob("*/plan.yaml"))
        close = refusal.nearest(name, known)
        raise refusal.usage(
            f"no registration {name} below {above.name}",
            expected=f"one of {', '.join(known)}" if known else "a folder with a plan.yaml",
            remedy=f"did you mean {close}?" if close else "check the name",
        )
    return folder


@dataclass(frozen=True)
class Found:
    """A store and what it says of itself."""

    path: Path
    attributes: Mapping[str, Any]

    @property
    def stamp(self) -> Mapping[str, Any]:
        """Which registration's arm it is; empty where it is none's."""
        return self.attributes.get("registration") or {}


def stores(root: Path) -> Iterator[Found]:
    """Every store below a folder, whatever the folders above it are called."""
    for pattern in DEPTHS:
        for path in sorted(root.glob(pattern)):
            try:
                attributes = json.loads((path / "zarr.json").read_text())["attributes"]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # no store, or one whose metadata is gone: it cannot be told whose it was
            if isinstance(attributes, dict):
                yield Found(path, attributes)
