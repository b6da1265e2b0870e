"""Molmo2 trunks: a text model with a vision tower and the adapter between them. No video."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import DynamicCache, Molmo2Config, Molmo2ForConditionalGeneration

from arflow_eval import refusal
from arflow_eval.model import ar
from arflow_eval.model.trunk import (
    Image,
    Look,
    Trunk,
    channels_first,
    shares_prefixes,
    soft_tokens,
)

# settings of `images`: how Molmo2Processor writes an image, with its defaults, ...
WRITTEN: Final[Mapping[str, bool | None]] = {
    "image_use_col_tokens": True,
    "use_single_crop_col_tokens": None,
    "use_single_crop_start_token": True,
}
# ... and what Molmo2ImageProcessor cuts it by; sizes are those of the vision config
PREPARED: Final = (
    *("max_crops", "overlap_margins", "pooling_size"),
    *("resample", "image_mean", "image_std"),
)
PIXELS: Final = ("pixel_values", "image_token_pooling", "image_grids", "image_num_crops")


def load(**place: Any) -> ar.ArPolicy:
    """A checkpoint folder with a Molmo2 trunk as a policy; see `ar.load`."""
    return ar.load({"molmo2": vision}, **place)


def vision(settings: dict[str, Any]) -> Trunk:
    """The whole, by the settings of a Molmo2Config, `image_col_id` and `images`.

    All tokens of a frame's images see each other in both directions, as in training. The
    embedding has `additional_vocab_size` rows more than the head, which never scores those.
    """
    config: Any = Molmo2Config(**{"images": {}} | settings)
    _check(config)
    shares_prefixes(config.text_config)
    model = Molmo2ForConditionalGeneration(config)

    def look(images: Sequence[Image]) -> Look:
        return seen(images, config)

    def fill(ids: Any, look: Look, cache: DynamicCache) -> None:
        model.model(
            input_ids=ids,
            mm_token_type_ids=marks(ids, look, config),
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
        unmasked=None,
    )


def seen(images: Sequence[Any], config: Any) -> Look:
    """Images as Molmo2ImageProcessor prepares them: one coarse view each, then finer crops.

    A usage refusal where transformers cannot run that processor.
    """
    if not images:
        return Look()
    tensors = [channels_first(image) for image in images]
    for needed in ("torchvision", "PIL"):
        _require(needed)
    height, width = config.vision_config.image_size
    processor = importlib.import_module("transformers").Molmo2ImageProcessor(
        size={"height": height, "width": width},
        patch_size=config.vision_config.patch_size,
        **{name: config.images[name] for name in PREPARED if name in config.images},
    )
    made = processor(tensors, input_data_format="channels_first", return_tensors="pt")
    return look_of({name: made[name] for name in PIXELS}, config)


def look_of(pixels: Mapping[str, Tensor], config: Any) -> Look:
    """The look of images that are prepared already, as Molmo2ImageProcessor returns them.

    `pixel_values` [crop patch element], `image_token_pooling` [token patch] (places among all
    patches, -1 for none), `image_grids` [image 4] (rows and columns of tokens of the coarse
    view, then of the crops) and `image_num_crops` [image].
    """
    grids = pixels["image_grids"].tolist()
    return Look(tokens=tuple(_written(grid, config) for grid in grids), pixels=pixels)


def marks(
    ids: Int64[Tensor, "row position"], look: Look, config: Any
) -> Int64[Tensor, "row position"]:
    """1 on every token of an image, its column and end markers too, as Molmo2Processor has it.

    Without them the model would see images as it sees text, each token its past only. A guard
    refusal where the tokens, in number, are not those of the look, or not those of its pixels.
    """
    _check_pixels(look, config)
    every = torch.zeros_like(ids)
    for token in _ids(config):
        every += soft_tokens(ids, look, token=token)
    return every


def _written(grid: Sequence[int], config: Any) -> tuple[int, ...]:
    """The ids that stand for one image: its coarse view row by row, then its crops."""
    patch, column, start, coarse_start, end = _ids(config)
    how = {**WRITTEN, **config.images}
    columns = bool(how["image_use_col_tokens"])
    coarse_columns = how["use_single_crop_col_tokens"]
    coarse_columns = columns if coarse_columns is None else bool(coarse_columns)
    coarse_rows, coarse_width, rows, width = grid
    coarse = ((patch,) * coarse_width + (column,) * coarse_columns) * coarse_rows
    fine = ((patch,) * width + (column,) * columns) * rows
    first = coarse_start if how["use_single_crop_start_token"] else start
    return (first, *coarse, end, start, *fine, end)


def _ids(config: Any) -> tuple[int, ...]:
    """Ids of what an image is written in: patch, column, start, start of the coarse view, end."""
    return (
        config.image_patch_id,
        config.image_col_id,
        config.image_start_token_id,
        config.low_res_image_start_token_id,
        config.image_end_token_id,
    )


def _check(config: Any) -> None:
    """Raise ValueError where settings are unknown or do not fit each other."""
    known = (*WRITTEN, *PREPARED)
    for name in config.images:
        if name not in known:
            close = refusal.nearest(name, known) or ", ".join(known)
            raise ValueError(f"images has no setting {name}; did you mean {close}?")
    if not hasattr(config, "image_col_id"):
        raise ValueError("no image_col_id, the id of the token after a row of an image")
    embedded = config.text_config.vocab_size + config.text_config.additional_vocab_size
    if len(set(_ids(config))) < len(_ids(config)) or max(_ids(config)) >= embedded:
        raise ValueError(f"image token ids {_ids(config)}; different ones below {embedded}")
    sides = {side // config.vision_config.patch_size for side in config.vision_config.image_size}
    if {side**2 for side in sides} != {config.vision_config.num_position_embeddings}:
        raise ValueError(
            f"num_position_embeddings {config.vision_config.num_position_embeddings} for an image "
            f"of {config.vision_config.image_size} in patches of {config.vision_config.patch_size}"
        )
    if config.adapter_config.text_hidden_size != config.text_config.hidden_size:
        raise ValueError(
            f"text_hidden_size {config.adapter_config.text_hidden_size} of the adapter, and "
            f"hidden_size {config.text_config.hidden_size} of the text model"
        )


def _check_pixels(look: Look, config: Any) -> None:
    """A guard refusal where a look's tokens are not those that its pixels fill."""
    if not look.tokens and not look.pixels:
        return
    _, pooling, grids, _ = (look.pixels[name] for name in PIXELS)
    coarse_rows, coarse_width, rows, width = grids.unbind(dim=1)
    gridded = (coarse_rows * coarse_width + rows * width).tolist()
    filled = int((pooling >= 0).any(dim=1).sum())
    counted = [tokens.count(config.image_patch_id) for tokens in look.tokens]
    if counted != gridded or sum(counted) != filled:
        raise refusal.guard(
            f"{len(counted)} images of {counted} tokens, with grids of {gridded} tokens and "
            f"{filled} features to fill them",
            expected="as many of each",
            remedy="make tokens and pixels together, with molmo2.look_of",
        )


def _require(module: str) -> None:
    """A usage refusal where a module that transformers' image processor needs is missing."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise refusal.usage(
            f"no {module} beside torch {torch.__version__}",
            expected="torchvision and Pillow, with which transformers prepares Molmo2's images",
            remedy="install arflow-eval[molmo2]; the torchvision must be built for this torch",
        ) from error
