"""FAST action tokens: a discrete cosine transform along the steps, quantised, then BPE.

A chunk [step, action] in [-1, 1] becomes orthonormal DCT-II coefficients, times `scale`,
rounded; they are read frequency by frequency (all actions of one frequency together), each
as one symbol, and symbols are merged by byte-pair encoding. Every token therefore stands for
a known number of coefficients, and a chunk is whole when exactly `steps * actions` are spent.
Source: Pertsch et al., "FAST: Efficient Action Tokenization for VLA Models" (2501.09747).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64
from scipy.fft import dct, idct
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from arflow_eval.codec.merges import read_tokenizer

FIRST_SYMBOL = 0x4E00  # symbols are characters from here on, so that no normaliser touches them


@dataclass(frozen=True)
class FastCodec:
    """A fitted codec. Symbols run from `low`, and coefficients outside them are clipped."""

    tokenizer: Any
    scale: float
    low: int
    high: int
    steps: int
    actions: int

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def budget(self) -> int:
        """Coefficients in a whole chunk."""
        return self.steps * self.actions

    def lengths(self) -> Int64[np.ndarray, "id"]:
        """How many coefficients each token stands for, 0…size-1."""
        return np.array([len(self.tokenizer.id_to_token(i)) for i in range(self.size)])

    def encode(self, chunk: Float[np.ndarray, "step action"]) -> list[int]:
        """A normalised chunk as tokens."""
        text = _symbols(chunk, scale=self.scale, low=self.low, high=self.high)
        return list(self.tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> Float64[np.ndarray, "step action"]:
        """Tokens as a normalised chunk. Raises ValueError unless they spend the exact budget."""
        text = "".join(self.tokenizer.id_to_token(int(token)) for token in tokens)
        if len(text) != self.budget:
            raise ValueError(f"{len(text)} coefficients; a whole chunk has {self.budget}")
        symbols = np.array([ord(symbol) for symbol in text]) - FIRST_SYMBOL + self.low
        coefficients = symbols.reshape(self.steps, self.actions) / self.scale
        chunk: Float64[np.ndarray, "step action"] = idct(coefficients, axis=0, norm="ortho")
        return chunk


def fit(
    chunks: Iterable[Float[np.ndarray, "step action"]], *, scale: float, size: int
) -> FastCodec:
    """Fit symbols and merges on normalised training chunks; `size` tokens at most."""
    listed = list(chunks)
    steps, actions = listed[0].shape
    quantised = [np.rint(dct(chunk, axis=0, norm="ortho") * scale) for chunk in listed]
    low, high = int(min(map(np.min, quantised))), int(max(map(np.max, quantised)))
    tokenizer = Tokenizer(BPE())
    tokenizer.train_from_iterator(
        (_symbols(chunk, scale=scale, low=low, high=high) for chunk in listed),
        trainer=BpeTrainer(
            vocab_size=size,
            initial_alphabet=[chr(FIRST_SYMBOL + i) for i in range(high - low + 1)],
            show_progress=False,
        ),
    )
    return FastCodec(
        tokenizer=tokenizer, scale=scale, low=low, high=high, steps=steps, actions=actions
    )


def load(folder: Path, config: dict[str, Any]) -> FastCodec:
    """A fitted codec: fast.json (its merges) and the `codec` part of a checkpoint's config.json."""
    numbers = {name: int(config[name]) for name in ("low", "high", "steps", "actions")}
    return FastCodec(
        tokenizer=read_tokenizer(folder / "fast.json"), scale=float(config["scale"]), **numbers
    )


def _symbols(chunk: Float[np.ndarray, "step action"], *, scale: float, low: int, high: int) -> str:
    coefficients = np.rint(dct(chunk, axis=0, norm="ortho") * scale).clip(low, high)
    return "".join(chr(FIRST_SYMBOL + int(symbol) - low) for symbol in coefficients.ravel())
