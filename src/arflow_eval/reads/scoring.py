"""Scoring an arm block by block, and the groups its frames fall into."""

from typing import Final

import numpy as np
import xarray
from jaxtyping import Bool, Int64

from arflow_eval.reads.settings import Grouping
from arflow_eval.stats.errors import Errors, block_errors, joined

BLOCK: Final = 256  # frames read at once, where a store does not say


def arm_errors(arm: xarray.Dataset, rows: Bool[np.ndarray, "frame"], *, window: int) -> Errors:
    """Errors of the chosen frames over the leading `window` steps, in the arm's order.

    One block is in memory at a time; blocks do not move a bit. Raises what `joined` raises.
    """
    scored = []
    for start in range(0, len(rows), _frames_at_once(arm)):
        block = slice(start, start + _frames_at_once(arm))
        part, chosen = arm.isel(frame=block), rows[block]
        prediction, truth, valid = (
            part[name].to_numpy()[chosen] for name in ("prediction", "truth", "valid")
        )
        scored.append(block_errors(prediction, truth, valid, window=window))
    return joined(scored)


def groups(
    arm: xarray.Dataset, *, by: Grouping
) -> tuple[Int64[np.ndarray, "frame"], list[dict[str, str | int]]]:
    """A code of each frame's group, and the name of every code.

    Codes follow the names in ascending order: repos alphabetically, episodes by number within
    their repo. An episode is one of a repo, so equal numbers in two repos are two groups.
    """
    repos, repo = np.unique(arm["repo_name"].to_numpy(), return_inverse=True)
    if by == "repo":
        return repo.astype(np.int64), [{"repo": str(name)} for name in repos]
    pairs = np.stack([repo, arm["episode"].to_numpy()], axis=1)
    episodes, code = np.unique(pairs, axis=0, return_inverse=True)
    names: list[dict[str, str | int]] = [
        {"repo": str(repos[row]), "episode": int(episode)} for row, episode in episodes
    ]
    return code.reshape(-1).astype(np.int64), names


def _frames_at_once(arm: xarray.Dataset) -> int:
    """Whole chunks of the store, about `BLOCK` frames of them."""
    chunk = int(arm["prediction"].encoding.get("preferred_chunks", {}).get("frame", BLOCK))
    return chunk * max(BLOCK // chunk, 1)
