"""What is Molmo2's own. Its contracts as a trunk are in test_trunks.py."""

import dataclasses
import functools
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache
from transformers.models.molmo2.processing_molmo2 import Molmo2Processor

from arflow_eval.contracts import FrameId, Observation, Sampling, Space, Statistics
from arflow_eval.decode.frames import decode
from arflow_eval.model import ar, attention, molmo2
from arflow_eval.model.prefixes import Prefix, prefix_of
from arflow_eval.model.trunk import Look
from arflow_eval.refusal import GUARD, USAGE, Refusal

with pytest.MonkeyPatch.context() as path:
    path.syspath_prepend(str(Path(__file__).parent.parent / "tools"))
    tiny: Any = importlib.import_module("make_tiny_checkpoint")
    tiny_trunks: Any = importlib.import_module("tiny_trunks")

STEPS, CLOSE, APART = 6, 1e-4, 1e-3
NAMES = ("<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<im_end>")


def load(folder: Path) -> ar.ArPolicy:
    space = Space(("x", "y"), ("x", "y"), "px", "px", 10.0)
    return molmo2.load(
        folder=folder, dtype="float32", device="cpu", threads=1, steps=STEPS, space=space
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("molmo2")
    tiny.write(made, "molmo2", steps=STEPS)
    return made


@pytest.fixture(scope="module")
def policy(folder: Path) -> ar.ArPolicy:
    """A policy whose images are prepared without torchvision."""
    loaded = load(folder)
    look = functools.partial(tiny_trunks.molmo2_look, config=loaded.trunk.model.config)
    return looking(loaded, look)


def looking(policy: ar.ArPolicy, look: Callable[[Any], Look]) -> ar.ArPolicy:
    return dataclasses.replace(policy, trunk=dataclasses.replace(policy.trunk, look=look))


@pytest.fixture(scope="module")
def config(policy: ar.ArPolicy) -> Any:
    return policy.trunk.model.config


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (24, 32, 3), dtype=np.uint8)


def observed(front: int = 0, wrist: int = 1) -> Observation:
    numbers = np.zeros(2)
    return Observation(
        frame=FrameId("made up", 0, 0),
        index=0,
        task="Push the block to the goal",
        states=np.full((1, 2), 200, np.float32),
        actions=np.zeros((0, 2), np.float32),
        statistics=Statistics(numbers, numbers + 1, numbers, numbers + 1),
        images={"front": picture(front), "wrist": picture(wrist)},
    )


def prompt(policy: ar.ArPolicy, seen: Observation) -> tuple[torch.Tensor, Look]:
    look = policy.trunk.look(list(seen.images.values()))
    return torch.tensor([policy.prompt.encode(seen, look.tokens)]), look


def moved(one: Prefix, other: Prefix) -> torch.Tensor:
    """Positions whose hidden states differ: those whose keys in the last layer do."""
    return (one.layers[-1][0] - other.layers[-1][0]).abs().amax(dim=(0, 2)) > CLOSE


def logits(policy: ar.ArPolicy, seen: Observation) -> np.ndarray:
    rows = policy.rows([policy.prefill(seen)], each=1, total=1)
    return policy.extend(rows, np.array([[policy.suffix.begin]]), actions=False).logits


# --- attention -------------------------------------------------------------------------------


def test_an_image_sees_a_later_one_and_text_before_both_sees_neither(
    policy: ar.ArPolicy, config: Any
) -> None:
    one, other = observed(0, 1), observed(0, 2)
    ids, look = prompt(policy, one)
    places = moved(policy.prefill(one), policy.prefill(other))
    of_first = molmo2.marks(ids, look, config)[0].bool() & (
        torch.arange(ids.shape[1]) < 1 + len(look.tokens[0])
    )
    assert of_first.sum() == len(look.tokens[0])
    assert places[of_first].all()
    assert not places[0]


def test_without_marks_an_image_sees_no_later_one(policy: ar.ArPolicy) -> None:
    def causal(seen: Observation) -> Prefix:
        ids, look = prompt(policy, seen)
        model: Any = policy.trunk.model
        cache = DynamicCache()
        with torch.inference_mode():
            model.model(input_ids=ids, past_key_values=cache, use_cache=True, **look.pixels)
        return prefix_of(cache)

    ids, look = prompt(policy, observed())
    places = moved(causal(observed(0, 1)), causal(observed(0, 2)))
    assert not places[: 1 + len(look.tokens[0])].any()
    assert places[-1]
    assert moved(causal(observed()), policy.prefill(observed()))[1]
    assert ids.shape[1] == len(places)


def test_only_the_text_model_attends_to_shared_prefixes(config: Any) -> None:
    assert config.text_config._attn_implementation == attention.NAME
    assert config.vision_config._attn_implementation == "sdpa"
    assert config.adapter_config._attn_implementation == "sdpa"


