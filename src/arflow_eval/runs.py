"""Where runs lie: the run that a path names, or the runs below a folder."""

import os
from pathlib import Path
from typing import Final

from arflow_eval import refusal

STORE: Final = "predictions.zarr"


def run_folder(path: Path) -> Path:
    """The run folder of a path that may name the store in it."""
    return path.parent if path.name == STORE else path


def is_run(folder: Path) -> bool:
    """Whether a folder holds a store, readable or not."""
    return (folder / STORE).is_dir()


def run_folders(path: Path) -> list[Path]:
    """The run that a path names, or all runs below it, by name."""
    path = run_folder(path)
    if is_run(path):
        return [path]
    found: list[Path] = []
    for folder, names, _ in os.walk(path):
        runs = sorted(name for name in names if is_run(Path(folder, name)))
        found += [Path(folder, name) for name in runs]
        names[:] = sorted(set(names) - set(runs))  # a run holds no runs
    if not found:
        others = {other.name for other in path.parent.glob("*/")} - {path.name}
        close = refusal.nearest(path.name, others)
        raise refusal.usage(
            f"{path} is no run and holds none",
            expected=f"a run folder, its {STORE} or a folder of runs",
            remedy=f"did you mean {path.parent / close}?" if close else "run evaluate first",
        )
    return found
