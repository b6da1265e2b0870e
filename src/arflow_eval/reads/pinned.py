"""Guards of what a registration pins of its data: panel, splits, exclusions, scores, horizons.

They count on the whole panel, before a read masks any row. `null` pins nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from jaxtyping import Float32

from arflow_eval import refusal
from arflow_eval.reads.guards import BLOCK
from arflow_eval.reads.pairing import Arms
from arflow_eval.reads.repos import Listed, counted, named
from arflow_eval.stats.scoring import arm_errors
from arflow_eval.values import choice


def panel(arms: Arms, *, one_of: Sequence[Mapping[str, int | str | None]] | None) -> None:
    """Every arm's frames are one registered panel's: its rows, core rows, repos and digest.

    `one_of` has the panels that may be read, such as a whole one and its frozen quarter; what is
    null of one may be anything, and null for all of them is any panel.
    """
    for role, arm in arms.items():
        found = _counts(arm)
        for pins in one_of or ():
            for name in pins:
                choice(name, key="read.guards.panel.one_of", known=tuple(found))
        if one_of and not any(_holds(pins, found) for pins in one_of):
            raise refusal.guard(
                f"the {role} arm's panel has the {_listed(found)}",
                expected=f"the registered {' or '.join(map(_listed, one_of))}",
                remedy="evaluate the arm on the registered panel; a study on another one sets"
                " read.guards.panel.one_of to its counts",
            )


def contamination(
    arms: Arms,
    *,
    of: Listed,
    repos: int | None,
    frames: int | None,
    core: int | None,
    clean_core: int | None,
) -> None:
    """The listed repos have as many frames in the panel as registered: no silent other split."""
    arm = next(iter(arms.values()))
    found = counted(arm, named(of))
    found["clean core_frames"] = int(arm["core"].sum()) - found["core_frames"]
    wanted = {
        "repos": repos,
        "frames": frames,
        "core_frames": core,
        "clean core_frames": clean_core,
    }
    _check_counts("the contaminated split", found, wanted, remedy="use the registered list")


def exclusion(arms: Arms, *, of: Listed, frames: int | None, core: int | None) -> None:
    """Every excluded repo is in the panel, and together they have their registered frames."""
    arm, names = next(iter(arms.values())), named(of)
    known = set(arm["repo_name"].to_numpy().tolist())
    for name in names:
        if name not in known:
            close = refusal.nearest(name, known)
            raise refusal.guard(
                f"no frame of the panel is of the excluded repo {name}",
                expected="repos of the panel",
                remedy=f"did you mean {close}?" if close else "drop it from read.excluded",
            )
    wanted = {"frames": frames, "core_frames": core}
    _check_counts("the exclusion", counted(arm, names), wanted, remedy="use the registered list")


def full_chunk(arms: Arms, *, of: Mapping[str, float | None], tolerance: float) -> None:
    """Each role's arm reproduces its banked chunk MAE over its whole horizon."""
    for role, wanted in of.items():
        if wanted is None:
            continue
        arm = arms[role]
        errors = arm_errors(arm, arm["core"].to_numpy(), window=int(arm.attrs["horizon"]))
        if not abs(errors.chunk_mae - wanted) < tolerance:
            raise refusal.guard(
                f"the {role} arm's whole chunk has the MAE {errors.chunk_mae:.4f}",
                expected=f"its banked {wanted:.4f}, to {tolerance:g}",
                remedy="give the arm that the number was banked for",
            )


def fills_exactly(arms: Arms, *, role: str, steps: int) -> None:
    """An arm's predictions are finite in the leading steps of every frame, and NaN after them."""
    arm = arms[role]
    inside = after = 0
    for start in range(0, arm.sizes["frame"], BLOCK):
        prediction = _block(arm, start)
        inside += int((~np.isfinite(prediction[:, :, :steps])).any(axis=(1, 2, 3)).sum())
        after += int((~np.isnan(prediction[:, :, steps:])).any(axis=(1, 2, 3)).sum())
    for frames, fault in ((inside, "not finite within"), (after, "not NaN after")):
        if frames:
            raise refusal.guard(
                f"the {role} arm's prediction is {fault} {steps} steps on {frames:,} frames",
                expected=f"exactly {steps} predicted steps a frame",
                remedy="evaluate the arm with its own horizon",
            )


def _block(arm: xarray.Dataset, start: int) -> Float32[np.ndarray, "frame draw step action"]:
    chunks: Float32[np.ndarray, "frame draw step action"] = (
        arm["prediction"].isel(frame=slice(start, start + BLOCK)).to_numpy()
    )
    return chunks


def _check_counts(
    what: str, found: Mapping[str, int], wanted: Mapping[str, int | None], *, remedy: str
) -> None:
    for name, count in wanted.items():
        if count is not None and found[name] != count:
            raise refusal.guard(
                f"{what} has {found[name]:,} {name.replace('_', ' ')}",
                expected=f"the registered {count:,}",
                remedy=remedy,
            )


def _counts(arm: xarray.Dataset) -> dict[str, int | str]:
    return {
        "rows": arm.sizes["frame"],
        "core": int(arm["core"].sum()),
        "repos": len(np.unique(arm["repo_name"].to_numpy())),
        "digest": str(arm.attrs.get("panel_digest")),
    }


def _holds(pins: Mapping[str, int | str | None], found: Mapping[str, int | str]) -> bool:
    return all(wanted is None or found[name] == wanted for name, wanted in pins.items())


def _listed(pins: Mapping[str, int | str | None]) -> str:
    said = (
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in pins.items()
        if value is not None
    )
    return ", ".join(said)
