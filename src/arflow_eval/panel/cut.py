"""Part of a panel: the frames of another plan, or some of them evenly spread.

Core flags, order and corpus positions stay those of the whole panel.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from arflow_eval import refusal
from arflow_eval.contracts import Frames, Observation, Panel, Space, Targets
from arflow_eval.panel.plan import read_plan


@dataclass(frozen=True)
class Cut:
    """Some rows of another panel, in its order."""

    whole: Panel
    rows: Int64[np.ndarray, "frame"]
    name: str
    digest: str
    frames: Frames

    @property
    def space(self) -> Space:
        """As of the whole panel."""
        return self.whole.space

    @property
    def steps(self) -> int:
        """As of the whole panel."""
        return self.whole.steps

    def observe(self, row: int) -> Observation:
        """What a policy may see at a row of the cut."""
        return self.whole.observe(int(self.rows[row]))

    def targets(self, rows: Sequence[int]) -> Targets:
        """Recorded chunks of rows of the cut."""
        return self.whole.targets(self.rows[list(rows)].tolist())


def subset(panel: Panel, plan: Path) -> Panel:
    """The frames of a panel that another plan lists, such as a frozen quarter.

    Raises a guard refusal where the plan lists a frame that the panel lacks.
    """
    place = {frame: row for row, frame in enumerate(panel.frames.ids())}
    listed = read_plan(plan, digest=None, key="panel.subset")
    strange = next((frame for frame in listed.frames if frame not in place), None)
    if strange is not None:
        raise refusal.guard(
            f"{plan.name} lists {strange.repo} episode {strange.episode} frame "
            f"{strange.frame_index}, which panel {panel.name} lacks",
            expected="a subset of the panel's frames",
            remedy="choose a subset made of this panel, or the plan it was made of",
        )
    rows = np.array(sorted(place[frame] for frame in listed.frames), dtype=np.int64)
    return _cut(panel, rows, name=re.sub(r"[^A-Za-z0-9_.-]", "_", plan.stem))


def limit(panel: Panel, frames: int) -> Panel:
    """At most so many frames, evenly spread: `arange(n)[::n // frames][:frames]`."""
    count = len(panel.frames)
    if count <= frames:
        return panel
    return _cut(panel, np.arange(count)[:: count // frames][:frames], name=f"limit{frames}")


def _cut(panel: Panel, rows: Int64[np.ndarray, "frame"], *, name: str) -> Panel:
    identity = f"{panel.digest}:rows:".encode() + rows.astype("<i8").tobytes()
    columns = ("repo", "task", "episode", "frame_index", "index", "core")
    frames = replace(panel.frames, **{each: getattr(panel.frames, each)[rows] for each in columns})
    return Cut(
        whole=panel,
        rows=rows,
        name=f"{panel.name}-{name}",
        digest=hashlib.sha256(identity).hexdigest(),
        frames=frames,
    )
