"""arflow-eval convert panel: freeze a panel of LeRobot datasets, show one, download one.

Build:     convert panel ROOT OUT.json [--repos A/B,C/D] [--holdout 0.1] [--split-seed 0] …
Show:      convert panel PLAN.json
Thin:      convert panel PLAN.json OUT.json --keep 0.25
Pin:       convert panel PLAN.json --pin REVISIONS.json
Download:  convert panel PLAN.json ROOT --prefetch --revisions REVISIONS.json
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import plain, refusal
from arflow_eval.contracts import FrameId
from arflow_eval.panel import prefetch
from arflow_eval.panel.building import Built, Rule, build, thinned
from arflow_eval.panel.datasets.cached import default_folder
from arflow_eval.panel.datasets.opened import repos_under
from arflow_eval.panel.extras import library
from arflow_eval.panel.plan import Plan, read_plan, write_plan

FORMS: Final = (
    "convert panel ROOT OUT.json, convert panel PLAN.json, or "
    "convert panel PLAN.json ROOT --prefetch --revisions FILE"
)
SHOWN: Final = 20  # repos listed one by one
LARGEST: Final = 2.0**32 - 1  # seed


def main(argv: Sequence[str] | None = None) -> int:
    """Run `convert panel` with the words after it; returns the exit code."""
    return plain.run(_parser(), argv, _task, forms=FORMS)


def _parser() -> argparse.ArgumentParser:
    found = plain.parser("convert panel", description=__doc__, words="the paths of any form")
    found.add_argument("--repos", metavar="A/B,C/D", help="by default every dataset under ROOT")
    found.add_argument("--holdout", default="0.1", metavar="SHARE", help="of a repo's episodes")
    found.add_argument("--split-seed", default="0", metavar="SEED", help="of the held-out episodes")
    found.add_argument("--seed", default="0", metavar="SEED", help="of the frames of an episode")
    found.add_argument("--core", default="4", metavar="N", help="core frames an episode")
    found.add_argument("--labeled", default="2", metavar="M", help="labeled frames an episode")
    found.add_argument("--progress", default="progress", metavar="COLUMN", help="that labels them")
    found.add_argument("--fps", default="30", metavar="A,B", help="rates taken")
    found.add_argument("--cameras", default="", metavar="A,B", help="camera counts taken; any")
    found.add_argument(
        "--keep", metavar="SHARE", help="of each episode's core frames, at least one"
    )
    found.add_argument("--prefetch", action="store_true", help="download what PLAN needs to ROOT")
    found.add_argument("--revisions", metavar="FILE", help="JSON with the commit of each repo")
    found.add_argument("--no-videos", action="store_true", help="download rows alone")
    found.add_argument("--pin", metavar="FILE", help="write the newest commit of each repo")
    found.add_argument("--cache", metavar="FOLDER", help="of episode tables; the user's by default")
    return found


def _task(given: Mapping[str, Any]) -> int:
    paths = [Path(word).expanduser() for word in given["words"]]
    plans = [path.suffix == ".json" for path in paths]
    if given["prefetch"] and plans == [True, False]:
        return _prefetch(paths[0], paths[1], given)
    if given["pin"] and plans == [True]:
        return _pin(paths[0], Path(given["pin"]).expanduser())
    if plans == [True] and not given["prefetch"]:
        return _show(read_plan(paths[0], digest=None, key="the path"))
    if given["keep"] and plans == [True, True]:
        return _thin(paths[0], paths[1], given)
    if plans == [False, True] and not given["prefetch"]:
        return _build(paths[0], paths[1], given)
    said = f"convert panel {' '.join(given['words'])}".strip()
    raise plain.wrong(said, forms=FORMS, help_of="arflow-eval convert panel")


def _build(root: Path, out: Path, given: Mapping[str, Any]) -> int:
    if not root.is_dir():
        raise refusal.usage(f"no folder {root}", expected="datasets", remedy="check ROOT")
    library("pyarrow", extra="lerobot")  # else every set would seem unreadable
    repos = repos_under(root) if given["repos"] is None else given["repos"].split(",")
    rule = _rule(given)
    built = build(root, repos, rule, cache=_cache(given))
    for line in built.left_out:
        plain.say(f"left out     {line}")
    if not built.core:
        raise refusal.guard(
            f"none of {len(repos)} datasets under {root} gives a frame",
            expected="a dataset that the filters take, with held-out episodes",
            remedy="widen --fps, --cameras or --holdout",
        )
    _write(out, built.core, built.labeled, rule.published())
    _say_labels(built, rule)
    plain.say(f"wrote        {out}")
    return _show(read_plan(out, digest=None))


def _thin(path: Path, out: Path, given: Mapping[str, Any]) -> int:
    """A share of another plan's core frames, with its settings and its digest."""
    plan = read_plan(path, digest=None, key="the path")
    shares = plain.numbers(given, "--keep", least=0.0, most=1.0)
    if len(shares) != 1:
        raise plain.wrong(f"--keep with {len(shares)} numbers", forms="one share")
    core = thinned(plan.core, share=shares[0], seed=_count(given, "--seed", most=LARGEST))
    settings = {**plan.settings, "keep": shares[0], "subset_of": plan.digest}
    _write(out, core, [], settings)
    plain.say(f"wrote        {out}")
    return _show(read_plan(out, digest=None))


