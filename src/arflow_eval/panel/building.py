"""The published rule that freezes a panel: held-out episodes, N core and M labeled frames of each.

Every repo is split, and every episode sampled, by a stream of its own, so that adding a repo or
an episode changes no other's frames.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.panel.datasets.episodes import check_counts
from arflow_eval.panel.datasets.opened import Dataset, open_dataset, read_annotated
from arflow_eval.panel.plan import pick_core, split_episodes


@dataclass(frozen=True)
class Rule:
    """What decides a panel's frames.

    Attributes:
        plan_seed: of the frames of an episode.
        frames_per_episode: core frames, at random without replacement.
        labeled_per_episode: further frames whose `progress` column says something.
        holdout_episodes: share of a repo's episodes that is held out.
        split_seed: of which episodes those are.
        fps: rates taken.
        camera_counts: numbers of cameras taken; empty takes any.
        progress: the column of the annotation.
    """

    plan_seed: int = 0
    frames_per_episode: int = 4
    labeled_per_episode: int = 2
    holdout_episodes: float = 0.1
    split_seed: int = 0
    fps: tuple[float, ...] = (30.0,)
    camera_counts: tuple[int, ...] = ()
    progress: str = "progress"

    def published(self) -> dict[str, Any]:
        """The rule as a sample-plan file has it."""
        return {
            "version": 1,
            "plan_seed": self.plan_seed,
            "frames_per_episode": self.frames_per_episode,
            "labeled_per_episode": self.labeled_per_episode,
            "episodes": "holdout",
            "holdout_episodes": self.holdout_episodes,
            "split_seed": self.split_seed,
            "fps": list(self.fps),
            "camera_counts": list(self.camera_counts),
        }


@dataclass(frozen=True)
class Built:
    """Frames of a new panel, and the repos that gave none with the reason."""

    core: tuple[FrameId, ...]
    labeled: tuple[FrameId, ...]
    left_out: tuple[str, ...]
    unlabeled: tuple[str, ...]


def build(root: Path, repos: Sequence[str], rule: Rule, *, cache: Path) -> Built:
    """The frames of some repos under a root, by the rule."""
    core: list[FrameId] = []
    labeled: list[FrameId] = []
    left_out: list[str] = []
    unlabeled: list[str] = []
    for repo in repos:
        try:
            dataset = open_dataset(root, repo, cache=cache)
            check_counts(dataset.info, dataset.episodes)
        except refusal.Refusal as refused:
            found = refused.found.removeprefix(f"dataset {repo}: ")
            left_out.append(f"{repo}: {found}; expected {refused.expected}")
            continue
        held = held_out(dataset, rule)
        reason = _unfit(dataset, rule) or ("" if held else "no episode is held out")
        if reason:
            left_out.append(f"{repo}: {reason}")
            continue
        lengths = {episode: int(dataset.episodes.lengths[episode]) for episode in held}
        seed = keyed(rule.plan_seed, repo)
        mine = pick_core(lengths, repo=repo, per_episode=rule.frames_per_episode, seed=seed)
        core += mine
        if rule.progress in dataset.info.columns:
            labeled += pick_labeled(dataset, held, rule, taken=frozenset(mine))
        else:
            unlabeled.append(repo)
    return Built(tuple(core), tuple(labeled), tuple(left_out), tuple(unlabeled))


def held_out(dataset: Dataset, rule: Rule) -> list[int]:
    """The held-out episodes of a repo, ascending."""
    seed = keyed(rule.split_seed, dataset.repo)
    _, held = split_episodes(len(dataset.episodes), holdout=rule.holdout_episodes, seed=seed)
    return held


def pick_labeled(
    dataset: Dataset, episodes: Sequence[int], rule: Rule, *, taken: frozenset[FrameId]
) -> list[FrameId]:
    """Annotated frames of each episode that are not taken yet, at random, in order."""
    frames: list[FrameId] = []
    seed = keyed(rule.plan_seed, dataset.repo)
    for episode in episodes:
        annotated = np.flatnonzero(read_annotated(dataset, episode, rule.progress)).tolist()
        free = [frame for frame in annotated if FrameId(dataset.repo, episode, frame) not in taken]
        size = min(rule.labeled_per_episode, len(free))
        chosen = np.random.default_rng([seed, 1, episode]).choice(len(free), size, replace=False)
        picked = sorted(free[place] for place in chosen.tolist())
        frames += [FrameId(dataset.repo, episode, frame) for frame in picked]
    return frames


def thinned(core: Sequence[FrameId], *, share: float, seed: int) -> list[FrameId]:
    """A share of the core frames of every episode, at least one, at random, in their order.

    A quarter of a panel with four frames an episode has one of each.
    """
    episodes: dict[tuple[str, int], list[FrameId]] = {}
    for frame in core:
        episodes.setdefault(frame[:2], []).append(frame)
    kept: set[FrameId] = set()
    for (repo, episode), frames in episodes.items():
        stream = np.random.default_rng([keyed(seed, repo), 2, episode])
        size = max(1, round(share * len(frames)))
        kept |= {frames[place] for place in stream.choice(len(frames), size, replace=False)}
    return [frame for frame in core if frame in kept]


def keyed(seed: int, repo: str) -> int:
    """A seed of a repo's own: 8 bytes of the SHA-256 of `seed:repo`."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{repo}".encode()).digest()[:8], "big")


def _unfit(dataset: Dataset, rule: Rule) -> str:
    if dataset.info.fps not in rule.fps:
        return f"{dataset.info.fps:g} fps"
    cameras = len(dataset.info.cameras)
    if rule.camera_counts and cameras not in rule.camera_counts:
        return f"{cameras} cameras"
    return ""
