"""Train `model=ar_tiny`: a small Gemma 3 text trunk with FAST action tokens, on PushT.

    python tools/train_ar_tiny.py --out src/arflow_eval/model/bundled/ar_tiny

It trains on the training episodes only, in under 25 minutes on a CPU, and scores the held-out
episodes of panel=pusht once, at the end. A tenth of the prompts have their states masked, so
that the checkpoint can also be asked what it predicts without them.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from arflow_eval.codec import fast, normalise
from arflow_eval.contracts import FrameDraws, Line, Observation, Sampling
from arflow_eval.decode.frames import decode
from arflow_eval.model import gemma3
from arflow_eval.model.ar import ArPolicy, assemble
from arflow_eval.model.bin_prompt import SPECIALS, BinPrompt
from arflow_eval.panel.bundled import demonstrations
from pusht_training import (
    PAST,
    Episode,
    Schedule,
    arguments,
    episode,
    held_out,
    minimise,
    mirrored,
    relative_chunk,
    split,
    write_log,
)

TRUNK = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "attention_dropout": 0.0,
    "layer_types": ["full_attention"] * 3,
    "tie_word_embeddings": True,
}
SCALE, ACTION_TOKENS, BINS = 6.0, 256, 256
BATCH, DROPOUT, JITTER = 32, 0.1, 2.0
SCHEDULE = Schedule(
    rate=1.5e-3, warmup=100, decay=0.05, second_moment=0.98, average=0.999, log_every=100
)


def text_tokenizer(task: str) -> Tokenizer:
    """Byte-level BPE on the instruction and the auxiliary line; every digit is a token."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [task] * 50 + [f"progress: {percent}%" for percent in range(101)]
    tokenizer.train_from_iterator(corpus, trainer=trainer)
    return tokenizer


def parts(training: list[Episode]) -> tuple[BinPrompt, fast.FastCodec, normalise.Quantiles]:
    """The prompt, codec and tables, all fitted on training episodes."""
    prompt = BinPrompt(
        tokenizer=text_tokenizer(demonstrations().task),
        quantiles=normalise.quantiles(np.concatenate([seen.states for seen in training])),
        past=PAST,
        bins=BINS,
        lines=(Line(name="progress", budget=8),),
    )
    chunks = np.stack([relative_chunk(e, t) for e in training for t in range(0, len(e.states), 3)])
    quantiles = normalise.quantiles(chunks)
    codec = fast.fit(quantiles.normalise(chunks), scale=SCALE, size=ACTION_TOKENS)
    return prompt, codec, quantiles


