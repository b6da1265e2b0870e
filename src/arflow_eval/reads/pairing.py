"""Which frames an arm has, in which order, and how two arms are laid side by side."""

from collections.abc import Collection, Mapping

import numpy as np
import xarray
from jaxtyping import Int64

from arflow_eval import refusal

Arms = Mapping[str, xarray.Dataset]  # by role, in the order of the read's definition


Identity = tuple[str, int, int]  # of a `FrameId`, which is slower to make


def identities(arm: xarray.Dataset) -> list[Identity]:
    """Repo, episode and frame index of every frame of an arm, in its present order."""
    repo, episode, frame_index = (
        arm[name].to_numpy().tolist() for name in ("repo_name", "episode", "frame_index")
    )
    return list(zip(repo, episode, frame_index, strict=True))


def in_panel_order(arms: Arms) -> dict[str, xarray.Dataset]:
    """The arms with frame i of each being one and the same frame.

    The first arm is sorted by `panel_row` and the others follow its identities, so that the
    order a store was written in moves no bit of a result. The arms hold the same frames, each
    once (`guards.no_duplicates`, `guards.same_frames`).
    """
    first, *others = arms
    ordered = {first: _reordered(arms[first], np.argsort(arms[first]["panel_row"].to_numpy()))}
    wanted = identities(ordered[first])
    for role in others:
        row = {identity: number for number, identity in enumerate(identities(arms[role]))}
        order = np.array([row[identity] for identity in wanted], dtype=np.int64)
        ordered[role] = _reordered(arms[role], order)
    return ordered


def cut_to_subset(
    arms: Arms, *, only: Collection[str] | None = None
) -> tuple[dict[str, xarray.Dataset], bool]:
    """The arms cut to the frames of the smallest, where those are a strict subset of every other.

    Order, core frames and panel are those of the smallest arm. Else the arms are as they were,
    and `guards.same_frames` has the last word, as `guards.no_duplicates` has where a frame
    stands twice. Also returns whether anything was cut.

    Raises:
        Refusal: a guard, where an arm outside `only`, the roles that may be cut, would have to be.
    """
    smallest = min(arms, key=lambda role: arms[role].sizes["frame"])
    wanted = identities(arms[smallest])
    rows = {role: {each: row for row, each in enumerate(identities(arms[role]))} for role in arms}
    kept = set(wanted)
    once = all(len(rows[role]) == arms[role].sizes["frame"] for role in arms)
    if not once or not all(kept <= rows[role].keys() for role in arms):
        return dict(arms), False
    _check_cut(arms, smallest, only=arms if only is None else only)
    cut = {role: np.array([found[each] for each in wanted]) for role, found in rows.items()}
    given = {name: arms[smallest][name].to_numpy() for name in ("core", "panel_row")}
    columns = {name: ("frame", values) for name, values in given.items()}
    panel = {"panel_digest": arms[smallest].attrs.get("panel_digest")}
    joined = {
        role: arm
        if arm.sizes["frame"] == len(wanted)
        else arm.isel(frame=cut[role]).assign_coords(columns).assign_attrs(panel)
        for role, arm in arms.items()
    }
    return joined, any(arm.sizes["frame"] > len(wanted) for arm in arms.values())


def _check_cut(arms: Arms, smallest: str, *, only: Collection[str]) -> None:
    rows = arms[smallest].sizes["frame"]
    for role, arm in arms.items():
        if arm.sizes["frame"] > rows and role not in only:
            raise refusal.guard(
                f"the {role} arm holds {arm.sizes['frame']:,} frames and the {smallest} arm"
                f" {rows:,}",
                expected=f"the same rows in both; only {' and '.join(only)} may hold more",
                remedy=f"evaluate {role} on the panel of {smallest}",
            )


def draws_behind(arm: xarray.Dataset) -> int:
    """Draws a frame behind an arm: those it holds, or those that its one pooled chunk is of.

    A published file may hold the mean of its draws alone, which an imported store says.
    """
    pooled = bool(arm.attrs.get("pooled"))
    return int(arm.attrs["sample_draws"]) if pooled else int(arm.sizes["draw"])


def common_steps(arms: Arms) -> int:
    """The leading steps that every arm has stored."""
    return min(arm.sizes["step"] for arm in arms.values())


def horizons(arms: Arms) -> dict[str, int]:
    """Each role's horizon: the leading steps that its policy predicts."""
    return {role: int(arm.attrs["horizon"]) for role, arm in arms.items()}


def longest_window(arms: Arms) -> int:
    """The leading steps that every arm predicts and has stored."""
    return min(common_steps(arms), *horizons(arms).values())


def _reordered(arm: xarray.Dataset, order: Int64[np.ndarray, "frame"]) -> xarray.Dataset:
    if np.array_equal(order, np.arange(len(order))):
        return arm  # and stays a lazily read store, block by block
    return arm.isel(frame=order)
