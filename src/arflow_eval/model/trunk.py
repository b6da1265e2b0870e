"""What an autoregressive policy needs of a language model, whatever its kind.

A trunk is one file of this folder with a `build(config) -> Trunk` and a `load` that an option
of the group `model` names. The decoder and the policy know none by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from transformers import Cache, DynamicCache

from arflow_eval import refusal
from arflow_eval.model import attention

UNMASKED: Final = {"full_attention": None, "sliding_attention": None}
Image = UInt8[np.ndarray, "... colour"]  # height, width: not the same for all images of a call


@dataclass(frozen=True)
class Look:
    """A frame's images as a trunk takes them.

    `tokens` has the ids that stand for each image in the prompt, markers included; `pixels`
    what the trunk's forward takes beside the ids.
    """

    tokens: tuple[tuple[int, ...], ...] = ()
    pixels: Mapping[str, Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """The pixels where a forward needs them."""
        return {name: values.to(device) for name, values in self.pixels.items()}


@dataclass(frozen=True)
class Trunk:
    """A language model, and the few things about it that differ between kinds.

    Attributes:
        model: the whole, as the checkpoint's tensors name its parts.
        body: its text model: ids -> hidden states.
        head: the matrix from hidden states to logits.
        softcap: c of logits -> c tanh(logits / c), where the model has one.
        look: images -> their tokens and pixels; refuses where the trunk sees none.
        fill: prefills a cache with a prompt's ids [1, position] and a look.
        unmasked: what tells the body that the attention itself knows who sees whom.
    """

    model: torch.nn.Module
    body: torch.nn.Module
    head: torch.nn.Linear
    softcap: float | None
    look: Callable[[Sequence[Image]], Look]
    fill: Callable[[Int64[Tensor, "row position"], Look, DynamicCache], object]
    unmasked: Mapping[str, None] | None

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.head.weight.device

    def hidden(
        self,
        ids: Int64[Tensor, "row position"],
        *,
        positions: Int64[Tensor, "row position"],
        cache: Cache,
        shared: bool,
    ) -> Float[Tensor, "row position hidden"]:
        """Hidden states of appended tokens; the cache grows by them."""
        states: Tensor = self.body(
            input_ids=ids,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            attention_mask=dict(self.unmasked) if shared and self.unmasked else None,
        ).last_hidden_state
        return states

    def logits(
        self, hidden: Float[Tensor, "row position hidden"], matrix: Float[Tensor, "id hidden"]
    ) -> Float[Tensor, "row position id"]:
        """Logits in float32 of the tokens whose rows of the head are given."""
        scores = torch.nn.functional.linear(hidden, matrix)
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        return scores.float()


def shares_prefixes(text_config: Any) -> None:
    """Have a text model take its attention from `model.attention`.

    Raises ValueError where its text tokens see later ones: such a model has no prefix to keep.
    """
    if getattr(text_config, "use_bidirectional_attention", None) in (True, "all"):
        raise ValueError("use_bidirectional_attention of text; a decoder's text sees its past only")
    text_config._attn_implementation = attention.NAME  # noqa: SLF001 - as transformers does


def gemma_text(model: Any) -> Trunk:
    """A Gemma text model of any generation, whose attention the rows bring with them."""

    def fill(ids: Any, look: Look, cache: DynamicCache) -> None:
        del look  # sees nothing
        model.model(input_ids=ids, past_key_values=cache, use_cache=True)

    return Trunk(
        model=model,
        body=model.model,
        head=model.lm_head,
        softcap=model.config.final_logit_softcapping,
        look=sees_nothing,
        fill=fill,
        unmasked=UNMASKED,
    )


def sees_nothing(images: Sequence[Image]) -> Look:
    """The look of a text model. A usage refusal where the prompt shows images."""
    if images:
        raise refusal.usage(
            f"the prompt shows {len(images)} images to a text trunk",
            expected="a prompt of text",
            remedy="name a trunk that sees in config.json, or take the image segments out",
        )
    return Look()


def channels_first(image: Any) -> UInt8[Tensor, "colour height width"]:
    """An image as a tensor. A guard refusal unless it is uint8 [height width colour], in RGB.

    Floats are refused because nothing says whether they were scaled to [0, 1] already.
    """
    found = f"{getattr(image, 'dtype', type(image).__name__)} {getattr(image, 'shape', '')}".strip()
    fits = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] == (3,)
    if not fits or not image.size:
        raise refusal.guard(
            f"an image is {found}",
            expected="uint8 [height width 3], red first",
            remedy="have the panel decode its images to 8-bit RGB",
        )
    return torch.from_numpy(image.copy()).permute(2, 0, 1)


def resized(
    image: UInt8[Tensor, "colour height width"], *, height: int, width: int, mode: str
) -> Tensor:
    """An image [colour height width] at another size; `mode` is bilinear or bicubic.

    Antialiased, on 8-bit pixels, as torchvision does on a CPU, and Pillow nearly: in floats it
    would differ by up to 25 grey levels at sharp edges, for want of a clip between two passes.
    """
    if image.shape[1:] == (height, width):
        return image
    return torch.nn.functional.interpolate(
        image[None], size=(height, width), mode=mode, antialias=True
    )[0]


def soft_tokens(
    ids: Int64[Tensor, "row position"], look: Look, *, token: int
) -> Int64[Tensor, "row position"]:
    """1 where a prompt holds the token that stands for a part of an image, else 0.

    A guard refusal where their number is not that of the look: a text that spells the token
    would take the place of pixels.
    """
    found = ids == token
    expected = sum(tokens.count(token) for tokens in look.tokens)
    if int(found.sum()) != expected:
        raise refusal.guard(
            f"a prompt has {int(found.sum())} image tokens (id {token})",
            expected=f"{expected}, as many as its {len(look.tokens)} images fill",
            remedy="take the image token out of the task's text and the prompt's segments",
        )
    return found.long()
