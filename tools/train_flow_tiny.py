"""Train `model=flow_tiny`: a flow-matching policy over past states, on PushT.

    python tools/train_flow_tiny.py --out src/arflow_eval/model/bundled/flow_tiny

It trains on the training episodes only, and scores the held-out episodes of panel=pusht once,
at the end.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from arflow_eval.codec import normalise
from arflow_eval.decode.solver import decode_frame
from arflow_eval.model.flow import Expert, assemble, state_features
from pusht_training import (
    PAST,
    STEPS,
    Episode,
    Schedule,
    arguments,
    chunk_at,
    episode,
    held_out,
    minimise,
    mirrored,
    relative_chunk,
    split,
    write_log,
)

EXPERT = {
    "features": len(PAST) * 5,
    "chunk": STEPS * 2,
    "context": 192,
    "width": 256,
    "blocks": 3,
    "spread": 0.4,
}
BATCH, JITTER, PADDED_WEIGHT = 256, 2.0, 0.1
SCHEDULE = Schedule(
    rate=1e-3, warmup=200, decay=0.02, second_moment=0.999, average=0.9995, log_every=500
)


def tables(training: list[Episode]) -> dict[str, dict[str, list[float]]]:
    """q01/q99 of states and of chunks relative to the state, over training episodes."""
    chunks = np.stack([relative_chunk(e, t) for e in training for t in range(0, len(e.states), 3)])
    states = np.concatenate([seen.states for seen in training])
    made = {"state": normalise.quantiles(states), "action": normalise.quantiles(chunks)}
    return {name: normalise.to_json(table) for name, table in made.items()}


class Examples:
    """Every frame of every training episode; states are jittered afresh each time."""

    def __init__(self, training: list[Episode], stats: dict[str, dict[str, list[float]]]) -> None:
        self.training = training
        self.states = normalise.from_json(stats["state"])
        actions = normalise.from_json(stats["action"])
        self.where = [(e, t) for e, seen in enumerate(training) for t in range(len(seen.states))]
        chunks = [relative_chunk(training[e], t) for e, t in self.where]
        valid = [chunk_at(training[e], t)[1] for e, t in self.where]
        self.chunks = actions.normalise(np.stack(chunks)).astype(np.float32)
        self.weights = np.where(np.stack(valid), 1, PADDED_WEIGHT).astype(np.float32)

    def batch(self, stream: np.random.Generator, size: int) -> tuple[torch.Tensor, ...]:
        """Features, chunks and weights [row, …]."""
        picks = stream.integers(len(self.where), size=size)
        features = []
        for pick in picks:
            e, frame = self.where[pick]
            past = self.training[e].states[: frame + 1]
            shaken = past + stream.normal(0, JITTER, past.shape).astype(np.float32)
            features.append(state_features(shaken, past=PAST, quantiles=self.states))
        weights = np.repeat(self.weights[picks], 2, axis=1)
        chunks = self.chunks[picks].reshape(size, -1)
        return tuple(map(torch.from_numpy, (np.stack(features), chunks, weights)))


def train(
    expert: Expert, examples: Examples, *, steps: int, seed: int
) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """Conditional flow matching with straight paths; averaged weights and the loss curve."""
    stream, noise = np.random.default_rng(seed), torch.Generator().manual_seed(seed)

    def loss() -> torch.Tensor:
        features, chunk, weight = examples.batch(stream, BATCH)
        start = torch.randn(chunk.shape, generator=noise)
        at = torch.rand(len(chunk), generator=noise)
        point = start + at[:, None] * (chunk - start)
        velocity = expert(expert.encoder(features), point, at)
        return ((velocity - (chunk - start)) ** 2 * weight).sum() / weight.sum()

    return minimise(expert, loss, SCHEDULE, steps=steps)


def write(out: Path, config: dict[str, object], stats: dict[str, object], expert: Expert) -> None:
    """The checkpoint folder."""
    out.mkdir(parents=True, exist_ok=True)
    save_file(expert.state_dict(), out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / "norm_stats.json").write_text(json.dumps(stats, indent=1) + "\n")


def main() -> None:
    """Train, write, score."""
    options = arguments(steps=5000)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    training, scored = split(development=options.development)
    seen = [episode(number) for number in training]
    both = seen + [mirrored(one) for one in seen]
    stats = tables(both)
    expert = Expert(**EXPERT)
    print(f"{sum(p.numel() for p in expert.parameters()):,} parameters", flush=True)
    weights, curve = train(expert, Examples(both, stats), steps=options.steps, seed=options.seed)
    expert.load_state_dict(weights)
    expert.eval()
    config = {
        "format": 1,
        "kind": "flow",
        "expert": EXPERT,
        "past": list(PAST),
        "steps": STEPS,
        "actions": 2,
    }
    write(options.out, config, stats, expert)
    policy = assemble(expert, config, stats)
    error = held_out(
        {
            f"mean_of_{draws}": lambda observation, draws=draws: decode_frame(
                policy, observation, draws=draws, steps=10, solver="euler", seed=0
            )
            for draws in (1, 10)
        },
        scored,
        every=29,
    )
    write_log(options, error=error, episodes=len(training), curve=curve)


if __name__ == "__main__":
    main()
