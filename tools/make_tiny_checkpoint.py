"""Write a tiny random checkpoint of any trunk, in the format of docs/checkpoints.md.

    python tools/make_tiny_checkpoint.py gemma4 /tmp/tiny --steps 8 --cameras front,wrist

It predicts nothing. It is for tests and for trying out a pipeline: two state and two action
dimensions in 0...512, as on PushT, and three auxiliary lines, one of them with candidates.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from arflow_eval.codec import bins, fast
from arflow_eval.model import checkpoint
from tiny_trunks import KINDS, Ids

SPECIALS = ("<pad>", "<bos>", "<open>", "<actions>", "<boi>", "<image>", "<eoi>")
LINES = (
    {"name": "gripper", "budget": 4, "candidates": ["open", "closed"]},
    {"name": "subgoal", "budget": 6},
    {"name": "progress", "budget": 4},
)
SENTENCES = (
    "Push the block to the goal",
    "Task: State: Say: gripper, subgoal, progress",
    "unknown",
)
REACH, BINS, SCALE, ACTION_TOKENS = 512.0, 32, 4.0, 64
CAMERAS = ("front", "wrist")


def text_tokenizer() -> Tokenizer:
    """Byte-level BPE on a few sentences; every digit and the newline are tokens of their own."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=300,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 4, trainer=trainer)
    return tokenizer


def fast_codec(*, steps: int, actions: int, seed: int) -> fast.FastCodec:
    """A codec fitted on smooth chunks: a line from anywhere to anywhere, and a wave on it."""
    stream = np.random.default_rng(seed)
    time = np.linspace(0, 1, steps)[:, None]
    chunks = []
    for _ in range(200):
        start, stop = stream.uniform(-0.8, 0.8, (2, actions))
        wave = stream.uniform(0, 0.2, actions) * np.sin(stream.uniform(0, 6) + 6 * time)
        chunks.append(start + (stop - start) * time + wave)
    return fast.fit(chunks, scale=SCALE, size=ACTION_TOKENS)


def segments(tokenizer: Tokenizer, cameras: Sequence[str]) -> list[dict[str, Any]]:
    """The prompt: images first, then the task, the state and what is to be said."""
    newline = {"text": "\n"}
    return [
        {"ids": [tokenizer.token_to_id("<bos>")]},
        *(segment for name in cameras for segment in ({"image": name}, newline)),
        {"text": "Task: "},
        {"field": "task"},
        {"text": "\nState: "},
        {"field": "state", "masked": "unknown"},
        {"text": "\nSay: "},
        {"field": "request"},
        newline,
    ]


def write(
    out: Path,
    kind: str,
    *,
    seed: int = 0,
    steps: int = 50,
    states: int = 2,
    actions: int = 2,
    cameras: Sequence[str] | None = None,
    codec: str = "fast",
    text_config: Mapping[str, Any] | None = None,
) -> None:
    """A checkpoint folder; `text_config` changes settings of the trunk's text model.

    Raises ValueError where a text trunk is given cameras.
    """
    chosen = KINDS[kind]
    shown = (CAMERAS if chosen.sees else ()) if cameras is None else tuple(cameras)
    if shown and not chosen.sees:
        raise ValueError(f"cameras {', '.join(shown)}; a {kind} trunk sees none")
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = text_tokenizer()
    tokenizer.save(str(out / "tokenizer.json"))
    spoken = _write_codec(out, codec, steps=steps, actions=actions, seed=seed)
    ids = _ids(tokenizer, actions=spoken.pop("size"))
    settings = chosen.settings(ids)
    (settings if kind.endswith("_text") else settings["text_config"]).update(text_config or {})
    module = chosen.build(settings).model
    initialise(module, seed=seed)
    tensors = {name: each.contiguous() for name, each in checkpoint.own_tensors(module).items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    tables = {
        name: {"q01": [0.0] * count, "q99": [REACH] * count}
        for name, count in (("state", states), ("action", actions))
    }
    _write_json(out / "norm_stats.json", tables)
    _write_json(
        out / "config.json",
        {
            "format": checkpoint.FORMAT,
            "kind": "token",
            "trunk": kind,
            "trunk_config": settings,
            "codec": spoken,
            "relative": False,
            "prompt": {
                "format": "text",
                "segments": segments(tokenizer, shown),
                "bins": BINS,
                "opener": [tokenizer.token_to_id("<open>")],
                "newline": tokenizer.encode("\n").ids[0],
                "begin": tokenizer.token_to_id("<actions>"),
                "actions_from": tokenizer.get_vocab_size(),
                "lines": list(LINES),
            },
            "conditions": {name: {"dropout": 0.5} for name in ("state", "subgoal")},
        },
    )


def initialise(module: torch.nn.Module, *, seed: int) -> None:
    """Every matrix normal with variance 1 / fan-in, biases 0; norms stay the identity.

    With the usual small initialisation images would move the logits by 1e-7 alone.
    """
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                convolution = parameter.dim() == 4
                fan_in = parameter[0].numel() if convolution else parameter.shape[-1]
                parameter.normal_(std=fan_in**-0.5, generator=stream)
            elif name.endswith("bias"):
                parameter.zero_()


def _ids(tokenizer: Tokenizer, *, actions: int) -> Ids:
    padding, begin, _, _, before, image, after = map(tokenizer.token_to_id, SPECIALS)
    return Ids(tokenizer.get_vocab_size() + actions, padding, begin, before, image, after)


def _write_codec(out: Path, kind: str, *, steps: int, actions: int, seed: int) -> dict[str, Any]:
    """The codec's part of config.json, and its `size`; fast.json where it has merges."""
    shape = {"steps": steps, "actions": actions}
    if kind == "bins":
        return {"kind": kind, "bins": BINS, "size": bins.BinCodec(BINS, **shape).size, **shape}
    made = fast_codec(**shape, seed=seed)
    made.tokenizer.save(str(out / "fast.json"))
    numbers = {"scale": made.scale, "low": made.low, "high": made.high}
    return {"kind": kind, "size": made.size, **numbers, **shape}


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("out", type=Path)
    for name, number in (("seed", 0), ("steps", 50), ("states", 2), ("actions", 2)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--cameras", type=lambda names: tuple(filter(None, names.split(","))))
    parser.add_argument("--codec", choices=["fast", "bins"], default="fast")
    options = parser.parse_args()
    write(**vars(options))
    print(f"wrote {options.out} ({options.kind})")


if __name__ == "__main__":
    main()
