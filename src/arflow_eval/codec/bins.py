"""Uniform bins over [-1, 1]: one token a value, for states in a prompt and for action chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64


def to_bins(values: Float[np.ndarray, "*rows"], *, bins: int) -> Int64[np.ndarray, "*rows"]:
    """The bin 0…bins-1 of each value; the ends belong to the outer bins."""
    return np.clip(np.floor((values + 1) / 2 * bins), 0, bins - 1).astype(np.int64)


@dataclass(frozen=True)
class BinCodec:
    """Action chunks as one token a value, step by step; a value comes back as its bin's middle."""

    bins: int
    steps: int
    actions: int

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.bins

    @property
    def values(self) -> int:
        """Tokens in a whole chunk."""
        return self.steps * self.actions

    def encode(self, chunk: Float[np.ndarray, "step action"]) -> list[int]:
        """A normalised chunk as tokens."""
        return to_bins(chunk, bins=self.bins).ravel().tolist()

    def decode(self, tokens: Sequence[int]) -> Float64[np.ndarray, "step action"]:
        """Tokens as a normalised chunk. Raises ValueError unless they are a whole one."""
        codes = np.asarray(tokens, dtype=np.int64)
        if len(codes) != self.values or ((codes < 0) | (codes >= self.bins)).any():
            raise ValueError(f"{len(codes)} tokens; a whole chunk has {self.values} bins")
        middles: Float64[np.ndarray, "step action"] = (
            codes.reshape(self.steps, self.actions) + 0.5
        ) / self.bins * 2 - 1
        return middles


def load(folder: Path, config: dict[str, Any]) -> BinCodec:
    """A codec from the `codec` part of a checkpoint's config.json."""
    del folder  # its numbers are all there is
    return BinCodec(
        bins=int(config["bins"]), steps=int(config["steps"]), actions=int(config["actions"])
    )