class Examples:
    """Every frame of every training episode; states are jittered and masked afresh each time."""

    def __init__(self, training: list[Episode], policy: ArPolicy) -> None:
        self.policy, self.training = policy, training
        self.where = [(e, t) for e, seen in enumerate(training) for t in range(len(seen.states))]
        self.suffixes = [self.suffix(training[e], t) for e, t in self.where]
        task = policy.prompt.words(demonstrations().task)
        prompt = policy.prompt
        self.head = [prompt.special("<bos>"), *task, prompt.special("<states>")]
        request = [token for line in prompt.lines for token in prompt.words(line.name)]
        self.tail = [prompt.special("<request>"), *request]

    def suffix(self, seen: Episode, frame: int) -> list[int]:
        """The target: opener, progress line, begin marker, action block."""
        policy = self.policy
        percent = round(100 * frame / max(len(seen.states) - 1, 1))
        chunk = policy.quantiles.normalise(relative_chunk(seen, frame))
        codes = [policy.prompt.actions_from + code for code in policy.codec.encode(chunk)]
        words = policy.prompt.words(f"progress: {percent}%\n")
        return [*policy.suffix.opener, *words, policy.suffix.begin, *codes]

    def batch(self, stream: np.random.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and targets [row, position]; targets are -100 on the prompt and the padding."""
        rows = []
        for pick in stream.integers(len(self.where), size=size):
            e, frame = self.where[pick]
            past = self.training[e].states[: frame + 1]
            shaken = past + stream.normal(0, JITTER, past.shape).astype(np.float32)
            masked = bool(stream.random() < DROPOUT)
            states = self.policy.prompt.state_ids(shaken, masked=masked)
            rows.append(([*self.head, *states, *self.tail], self.suffixes[pick]))
        longest = max(len(prompt) + len(suffix) for prompt, suffix in rows)
        ids = np.zeros((size, longest), dtype=np.int64)
        targets = np.full((size, longest), -100, dtype=np.int64)
        for row, (prompt, suffix) in enumerate(rows):
            end = len(prompt) + len(suffix)
            ids[row, :end] = prompt + suffix
            targets[row, len(prompt) + 1 : end] = suffix[1:]
        return torch.from_numpy(ids), torch.from_numpy(targets)


def train(
    trunk: torch.nn.Module, examples: Examples, *, steps: int, seed: int
) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """Cross-entropy of the suffix; averaged weights and the loss curve."""
    stream = np.random.default_rng(seed)

    def loss() -> torch.Tensor:
        ids, targets = examples.batch(stream, BATCH)
        first = int((targets != -100).any(dim=0).nonzero()[0])
        logits = trunk(ids, use_cache=False, logits_to_keep=ids.shape[1] - first + 1).logits
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), targets[:, first:].flatten()
        )

    return minimise(trunk, loss, SCHEDULE, steps=steps)


def write(out: Path, policy: ArPolicy, weights: dict[str, torch.Tensor]) -> None:
    """The checkpoint folder."""
    out.mkdir(parents=True, exist_ok=True)
    tied = {n: t.contiguous() for n, t in weights.items() if n != "lm_head.weight"}
    save_file(tied, out / "model.safetensors", metadata={"format": "pt"})
    policy.prompt.tokenizer.save(str(out / "tokenizer.json"))
    policy.codec.tokenizer.save(str(out / "fast.json"))
    tables = {"state": policy.prompt.quantiles, "action": policy.quantiles}
    stats = {name: normalise.to_json(table) for name, table in tables.items()}
    (out / "norm_stats.json").write_text(json.dumps(stats, indent=1) + "\n")
    codec = policy.codec
    numbers = ("scale", "low", "high", "steps", "actions")
    config = {
        "format": 1,
        "kind": "token",
        "trunk": "gemma3_text",
        "trunk_config": {**TRUNK, "vocab_size": policy.vocabulary},
        "codec": {"kind": "fast", **{name: getattr(codec, name) for name in numbers}},
        "relative": policy.relative,
        "prompt": {
            "format": "bins",
            "past": list(PAST),
            "bins": BINS,
            "lines": [{"name": line.name, "budget": line.budget} for line in policy.prompt.lines],
        },
        "conditions": {"state": {"dropout": DROPOUT}},
    }
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    """Train, write, score."""
    options = arguments(steps=6000)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    training, scored = split(development=options.development)
    seen = [episode(number) for number in training]
    both = seen + [mirrored(one) for one in seen]
    prompt, codec, quantiles = parts(both)
    settings = {**TRUNK, "vocab_size": prompt.actions_from + codec.size}
    trunk = gemma3.text(settings)
    policy = assemble(trunk, prompt=prompt, codec=codec, quantiles=quantiles, relative=True)
    model = trunk.model
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    weights, curve = train(model, Examples(both, policy), steps=options.steps, seed=options.seed)
    model.load_state_dict(weights)
    model.eval()
    write(options.out, policy, weights)

    def decoded(seen: Observation, *, draws: int, at: float) -> FrameDraws:
        return decode(policy, [seen], Sampling(draws=draws, seed=0, tile=4, T=at))[0]

    ways = {"greedy": {"draws": 1, "at": 0.0}, "mean_of_10": {"draws": 10, "at": 1.0}}
    decodes = {name: partial(decoded, **how) for name, how in ways.items()}
    error = held_out(decodes, scored, every=29)
    write_log(options, error=error, episodes=len(training), curve=curve)


if __name__ == "__main__":
    main()
