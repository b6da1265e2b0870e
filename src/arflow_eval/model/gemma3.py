"""Gemma 3 trunks: the text model, and the whole with its vision tower."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from transformers import (
    DynamicCache,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
)

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

GREY: Final = 127.5  # pixels run from -1 to 1: (x / 255 - 1/2) / (1/2)


def load(**place: Any) -> ar.ArPolicy:
    """A checkpoint folder with a Gemma 3 trunk as a policy; see `ar.load`."""
    return ar.load({"gemma3_text": text, "gemma3": vision}, **place)


def text(settings: dict[str, Any]) -> Trunk:
    """A text model, by the settings of a Gemma3TextConfig."""
    config = Gemma3TextConfig(**settings)
    shares_prefixes(config)
    return gemma_text(Gemma3ForCausalLM(config))


def vision(settings: dict[str, Any]) -> Trunk:
    """Text model and vision tower, by the settings of a Gemma3Config.

    The tokens of one image see each other in both directions, as in training. Logits are not
    capped, whatever the text config says: transformers caps those of the text model alone.
    """
    config = Gemma3Config(**settings)
    shares_prefixes(config.text_config)
    _check_pooling(config)
    model = Gemma3ForConditionalGeneration(config)

    def look(images: Sequence[Image]) -> Look:
        return seen(images, config)

    def fill(ids: Any, look: Look, cache: DynamicCache) -> None:
        of_image = soft_tokens(ids, look, token=config.image_token_id)
        model.model(
            input_ids=ids,
            token_type_ids=of_image,
            past_key_values=cache,
            use_cache=True,
            **look.on(ids.device),
        )

    return Trunk(
        model=model,
        body=model.model.language_model,
        head=model.lm_head,
        softcap=None,
        look=look,
        fill=fill,
        unmasked=UNMASKED,
    )


def seen(images: Sequence[Any], config: Any) -> Look:
    """Images as Gemma3ImageProcessor prepares them, without pan and scan (its default).

    Each is squeezed to the tower's square, and stands in the prompt as begin-of-image,
    `mm_tokens_per_image` image tokens and end-of-image. Gemma3Processor writes two newlines
    before and after; here they belong to the prompt's own text segments.
    """
    if not images:
        return Look()
    side = config.vision_config.image_size
    squares = [resized(channels_first(i), height=side, width=side, mode="bilinear") for i in images]
    soft = (config.image_token_id,) * config.mm_tokens_per_image
    pixels: Mapping[str, torch.Tensor] = {"pixel_values": torch.stack(squares).float() / GREY - 1}
    return Look(
        tokens=((config.boi_token_id, *soft, config.eoi_token_id),) * len(images), pixels=pixels
    )


def _check_pooling(config: Any) -> None:
    """Raise ValueError where the tower's patches cannot be pooled to the tokens of an image."""
    patches = config.vision_config.image_size // config.vision_config.patch_size
    side = int(config.mm_tokens_per_image**0.5)
    if side**2 != config.mm_tokens_per_image or patches % side:
        raise ValueError(
            f"mm_tokens_per_image {config.mm_tokens_per_image} for {patches} x {patches} patches; "
            "a square whose side divides them"
        )
