"""The kinds of tiny checkpoints: one entry of `KINDS` each.

Every trunk is small and still has what its family can have: windows shorter than a prompt,
several heads a key head, and images of more tokens than a window.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arflow_eval.model import gemma3, gemma4, molmo2
from arflow_eval.model.ar import ArPolicy
from arflow_eval.model.trunk import Look, Trunk, channels_first, resized


@dataclass(frozen=True)
class Ids:
    """Token ids that a trunk's settings name; `total` counts the whole vocabulary."""

    total: int
    padding: int
    begin: int
    before_image: int
    image: int
    after_image: int


@dataclass(frozen=True)
class Kind:
    """A trunk: how it is loaded and built, its trunk_config, and whether it sees images."""

    load: Callable[..., ArPolicy]
    build: Callable[[dict[str, Any]], Trunk]
    settings: Callable[[Ids], dict[str, Any]]
    sees: bool


def _gemma_text(ids: Ids) -> dict[str, Any]:
    """What the text models of both families share."""
    return {
        "vocab_size": ids.total,
        "pad_token_id": ids.padding,
        "bos_token_id": ids.begin,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 1024,
        "sliding_window": 8,
        "final_logit_softcapping": 2.0,  # low, so that it bends these logits
    }


def gemma3_text(ids: Ids) -> dict[str, Any]:
    """Two sliding layers and a full one."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    return _gemma_text(ids) | {
        "num_hidden_layers": 3,
        "layer_types": kinds,
        "query_pre_attn_scalar": 8,
    }


def gemma3_vision(ids: Ids) -> dict[str, Any]:
    """The text model with 16 tokens an image, twice a window."""
    return {
        "text_config": gemma3_text(ids) | {"final_logit_softcapping": None},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 4,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 16,
        "boi_token_index": ids.before_image,
        "image_token_index": ids.image,
        "eoi_token_index": ids.after_image,
    }


def gemma4_text(ids: Ids) -> dict[str, Any]:
    """Two layers with keys of their own and two that share them; a full layer's heads are wider."""
    return _gemma_text(ids) | {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": ids.total,
        "hidden_size_per_layer_input": 8,
        "use_double_wide_mlp": True,
    }


def gemma4_vision(ids: Ids) -> dict[str, Any]:
    """The text model with up to 20 tokens an image, which see each other in sliding layers."""
    return {
        "text_config": gemma4_text(ids) | {"use_bidirectional_attention": "vision"},
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "patch_size": 4,
            "pooling_kernel_size": 2,
            "position_embedding_size": 64,
            "standardize": True,
            "use_clipped_linears": True,
        },
        "audio_config": None,
        "max_soft_tokens": 20,
        "boi_token_id": ids.before_image,
        "image_token_id": ids.image,
        "eoi_token_id": ids.after_image,
    }


def molmo2_vision(ids: Ids) -> dict[str, Any]:
    """Three layers; markers of images in the vocabulary that is embedded and never scored."""
    return {
        "text_config": {
            "vocab_size": ids.total,
            "additional_vocab_size": 8,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 1024,
        },
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "image_size": [16, 16],
            "patch_size": 4,
        },
        "adapter_config": {
            "vision_feature_layer": [1, 0],
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 64,
            "text_hidden_size": 32,
        },
        "image_patch_id": ids.image,
        "image_start_token_id": ids.before_image,
        "image_end_token_id": ids.after_image,
        "image_col_id": ids.total,
        "low_res_image_start_token_id": ids.total + 1,
        "images": {"max_crops": 4, "overlap_margins": [1, 1]},
    }


def molmo2_look(images: Sequence[Any], config: Any) -> Look:
    """Stands in, where there is no torchvision, for the look of the tiny Molmo2.

    The whole image coarsely, then its left and right half; one token has a patch too few.
    """
    if not images:
        return Look()
    side, patch = config.vision_config.image_size[0], config.vision_config.patch_size
    views = []
    for image in map(channels_first, images):
        wide = resized(image, height=side, width=2 * side, mode="bilinear")
        whole = resized(image, height=side, width=side, mode="bilinear")
        views += [whole, wide[:, :, :side], wide[:, :, side:]]
    across = side // patch
    squares = torch.stack(views).reshape(len(views), 3, across, patch, across, patch)
    crops = squares.permute(0, 2, 4, 3, 5, 1).reshape(len(views), across**2, 3 * patch**2)
    places = torch.arange(len(views) * across**2).view(-1, across // 2, 2, across // 2, 2)
    pooling = places.permute(0, 1, 3, 2, 4).reshape(-1, 4)
    pooling[-1, -1] = -1
    grid = [across // 2, across // 2, across, across // 2]
    pixels = {
        "pixel_values": crops.float() / 127.5 - 1,
        "image_token_pooling": pooling,
        "image_grids": torch.tensor([grid] * len(images)),
        "image_num_crops": torch.full((len(images),), 3),
    }
    return molmo2.look_of(pixels, config)


KINDS: Mapping[str, Kind] = {
    "gemma3_text": Kind(gemma3.load, gemma3.text, gemma3_text, sees=False),
    "gemma3": Kind(gemma3.load, gemma3.vision, gemma3_vision, sees=True),
    "gemma4_text": Kind(gemma4.load, gemma4.text, gemma4_text, sees=False),
    "gemma4": Kind(gemma4.load, gemma4.vision, gemma4_vision, sees=True),
    "molmo2": Kind(molmo2.load, molmo2.vision, molmo2_vision, sees=True),
}