def test_another_image_or_the_other_order_moves_the_logits(policy: ar.ArPolicy) -> None:
    usual = logits(policy, observed(0, 1))
    for front, wrist in ((2, 1), (0, 2), (1, 0)):
        assert np.abs(logits(policy, observed(front, wrist)) - usual).max() > APART


def test_shared_and_copied_prefixes_decode_alike_and_are_never_written_to(
    policy: ar.ArPolicy,
) -> None:
    how = Sampling(draws=3, seed=0, T=1.0, tokens=True)
    prefixes = [policy.prefill(observed()) for _ in range(2)]
    copies = dataclasses.replace(policy, copies=True)
    (shared,), (apart,) = (decode(each, [observed()], how) for each in (policy, copies))
    assert (shared.measures["tokens"] == apart.measures["tokens"]).all()
    assert np.abs(shared.logprob - apart.logprob).max() < CLOSE
    rows = policy.rows(prefixes[:1], each=4, total=4)
    policy.extend(rows, np.full((4, 3), policy.suffix.begin), actions=True)
    pairs = zip(*(each.layers for each in prefixes), strict=True)
    assert all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))


def test_decoding_equals_one_forward_of_transformers_over_the_whole(
    policy: ar.ArPolicy, folder: Path, config: Any
) -> None:
    ids, look = prompt(policy, observed())
    said = [policy.suffix.begin, *policy.grammar.ids[:5].tolist()]
    rows = policy.rows([policy.prefill(observed())], each=2, total=2)
    steps = [policy.extend(rows, np.full((2, 1), each), actions=False).logits for each in said]
    plain: Any = load(folder).trunk.model
    plain.set_attn_implementation("eager")
    whole = torch.tensor([[*ids[0].tolist(), *said]])
    marks = molmo2.marks(whole, look, config)
    with torch.inference_mode():
        found = plain(input_ids=whole, mm_token_type_ids=marks, use_cache=False, **look.pixels)
    expected = found.logits[0, -len(said) :].numpy()
    assert np.abs(np.concatenate(steps, axis=1) - expected).max() < CLOSE


def test_every_prompt_is_prefilled_into_an_empty_cache(policy: ar.ArPolicy) -> None:
    lengths = []

    def fill(ids: Any, look: Look, cache: DynamicCache) -> None:
        lengths.append(cache.get_seq_length())
        policy.trunk.fill(ids, look, cache)

    watched = dataclasses.replace(policy, trunk=dataclasses.replace(policy.trunk, fill=fill))
    sizes = [watched.prefill(observed(number)).length for number in range(3)]
    assert lengths == [0, 0, 0]
    assert len(set(sizes)) == 1


# --- tokens and pixels -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"image_use_col_tokens": False},
        {"use_single_crop_col_tokens": False},
        {"image_use_col_tokens": False, "use_single_crop_col_tokens": True},
        {"use_single_crop_start_token": False},
    ],
)
def test_an_image_is_written_and_marked_as_molmo2_processor_does(
    config: Any, how: dict[str, bool]
) -> None:
    grids = torch.tensor([[2, 2, 3, 5], [1, 4, 2, 1]])
    own = SimpleNamespace(**{**config.to_dict(), "images": how})
    ids = dict(zip(NAMES, molmo2._ids(own), strict=True))
    written = SimpleNamespace(**{**molmo2.WRITTEN, **how})
    marker = SimpleNamespace(
        image_token_ids=[*ids.values()], video_token_ids=[], audio_token_ids=[]
    )
    for number, tokens in enumerate(molmo2.look_of({"image_grids": grids}, own).tokens):
        text = Molmo2Processor.replace_image_token(written, {"image_grids": grids}, number)  # type: ignore[arg-type]
        expected = [ids[f"<{name}"] for name in text.split("<")[1:]]
        assert list(tokens) == expected
        (marks,) = Molmo2Processor.create_mm_token_type_ids(marker, [expected])  # type: ignore[arg-type]
        assert set(marks) == {1}


def test_marks_are_on_images_only_and_a_prompt_without_images_has_none(
    policy: ar.ArPolicy, config: Any
) -> None:
    ids, look = prompt(policy, observed())
    marks = molmo2.marks(ids, look, config)
    assert marks.sum() == sum(map(len, look.tokens))
    assert set(ids[marks == 1].tolist()) == set(molmo2._ids(config))
    assert molmo2.marks(torch.tensor([[1, 2, 3]]), molmo2.seen([], config), config).sum() == 0


def fewer_features(pixels: dict[str, torch.Tensor]) -> None:
    pixels["image_token_pooling"] = pixels["image_token_pooling"].clone()
    pixels["image_token_pooling"][0] = -1


def other_grid(pixels: dict[str, torch.Tensor]) -> None:
    pixels["image_grids"] = pixels["image_grids"].flip(0) + torch.tensor([0, 1, 0, 0])


