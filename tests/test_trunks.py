"""Contracts of every trunk, on tiny random checkpoints of `tools/make_tiny_checkpoint.py`."""

import dataclasses
import functools
import importlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticLayer

from arflow_eval.contracts import FrameDraws, FrameId, Observation, Sampling, Space, Statistics
from arflow_eval.decode import blocks, lines, reference
from arflow_eval.decode.frames import decode
from arflow_eval.model import ar, checkpoint, gemma3, gemma4, molmo2
from arflow_eval.model.prefixes import Prefix, Rows, prefix_of
from arflow_eval.model.trunk import channels_first, soft_tokens
from arflow_eval.refusal import Refusal

TOOLS = Path(__file__).parent.parent / "tools"
with pytest.MonkeyPatch.context() as path:
    path.syspath_prepend(str(TOOLS))
    tiny: Any = importlib.import_module("make_tiny_checkpoint")
    tiny_trunks: Any = importlib.import_module("tiny_trunks")

SEEING = [name for name, kind in tiny.KINDS.items() if kind.sees]
# what a whole forward calls the marks of image tokens
IMAGE_MARKS = {
    "gemma3": "token_type_ids",
    "gemma4": "mm_token_type_ids",
    "molmo2": "mm_token_type_ids",
}
STEPS, WINDOW = 8, 8
DRAWN = Sampling(draws=3, seed=0, tile=4, T=1.0, tokens=True)
SPACE = Space(("x", "y"), ("x", "y"), "px", "px", 10.0)
CLOSE = 1e-4


def load(folder: Path, *, dtype: str = "float32") -> ar.ArPolicy:
    kind = json.loads((folder / "config.json").read_text())["trunk"]
    policy: ar.ArPolicy = tiny.KINDS[kind].load(
        folder=folder, dtype=dtype, device="cpu", threads=1, steps=STEPS, space=SPACE
    )
    if kind != "molmo2":
        return policy
    config = policy.trunk.model.config  # its own look needs torchvision
    look = functools.partial(tiny_trunks.molmo2_look, config=config)
    return dataclasses.replace(policy, trunk=dataclasses.replace(policy.trunk, look=look))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp("tiny") / kind for kind in tiny.KINDS}
    for kind, folder in made.items():
        tiny.write(folder, kind, steps=STEPS)
    return made


@pytest.fixture(scope="session", params=list(tiny.KINDS))
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture(scope="session")
def policy(folder: Path) -> ar.ArPolicy:
    return load(folder)


@pytest.fixture(scope="session", params=SEEING)
def seeing(request: pytest.FixtureRequest, folders: dict[str, Path]) -> ar.ArPolicy:
    return load(folders[request.param])


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "checkpoint"))


def observed(policy: ar.ArPolicy, number: int = 0, **changes: Any) -> Observation:
    """A made-up frame; images are not square, and no two frames are alike."""
    stream = np.random.default_rng(number)
    numbers = np.zeros(2)
    seen = Observation(
        frame=FrameId("made up", 0, number),
        index=number,
        task="Push the block to the goal",
        states=stream.uniform(0, 512, (3, 2)).astype(np.float32),
        actions=stream.uniform(0, 512, (2, 2)).astype(np.float32),
        statistics=Statistics(numbers, numbers + 1, numbers, numbers + 1),
        images={
            name: stream.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            for name in policy.prompt.cameras
        },
    )
    return dataclasses.replace(seen, **changes)


def drawn(policy: ar.ArPolicy, *numbers: int, **changes: Any) -> list[FrameDraws]:
    frames = [observed(policy, number) for number in numbers]
    return decode(policy, frames, dataclasses.replace(DRAWN, **changes))


def tokens(draws: FrameDraws) -> np.ndarray:
    return np.asarray(draws.measures["tokens"])


def logits(policy: ar.ArPolicy, prefix: Prefix, ids: Sequence[int], *, at_once: bool) -> np.ndarray:
    """Logits [position id] after each of some ids, appended in one forward or one by one."""
    rows = policy.rows([prefix], each=1, total=1)
    parts = [ids] if at_once else [[each] for each in ids]
    found = [policy.extend(rows, np.array([p]), actions=False, last=False).logits[0] for p in parts]
    return np.concatenate(found)


def suffix(policy: ar.ArPolicy) -> list[int]:
    """A suffix longer than a window: opener, text, begin marker and some action tokens."""
    text = policy.prompt.tokenizer.encode("open\nreach the block\n", add_special_tokens=False).ids
    actions = np.random.default_rng(0).choice(policy.grammar.ids, 6).tolist()
    return [*policy.suffix.opener, *text, policy.suffix.begin, *actions]


