"""Pairing a draws file with its predictions: row by row, or a part of them joined on `index`."""

from typing import Final

import numpy as np
from jaxtyping import Int64, Shaped

from arflow_eval import refusal
from arflow_eval.published.archive import whole
from arflow_eval.published.checks import CORE, EPISODE, FRAME_INDEX, INDEX, REPO
from arflow_eval.published.contract import Predictions, Stack, check_unique, text_column

SAME: Final = "take the draws file that was written with these predictions"


def joined_rows(of: Predictions, stack: Stack) -> Int64[np.ndarray, "frame"] | None:
    """The row of the predictions for every row of the draws; None where they are the same rows.

    Raises:
        Refusal: a guard, where rows do not pair: other frames in equal number, more draws than
            predictions, an index twice or missing, or identity columns that differ.
    """
    theirs = _index(of, stack)
    ours = of.frames.index
    if len(theirs) == len(ours):
        if not np.array_equal(theirs, ours):
            raise _unpaired(of, stack, found="hold other rows or another order", differing=INDEX)
        rows = None
    else:
        rows = _subset(of, stack, theirs)
    _check_identity(of, stack, np.arange(len(ours)) if rows is None else rows)
    return rows


def _index(of: Predictions, stack: Stack) -> Int64[np.ndarray, "frame"]:
    if stack.has(INDEX):
        index: Int64[np.ndarray, "frame"] = whole(stack.archive, INDEX)
        return index
    if stack.frames != len(of.frames):
        raise refusal.guard(
            f"{stack.archive.path.name} holds {stack.frames:,} rows and no index",
            expected=f"index, or the {len(of.frames):,} rows of {of.archive.path.name}",
            remedy=SAME,
        )
    return of.frames.index


def _subset(
    of: Predictions, stack: Stack, theirs: Int64[np.ndarray, "frame"]
) -> Int64[np.ndarray, "frame"]:
    ours = of.frames.index
    if not 0 < len(theirs) < len(ours):
        raise _unpaired(of, stack, found=f"have {len(theirs):,} rows", differing="their number")
    check_unique(theirs, path=stack.archive.path)
    order = np.argsort(ours)
    place = np.minimum(np.searchsorted(ours[order], theirs), len(ours) - 1)
    rows: Int64[np.ndarray, "frame"] = order[place]
    absent = theirs[ours[rows] != theirs]
    if len(absent):
        found = f"have {len(absent):,} rows that the predictions lack, such as index {absent[0]}"
        raise _unpaired(of, stack, found=found, differing=INDEX)
    return rows


def _check_identity(of: Predictions, stack: Stack, rows: Int64[np.ndarray, "frame"]) -> None:
    frames = of.frames
    known: dict[str, Shaped[np.ndarray, "frame"]] = {
        REPO: np.array(frames.repos)[frames.repo],
        EPISODE: frames.episode,
        FRAME_INDEX: frames.frame_index,
        CORE: frames.core,
    }
    for key, ours in known.items():
        if stack.has(key):
            theirs: Shaped[np.ndarray, "frame"] = (
                text_column(stack.archive, key) if key == REPO else whole(stack.archive, key)
            )
            differing = int((ours[rows] != theirs).sum())
            if differing:
                found = f"differ in {key} on {differing:,} rows"
                raise _unpaired(of, stack, found=found, differing=key)


def _unpaired(of: Predictions, stack: Stack, *, found: str, differing: str) -> refusal.Refusal:
    return refusal.guard(
        f"the draws of {stack.archive.path.name} {found}",
        expected=f"the rows of {of.archive.path.name} ({len(of.frames):,}), or fewer of them"
        f" with the same {differing}",
        remedy=SAME,
    )
