"""The files of one import, opened and paired, and what a store takes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Int64

from arflow_eval import refusal
from arflow_eval.contracts import Family, Frames, Space
from arflow_eval.published.checks import DRAWS, TRUTH, VALID
from arflow_eval.published.columns import Column, gathered, one_draw, streamed
from arflow_eval.published.contract import Predictions, Stack, predictions, stack
from arflow_eval.published.joining import joined_rows
from arflow_eval.published.names import BASELINES, Name, chosen
from arflow_eval.published.reports import read_report
from arflow_eval.published.scanning import POOLED, PREDICTION, THEIRS

JOINTS: Final = (  # of an SO-100 or SO-101 arm, the robot of the published files
    *("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"),
)


@dataclass(frozen=True)
class Given:
    """What the command line says of an import beside its file and its folder.

    Attributes:
        arm: key of the prediction, with or without `pred:`; None takes the only one.
        draws: the draws file of that prediction.
        report: the report that states its published numbers.
        family: of the policy, where its name does not say it.
        panel: name of the panel; None takes the report's sample plan.
        actions: names of the action dimensions; None is an SO-101's joints where there are six.
        units: unit of states and actions.
        fps: steps a second.
    """

    arm: str | None = None
    draws: Path | None = None
    report: Path | None = None
    family: Family | None = None
    panel: str | None = None
    actions: tuple[str, ...] | None = None
    units: str = "degree"
    fps: float = 30.0


@dataclass(frozen=True)
class Files:
    """The files of one import.

    Attributes:
        predictions: the file of predictions.
        name: the prediction that is imported.
        stack: its draws file.
        rows: rows of the predictions that the draws file has, in its order; None for all.
        frames: the frames of those rows.
        family: of the policy; None where it is unknown.
        report: what a report says of the prediction, and the file it stands in.
    """

    predictions: Predictions
    name: Name
    stack: Stack | None
    rows: Int64[np.ndarray, "frame"] | None
    frames: Frames
    family: Family | None
    report: Mapping[str, Any] | None
    report_path: Path | None

    @property
    def draws(self) -> int:
        """Draws a frame in the store; one where only their mean is known."""
        return 1 if self.stack is None else self.stack.draws

    @property
    def row_bytes(self) -> int:
        """Bytes of one frame's predictions."""
        return 4 * self.draws * self.predictions.steps * self.predictions.actions


def paired(source: Path, given: Given) -> Files:
    """Open and pair the files of an import. Raises what the modules of each file raise."""
    found = predictions(source)
    name = chosen(list(found.archive.members), given.arm, path=source)
    found.chunk(name.key)
    draws = None if given.draws is None else stack(given.draws, name, found)
    rows = None if draws is None else joined_rows(found, draws)
    core = int(found.frames.core.sum())
    return Files(
        predictions=found,
        name=name,
        stack=draws,
        rows=rows,
        frames=found.frames if rows is None else _part(found.frames, rows),
        family=_family(name, given.family),
        report=None if given.report is None else read_report(given.report, name, core=core),
        report_path=given.report,
    )


def _family(name: Name, stated: Family | None) -> Family | None:
    """The name's, or the one that is stated. Refuses a contradiction."""
    sampled = name.draws is not None
    if stated not in (None, name.family) and (name.family is not None or sampled):
        raise refusal.usage(
            f"--family {stated} for {name.policy}",
            expected=f"{name.family}, as the name says",
            remedy="leave --family out",
        )
    return name.family or stated


def space(files: Files, given: Given) -> Space:
    """Names, units and rate of the actions; a published file states none of them."""
    actions, names = files.predictions.actions, given.actions
    if names is None:
        known = actions == len(JOINTS)
        names = JOINTS if known else tuple(f"action_{place}" for place in range(actions))
    if len(names) != actions or len(set(names)) < actions:
        raise refusal.usage(
            f"--actions {','.join(names)}",
            expected=f"{actions} different names, one an action dimension",
            remedy="name each dimension once, or leave --actions out",
        )
    return Space(names, names, given.units, given.units, given.fps)


def columns_of(files: Files) -> dict[str, Column]:
    """The store's columns, and what is only compared with them."""
    archive, rows = files.predictions.archive, files.rows

    def column(key: str) -> Column:
        return streamed(archive, key) if rows is None else gathered(archive, key, rows)

    columns = {name: column(key) for name, key in BASELINES.items()}
    columns |= {key: column(key) for key in (TRUTH, VALID)}
    prediction = column(files.name.key)
    if files.stack is None:
        return {**columns, PREDICTION: one_draw(prediction)}
    columns |= {POOLED: prediction, PREDICTION: streamed(files.stack.archive, DRAWS)}
    theirs = {name: key for name, key in THEIRS.items() if files.stack.has(key)}
    return {**columns, **{name: streamed(files.stack.archive, key) for name, key in theirs.items()}}


def _part(frames: Frames, rows: Int64[np.ndarray, "frame"]) -> Frames:
    """Some frames in the order of `rows`; repos are coded anew, so that they alone decide."""
    names, codes = np.unique(np.array(frames.repos)[frames.repo[rows]], return_inverse=True)
    return Frames(
        repos=tuple(names.tolist()),
        tasks=frames.tasks,
        repo=codes.astype(np.int64),
        task=frames.task[rows],
        episode=frames.episode[rows],
        frame_index=frames.frame_index[rows],
        index=frames.index[rows],
        core=frames.core[rows],
    )