def plain(policy: ar.ArPolicy, seen: Observation, ids: Sequence[int], folder: Path) -> np.ndarray:
    """Logits [position id] of transformers' own eager forward over the whole, with no cache."""
    trunk = load(folder).trunk
    trunk.model.set_attn_implementation("eager")  # type: ignore[operator]
    look = trunk.look(list(seen.images.values()))
    whole = torch.tensor([[*policy.prompt.encode(seen, look.tokens), *ids]])
    marks = {}
    if look.tokens:
        kind = json.loads((folder / "config.json").read_text())["trunk"]
        config: Any = trunk.model.config
        marked = soft_tokens(whole, look, token=config.image_token_id)
        if kind == "molmo2":  # columns and ends are marked too
            marked = molmo2.marks(whole, look, config)
        marks = {IMAGE_MARKS[kind]: marked}
    with torch.inference_mode():
        found = trunk.model(input_ids=whole, use_cache=False, **look.pixels, **marks).logits
    return np.asarray(found[0, -len(ids) :].float())


def hold_against_transformers(policy: ar.ArPolicy, folder: Path) -> None:
    seen, said = observed(policy), suffix(policy)
    prefix = policy.prefill(seen)
    assert prefix.length > WINDOW
    assert len(said) > WINDOW
    forced = logits(policy, prefix, said, at_once=True)
    assert np.abs(forced - logits(policy, prefix, said, at_once=False)).max() < CLOSE
    assert np.abs(forced - plain(policy, seen, said, folder)).max() < CLOSE


def after_its_lines(policy: ar.ArPolicy, seen: Observation) -> Prefix:
    """A frame's prefix that ends before the begin-of-actions marker."""
    spoken = lines.speak(policy, [policy.prefill(seen)], DRAWN)
    (prefix,) = policy.grown(spoken.rows, lengths=[len(spoken.tokens[0])])
    return prefix


# --- weights ---------------------------------------------------------------------------------


def test_loading_equals_the_file_tensor_by_tensor(policy: ar.ArPolicy, folder: Path) -> None:
    stored, loaded = load_file(folder / "model.safetensors"), policy.trunk.model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in stored.items())
    places = {loaded[name].data_ptr() for name in stored}
    assert all(each.data_ptr() in places for each in loaded.values())  # the rest is tied to them


def rename(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[f"{name}_of_nothing"] = torch.ones(1)


def cut(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name][:-1].contiguous()


SPOILS: dict[str, tuple[Callable[[dict[str, torch.Tensor], str], object], str]] = {
    "missing": (dict.pop, "1 tensors missing, 0 unknown"),
    "extra": (rename, "0 tensors missing, 1 unknown"),
    "reshaped": (cut, "has shape"),
}


@pytest.mark.parametrize("spoilt", SPOILS)
def test_a_missing_extra_or_reshaped_tensor_is_refused(copied: Path, spoilt: str) -> None:
    change, message = SPOILS[spoilt]
    tensors = load_file(copied / "model.safetensors")
    change(tensors, min(tensors))
    save_file(tensors, copied / "model.safetensors")
    with pytest.raises(Refusal, match=message):
        load(copied)


def test_keys_of_a_layer_that_shares_them_are_refused(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folders["gemma4_text"], tmp_path / "checkpoint"))
    tensors = load_file(copy / "model.safetensors")
    tensors["model.layers.3.self_attn.k_proj.weight"] = torch.ones(32, 32)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(Refusal, match="1 unknown"):
        load(copy)


def test_what_a_trunk_computes_itself_keeps_its_precision(
    policy: ar.ArPolicy, folder: Path
) -> None:
    coarse = load(folder, dtype="bfloat16").trunk.model
    kept = set(coarse.state_dict())
    computed = {name: each for name, each in coarse.named_buffers() if name not in kept}
    fine = dict(policy.trunk.model.named_buffers())
    assert any("inv_freq" in name for name in computed)
    assert all(torch.equal(fine[name], each) for name, each in computed.items())
    assert {each.dtype for each in coarse.state_dict().values()} == {torch.bfloat16}


# --- attention -------------------------------------------------------------------------------


