"""The bundled panel data: PushT human demonstrations, 206 episodes at 10 fps, in pixels.

State and action are both (x, y) of the pusher in a 512 x 512 square: the state is where it
is, the action where it was told to go. Source and licence: data/NOTICE.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64

from arflow_eval import refusal
from arflow_eval.contracts import FrameId, Frames, Observation, Panel, Space, Statistics, Targets
from arflow_eval.panel.plan import Plan, read_plan

DATA: Final = Path(__file__).parent / "data"
STATISTICS: Final = DATA / "pusht_stats.json"
SHA256: Final = "f5c5f19a312040ab9a53e8a5b889da6fcb6a877666bea8a58dc4c7bfa4cf1517"
SPACE: Final = Space(
    state_names=("x", "y"),
    action_names=("x", "y"),
    state_units="pixel",
    action_units="pixel",
    fps=10.0,
)


@dataclass(frozen=True)
class Demonstrations:
    """Concatenated episodes of one repo; episode e is rows `starts[e]:starts[e + 1]`."""

    repo: str
    task: str
    states: Float32[np.ndarray, "index state"]
    actions: Float32[np.ndarray, "index action"]
    starts: Int64[np.ndarray, "episode"]

    def rows(self, episode: int) -> slice:
        """The rows of an episode in the concatenated corpus."""
        return slice(int(self.starts[episode]), int(self.starts[episode + 1]))

    def length(self, episode: int) -> int:
        """The number of frames of an episode."""
        return int(self.starts[episode + 1] - self.starts[episode])


@cache
def demonstrations() -> Demonstrations:
    """The bundled corpus, checked against its SHA-256."""
    path = DATA / "pusht.npz"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise refusal.damage(
            f"bundled pusht.npz has SHA-256 {found[:16]}…",
            expected=f"{SHA256[:16]}…",
            remedy="reinstall the package",
        )
    with np.load(path, allow_pickle=False) as file:
        return Demonstrations(
            repo=str(file["dataset"]),
            task=str(file["task"]),
            states=file["state"],
            actions=file["actions"],
            starts=np.concatenate([[0], np.cumsum(file["lengths"])]).astype(np.int64),
        )


@cache
def statistics() -> Statistics:
    """Mean and standard deviation of the training episodes (data/pusht_stats.json)."""
    tables = json.loads(STATISTICS.read_text())
    return Statistics(**{name: np.array(tables[name]) for name in Statistics.__annotations__})


@cache
def sealed_episodes() -> frozenset[int]:
    """Episodes that only a registration's locked run may open (data/pusht_split.json)."""
    return frozenset(json.loads((DATA / "pusht_split.json").read_text())["sealed"])


@dataclass(frozen=True)
class PushT:
    """Frames of a plan over the bundled demonstrations."""

    name: str
    digest: str
    frames: Frames
    space: Space
    steps: int

    def observe(self, row: int) -> Observation:
        """The episode up to a panel row's frame."""
        corpus = demonstrations()
        (frame,) = self.frames.ids([row])
        start = int(corpus.starts[frame.episode])
        present = start + frame.frame_index
        return Observation(
            frame=frame,
            index=present,
            task=corpus.task,
            states=corpus.states[start : present + 1],
            actions=corpus.actions[start:present],
            statistics=statistics(),
        )

    def targets(self, rows: Sequence[int]) -> Targets:
        """Recorded chunks; steps past the episode's end repeat its last action, invalid."""
        corpus = demonstrations()
        index = self.frames.index[list(rows)]
        last = corpus.starts[self.frames.episode[list(rows)] + 1] - 1
        steps = index[:, None] + np.arange(self.steps)
        return Targets(
            truth=corpus.actions[np.minimum(steps, last[:, None])],
            valid=steps <= last[:, None],
        )


def pusht(
    *,
    name: str,
    plan: str,
    digest: str | None,
    steps: int,
    opened: bool = False,
    **elsewhere: object,
) -> Panel:
    """The bundled demonstrations at the frames of `data/{plan}`, `steps` recorded actions each.

    Raises a guard refusal where the plan, whatever it is called, lists a sealed episode, unless
    it is `opened` by the locked run of a registration; and a usage refusal where a key says
    something of data that lies `elsewhere`.
    """
    for key, value in elsewhere.items():
        if value is not None and (key, value) != ("units", SPACE.state_units):
            raise refusal.usage(
                f"panel.{key}={value} with the bundled demonstrations",
                expected="a key of panel=lerobot with that panel",
                remedy=f"drop panel.{key}, or choose panel=lerobot",
            )
    if plan is None:
        raise refusal.usage(
            "panel.plan=null with the bundled demonstrations",
            expected="a plan of theirs",
            remedy="choose panel=pusht",
        )
    listed = read_plan(DATA / plan, digest=digest)
    if not opened and {frame.episode for frame in listed.frames} & sealed_episodes():
        raise refusal.sealed_panel(name)
    tables = hashlib.sha256(STATISTICS.read_bytes()).hexdigest()
    identity = f"{SHA256}:{tables}:{listed.digest}:{steps}"
    return PushT(
        name=name,
        digest=hashlib.sha256(identity.encode()).hexdigest(),
        frames=_columns(listed),
        space=SPACE,
        steps=steps,
    )


def _columns(plan: Plan) -> Frames:
    corpus = demonstrations()
    for frame in plan.frames:
        _check_frame(frame, corpus)
    episode = np.array([frame.episode for frame in plan.frames], dtype=np.int64)
    frame_index = np.array([frame.frame_index for frame in plan.frames], dtype=np.int64)
    return Frames(
        repos=(corpus.repo,),
        tasks=(corpus.task,),
        repo=np.zeros(len(episode), dtype=np.int64),
        task=np.zeros(len(episode), dtype=np.int64),
        episode=episode,
        frame_index=frame_index,
        index=corpus.starts[episode] + frame_index,
        core=np.arange(len(episode)) < len(plan.core),
    )


def _check_frame(frame: FrameId, corpus: Demonstrations) -> None:
    known = frame.repo == corpus.repo and 0 <= frame.episode < len(corpus.starts) - 1
    if not known or not 0 <= frame.frame_index < corpus.length(frame.episode):
        raise refusal.usage(
            f"the plan lists {frame.repo} episode {frame.episode} frame {frame.frame_index}",
            expected=f"frames of the {len(corpus.starts) - 1} episodes of {corpus.repo}",
            remedy="choose a plan made for this data",
        )
