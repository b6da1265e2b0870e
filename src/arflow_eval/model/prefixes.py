"""Prefixes and rows: what a token policy keeps of a prompt, and what it decodes over it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from arflow_eval.model.attention import Group, SharedLayer

Part = Float[Tensor, "head position width"]


@dataclass(frozen=True)
class Prefix:
    """Keys and values of one frame's tokens so far, a pair a layer. Never written to again.

    Each is [head position width]; heads and widths may differ from layer to layer.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def length(self) -> int:
        """Tokens held."""
        return self.layers[0][0].shape[1]


@dataclass(frozen=True)
class Rows:
    """Rows over prefixes, `each` a prefix in order and idle ones after them, with their cache.

    `offsets` is the position of each row's first own token; an idle row has no prefix.
    """

    prefixes: tuple[Prefix, ...]
    each: int
    cache: Cache
    offsets: Int64[Tensor, "row"]

    def positions(self, count: int) -> Int64[Tensor, "row position"]:
        """Positions of the next `count` tokens of every row."""
        spoken = self.cache.get_seq_length() - self.copied
        ahead = torch.arange(spoken, spoken + count, device=self.offsets.device)
        return self.offsets[:, None] + ahead

    @property
    def shares(self) -> bool:
        """Whether the rows read their prefixes where they are."""
        return isinstance(self.cache.layers[0], SharedLayer)

    @property
    def copied(self) -> int:
        """Positions of the cache that are a copy of the prefix: none where it is shared."""
        return 0 if self.shares else self.prefixes[0].length


def prefix_of(cache: DynamicCache) -> Prefix:
    """The prefix that a prefilled one-row cache holds."""
    layers = []
    for layer in cache.layers:
        if type(layer) is not DynamicLayer or layer.keys is None or layer.values is None:
            raise TypeError(f"{type(layer).__name__} is no filled append-only cache layer")
        layers.append((layer.keys[0], layer.values[0]))
    return Prefix(layers=tuple(layers))


def shared(prefixes: Sequence[Prefix], *, each: int, total: int, device: Any) -> Rows:
    """Empty rows that read their prefixes where they are."""
    used = each * len(prefixes)
    layers: list[Any] = []
    for layer in range(len(prefixes[0].layers)):
        groups = [
            Group(slice(place * each, (place + 1) * each), *prefix.layers[layer])
            for place, prefix in enumerate(prefixes)
        ]
        if total > used:
            nothing = (part[:, :0] for part in prefixes[0].layers[layer])
            groups.append(Group(slice(used, total), *nothing))
        layers.append(SharedLayer(groups))
    offsets = torch.zeros(total, dtype=torch.long, device=device)
    lengths = torch.tensor([prefix.length for prefix in prefixes], device=device)
    offsets[:used] = lengths.repeat_interleave(each)
    return Rows(tuple(prefixes), each, Cache(layers=layers), offsets)


def copied(prefixes: Sequence[Prefix], *, each: int, total: int, device: Any) -> Rows:
    """The reference that the shared form is held against: every row has a copy of its prefix.

    Takes one prefix, since copies of different lengths do not fit one cache.
    """
    (prefix,) = prefixes
    cache = DynamicCache()
    for layer, parts in enumerate(prefix.layers):
        keys, values = (part.expand(total, *part.shape).contiguous() for part in parts)
        cache.update(keys, values, layer)
    offsets = torch.full((total,), prefix.length, dtype=torch.long, device=device)
    return Rows((prefix,), each, cache, offsets)


def grown(rows: Rows, *, lengths: Sequence[int]) -> list[Prefix]:
    """Each prefix and the first `lengths` own tokens of its one row, as a new prefix."""
    if rows.each != 1:
        raise ValueError(f"{rows.each} rows a prefix; a prefix grows by one row")
    return [
        Prefix(
            layers=tuple(
                _grown_layer(rows, layer, before, row=row, length=length)
                for layer, before in zip(rows.cache.layers, prefix.layers, strict=True)
            )
        )
        for row, (prefix, length) in enumerate(zip(rows.prefixes, lengths, strict=True))
    ]


def _grown_layer(
    rows: Rows, layer: Any, before: tuple[Part, Part], *, row: int, length: int
) -> tuple[Tensor, Tensor]:
    keys, values = layer.keys, layer.values
    if not rows.shares:
        return keys[row, :, : rows.copied + length], values[row, :, : rows.copied + length]
    own = keys[:, row, :length], values[:, row, :length]
    return torch.cat([before[0], own[0]], dim=1), torch.cat([before[1], own[1]], dim=1)
