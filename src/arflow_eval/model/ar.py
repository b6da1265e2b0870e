"""Autoregressive policies: a trunk, a prompt, a codec of action chunks.

A checkpoint folder holds config.json (trunk, codec, prompt and the conditions that training
dropped), model.safetensors, tokenizer.json, norm_stats.json (q01/q99 of states and actions)
and, for FAST tokens, fast.json (the codec's merges). docs/checkpoints.md describes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor
from transformers import DynamicCache

from arflow_eval.codec import bins, fast, normalise
from arflow_eval.contracts import Grammar, Observation, Scores, Space, Suffix
from arflow_eval.decode import grammar as grammars
from arflow_eval.model import bin_prompt, checkpoint, text_prompt
from arflow_eval.model.prefixes import Prefix, Rows, copied, grown, prefix_of, shared
from arflow_eval.model.prompt import Prompt, chosen_images
from arflow_eval.model.trunk import Trunk

Codec = fast.FastCodec | bins.BinCodec
Build = Callable[[dict[str, Any]], Trunk]
PROMPTS: Final[Mapping[str, Callable[..., Prompt]]] = {
    "bins": bin_prompt.load,
    "text": text_prompt.load,
}
CODECS: Final[Mapping[str, Callable[..., Codec]]] = {"fast": fast.load, "bins": bins.load}


@dataclass(frozen=True)
class ArPolicy:
    """A token policy.

    Where `relative` is set, actions are told from the first `action_dim` dimensions of the
    present state on. `copies` has each row copy its prefix: the reference of tests.
    """

    trunk: Trunk
    prompt: Prompt
    codec: Codec
    quantiles: normalise.Quantiles
    grammar: Grammar
    relative: bool
    conditions: frozenset[str] = frozenset()
    copies: bool = False

    @property
    def horizon(self) -> int:
        """Steps of a chunk."""
        return self.codec.steps

    @property
    def action_dim(self) -> int:
        """Action dimensions."""
        return self.codec.actions

    @property
    def suffix(self) -> Suffix:
        """What follows the prompt."""
        return self.prompt.suffix

    @property
    def vocabulary(self) -> int:
        """Rows of the head."""
        return self.trunk.head.weight.shape[0]

    @cached_property
    def action_head(self) -> Tensor:
        """The head's rows for the grammar's ids, as the weights are when first asked for."""
        return self.trunk.head.weight[torch.from_numpy(self.grammar.ids).to(self.trunk.device)]

    def prefill(self, observation: Observation, *, masked: str | None = None) -> Prefix:
        """A fresh prefix that holds the prompt."""
        look = self.trunk.look(chosen_images(observation, self.prompt.cameras))
        ids = self.prompt.encode(observation, look.tokens, masked=masked)
        cache = DynamicCache()
        if cache.get_seq_length() != 0:
            raise RuntimeError("a prompt is prefilled into a cache that holds something")
        with torch.inference_mode():
            self.trunk.fill(torch.tensor([ids], device=self.trunk.device), look, cache)
        if self.trunk.device.type == "cuda":
            torch.cuda.synchronize(self.trunk.device)  # so that its seconds are booked to it
        return prefix_of(cache)

    def rows(self, prefixes: Sequence[Prefix], *, each: int, total: int) -> Rows:
        """Rows over prefixes, `each` a prefix, padded to `total`."""
        lay = copied if self.copies else shared
        return lay(prefixes, each=each, total=total, device=self.trunk.device)

    def extend(
        self,
        rows: Rows,
        tokens: Int64[np.ndarray, "row position"],
        *,
        actions: bool,
        last: bool = True,
        total: bool = False,
    ) -> Scores:
        """Append tokens to each row, and score what may follow."""
        ids = torch.from_numpy(tokens).to(self.trunk.device)
        whole = self.trunk.head.weight
        with torch.inference_mode():
            hidden = self.trunk.hidden(
                ids, positions=rows.positions(tokens.shape[1]), cache=rows.cache, shared=rows.shares
            )
            hidden = hidden[:, -1:] if last else hidden
            logits = self.trunk.logits(hidden, self.action_head if actions else whole)
            mass = self.trunk.logits(hidden, whole).logsumexp(dim=2) if total else None
        return Scores(logits.cpu().numpy(), None if mass is None else mass.cpu().numpy())

    def grown(self, rows: Rows, *, lengths: Sequence[int]) -> list[Prefix]:
        """Prefixes grown by the first tokens of their rows."""
        return grown(rows, lengths=lengths)

    def text(self, tokens: Sequence[int]) -> str:
        """Auxiliary tokens as text."""
        return str(self.prompt.tokenizer.decode(list(tokens)))

    def chunk(
        self, observation: Observation, tokens: Sequence[int]
    ) -> Float64[np.ndarray, "step action"]:
        """An action block in raw units. Raises ValueError where it is not a whole chunk."""
        codes = np.asarray(tokens) - self.grammar.ids[0]
        chunk = self.quantiles.restore(self.codec.decode(codes.tolist()))
        if self.relative:
            chunk = chunk + observation.state[: self.action_dim]
        return chunk


def load(
    trunks: Mapping[str, Build],
    *,
    folder: Path | None,
    dtype: str,
    device: str,
    threads: int,
    steps: int,
    space: Space,
) -> ArPolicy:
    """A checkpoint folder as a policy, its tensors checked against the file.

    `trunks` has what the calling module can build, by the names that config.json may give.
    """
    if folder is None:
        raise TypeError("an autoregressive policy is loaded from a folder")
    del steps, space  # a checkpoint knows its own; the evaluation compares them
    checkpoint.use_device(device, threads=threads)
    config = checkpoint.read_config(folder, kind="token")
    build = checkpoint.choice(folder, config, "trunk", trunks)
    tables = checkpoint.read_json(folder, "norm_stats.json")
    with checkpoint.described(folder):
        if config["codec"].get("kind") == "fast":
            checkpoint.part(folder, "fast.json")
        read_prompt = checkpoint.choice(folder, config["prompt"], "format", PROMPTS)
        read_codec = checkpoint.choice(folder, config["codec"], "kind", CODECS)
        policy = assemble(
            build(config["trunk_config"]),
            prompt=read_prompt(folder, config["prompt"], normalise.from_json(tables["state"])),
            codec=read_codec(folder, config["codec"]),
            quantiles=normalise.from_json(tables["action"]),
            relative=bool(config["relative"]),
            conditions=frozenset(config["conditions"]),
        )
    checkpoint.load_weights(policy.trunk.model, folder, dtype=getattr(torch, dtype))
    policy.trunk.model.to(device)
    return policy


def assemble(
    trunk: Trunk,
    *,
    prompt: Prompt,
    codec: Codec,
    quantiles: normalise.Quantiles,
    relative: bool,
    conditions: frozenset[str] = frozenset(),
) -> ArPolicy:
    """A policy of its parts; the grammar follows from the codec and the vocabulary's layout.

    Raises ValueError where the trunk scores no such ids.
    """
    ids = prompt.actions_from + np.arange(codec.size)
    scored = trunk.head.weight.shape[0]
    if ids[-1] >= scored:
        raise ValueError(f"action tokens up to id {ids[-1]}, and the trunk scores {scored} ids")
    if isinstance(codec, fast.FastCodec):
        grammar = grammars.symbol_budget(ids, codec.lengths(), budget=codec.budget)
    else:
        grammar = grammars.fixed_bins(prompt.actions_from, bins=codec.bins, values=codec.values)
    return ArPolicy(
        trunk=trunk,
        prompt=prompt,
        codec=codec,
        quantiles=quantiles,
        grammar=grammar,
        relative=relative,
        conditions=conditions,
    )
