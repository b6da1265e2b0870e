"""Autoregressive policies on a Gemma 3 text trunk, with FAST action tokens.

A checkpoint folder holds config.json (trunk, codec, prompt and the conditions that training
dropped), model.safetensors, tokenizer.json, fast.json (the codec's merges) and
norm_stats.json (q01/q99 of states and actions).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig
from transformers.cache_utils import DynamicLayer

from arflow_eval import refusal
from arflow_eval.codec import fast, normalise
from arflow_eval.contracts import Observation, Space, Suffix
from arflow_eval.decode.grammar import SymbolBudget
from arflow_eval.model import checkpoint
from arflow_eval.model import prompt as prompts

TRUNK: Final = "gemma3_text"


@dataclass(frozen=True)
class ArPolicy:
    """A token policy.

    Where `relative` is set, actions are told from the first `action_dim` dimensions of the
    present state on.
    """

    trunk: Any
    prompt: prompts.Prompt
    codec: fast.FastCodec
    quantiles: normalise.Quantiles
    suffix: Suffix
    grammar: SymbolBudget
    relative: bool

    @property
    def horizon(self) -> int:
        """Steps of a chunk."""
        return self.codec.steps

    @property
    def action_dim(self) -> int:
        """Action dimensions."""
        return self.codec.actions

    def prefill(self, observation: Observation) -> DynamicCache:
        """A cache of one row that holds the prompt."""
        cache = DynamicCache()
        ids = self.prompt.encode(observation.task, observation.states)
        self.extend(cache, np.array([ids]))
        return cache

    def fork(self, cache: DynamicCache, *, rows: int) -> DynamicCache:
        """A cache of `rows` equal rows; growing it leaves the original alone."""
        forked = DynamicCache()
        for layer, kept in enumerate(cache.layers):
            if not isinstance(kept, DynamicLayer) or kept.keys is None or kept.values is None:
                raise TypeError(f"{type(kept).__name__} is no filled append-only cache layer")
            keys, values = (each.expand(rows, -1, -1, -1) for each in (kept.keys, kept.values))
            forked.update(keys.contiguous(), values.contiguous(), layer)
        return forked

    def extend(
        self, cache: DynamicCache, tokens: Int[np.ndarray, "row position"]
    ) -> Float32[np.ndarray, "row id"]:
        """Append tokens to each row; the logits after the last."""
        ids = torch.from_numpy(tokens).to(self.trunk.device)
        with torch.inference_mode():
            out = self.trunk(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: Float32[np.ndarray, "row id"] = out.logits[:, -1].float().cpu().numpy()
        return logits

    def text(self, tokens: Sequence[int]) -> str:
        """Auxiliary tokens as text."""
        return prompts.text_of(self.prompt.tokenizer, tokens)

    def chunk(
        self, observation: Observation, tokens: Sequence[int]
    ) -> Float64[np.ndarray, "step action"]:
        """An action block in raw units. Raises ValueError where it is not a whole chunk."""
        codes = np.asarray(tokens) - self.prompt.actions_from
        chunk = self.quantiles.restore(self.codec.decode(codes.tolist()))
        if self.relative:
            chunk = chunk + observation.state[: self.action_dim]
        return chunk


def load(
    *, folder: Path | None, dtype: str, device: str, threads: int, steps: int, space: Space
) -> ArPolicy:
    """A checkpoint folder as a policy, its tensors checked against the file."""
    if folder is None:
        raise TypeError("an autoregressive policy is loaded from a folder")
    del steps, space  # a checkpoint knows its own; the evaluation compares them
    checkpoint.use_device(device, threads=threads)
    config = checkpoint.read_config(folder, kind="token")
    if config.get("trunk") != TRUNK:
        raise refusal.usage(
            f"checkpoint {folder.name} has the trunk {config.get('trunk')}",
            expected=TRUNK,
            remedy="choose the model that has this trunk",
        )
    tables = checkpoint.read_json(folder, "norm_stats.json")
    tokenizer, merges = (checkpoint.part(folder, f"{name}.json") for name in ("tokenizer", "fast"))
    with checkpoint.described(folder):
        policy = assemble(
            Gemma3ForCausalLM(trunk_config(config["trunk_config"])),
            prompt=prompts.load(tokenizer, config["prompt"], normalise.from_json(tables["state"])),
            codec=fast.load(merges, **config["codec"]),
            quantiles=normalise.from_json(tables["action"]),
            relative=bool(config["relative"]),
        )
    checkpoint.load_weights(policy.trunk, folder, dtype=getattr(torch, dtype))
    policy.trunk.to(device)
    return policy


def assemble(
    trunk: Any,
    *,
    prompt: prompts.Prompt,
    codec: fast.FastCodec,
    quantiles: normalise.Quantiles,
    relative: bool,
) -> ArPolicy:
    """A policy of its parts; the grammar follows from the codec and the vocabulary's layout."""
    grammar = SymbolBudget(
        ids=prompt.actions_from + np.arange(codec.size),
        lengths=codec.lengths(),
        start=codec.budget,
    )
    return ArPolicy(
        trunk=trunk,
        prompt=prompt,
        codec=codec,
        quantiles=quantiles,
        suffix=prompt.suffix(),
        grammar=grammar,
        relative=relative,
    )


def trunk_config(settings: dict[str, Any]) -> Gemma3TextConfig:
    """The trunk's configuration: every layer attends to the whole prompt."""
    config = Gemma3TextConfig(
        **settings,
        layer_types=["full_attention"] * int(settings["num_hidden_layers"]),
        tie_word_embeddings=True,
    )
    config._attn_implementation = "sdpa"  # noqa: SLF001 - the way transformers itself sets it
    return config
