"""The groups that frames fall into: repos, and episodes of a repo."""

import numpy as np
import xarray
from jaxtyping import Int64

from arflow_eval.reads.settings import Grouping


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
