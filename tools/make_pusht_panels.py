"""Freeze the bundled panels: split the PushT episodes, list frames, write training statistics.

Run once, by hand; its outputs are committed, and conf/panel pins their digests:

    python tools/make_pusht_panels.py

40 % of the episodes are held out. Half of those make `pusht` (4 core frames an episode),
`pusht_q4` (one of those four: a quarter) and `pusht_full` (every frame); the other half
makes `pusht_sealed`, which nothing scores, prints or trains on before a registration does.
"""

import json

import numpy as np

from arflow_eval.contracts import FrameId
from arflow_eval.panel.bundled import DATA, SPACE, demonstrations
from arflow_eval.panel.plan import pick_core, split_episodes, write_plan

SPLIT_SEED = 20261130
PLAN_SEED = 0
HOLDOUT = 0.4


def main() -> None:
    """Write data/pusht_split.json, pusht_stats.json and the four plans; print their digests."""
    corpus = demonstrations()
    training, held = split_episodes(len(corpus.starts) - 1, holdout=HOLDOUT, seed=SPLIT_SEED)
    order = np.random.default_rng([SPLIT_SEED, 1]).permutation(len(held))
    public = sorted(held[i] for i in order[: len(held) // 2])
    sealed = sorted(set(held) - set(public))
    split = {"split_seed": SPLIT_SEED, "holdout_episodes": HOLDOUT}
    lists = {"training": training, "public": public, "sealed": sealed}
    (DATA / "pusht_split.json").write_text(json.dumps(split | lists) + "\n")
    write_statistics(training)

    core = pick_core(lengths(public), repo=corpus.repo, per_episode=4, seed=PLAN_SEED)
    quarter = [
        core[4 * i + int(np.random.default_rng([PLAN_SEED, 1, episode]).integers(4))]
        for i, episode in enumerate(public)
    ]
    every = [FrameId(corpus.repo, e, f) for e in public for f in range(corpus.length(e))]
    closed = pick_core(lengths(sealed), repo=corpus.repo, per_episode=4, seed=PLAN_SEED)
    plans = {"pusht": (core, 4), "pusht_q4": (quarter, 1), "pusht_full": (every, None)}
    for name, (frames, per_episode) in (plans | {"pusht_sealed": (closed, 4)}).items():
        settings = {
            "version": 1,
            "plan_seed": PLAN_SEED,
            "frames_per_episode": per_episode,
            "labeled_per_episode": 0,
            "episodes": "holdout",
            **split,
            "split_seed": SPLIT_SEED,
            "fps": [SPACE.fps],
            "camera_counts": [0],
        }
        digest = write_plan(DATA / f"{name}.json", core=frames, settings=settings)
        print(f"{name:14s} {len(frames):6d} frames  sha256 {digest}")


def lengths(episodes: list[int]) -> dict[int, int]:
    """Frames an episode."""
    return {episode: demonstrations().length(episode) for episode in episodes}


def write_statistics(training: list[int]) -> None:
    """Mean, standard deviation and q01/q99 of states and actions over the training episodes."""
    corpus = demonstrations()
    tables: dict[str, object] = {"repo": corpus.repo, "made_from": "training episodes only"}
    for name, column in (("state", corpus.states), ("action", corpus.actions)):
        values = np.concatenate([column[corpus.rows(e)] for e in training]).astype(np.float64)
        tables[f"{name}_mean"] = values.mean(axis=0).tolist()
        tables[f"{name}_std"] = values.std(axis=0).tolist()
        tables[f"{name}_q01"] = np.quantile(values, 0.01, axis=0).tolist()
        tables[f"{name}_q99"] = np.quantile(values, 0.99, axis=0).tolist()
    (DATA / "pusht_stats.json").write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
