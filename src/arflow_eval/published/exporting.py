"""From finished stores of the same frames to one published file, and to a draws file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xarray

from arflow_eval import refusal
from arflow_eval.published.arrays import Run, draws_of, predictions_of
from arflow_eval.published.keys import key_of
from arflow_eval.published.names import BASELINES, Name
from arflow_eval.published.writing import check_new, write_npz
from arflow_eval.reads import guards
from arflow_eval.reads.pairing import in_panel_order
from arflow_eval.store import open_run

BEFORE: Final = (guards.complete, guards.same_space, guards.no_duplicates, guards.same_frames)
AFTER: Final = (guards.same_truth, guards.same_baselines)


@dataclass(frozen=True)
class Exported:
    """What an export wrote: the files, the keys of the predictions, and the number of frames."""

    files: tuple[Path, ...]
    keys: tuple[str, ...]
    frames: int


def export_npz(
    runs: Sequence[Path], out: Path, *, draws: Path | None = None, arm: str | None = None
) -> Exported:
    """Export finished stores of the same frames to one npz, in the frame order of the first.

    A store that was imported gives back the arrays it came from, bit for bit. Another gives the
    mean of its draws that did not fail, in float32.

    Args:
        runs: run folders, or the stores in them.
        out: the npz, a new file.
        draws: a new file for the draws of the one store that has several, or of the only store.
        arm: the key of the only store, in place of the one its arm name gives.

    Raises:
        Refusal: usage, for a file that exists, keys that are no `pred:NAME@TAG…` or stand twice;
            a guard, for stores that do not hold the same frames, truth and baselines.
    """
    for path in [out, *([draws] if draws else [])]:
        check_new(path)
    opened = _opened(runs, arm=arm)
    files = {out: predictions_of(opened)}
    if draws is not None:
        files[draws] = draws_of(_drawn(opened))
    for path, members in files.items():
        write_npz(path, members)
    keys = tuple(run.name.key for run in opened)
    return Exported(tuple(files), keys, int(opened[0].data.sizes["frame"]))


def _opened(runs: Sequence[Path], *, arm: str | None) -> list[Run]:
    if arm is not None and len(runs) > 1:
        raise refusal.usage(
            f"--arm {arm} for {len(runs)} stores",
            expected="one store, whose key it is",
            remedy="export the others apart, or leave --arm out",
        )
    found = {str(path): open_run(path) for path in runs}
    names = {path: key_of(found[path].attrs, arm, path=path) for path in found}
    for path, data in found.items():
        _check_draws(names[path], data, path=path)
    keys = [name.key for name in names.values()]
    if len(set(keys)) < len(runs):
        raise refusal.usage(
            f"{len(runs)} stores with the keys {', '.join(keys)}",
            expected="another key for each",
            remedy="name each store once, and export arms of one name apart",
        )
    for guard in BEFORE:
        guard(found, None)
    ordered = in_panel_order(found)
    _check_alike(ordered)
    for guard in AFTER:
        guard(ordered, None)
    return [Run(_folder(Path(path)), ordered[path], names[path]) for path in found]


def _check_draws(name: Name, data: xarray.Dataset, *, path: str) -> None:
    """A mean of draws never passes as one read, nor one read as a mean."""
    draws = int(data.attrs.get("sample_draws", data.sizes["draw"]))
    if draws != (name.draws or 1):
        raise refusal.guard(
            f"{path} holds {draws} draws a frame, its key would be {name.key}",
            expected=f"a key with _draws{draws}" if draws > 1 else "a key without _drawsN",
            remedy="give a key that says so with --arm",
        )


def _check_alike(found: Mapping[str, xarray.Dataset]) -> None:
    first, *others = found
    for path, data in found.items():
        lacking = sorted(BASELINES.keys() - set(data.variables))
        if lacking:
            reason = data.attrs.get("state_copy_absent") or "its store has none"
            raise refusal.guard(
                f"{path} has no {' and no '.join(lacking)} ({reason})",
                expected="both baselines, which a published file holds",
                remedy="export a run whose states and actions have the same units",
            )
    for path in others:
        same = found[path].sizes["step"] == found[first].sizes["step"] and all(
            np.array_equal(found[path][name], found[first][name]) for name in ("index", "core")
        )
        if not same:
            raise refusal.guard(
                f"{path} and {first} differ in steps, index or core frames",
                expected="one panel behind all of them",
                remedy="export them apart",
            )


def _folder(path: Path) -> Path:
    return path if (path / "predictions.zarr").is_dir() else path.parent


def _drawn(runs: Sequence[Run]) -> Run:
    """The run whose draws are asked for."""
    several = [run for run in runs if run.draws > 1] or (list(runs) if len(runs) == 1 else [])
    if len(several) != 1:
        raise refusal.usage(
            f"{len(several)} of {len(runs)} stores have more than one draw",
            expected="one, whose draws the file holds",
            remedy="export each with its draws apart",
        )
    (run,) = several
    if run.origin and "draws" not in run.origin["scalars"]:
        raise refusal.guard(
            f"{run.folder} was imported without its draws",
            expected="a store that holds them",
            remedy="import the predictions again with --draws, into another folder",
        )
    return run
