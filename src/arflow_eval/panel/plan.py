"""Frozen frame lists: the published sample-plan JSON, its digest, and the rule that makes one.

A plan is JSON with `version`, `plan_seed`, `frames_per_episode`, `labeled_per_episode`,
`episodes`, `holdout_episodes`, `split_seed`, `fps`, `camera_counts`, and `core` / `labeled`
as lists of `[repo, episode, frame]`. It is named by the SHA-256 of its bytes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from arflow_eval import refusal
from arflow_eval.contracts import FrameId

FRAMES: Final = ("core", "labeled")
LAST: Final = 1 << 31  # above every episode and frame


@dataclass(frozen=True)
class Plan:
    """A frozen frame list, core frames first, and the digest of the file that holds it.

    `settings` is all else that the file says of how it was made.
    """

    core: tuple[FrameId, ...]
    labeled: tuple[FrameId, ...]
    settings: Mapping[str, Any]
    digest: str

    @property
    def frames(self) -> tuple[FrameId, ...]:
        """Every frame in panel order."""
        return self.core + self.labeled


def read_plan(path: Path, *, digest: str | None, key: str = "panel.plan") -> Plan:
    """Read a plan and hold it against its pinned digest (None: unpinned).

    `key` is the one to check where there is no file.

    Raises a usage refusal where there is no plan or no frame, damage where it changed.
    """
    if not path.is_file():
        raise refusal.usage(
            f"no panel plan at {path}",
            expected="a sample-plan JSON file",
            remedy=f"check {key}",
        )
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if digest is not None and found != digest:
        raise refusal.damage(
            f"panel plan {path.name} has SHA-256 {found[:16]}…",
            expected=f"the pinned {digest[:16]}…",
            remedy="restore the frozen file, or pin the new one under another name",
        )
    plan = Plan(*_contents(raw, name=path.name), digest=found)
    if not plan.frames:
        raise refusal.usage(
            f"panel plan {path.name} lists no frames",
            expected="at least one",
            remedy="choose another panel",
        )
    if len(set(plan.frames)) != len(plan.frames):
        raise refusal.damage(
            f"panel plan {path.name} lists a frame twice",
            expected="every frame once",
            remedy="rebuild the plan",
        )
    return plan


def _contents(
    raw: bytes, *, name: str
) -> tuple[tuple[FrameId, ...], tuple[FrameId, ...], dict[str, Any]]:
    try:
        document = json.loads(raw)
        core, labeled = (
            tuple(_identity(*row) for row in rows)
            for rows in (document["core"], document["labeled"])
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refusal.usage(
            f"panel plan {name} cannot be read ({type(error).__name__}: {error})",
            expected="JSON with core and labeled lists of [repo, episode, frame]",
            remedy="rebuild the plan",
        ) from error
    return core, labeled, {key: document[key] for key in document if key not in FRAMES}


def _identity(repo: Any, episode: Any, frame: Any) -> FrameId:
    numbers = (episode, frame)
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
    if (
        not isinstance(repo, str)
        or not repo
        or not whole
        or not 0 <= min(numbers) <= max(numbers) < LAST
    ):
        raise ValueError(f"no frame: {[repo, episode, frame]!r:.80}")
    return FrameId(repo, episode, frame)


def split_episodes(count: int, *, holdout: float, seed: int) -> tuple[list[int], list[int]]:
    """Episodes 0…count-1 split at random into (training, held out), both ascending."""
    order = np.random.default_rng(seed).permutation(count)
    held = round(count * holdout)
    return sorted(order[held:].tolist()), sorted(order[:held].tolist())


def pick_core(
    lengths: Mapping[int, int], *, repo: str, per_episode: int, seed: int
) -> list[FrameId]:
    """`per_episode` frames of each episode, at random without replacement, in order.

    `lengths` maps an episode to its number of frames. Every episode has a stream of its own,
    so that adding one changes no other's frames.
    """
    frames: list[FrameId] = []
    for episode, length in sorted(lengths.items()):
        stream = np.random.default_rng([seed, episode])
        chosen = stream.choice(length, size=min(per_episode, length), replace=False)
        frames += [FrameId(repo, episode, int(frame)) for frame in np.sort(chosen)]
    return frames


def write_plan(
    path: Path,
    *,
    core: Sequence[FrameId],
    settings: Mapping[str, Any],
    labeled: Sequence[FrameId] = (),
) -> str:
    """Write a plan as published; returns its SHA-256."""
    frames = {"core": [list(frame) for frame in core], "labeled": [list(each) for each in labeled]}
    document = {**settings, **frames}
    raw = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    path.write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()
