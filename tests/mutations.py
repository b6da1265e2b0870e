"""Changes of good arms, as guards must notice them: a value, a column, frames, draws, a name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from made_arms import Arms


@dataclass
class Case:
    """A read about to be carried out, which a mutation changes."""

    definition: dict[str, Any]
    arms: Arms
    folder: Path


Change = Callable[[Case], None]


def attribute(role: str, **values: Any) -> Change:
    def change(case: Case) -> None:
        case.arms[role] = case.arms[role].assign_attrs(values)

    return change


def variable(role: str, name: str, *, to: Any, at: Any = 5) -> Change:
    """Values of an array or a column, in one arm."""

    def change(case: Case) -> None:
        case.arms[role] = assigned(case.arms[role], name, to=to, at=at)

    return change


def everywhere(name: str, *, to: Any, at: Any = 5) -> Change:
    """Values of an array or a column, in every arm."""

    def change(case: Case) -> None:
        for role, arm in case.arms.items():
            case.arms[role] = assigned(arm, name, to=to, at=at)

    return change


def assigned(arm: xarray.Dataset, name: str, *, to: Any, at: Any) -> xarray.Dataset:
    """A copy of an arm with other values in places of one array or column."""
    values = arm[name].to_numpy().copy()
    values[at] = to
    held = {name: (arm[name].dims, values)}
    return arm.assign_coords(held) if name in arm.coords else arm.assign(held)


def shifted(role: str, name: str) -> Change:
    """A column of whole numbers, all greater by one."""

    def change(case: Case) -> None:
        values = case.arms[role][name].to_numpy() + 1
        case.arms[role] = case.arms[role].assign_coords({name: ("frame", values)})

    return change


def without(name: str, *roles: str) -> Change:
    """Some arms, by default all, that lack an array."""

    def change(case: Case) -> None:
        for role in roles or tuple(case.arms):
            case.arms[role] = case.arms[role].drop_vars(name)

    return change


def frames(chosen: Any, *roles: str) -> Change:
    """Some arms, by default all, that hold other frames."""

    def change(case: Case) -> None:
        for role in roles or tuple(case.arms):
            case.arms[role] = case.arms[role].isel(frame=chosen)

    return change


def twice(role: str) -> Change:
    """The first frame in the place of the second."""

    def change(case: Case) -> None:
        frames([0, 0, *range(2, case.arms[role].sizes["frame"])], role)(case)

    return change


def draws(role: str, chosen: Any, **values: Any) -> Change:
    """An arm that holds other draws, and says so."""

    def change(case: Case) -> None:
        case.arms[role] = case.arms[role].isel(draw=chosen).assign_attrs(values)

    return change


def renamed(name: str, *, rows: list[int]) -> Change:
    """Frames that come to belong to another repo, in every arm."""

    def change(case: Case) -> None:
        everywhere("repo_name", to=name, at=rows)(case)
        everywhere("episode", to=np.array(rows) + 1000, at=rows)(case)

    return change


def unwritten(role: str) -> Change:
    def change(case: Case) -> None:
        marks = np.arange(case.arms[role].sizes["frame"]) > 6
        arm = case.arms[role].assign_attrs(complete=False)
        case.arms[role] = arm.assign_coords(written=("frame", marks))

    return change


def setting(name: str, value: Any) -> Change:
    def change(case: Case) -> None:
        case.definition[name] = value

    return change


def pinned(guard: str, **values: Any) -> Change:
    """Another registered value than the arms have."""

    def change(case: Case) -> None:
        case.definition["guards"][guard] |= values

    return change


def also(*changes: Change) -> Change:
    def change(case: Case) -> None:
        for each in changes:
            each(case)

    return change


def imported(role: str, *, off: float = 0) -> Change:
    """The arm as it is imported: its published mean lies beside the store, `off` on one frame."""

    def change(case: Case) -> None:
        stack = case.arms[role]["prediction"].to_numpy()
        mean = stack.astype(np.float64).mean(axis=1).astype(np.float32)
        mean[7, 0, 0] += off
        folder = case.folder / f"imported-{role}"
        folder.mkdir()
        np.save(folder / "pooled.npy", mean)
        origin = {"pooled_digest": "a" * 64}
        case.arms[role] = case.arms[role].assign_attrs(published=origin)
        case.arms[role].encoding["source"] = str(folder / "predictions.zarr")

    return change


def beside(role: str, spoil: Callable[[Path], Any]) -> Change:
    """An imported arm whose published mean was lost or changed."""

    def change(case: Case) -> None:
        imported(role)(case)
        spoil(case.folder / f"imported-{role}" / "pooled.npy")

    return change


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def of_one_frame(path: Path) -> None:
    np.save(path, np.load(path)[:1])