def _write(
    out: Path, core: Sequence[FrameId], labeled: Sequence[FrameId], settings: Mapping[str, Any]
) -> None:
    """Write a plan; one that is there already must be the same."""
    fresh = out.with_name(f".{out.name}.part")
    digest = write_plan(fresh, core=core, labeled=labeled, settings=settings)
    if out.exists() and read_plan(out, digest=None).digest != digest:
        fresh.unlink()
        raise refusal.usage(
            f"{out} holds another plan",
            expected="a new file, or one with the same plan",
            remedy="choose another name: a frozen panel is never overwritten",
        )
    fresh.replace(out)


def _say_labels(built: Built, rule: Rule) -> None:
    if not built.unlabeled:
        return
    whose = f"{len(built.unlabeled)} of the repos taken"
    if not built.labeled:
        whose = "any repo taken"
    plain.say(f"no labels    no column {rule.progress} in {whose}: no labeled frames there")


def _rule(given: Mapping[str, Any]) -> Rule:
    holdout = plain.numbers(given, "--holdout", least=0.0, most=1.0)
    if len(holdout) != 1:
        raise plain.wrong(f"--holdout with {len(holdout)} numbers", forms="one share")
    return Rule(
        plan_seed=_count(given, "--seed", most=LARGEST),
        frames_per_episode=_count(given, "--core"),
        labeled_per_episode=_count(given, "--labeled"),
        holdout_episodes=holdout[0],
        split_seed=_count(given, "--split-seed", most=LARGEST),
        fps=plain.numbers(given, "--fps", least=1e-3, most=1e5),
        camera_counts=tuple(map(int, plain.numbers(given, "--cameras", least=0.0, most=100.0))),
        progress=given["progress"],
    )


def _count(given: Mapping[str, Any], flag: str, *, most: float = 1e6) -> int:
    found = plain.numbers(given, flag, least=0.0, most=most)
    if len(found) != 1 or found[0] != int(found[0]):
        raise plain.wrong(f"{flag} {','.join(f'{one:g}' for one in found)}", forms="one integer")
    return int(found[0])


def _show(plan: Plan) -> int:
    counts = Counter(frame.repo for frame in plan.frames)
    episodes = {frame[:2] for frame in plan.frames}
    for repo, count in sorted(counts.items())[:SHOWN]:
        plain.say(f"{count:>8,} frames  {repo}")
    if len(counts) > SHOWN:
        plain.say(f"{'…':>8}         and {len(counts) - SHOWN:,} more repos")
    plain.say(
        f"{len(plan.frames):,} frames ({len(plan.core):,} core, {len(plan.labeled):,} labeled) of "
        f"{len(episodes):,} episodes of {len(counts):,} repos"
    )
    plain.say(f"digest       {plan.digest}")
    return 0


def _pin(path: Path, out: Path) -> int:
    plan = read_plan(path, digest=None, key="the path")
    if out.exists():
        raise refusal.usage(f"{out} exists", expected="a new file", remedy="choose another name")
    found = prefetch.heads(sorted({frame.repo for frame in plan.frames}))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    plain.say(f"pinned {len(found):,} repos in {out}")
    return 0


def _prefetch(path: Path, root: Path, given: Mapping[str, Any]) -> int:
    plan = read_plan(path, digest=None, key="the path")
    if given["revisions"] is None:
        raise plain.wrong("--prefetch without --revisions", forms="the commit of every repo")
    revisions = prefetch.read_revisions(Path(given["revisions"]).expanduser())
    videos = not given["no_videos"]
    found = prefetch.fetch(plan, root, revisions=revisions, videos=videos, cache=_cache(given))
    for each in found:
        plain.say(f"{each.files:>6,} files of {each.episodes:,} episodes  {each.repo}")
    return 0


def _cache(given: Mapping[str, Any]) -> Path:
    return Path(given["cache"]).expanduser() if given["cache"] else default_folder()


if __name__ == "__main__":
    sys.exit(main())