@pytest.mark.parametrize("spoil", [fewer_features, other_grid])
def test_tokens_that_the_pixels_do_not_fill_are_refused(
    policy: ar.ArPolicy, spoil: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    def look(images: Any) -> Look:
        whole = policy.trunk.look(images)
        pixels = dict(whole.pixels)
        spoil(pixels)
        return dataclasses.replace(whole, pixels=pixels)

    with pytest.raises(Refusal, match="features to fill them; expected as many of each") as no:
        looking(policy, look).prefill(observed())
    assert no.value.exit_code == GUARD


def test_a_look_without_pixels_is_no_text(policy: ar.ArPolicy) -> None:
    def blind(images: Any) -> Look:
        return Look(tokens=policy.trunk.look(images).tokens)

    with pytest.raises(KeyError, match="pixel_values"):
        looking(policy, blind).prefill(observed())


# --- images ----------------------------------------------------------------------------------


def test_float_images_are_refused_since_they_would_be_rescaled_again(config: Any) -> None:
    scaled = picture(0).astype(np.float32) / 255
    with pytest.raises(Refusal, match=r"image is float32 .*; expected uint8"):
        molmo2.seen([scaled], config)


@pytest.mark.parametrize("module", ["torchvision", "PIL"])
def test_images_without_what_transformers_prepares_them_with_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    if module == "PIL":
        monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Refusal, match=rf"no {module} beside torch .*arflow-eval\[molmo2\]") as no:
        load(folder).trunk.look([picture(0)])
    assert no.value.exit_code == USAGE


def prepared(images: list[np.ndarray], config: Any) -> Look:
    """The look of transformers' own image processor, or a skip that says what it lacks."""
    try:
        return molmo2.seen(images, config)
    except Refusal as refusal:
        pytest.skip(str(refusal))


def test_images_are_those_of_transformers_image_processor(config: Any) -> None:
    images = [picture(0), np.full((40, 16, 3), 9, np.uint8), picture(1)]
    look = prepared(images, config)
    processor = importlib.import_module("transformers").Molmo2ImageProcessor(
        size={"height": 16, "width": 16}, patch_size=4, max_crops=4, overlap_margins=[1, 1]
    )
    theirs = processor(images, input_data_format="channels_last", return_tensors="pt")
    assert look.pixels.keys() == theirs.keys()
    assert all(torch.equal(values, theirs[name]) for name, values in look.pixels.items())
    counted = [tokens.count(config.image_patch_id) for tokens in look.tokens]
    assert counted == [processor.get_number_of_image_patches(*i.shape[:2]) for i in images]
    assert look.pixels["pixel_values"].abs().max() > 0.9  # from -1 to 1: rescaled once


def test_images_prepared_by_transformers_decode(folder: Path, config: Any) -> None:
    prepared([picture(0)], config)
    (found,) = decode(load(folder), [observed()], Sampling(draws=2, seed=0, T=1.0))
    assert np.isfinite(found.logprob).all()


# --- what a checkpoint may say ---------------------------------------------------------------

SPOILT: Mapping[str, tuple[tuple[str, ...], Any, str]] = {
    "misspelt": (("images", "max_crop"), 4, "no setting max_crop; did you mean max_crops"),
    "alike": (("image_col_id",), 5, "image token ids"),
    "beyond": (("image_col_id",), 100_000, "image token ids"),
    "unnamed": (("image_col_id",), None, "no image_col_id"),
    "patches": (("vision_config", "num_position_embeddings"), 9, "num_position_embeddings 9"),
    "width": (("adapter_config", "text_hidden_size"), 16, "text_hidden_size 16 of the adapter"),
    "layer": (("adapter_config", "vision_feature_layer"), [5], "must index"),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_settings_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, spoilt: str) -> None:
    (*places, last), value, message = SPOILT[spoilt]
    document = json.loads((folder / "config.json").read_text())
    part = functools.reduce(dict.__getitem__, places, document["trunk_config"])
    part.pop(last, None) if value is None else part.update({last: value})
    rewritten(document, folder, tmp_path)
    with pytest.raises(Refusal, match=message):
        load(tmp_path)


def test_action_tokens_that_the_head_does_not_score_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    document = json.loads((folder / "config.json").read_text())
    text = document["trunk_config"]["text_config"]
    document["prompt"]["actions_from"] += text["additional_vocab_size"]
    rewritten(document, folder, tmp_path)
    with pytest.raises(Refusal, match=rf"and the trunk scores {text['vocab_size']} ids"):
        load(tmp_path)


def rewritten(document: Mapping[str, Any], folder: Path, out: Path) -> None:
    """A checkpoint folder with another config.json."""
    for file in folder.iterdir():
        (out / file.name).symlink_to(file)
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(document))
