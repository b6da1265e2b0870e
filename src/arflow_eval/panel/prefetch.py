"""Downloads what a plan needs, at pinned revisions, with huggingface_hub. Evaluation never does."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.panel.datasets.episodes import check_counts, data_file, video_file
from arflow_eval.panel.datasets.opened import Dataset, open_dataset
from arflow_eval.panel.extras import library
from arflow_eval.panel.plan import Plan

META: Final = ("meta/*",)
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
REPO: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

Download = Callable[..., Any]


@dataclass(frozen=True)
class Fetched:
    """What one repo's download brought: the files of its plan's episodes."""

    repo: str
    episodes: int
    files: int


def read_revisions(path: Path) -> dict[str, str]:
    """The commit of each repo: a JSON object `{"owner/name": "40 hex digits"}`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise refusal.usage(
            f"{path} cannot be read ({type(error).__name__})",
            expected='a JSON object {"owner/name": "commit"}',
            remedy="write one with --pin",
        ) from error
    if not isinstance(document, dict):
        document = {}
    for repo, commit in document.items():
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise refusal.usage(
                f"{repo} is pinned at {commit!r:.50}",
                expected="a commit of 40 hex digits; a branch can move",
                remedy="write the commit, or the whole file with --pin",
            )
    return document


def check_pins(repos: Sequence[str], revisions: Mapping[str, str]) -> None:
    """Every repo has a name that is one, and a revision."""
    for repo in repos:
        if not REPO.fullmatch(repo) or ".." in repo:
            raise refusal.usage(f"repo {repo!r:.80}", expected="owner/name", remedy="mend the plan")
        if repo not in revisions:
            raise refusal.usage(
                f"no revision of {repo}",
                expected="a pinned commit of every repo of the plan",
                remedy="add it to --revisions, or write the whole file with --pin",
            )


def fetch(
    plan: Plan,
    root: Path,
    *,
    revisions: Mapping[str, str],
    videos: bool,
    cache: Path,
    download: Download | None = None,
) -> list[Fetched]:
    """Download to `root/owner/name` the tables of every repo, then its episodes' files.

    What is there already is not downloaded again. `download` stands in for
    `huggingface_hub.snapshot_download`.
    """
    episodes: dict[str, set[int]] = {}
    for frame in plan.frames:
        episodes.setdefault(frame.repo, set()).add(frame.episode)
    check_pins(sorted(episodes), revisions)
    get = download or library("huggingface_hub", extra="lerobot").snapshot_download
    found = []
    for repo, wanted in sorted(episodes.items()):
        where = {"repo_id": repo, "revision": revisions[repo], "local_dir": str(root / repo)}
        _asked(get, where, patterns=META)
        dataset = open_dataset(root, repo, cache=cache)
        check_counts(dataset.info, dataset.episodes)
        files = needed(dataset, sorted(wanted), videos=videos)
        _asked(get, where, patterns=files)
        lacking = next((file for file in files if not (root / repo / file).is_file()), None)
        if lacking is not None:
            raise refusal.damage(
                f"{repo} at {revisions[repo][:12]} has no {lacking}",
                expected="the files that its tables name",
                remedy="pin another revision, or leave the repo out of the plan",
            )
        found.append(Fetched(repo, len(wanted), len(files)))
    return found


def needed(dataset: Dataset, episodes: Sequence[int], *, videos: bool) -> list[str]:
    """The files that some episodes lie in, relative to the dataset's folder."""
    for episode in episodes:
        if episode >= len(dataset.episodes):
            raise refusal.usage(
                f"the plan lists {dataset.repo} episode {episode}",
                expected=f"one of its {len(dataset.episodes)} episodes",
                remedy="pin the revision that the plan was made for",
            )
    files = {data_file(dataset.info, dataset.episodes, episode) for episode in episodes}
    for camera in dataset.info.cameras:
        if camera.video and videos:
            files |= {
                video_file(dataset.info, dataset.episodes, episode, camera=camera.key)
                for episode in episodes
            }
    return sorted(files)


def heads(repos: Sequence[str], *, ask: Callable[[str], Any] | None = None) -> dict[str, str]:
    """The newest commit of each repo on the hub, to be pinned. `ask` stands in for the hub."""
    ask = ask or library("huggingface_hub", extra="lerobot").HfApi().dataset_info
    found = {}
    for repo in repos:
        try:
            found[repo] = str(ask(repo).sha)
        except (OSError, ValueError) as error:
            raise _unreachable(repo, error) from error
    return found


def _asked(get: Download, where: Mapping[str, str], *, patterns: Sequence[str]) -> None:
    try:
        get(repo_type="dataset", allow_patterns=list(patterns), **where)
    except (OSError, ValueError) as error:
        raise _unreachable(where["repo_id"], error) from error


def _unreachable(repo: str, error: Exception) -> refusal.Refusal:
    reason = " ".join(str(error).split())[:160]
    return refusal.waiting(
        f"{repo} cannot be had from the hub ({type(error).__name__}: {reason})",
        expected="a dataset that the hub gives out",
        remedy="run the same command again, it goes on where it stopped",
    )
