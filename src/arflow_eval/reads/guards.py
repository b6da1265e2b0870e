"""Preconditions of a read. Each is one function: it returns None, or refuses with exit code 3.

A guard takes the arms by role and the window asked for (None: the arms' common horizon).
`BEFORE_PAIRING` run on the stores as they are, `AFTER_PAIRING` on arms in panel order, where
frame i is the same frame in every arm. `needed` picks those that a read runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import xarray
from jaxtyping import Bool, Shaped

from arflow_eval import refusal
from arflow_eval.reads.pairing import (
    Arms,
    Identity,
    common_steps,
    horizons,
    identities,
    longest_window,
)

Guard = Callable[[Arms, int | None], None]
BLOCK: Final = 1_024  # frames compared at once: several chunks, which are read together
BASELINES: Final = ("state_copy", "state_copy_norm")
SPACE: Final = ("action_names", "action_units", "fps")
ONE_PANEL: Final = "evaluate both arms on one panel"


def complete(arms: Arms, window: int | None) -> None:
    """Every arm's store is finished."""
    del window
    for role, arm in arms.items():
        if arm.attrs.get("complete") is not True:
            written = arm["written"].to_numpy() if "written" in arm else np.zeros(0, dtype=bool)
            missing = f", {(~written).sum():,} of {len(written):,} frames unwritten"
            raise refusal.guard(
                f"the {role} arm is not marked complete{missing if len(written) else ''}",
                expected="a finished store",
                remedy="rerun the same evaluate command, it resumes",
            )


def same_space(arms: Arms, window: int | None) -> None:
    """The arms' actions have the same names, units and rate."""
    del window
    for first, other in _pairs(arms):
        for key in SPACE:
            left, right = (_plain(arms[role].attrs.get(key)) for role in (first, other))
            if left != right:
                raise refusal.guard(
                    f"{key} is {left!r} in the {first} arm and {right!r} in the {other} arm",
                    expected="the same actions in the same units at the same rate",
                    remedy=ONE_PANEL,
                )


def no_duplicates(arms: Arms, window: int | None) -> None:
    """No arm holds a frame (repo, episode, frame index) twice."""
    del window
    for role, arm in arms.items():
        twice = [frame for frame, times in Counter(identities(arm)).items() if times > 1]
        if twice:
            raise refusal.guard(
                f"the {role} arm holds {len(twice):,} frames more than once, {_named(twice)}",
                expected="every frame once",
                remedy="remove the duplicates from the panel and evaluate again",
            )


def same_frames(arms: Arms, window: int | None) -> None:
    """The arms hold exactly the same frames."""
    del window
    for first, other in _pairs(arms):
        left, right = set(identities(arms[first])), set(identities(arms[other]))
        if left != right:
            raise refusal.guard(
                f"{len(left - right):,} frames are only in the {first} arm and"
                f" {len(right - left):,} only in the {other} arm, {_named(left ^ right)}",
                expected=f"the same frames in both ({len(left & right):,} are)",
                remedy=ONE_PANEL,
            )


def window_fits(arms: Arms, window: int | None) -> None:
    """The window lies within every horizon, and is stated where the horizons differ."""
    lengths = horizons(arms)
    stated = ", ".join(f"{role} {steps}" for role, steps in lengths.items())
    shortest = longest_window(arms)
    if window is None and len(set(lengths.values())) > 1:
        raise refusal.guard(
            f"the arms' horizons differ ({stated} steps) and no window is set",
            expected="one matched window for arms of different horizons",
            remedy=f"set read.window to at most {shortest}",
        )
    if window is not None and not 1 <= window <= shortest:
        raise refusal.guard(
            f"a window of {window} steps (horizons: {stated})",
            expected=f"1 to {shortest} leading steps",
            remedy=f"set read.window to at most {shortest}",
        )


def core_frames(arms: Arms, window: int | None) -> None:
    """There are core frames, and they are the same ones in every arm."""
    del window
    for first, other in _pairs(arms):
        differing = int((arms[first]["core"].to_numpy() != arms[other]["core"].to_numpy()).sum())
        if differing:
            raise refusal.guard(
                f"{differing:,} frames are core in only one of the {first} and {other} arms",
                expected="the same core frames in both",
                remedy=ONE_PANEL,
            )
    if not any(arm["core"].to_numpy().any() for arm in arms.values()):
        raise refusal.guard(
            "no core frame in the arms",
            expected="core frames: they carry every headline number",
            remedy="choose a panel with core frames",
        )


