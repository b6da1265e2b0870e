"""What both training scripts share: training episodes, their mirror image, held-out error.

PushT's goal is symmetric under (x, y) -> (512 - y, 512 - x), so every episode has a mirror
image that is as good a demonstration. `--development` sets training episodes aside to try
settings on; the final run trains on all of them, and each model card says what was chosen how.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from arflow_eval.contracts import FrameDraws, FrameId, Observation
from arflow_eval.model.baseline import hold_action, hold_state
from arflow_eval.panel.bundled import DATA, demonstrations, statistics

STEPS = 50
PAST = (60, 40, 25, 15, 9, 5, 3, 1, 0)  # frames back that a policy sees, oldest first
SIDE = 512


@dataclass(frozen=True)
class Episode:
    """States and actions of an episode [frame, 2], in pixels."""

    states: np.ndarray
    actions: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """AdamW's settings, a warm-up with a cosine decay, and the averaging of the weights."""

    rate: float
    warmup: int
    decay: float
    second_moment: float
    average: float
    log_every: int


def minimise(
    module: torch.nn.Module, loss_of: Callable[[], torch.Tensor], schedule: Schedule, *, steps: int
) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """Take `steps` steps on fresh losses; returns averaged weights and the loss curve."""
    optimiser = torch.optim.AdamW(
        module.parameters(),
        lr=schedule.rate,
        weight_decay=schedule.decay,
        betas=(0.9, schedule.second_moment),
    )
    average = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    curve: list[dict[str, float]] = []
    started, recent = time.monotonic(), []
    for step in range(1, steps + 1):
        cosine = 0.5 + 0.5 * np.cos(np.pi * step / steps)
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * min(1, step / schedule.warmup) * cosine
        loss = loss_of()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        keep = min(schedule.average, step / (step + 10))
        for name, tensor in module.state_dict().items():
            average[name].lerp_(tensor, 1 - keep)
        recent.append(loss.item())
        if step % schedule.log_every == 0:
            minutes = (time.monotonic() - started) / 60
            entry = {"step": step, "minutes": minutes, "loss": float(np.mean(recent))}
            curve.append({name: round(value, 4) for name, value in entry.items()})
            print(curve[-1], flush=True)
            recent = []
    return average, curve


def arguments(*, steps: int) -> argparse.Namespace:
    """The command line of a training script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more are often slower")
    parser.add_argument("--development", action="store_true", help="set 24 training episodes aside")
    return parser.parse_args()


def split(*, development: bool) -> tuple[list[int], list[int]]:
    """Episodes to train on and to score: development episodes, or the public held-out ones."""
    lists = json.loads((DATA / "pusht_split.json").read_text())
    if not development:
        return lists["training"], lists["public"]
    order = np.random.default_rng(5).permutation(len(lists["training"]))
    shuffled = [lists["training"][i] for i in order]
    return shuffled[24:], shuffled[:24]


def episode(number: int) -> Episode:
    """An episode of the bundled corpus."""
    corpus = demonstrations()
    rows = corpus.rows(number)
    return Episode(corpus.states[rows].astype(np.float32), corpus.actions[rows].astype(np.float32))


def mirrored(seen: Episode) -> Episode:
    """The episode's image under the goal's symmetry."""
    return Episode(SIDE - seen.states[:, ::-1], SIDE - seen.actions[:, ::-1])


def chunk_at(seen: Episode, frame: int) -> tuple[np.ndarray, np.ndarray]:
    """The next 50 actions, the last one repeated past the end, and which of them are real."""
    steps = np.arange(frame, frame + STEPS)
    last = len(seen.actions) - 1
    return seen.actions[np.minimum(steps, last)], steps <= last


def relative_chunk(seen: Episode, frame: int) -> np.ndarray:
    """The chunk at a frame, relative to the state there."""
    return chunk_at(seen, frame)[0].astype(np.float64) - seen.states[frame]


def observation_at(number: int, seen: Episode, frame: int) -> Observation:
    """What a policy may see at a frame of an episode."""
    corpus = demonstrations()
    return Observation(
        frame=FrameId(corpus.repo, number, frame),
        index=int(corpus.starts[number]) + frame,
        task=corpus.task,
        states=seen.states[: frame + 1],
        actions=seen.actions[:frame],
        statistics=statistics(),
    )


def held_out(
    decodes: Mapping[str, Callable[[Observation], FrameDraws]], episodes: list[int], *, every: int
) -> dict[str, float]:
    """Chunk MAE in pixels of each decode's mean and of two baselines, on strided frames."""
    totals: dict[str, float] = {}
    elements = 0
    for number in episodes:
        seen = episode(number)
        for frame in range(every // 2, len(seen.states), every):
            observation = observation_at(number, seen, frame)
            truth, valid = chunk_at(seen, frame)
            guesses = {name: decode(observation).prediction for name, decode in decodes.items()}
            guesses["hold_last"] = hold_action(observation, STEPS)[None]
            guesses["state_copy"] = hold_state(observation, STEPS)[None]
            elements += int(valid.sum()) * 2
            for name, guess in guesses.items():
                error = float(np.abs(guess.mean(axis=0) - truth)[valid].sum())
                totals[name] = totals.get(name, 0.0) + error
    return {name: round(total / elements, 2) for name, total in totals.items()}


def write_log(
    options: argparse.Namespace,
    *,
    error: Mapping[str, float],
    episodes: int,
    curve: list[dict[str, float]],
) -> None:
    """training_log.json: the command, the loss curve and the held-out error."""
    log = {
        "seed": options.seed,
        "steps": options.steps,
        "threads": options.threads,
        "training_episodes": episodes,
        "held_out_chunk_mae_px": dict(error),
        "curve": curve,
    }
    (options.out / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")
    print(log["held_out_chunk_mae_px"])
