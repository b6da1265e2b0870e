"""What a published file must hold, checked by its headers before any value is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from arflow_eval import refusal
from arflow_eval.contracts import Frames
from arflow_eval.published.archive import Archive, opened, whole
from arflow_eval.published.checks import (
    COLUMNS,
    CORE,
    DRAWS,
    EPISODE,
    FRAME_INDEX,
    IDENTITY,
    INDEX,
    REPO,
    TRUTH,
    VALID,
    check,
    missing,
    wrong_shape,
    wrong_type,
)
from arflow_eval.published.names import BASELINES, Name

Scalars = dict[str, dict[str, Any]]

SCALARS: Final = ("policy", "sample_draws", "seed", "noise_key")  # of a draws file
LONGEST_TEXT: Final = 4096  # characters of a scalar


@dataclass(frozen=True)
class Predictions:
    """A file of predictions: its frames, and the steps and actions of its chunks."""

    archive: Archive
    frames: Frames
    steps: int
    actions: int

    def chunk(self, key: str) -> None:
        """Check that an array holds one chunk a frame. Raises a usage refusal."""
        shape = (len(self.frames), self.steps, self.actions)
        check(self.archive, key, axes="frame, step, action", shape=shape, kind="float32")


@dataclass(frozen=True)
class Stack:
    """A draws file: `draws` chunks a frame, its scalars, and the identity columns that it has."""

    archive: Archive
    frames: int
    draws: int
    scalars: Scalars

    def has(self, key: str) -> bool:
        """Whether the file holds an array."""
        return key in self.archive.members


def predictions(path: Path) -> Predictions:
    """A file of predictions whose identity columns, truth, masks and baselines are as published.

    Raises:
        Refusal: usage where the file or a column is missing or is of another type or shape, a
            guard where a frame or an index stands twice, damage where it cannot be read.
    """
    archive = opened(path)
    check(archive, TRUTH, axes="frame, step, action", shape=(None, None, None))
    rows, steps, actions = archive.members[TRUTH].shape
    if 0 in (rows, steps, actions):
        raise wrong_shape(archive, TRUTH, expected="at least one frame, step and action")
    check(archive, VALID, axes="frame, step", shape=(rows, steps))
    for key in IDENTITY:
        check(archive, key, axes="frame", shape=(rows,))
    found = Predictions(archive, _frames(archive), steps, actions)
    for key in BASELINES.values():
        found.chunk(key)
    return found


def stack(path: Path, name: Name, of: Predictions) -> Stack:
    """The draws of one prediction. Raises what `predictions` does, and a guard for another's."""
    archive = opened(path)
    axes = "frame, draw, step, action"
    check(archive, DRAWS, axes=axes, shape=(None, None, of.steps, of.actions))
    rows, draws = archive.members[DRAWS].shape[:2]
    for key in COLUMNS:
        if key in archive.members:
            tail = {TRUTH: (of.steps, of.actions), VALID: (of.steps,)}.get(key, ())
            axes = ", ".join(("frame", "step", "action")[: len(tail) + 1])
            check(archive, key, axes=axes, shape=(rows, *tail))
    found = scalars(archive)
    for key in SCALARS:
        if key not in found:
            raise missing(archive, key, expected="the scalars " + ", ".join(SCALARS))
    _check_draws(path, name, {key: found[key]["value"] for key in SCALARS}, draws=draws)
    return Stack(archive, rows, draws, found)


def scalars(archive: Archive) -> Scalars:
    """The single values of a file with their types, as JSON; NaN and infinities as text."""
    found = {}
    for key, member in archive.members.items():
        if member.shape == () and member.dtype.kind in "biufU":
            if member.dtype.itemsize > 4 * LONGEST_TEXT:
                raise wrong_type(archive, key, kind=f"at most {LONGEST_TEXT:,} characters")
            value = whole(archive, key).item()
            plain = not isinstance(value, float) or np.isfinite(value)
            found[key] = {"dtype": member.dtype.str, "value": value if plain else str(value)}
    return found


def left_out(archive: Archive, *, taken: set[str]) -> list[str]:
    """What of a file is not imported: other predictions and arrays outside the contract."""
    members: Mapping[str, Any] = archive.members
    return [
        f"{key} {members[key].dtype} {list(members[key].shape)}"
        for key in members
        if key not in taken
        and not (members[key].shape == () and members[key].dtype.kind in "biufU")
    ]


def as_bool(values: Shaped[np.ndarray, "*axes"], *, path: Path, key: str) -> None:
    """Raise damage where a bool is neither 0 nor 1 in its bytes."""
    if (values.view(np.uint8) > 1).any():
        raise refusal.damage(
            f"{key} of {path.name} holds bytes other than 0 and 1",
            expected="bool",
            remedy="copy the file again from where it was made",
        )


def text_column(archive: Archive, key: str) -> Shaped[np.ndarray, "frame"]:
    """A column of text whose characters all exist. Raises damage."""
    values = whole(archive, key)
    try:
        "".join(np.unique(values).tolist()).encode()
    except ValueError as error:
        raise refusal.damage(
            f"{key} of {archive.path.name} is no text ({error})",
            expected="names of repos",
            remedy="copy the file again from where it was made",
        ) from error
    return values


def _frames(archive: Archive) -> Frames:
    names, codes = np.unique(text_column(archive, REPO), return_inverse=True)
    core: Bool[np.ndarray, "frame"] = whole(archive, CORE)
    as_bool(core, path=archive.path, key=CORE)
    frames = Frames(
        repos=tuple(names.tolist()),
        tasks=("",),
        repo=codes.astype(np.int64),
        task=np.zeros(len(codes), dtype=np.int64),
        episode=whole(archive, EPISODE).astype(np.int64),
        frame_index=whole(archive, FRAME_INDEX).astype(np.int64),
        index=whole(archive, INDEX),
        core=core,
    )
    check_unique(frames.index, path=archive.path)
    if len(set(frames.ids())) < len(frames):
        raise refusal.guard(
            f"{archive.path.name} holds {len(frames) - len(set(frames.ids())):,} frames twice",
            expected="every repo, episode and frame index once",
            remedy="remove the duplicates where the file is made",
        )
    return frames


def check_unique(index: Int64[np.ndarray, "frame"], *, path: Path) -> None:
    """Raise a guard where an index stands twice."""
    values, times = np.unique(index, return_counts=True)
    if (times > 1).any():
        raise refusal.guard(
            f"index of {path.name} holds {values[times > 1][0]} {times.max()} times",
            expected="every index once",
            remedy="remove the duplicates where the file is made",
        )


def _check_draws(path: Path, name: Name, stated: Mapping[str, Any], *, draws: int) -> None:
    if stated["policy"] != name.policy:
        raise refusal.guard(
            f"the draws of {path.name} are of {stated['policy']}",
            expected=f"{name.policy}, the prediction that is imported",
            remedy=f"give --arm 'pred:{stated['policy']}', or the draws file of this one",
        )
    expected = 1 if name.draws is None else name.draws
    if not draws == stated["sample_draws"] == expected:
        raise refusal.guard(
            f"{path.name} holds {draws} draws a frame and states sample_draws "
            f"{stated['sample_draws']}",
            expected=f"{expected}, as the name {name.policy} says",
            remedy="take the draws file that was written with these predictions",
        )