def same_truth(arms: Arms, window: int | None) -> None:
    """The arms were scored against the same recorded actions and the same valid steps.

    What stands in the truth of an invalid step is padding and may differ.
    """
    del window
    steps = common_steps(arms)
    for first, other in _pairs(arms):
        differing = 0
        for sides in _blocks(*(arms[role][["truth", "valid"]] for role in (first, other))):
            valid, again = (side["valid"].to_numpy()[:, :steps] for side in sides)
            truth, repeated = (side["truth"].to_numpy()[:, :steps] for side in sides)
            if np.array_equal(valid, again) and truth.tobytes() == repeated.tobytes():
                continue  # as a rule, and several times as fast
            equal = (truth == repeated) | (np.isnan(truth) & np.isnan(repeated))
            inside = (equal.all(axis=2) | ~valid).all(axis=1)
            differing += int((~inside | (valid != again).any(axis=1)).sum())
        if differing:
            raise refusal.guard(
                f"recorded actions or valid steps differ between the {first} and {other} arms"
                f" on {differing:,} frames",
                expected="one recording behind both arms",
                remedy=f"{ONE_PANEL}, from one version of the data",
            )


def same_baselines(arms: Arms, window: int | None) -> None:
    """Both state-copy baselines match byte for byte, or no arm has them."""
    del window
    for first, other in _pairs(arms):
        for name in BASELINES:
            found = _baseline_difference({role: arms[role] for role in (first, other)}, name)
            if found is not None:
                raise refusal.guard(
                    f"{name} {found}",
                    expected="baselines that match byte for byte",
                    remedy=f"{ONE_PANEL}, from one version of the data and its statistics",
                )


BEFORE_PAIRING: Final[tuple[Guard, ...]] = (
    complete,
    same_space,
    no_duplicates,
    same_frames,
    window_fits,
)
AFTER_PAIRING: Final[tuple[Guard, ...]] = (core_frames, same_truth, same_baselines)
OF_PAIRS: Final[tuple[Guard, ...]] = (same_space, same_frames, same_truth, same_baselines)
OF_SCORES: Final[tuple[Guard, ...]] = (window_fits, core_frames)


def needed(known: tuple[Guard, ...], *, arms: int, scored: bool) -> tuple[Guard, ...]:
    """Those of some guards that a read of so many arms needs, which may score no prediction."""
    idle = (() if arms > 1 else OF_PAIRS) + (() if scored else OF_SCORES)
    return tuple(guard for guard in known if guard not in idle)


def _pairs(arms: Arms) -> Iterator[tuple[str, str]]:
    first, *others = arms
    for other in others:
        yield first, other


def _blocks(*arms: xarray.Dataset) -> Iterator[tuple[xarray.Dataset, ...]]:
    bare = [arm.drop_vars(list(arm.coords)) for arm in arms]
    for start in range(0, arms[0].sizes["frame"], BLOCK):
        yield tuple(arm.isel(frame=slice(start, start + BLOCK)) for arm in bare)


def _baseline_difference(arms: Arms, name: str) -> str | None:
    having = [role for role, arm in arms.items() if name in arm]
    if not having:
        return None
    if len(having) == 1:
        return f"is in the {having[0]} arm only"
    steps, differing = common_steps(arms), 0
    for sides in _blocks(*(arm[[name]] for arm in arms.values())):
        left, right = (side[name].to_numpy()[:, :steps] for side in sides)
        differing += int((~_same_bytes(left, right)).sum())
    if not differing:
        return None
    return f"differs between the {' and '.join(having)} arms on {differing:,} frames"


def _same_bytes(
    left: Shaped[np.ndarray, "frame step action"], right: Shaped[np.ndarray, "frame step action"]
) -> Bool[np.ndarray, "frame"]:
    if left.dtype != right.dtype:
        return np.zeros(len(left), dtype=bool)
    bits, also = (np.ascontiguousarray(side).view(np.uint8) for side in (left, right))
    same: Bool[np.ndarray, "frame"] = (bits == also).all(axis=(1, 2))
    return same


def _named(frames: set[Identity] | list[Identity]) -> str:
    repo, episode, frame_index = min(frames)
    return f"such as {repo} episode {episode} frame {frame_index}"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, (list, tuple, np.ndarray)) else value