def test_a_shared_prefix_decodes_as_a_copied_one(policy: ar.ArPolicy) -> None:
    copies = dataclasses.replace(policy, copies=True)
    (shared,), (apart,) = drawn(policy, 0), drawn(copies, 0)
    assert (tokens(shared) == tokens(apart)).all()
    assert np.abs(shared.logprob - apart.logprob).max() < CLOSE
    by_token = [each.measures["token_logprob"] for each in (shared, apart)]
    assert np.allclose(*by_token, atol=CLOSE, equal_nan=True)
    assert shared.lines == apart.lines


def test_one_forward_steps_and_the_plain_model_score_the_same(
    policy: ar.ArPolicy, folder: Path
) -> None:
    hold_against_transformers(policy, folder)


def test_recorded_log_probabilities_are_those_of_one_forward_over_the_block(
    policy: ar.ArPolicy,
) -> None:
    seen = observed(policy)
    prefix = after_its_lines(policy, seen)
    (sampled,) = blocks.sample(policy, [prefix], [seen.frame], DRAWN)
    (forced,) = reference._logprobs(policy, [prefix], sampled, DRAWN)
    places = reference._places(policy, sampled)
    at = np.take_along_axis(forced, places[..., None].clip(0), axis=2)[..., 0]
    recorded = sampled.measures["token_logprob"][:, : places.shape[1]]
    assert np.abs(at - recorded)[places >= 0].max() < CLOSE


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "values are keys": (
        "gemma4_text",
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "experts": (
        "gemma4_text",
        {
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 16,
        },
    ),
    "nothing shared and no inputs per layer": (
        "gemma4_text",
        {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False},
    ),
    "a head of its own": ("gemma4_text", {"tie_word_embeddings": False}),
    "images seen in one direction": ("gemma4", {"use_bidirectional_attention": None}),
    "no cap on logits": ("gemma4", {"final_logit_softcapping": None}),
    "a head of its own in Gemma 3": ("gemma3_text", {"tie_word_embeddings": False}),
    "a long window": ("gemma3", {"sliding_window": 4096}),
    "norms of Olmo": ("molmo2", {"qk_norm_type": "olmo", "norm_after": True}),
    "angles scaled in some layers": (
        "molmo2",
        {
            "rope_scaling_layers": [1],
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_family_may_have_scores_as_the_plain_model(tmp_path: Path, variant: str) -> None:
    kind, settings = VARIANTS[variant]
    tiny.write(tmp_path, kind, steps=STEPS, text_config=settings)
    hold_against_transformers(load(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("kind", "setting"), [("gemma3_text", True), ("gemma3", True), ("gemma4_text", "all")]
)
def test_text_that_sees_later_text_is_refused(tmp_path: Path, kind: str, setting: Any) -> None:
    tiny.write(tmp_path, kind, steps=STEPS)
    config = json.loads((tmp_path / "config.json").read_text())
    text = config["trunk_config"]
    text.get("text_config", text)["use_bidirectional_attention"] = setting
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refusal, match="use_bidirectional_attention of text"):
        load(tmp_path)


# --- prefixes --------------------------------------------------------------------------------


def written_to(policy: ar.ArPolicy, prefix: Prefix) -> bool:
    """Whether decoding over a prefix changes it: the contract that every layout must keep."""
    before = [(keys.clone(), values.clone()) for keys, values in prefix.layers]
    rows = policy.rows([prefix], each=1, total=1)
    for _ in range(3):
        policy.extend(rows, np.array([[policy.suffix.begin]]), actions=True)
    pairs = zip(before, prefix.layers, strict=True)
    return not all(
        torch.equal(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)
    )


class InPlace(DynamicLayer):
    """A cache layer of fixed size that writes over its oldest positions."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys[None], values[None], True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys[:, :, : key_states.shape[2]] = key_states
        self.values[:, :, : key_states.shape[2]] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        del query_length
        return self.keys.shape[2], 0


def in_place(prefixes: Sequence[Prefix], *, each: int, total: int, device: Any) -> Rows:
    (prefix,) = prefixes
    cache = Cache(layers=[InPlace(*parts) for parts in prefix.layers])
    offsets = torch.full((total,), prefix.length, device=device)
    return Rows((prefix,), each, cache, offsets)


def test_a_prefix_is_never_written_to_and_a_cache_that_does_is_found_out(
    policy: ar.ArPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = policy.prefill(observed(policy))
    assert not written_to(policy, prefix)
    assert not written_to(dataclasses.replace(policy, copies=True), prefix)
    monkeypatch.setattr(ar, "shared", in_place)
    assert written_to(policy, prefix)


@pytest.mark.parametrize(
    "layer", [StaticLayer(max_cache_len=16), DynamicSlidingWindowLayer(sliding_window=WINDOW)]
)
def test_a_cache_that_forgets_or_is_of_fixed_size_is_no_prefix(layer: Any) -> None:
    cache = DynamicCache()
    cache.layers = [layer]
    cache.update(torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8), 0)
    with pytest.raises(TypeError, match="is no filled append-only cache layer"):
        prefix_of(cache)


def test_a_cache_that_holds_nothing_is_no_prefix() -> None:
    cache = DynamicCache()
    cache.layers = [DynamicLayer()]
    with pytest.raises(TypeError, match="DynamicLayer is no filled append-only cache layer"):
        prefix_of(cache)


def test_frames_together_are_decoded_as_each_alone(policy: ar.ArPolicy) -> None:
    together = drawn(policy, 0, 1, 2)
    for number, found in enumerate(together):
        (alone,) = drawn(policy, number)
        assert (tokens(found) == tokens(alone)).all()
        assert np.abs(found.logprob - alone.logprob).max() < CLOSE
        assert (found.prediction == alone.prediction).all()
        assert found.lines == alone.lines


def test_three_draws_are_the_first_of_ten(policy: ar.ArPolicy) -> None:
    (three,), (ten,) = drawn(policy, 0), drawn(policy, 0, draws=10)
    assert len({row.tobytes() for row in tokens(ten)}) > 5
    assert (tokens(three) == tokens(ten)[:3]).all()
    assert np.abs(three.logprob - ten.logprob[:3]).max() < CLOSE
    assert (three.prediction == ten.prediction[:3]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_temperature_zero_is_greedy_with_ties_to_the_lowest_id(folder: Path, dtype: str) -> None:
    policy = load(folder, dtype=dtype)
    seen, grammar = observed(policy), policy.grammar
    rows = policy.rows([after_its_lines(policy, seen)], each=4, total=4)
    fed, state, greedy = policy.suffix.begin, grammar.start, []
    while state != grammar.complete:
        scores = policy.extend(rows, np.full((4, 1), fed), actions=True).logits[0, 0]
        place = int(np.where(grammar.legal[state], scores, -np.inf).argmax())
        fed, state = int(grammar.ids[place]), int(grammar.following[state, place])
        greedy.append(fed)
    (cold,) = decode(policy, [seen], dataclasses.replace(DRAWN, T=0.0))
    assert len(cold.prediction) == DRAWN.draws
    assert all(row[row >= 0].tolist() == greedy for row in tokens(cold))

    level = load(folder, dtype=dtype)
    head = level.trunk.head.weight
    head[grammar.ids] = head[grammar.ids[0]].clone()
    (tied,) = decode(level, [seen], dataclasses.replace(DRAWN, T=0.0))
    lowest = grammar.ids[grammar.legal[1].argmax()]
    assert (tokens(tied)[0] == lowest).all()


# --- conditions ------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["state", "subgoal"])
def test_a_reference_tells_how_much_a_condition_decided(
    policy: ar.ArPolicy, condition: str
) -> None:
    assert condition in policy.conditions
    (found,) = drawn(policy, 0, reference=condition)
    divergence = found.measures["reference_kl"]
    assert np.isfinite(divergence).all()
    assert (divergence > -1e-9).all()
    assert divergence.max() > 1e-3
    assert np.isfinite(found.measures["reference_log_ratio"]).all()


def same(one: Prefix, other: Prefix) -> bool:
    pairs = zip(one.layers, other.layers, strict=True)
    return all(torch.equal(a, b) for left, right in pairs for a, b in zip(left, right, strict=True))


def test_a_masked_state_leaves_no_trace_in_the_prefix(policy: ar.ArPolicy) -> None:
    here, there = observed(policy), observed(policy, states=np.full((3, 2), 500, np.float32))
    assert not same(policy.prefill(here), policy.prefill(there))
    assert same(*(policy.prefill(seen, masked="state") for seen in (here, there)))


def test_a_masked_line_is_not_asked_for(policy: ar.ArPolicy) -> None:
    seen = observed(policy)
    images = policy.trunk.look(list(seen.images.values())).tokens
    whole = policy.text(policy.prompt.encode(seen, images))
    masked = policy.text(policy.prompt.encode(seen, images, masked="subgoal"))
    assert "Say: gripper, subgoal, progress\n" in whole
    assert masked == whole.replace("gripper, subgoal, progress", "gripper, progress")


def test_a_line_with_candidates_says_one_of_them(policy: ar.ArPolicy) -> None:
    assert all(found.lines["gripper"] in {"open", "closed"} for found in drawn(policy, 0, 1))


# --- images ----------------------------------------------------------------------------------


def test_images_and_their_order_matter(seeing: ar.ArPolicy) -> None:
    begin = [seeing.suffix.begin]
    seen = observed(seeing)
    one, other = seen.images.values()
    changed = {
        "another image": {"front": observed(seeing, 1).images["front"], "wrist": other},
        "the other order": {"front": other, "wrist": one},
    }
    usual = logits(seeing, seeing.prefill(seen), begin, at_once=True)
    for images in changed.values():
        prefix = seeing.prefill(dataclasses.replace(seen, images=images))
        assert np.abs(logits(seeing, prefix, begin, at_once=True) - usual).max() > 1e-3


def test_a_frame_without_a_camera_is_refused(seeing: ar.ArPolicy) -> None:
    seen = observed(seeing)
    lacking = dataclasses.replace(seen, images={"front": seen.images["front"]})
    with pytest.raises(Refusal, match="has no camera wrist"):
        decode(seeing, [lacking], DRAWN)


def test_a_task_that_spells_an_image_token_is_refused(seeing: ar.ArPolicy) -> None:
    with pytest.raises(Refusal, match=r"image tokens .*; expected \d+, as many as its 2 images"):
        decode(seeing, [observed(seeing, task="Push <image>")], DRAWN)


def test_tokens_that_the_tower_cannot_fill_are_refused(tmp_path: Path) -> None:
    tiny.write(tmp_path, "gemma3", steps=STEPS)
    config = json.loads((tmp_path / "config.json").read_text())
    config["trunk_config"]["mm_tokens_per_image"] = 15
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refusal, match="mm_tokens_per_image 15 for 8 x 8 patches"):
        load(tmp_path)


def test_a_text_trunk_is_shown_no_images(folders: dict[str, Path]) -> None:
    policy = load(folders["gemma3_text"])
    with pytest.raises(Refusal, match="shows 1 images to a text trunk"):
        policy.trunk.look([np.zeros((4, 4, 3), np.uint8)])


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros((3, 4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        [[0, 0, 0]],
    ],
)
def test_an_image_that_is_not_8_bit_rgb_is_refused(image: Any) -> None:
    with pytest.raises(Refusal, match=r"expected uint8 \[height width 3\]"):
        channels_first(image)


def test_a_read_only_image_is_copied() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    image.flags.writeable = False
    assert channels_first(image)[2, 0].tolist() == [2, 5]


def scenes() -> list[np.ndarray]:
    """Noise, and blocks with sharp edges, in the sizes of cameras."""
    stream = np.random.default_rng(0)
    blocks = stream.integers(0, 256, (6, 8, 3)).repeat(60, axis=0).repeat(60, axis=1)
    sizes = ((240, 320, 3), (96, 96, 3), (480, 360, 3))
    noise = [stream.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    return [blocks.astype(np.uint8), *noise]


def processor(family: str) -> Any:
    """Transformers' image processor on Pillow, whose resize torchvision follows."""
    pytest.importorskip("PIL", reason="transformers' image processors need Pillow")
    module = importlib.import_module(f"transformers.models.{family}.image_processing_pil_{family}")
    return getattr(module, f"{family.title()}ImageProcessorPil")()


def in_levels(ours: torch.Tensor, theirs: torch.Tensor, *, level: float) -> torch.Tensor:
    return ((ours - theirs).abs() / level).round()


def test_gemma_3_images_are_those_of_its_processor() -> None:
    theirs = processor("gemma3")(scenes(), return_tensors="pt")
    config = tiny_config("gemma3", image_size=224)
    ours = gemma3.seen(scenes(), config)
    apart = in_levels(ours.pixels["pixel_values"], theirs["pixel_values"], level=2 / 255)
    assert apart.max() <= 2
    assert (apart > 0).float().mean() < 0.01


def test_gemma_4_images_are_those_of_its_processor() -> None:
    theirs = processor("gemma4")(scenes(), return_tensors="pt")
    config = tiny_config("gemma4", patch_size=16, pooling_kernel_size=3)
    ours = gemma4.seen(scenes(), config, most=280)
    assert torch.equal(ours.pixels["image_position_ids"], theirs["image_position_ids"])
    counted = [each.count(config.image_token_id) for each in ours.tokens]
    assert counted == theirs["num_soft_tokens_per_image"].tolist()
    apart = in_levels(ours.pixels["pixel_values"], theirs["pixel_values"], level=1 / 255)
    assert apart.max() <= 2
    assert (apart > 0).float().mean() < 0.01


def tiny_config(family: str, **vision: int) -> Any:
    """A whole config of a family with another geometry of images."""
    ids = importlib.import_module("tiny_trunks").Ids(300, 0, 1, 4, 5, 6)
    settings = tiny.KINDS[family].settings(ids)
    settings["vision_config"] |= vision
    settings.pop("max_soft_tokens", None)
    transformers = importlib.import_module("transformers")
    return getattr(transformers, f"{family.title()}Config")(**settings)


FITTED = {  # what get_aspect_ratio_preserving_size of transformers 5.23 gives
    4: [(48, 96), (96, 96), (96, 48), (48, 192), (192, 48)],
    70: [(336, 432), (384, 384), (432, 336), (48, 3360), (3360, 48)],
    280: [(672, 912), (768, 768), (912, 672), (48, 7584), (7584, 48)],
}


@pytest.mark.parametrize("soft", FITTED)
def test_gemma_4_sizes_are_those_of_transformers(soft: int) -> None:
    sizes = [(480, 640), (96, 96), (640, 480), (10, 900), (900, 10)]
    found = [gemma4.fitted(*size, patches=soft * 9, patch=16, pooled=3) for size in sizes]
    assert found == FITTED[soft]


def test_an_image_that_no_token_is_left_for_is_refused() -> None:
    with pytest.raises(Refusal, match="raise max_soft_tokens"):
        gemma4.fitted(96, 96, patches=0, patch=16, pooled=3)


def test_gemma_4_images_of_different_shapes_take_different_room(folders: dict[str, Path]) -> None:
    policy = load(folders["gemma4"])
    wide = {
        "front": np.zeros((24, 64, 3), np.uint8),
        "wrist": np.full((64, 64, 3), 9, np.uint8),
    }
    look = policy.trunk.look(list(wide.values()))
    places = look.pixels["image_position_ids"]
    soft = [each.count(policy.trunk.model.config.image_token_id) for each in look.tokens]  # type: ignore[union-attr]
    assert soft == ((places >= 0).all(dim=2).sum(dim=1) // 4).tolist()
    assert soft[0] != soft[1]
    hold = observed(policy, images=wide)
    assert np.isfinite(decode(policy, [hold], DRAWN)[0].logprob).all()


# --- the script that makes them --------------------------------------------------------------


@pytest.mark.parametrize("kind", list(tiny.KINDS))
def test_a_tiny_checkpoint_is_small_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("one", "again"):
        monkeypatch.setattr("sys.argv", ["make", kind, str(tmp_path / name), "--seed", "3"])
        tiny.main()
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    one, again = (
        [(tmp_path / of / name).read_bytes() for name in files] for of in ("one", "again")
    )
    assert one == again
    assert sum(map(len, one)) < 2_000_000
    assert load(tmp_path / "one").horizon == 50


def test_a_tiny_checkpoint_of_bins_has_the_dimensions_it_is_asked_for(tmp_path: Path) -> None:
    tiny.write(tmp_path, "gemma3_text", steps=3, actions=4, states=5, codec="bins")
    policy = load(tmp_path)
    seen = observed(policy, states=np.full((1, 5), 99, np.float32))
    assert policy.suffix.newline == policy.prompt.tokenizer.encode("\n").ids[0]
    assert decode(policy, [seen], DRAWN)[0].prediction.shape == (3, 3, 4)


def test_cameras_of_a_text_trunk_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a gemma3_text trunk sees none"):
        tiny.write(tmp_path, "gemma3_text", cameras=("front",))


def test_a_tensor_that_loading_changed_is_damage(folders: dict[str, Path]) -> None:
    class Forgetful(torch.nn.Linear):
        def load_state_dict(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
            """Keep the random weights, as some loaders do."""

    head = Forgetful(2, 3, bias=False)
    folder = folders["gemma3_text"].parent / "forgetful"
    folder.mkdir()
    save_file({"weight": torch.zeros(3, 2)}, folder / "model.safetensors")
    with pytest.raises(Refusal, match="tensor weight differs from the file after loading"):
        checkpoint.load_weights(head, folder, dtype=torch.float32)
