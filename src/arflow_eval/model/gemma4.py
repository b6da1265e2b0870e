"""Gemma 4 trunks: the text model, and the whole with its vision tower. No audio, no video."""

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from transformers import (
    DynamicCache,
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
)

from arflow_eval import refusal
from arflow_eval.model import ar
from arflow_eval.model.trunk import (
    UNMASKED,
    Image,
    Look,
    Trunk,
    channels_first,
    gemma_text,
    resized,
    shares_prefixes,
    soft_tokens,
)

SOFT_TOKENS: Final = 280  # most tokens an image, where trunk_config does not say


def load(**place: Any) -> ar.ArPolicy:
    """A checkpoint folder with a Gemma 4 trunk as a policy; see `ar.load`."""
    return ar.load({"gemma4_text": text, "gemma4": vision}, **place)


def text(settings: dict[str, Any]) -> Trunk:
    """A text model, by the settings of a Gemma4TextConfig."""
    config = Gemma4TextConfig(**settings)
    shares_prefixes(config)
    return gemma_text(Gemma4ForCausalLM(config))


def vision(settings: dict[str, Any]) -> Trunk:
    """Text model and vision tower, by the settings of a Gemma4Config and `max_soft_tokens`.

    Where `use_bidirectional_attention` is "vision", the tokens of one image see each other in
    both directions in the sliding layers, as in training.
    """
    soft = int(settings.get("max_soft_tokens", SOFT_TOKENS))
    config: Any = Gemma4Config(
        **{name: settings[name] for name in settings if name != "max_soft_tokens"}
    )
    if config.vision_config is None or config.audio_config is not None:
        raise ValueError("a gemma4 trunk has a vision_config and no audio_config")
    shares_prefixes(config.text_config)
    model = Gemma4ForConditionalGeneration(config)

    def look(images: Sequence[Image]) -> Look:
        return seen(images, config, most=soft)

    def fill(ids: Any, look: Look, cache: DynamicCache) -> None:
        of_image = soft_tokens(ids, look, token=config.image_token_id)
        model.model(
            input_ids=ids,
            mm_token_type_ids=of_image,
            past_key_values=cache,
            use_cache=True,
            **look.on(ids.device),
        )

    return Trunk(
        model=model,
        body=model.model.language_model,
        head=model.lm_head,
        softcap=config.text_config.final_logit_softcapping,
        look=look,
        fill=fill,
        unmasked=UNMASKED,
    )


def seen(images: Sequence[Any], config: Any, *, most: int) -> Look:
    """Images as Gemma4ImageProcessor and Gemma4Processor prepare them.

    Each keeps its aspect, is cut into patches, and stands in the prompt as begin-of-image, at
    most `most` image tokens (one a square of pooled patches) and end-of-image.
    """
    if not images:
        return Look()
    patch, pooled = config.vision_config.patch_size, config.vision_config.pooling_kernel_size
    tokens, values, places = [], [], []
    for image in images:
        first = channels_first(image)
        height, width = fitted(
            *first.shape[1:], patches=most * pooled**2, patch=patch, pooled=pooled
        )
        patches = _patches(resized(first, height=height, width=width, mode="bicubic"), side=patch)
        soft = (config.image_token_id,) * (len(patches) // pooled**2)
        tokens.append((config.boi_token_id, *soft, config.eoi_token_id))
        idle = (0, 0, 0, most * pooled**2 - len(patches))  # towers take whole stacks
        values.append(torch.nn.functional.pad(patches, idle))
        places.append(
            torch.nn.functional.pad(_places(height // patch, width // patch), idle, value=-1)
        )
    pixels = {"pixel_values": torch.stack(values), "image_position_ids": torch.stack(places)}
    return Look(tokens=tuple(tokens), pixels=pixels)


def fitted(height: int, width: int, *, patches: int, patch: int, pooled: int) -> tuple[int, int]:
    """The largest size of about the same aspect with at most so many patches, in pooled squares.

    A guard refusal for an image of which nothing would be left.
    """
    square = patch * pooled
    factor = math.sqrt(patches * patch**2 / (height * width))
    rows, columns = (math.floor(factor * side / square) for side in (height, width))
    most = patches // pooled**2
    if not rows and not columns:
        raise refusal.guard(
            f"{patches} patches of {patch} x {patch} pixels for an image of {height} x {width}",
            expected="room for one square of pooled patches",
            remedy="raise max_soft_tokens in the checkpoint's trunk_config",
        )
    if not rows:
        rows, columns = 1, min(math.floor(width / height), most)
    elif not columns:
        rows, columns = min(math.floor(height / width), most), 1
    return rows * square, columns * square


def _patches(
    image: UInt8[Tensor, "colour height width"], *, side: int
) -> Float[Tensor, "position element"]:
    """Square patches, row by row, in [0, 1]; in each, pixel by pixel, its three colours last."""
    colours, height, width = image.shape
    squares = image.reshape(colours, height // side, side, width // side, side)
    return squares.permute(1, 3, 2, 4, 0).reshape(-1, colours * side**2).float() / 255


def _places(rows: int, columns: int) -> Int64[Tensor, "position element"]:
    """Each patch's column and row."""
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.stack([column, row], dim=2).reshape(-1, 2)
