"""Episodes and stretches of frames that occur twice, in one set or in two."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Int64, UInt64

from arflow_eval.panel.checks.recording import Fault, Recording

SEED: Final = 20261201  # of the multipliers of row hashes
BASE: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Fingerprints:
    """What identifies a set's data: a digest an episode, a hash a second of motion."""

    repo: str
    episodes: tuple[tuple[str, int], ...]
    hashes: UInt64[np.ndarray, "element"]
    where: Int64[np.ndarray, "element"]


def fingerprints(recording: Recording) -> Fingerprints:
    """Of every episode that moves, and of every second in which at least half the frames do."""
    width = max(2, round(recording.fps))
    digests, hashes, where = [], [], []
    for episode, rows in recording.episodes():
        both = np.ascontiguousarray(
            np.concatenate([recording.states[rows], recording.actions[rows]], axis=1)
        )
        if (both == both[0]).all():
            continue
        digests.append((hashlib.sha256(both.tobytes()).hexdigest(), episode))
        windows, moving = _windows(_row_hashes(both), width)
        hashes.append(windows[moving])
        where.append(np.full(int(moving.sum()), episode, dtype=np.int64))
    empty = np.zeros(0, dtype=np.uint64)
    return Fingerprints(
        recording.repo,
        tuple(digests),
        np.concatenate([empty, *hashes]),
        np.concatenate([empty.astype(np.int64), *where]),
    )


def duplicate_episode(sets: Sequence[Fingerprints]) -> list[Fault]:
    """Episodes with the same states and actions, frame for frame."""
    first: dict[str, tuple[str, int]] = {}
    found = []
    for each in sets:
        for digest, episode in each.episodes:
            known = first.setdefault(digest, (each.repo, episode))
            if known != (each.repo, episode):
                said = f"the same as episode {known[1]} of {known[0]}"
                found.append(
                    Fault("duplicate_episode", each.repo, said, "every episode once", episode)
                )
    return found


def duplicate_frames(sets: Sequence[Fingerprints]) -> list[Fault]:
    """A second or more of motion that two sets share, in episodes that are no duplicates whole."""
    whole = {(fault.repo, fault.episode) for fault in duplicate_episode(sets)}
    if len(sets) < 2:
        return []
    hashes = np.concatenate([each.hashes for each in sets])
    owner = np.repeat(np.arange(len(sets)), [len(each.hashes) for each in sets])
    where = np.concatenate([each.where for each in sets])
    order = np.lexsort((owner, hashes))
    twice = np.flatnonzero((np.diff(hashes[order]) == 0) & (np.diff(owner[order]) != 0))
    found: dict[tuple[int, int], list[int]] = {}
    for place in twice.tolist():
        one, other = order[place], order[place + 1]
        if (sets[owner[other]].repo, int(where[other])) not in whole:
            found.setdefault((int(owner[one]), int(owner[other])), []).append(int(where[other]))
    return [
        Fault(
            "duplicate_frames",
            sets[other].repo,
            f"{len(episodes):,} seconds of motion as in {sets[one].repo}",
            "every frame once",
            episodes[0],
        )
        for (one, other), episodes in found.items()
    ]


def _row_hashes(rows: np.ndarray) -> UInt64[np.ndarray, "index"]:
    """One 64-bit hash a row, of its float32 bits."""
    bits = rows.astype(np.float32).view(np.uint32).astype(np.uint64)
    odd = np.random.default_rng(SEED).integers(1, 2**63, rows.shape[1], dtype=np.uint64)
    mixed = (bits + odd) * (odd | np.uint64(1))
    mixed ^= mixed >> np.uint64(29)
    summed: UInt64[np.ndarray, "index"] = (mixed * BASE).sum(axis=1, dtype=np.uint64)
    hashes: UInt64[np.ndarray, "index"] = summed ^ (summed >> np.uint64(31))
    return hashes


def _windows(
    rows: UInt64[np.ndarray, "index"], width: int
) -> tuple[UInt64[np.ndarray, "element"], np.ndarray]:
    """A hash of each run of `width` rows, and whether at least half of its steps move."""
    count = max(0, len(rows) - width + 1)
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(width):
        hashes = hashes * BASE + rows[place : place + count]
    moved = np.concatenate([[0], np.cumsum(np.diff(rows) != 0)])
    steps = moved[width - 1 :][:count] - moved[:count]
    return hashes, steps >= (width - 1) / 2
