"""Attention of rows that share a prefix: a frame's prompt is kept once for all its draws.

A row's softmax runs over two parts, its frame's prefix and its own suffix. Scores against the
prefix are one matrix product a frame, over all its rows; nothing is copied. Works under every
transformers model that takes its attention from the registry: the cache hands a row's own keys
to the attention, and with them, as an attribute, the layer that holds the prefixes.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME: Final = "arflow_shared_prefix"
GROWTH: Final = 32  # positions by which a row's own room grows
Keys = Float[Tensor, "head row position width"]
Part = Float[Tensor, "head position width"]


@dataclass(frozen=True)
class Group:
    """Consecutive rows of one frame, and the frame's keys and values in one layer."""

    rows: slice
    keys: Part
    values: Part


class SharedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's cache: prefixes that are only read, and room for the rows' own positions."""

    is_sliding = False

    def __init__(self, groups: list[Group]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.groups = groups
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Make no room yet: `update` does."""
        del value_states
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append positions [row head position width]; all own positions so far, head first."""
        del args, kwargs
        self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[2]
        self.keys = _with_room(self.keys, key_states, start)
        self.values = _with_room(self.values, value_states, start)
        keys, values = self.keys[:, :, : self.length], self.values[:, :, : self.length]
        keys.shared_layer = self  # type: ignore[attr-defined]
        return keys, values

    def get_seq_length(self) -> int:
        """Own positions so far."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Own positions only: the attention itself knows what else a row may see."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


def _with_room(buffer: Tensor | None, states: Tensor, start: int) -> Tensor:
    """The buffer [head row position width] with `states` written from `start` on."""
    stop = start + states.shape[2]
    if buffer is None or buffer.shape[2] < stop:
        rows, heads, _, width = states.shape
        room = -(-stop // GROWTH) * GROWTH
        larger = states.new_empty((heads, rows, max(room, 2 * start), width))
        if buffer is not None:
            larger[:, :, :start] = buffer[:, :, :start]
        buffer = larger
    buffer[:, :, start:stop] = states.transpose(0, 1)
    return buffer


def forward(  # noqa: PLR0917 - the signature of the registry
    module: torch.nn.Module,
    query: Float[Tensor, "row query_head position width"],
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over shared prefixes where the keys come from a `SharedLayer`, else SDPA."""
    layer = getattr(key, "shared_layer", None)
    if layer is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _shared(query * scale, key, value, layer.groups, window=sliding_window), None


def _shared(
    query: Tensor, keys: Keys, values: Keys, groups: list[Group], *, window: int | None
) -> Tensor:
    """Softmax over prefix and own positions, in float32, for each group of rows.

    Returns [row position query_head width], for the positions that `query` asks.
    """
    rows, query_heads, length, width = query.shape
    heads, _, own, _ = keys.shape
    share = query_heads // heads  # query heads that read one key head
    asked = query.reshape(rows, heads, share * length, width).transpose(0, 1)
    near = asked @ keys.transpose(2, 3)  # [head row share*length own]
    hidden = _later(length, own, window=window, device=query.device)
    if hidden is not None:
        near.masked_fill_(hidden.repeat(share, 1), -torch.inf)
    output = query.new_empty((heads, rows, share * length, values.shape[3]))
    for group in groups:
        count = len(range(rows)[group.rows])
        first = _first_seen(group.keys.shape[1], length, own, window=window)
        seen_keys, seen_values = group.keys[:, first:], group.values[:, first:]
        seen = seen_keys.shape[1]
        folded = asked[:, group.rows].reshape(heads, count * share * length, width)
        far = (folded @ seen_keys.transpose(1, 2)).view(heads, count, share * length, seen)
        beyond = _out_of_window(seen, length, own, window=window, device=query.device)
        if beyond is not None:
            far = far.masked_fill(beyond.repeat(share, 1), -torch.inf)
        scores = torch.cat([far, near[:, group.rows]], dim=3)
        weights = scores.softmax(dim=3, dtype=torch.float32).to(query.dtype)
        of_prefix = weights[..., :seen].reshape(heads, count * share * length, seen)
        output[:, group.rows] = (of_prefix @ seen_values).view(heads, count, share * length, -1)
        output[:, group.rows] += weights[..., seen:] @ values[:, group.rows]
    return (
        output.view(heads, rows, share, length, -1)
        .permute(1, 3, 0, 2, 4)
        .reshape(rows, length, query_heads, -1)
    )


def _first_seen(prefix: int, length: int, own: int, *, window: int | None) -> int:
    """The first position of a prefix that any of the last `length` positions still sees."""
    if window is None:
        return 0
    return min(max(0, prefix + own - length - window + 1), prefix)


def _later(length: int, own: int, *, window: int | None, device: torch.device) -> Tensor | None:
    """Own positions that a query does not see: later ones, and those out of its window."""
    if length == 1 and (window is None or own <= window):
        return None
    asking = torch.arange(own - length, own, device=device)[:, None]
    place = torch.arange(own, device=device)
    hidden: Tensor = place > asking
    return hidden if window is None else hidden | (place <= asking - window)


def _out_of_window(
    seen: int, length: int, own: int, *, window: int | None, device: torch.device
) -> Tensor | None:
    """Of the last `seen` positions of a prefix, those that a query sees no more."""
    if length == 1 or window is None:
        return None
    asking = torch.arange(own - length, own, device=device)[:, None]
    place = torch.arange(-seen, 0, device=device)
    return place <= asking - window


AttentionInterface.register(NAME, forward)
AttentionMaskInterface.register(NAME, sdpa_mask)
