"""Checkpoint folders: config.json, model.safetensors, norm_stats.json and what a family adds.

Files from outside are untrusted: JSON and safetensors only, never pickle. After loading,
every tensor is held against the file, since some loaders re-initialise weights in silence.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file

from arflow_eval import refusal

FORMAT = 1
Chosen = TypeVar("Chosen")


def part(folder: Path, name: str) -> Path:
    """A file of a checkpoint folder, or a usage refusal where it is missing."""
    path = folder / name
    if not path.is_file():
        raise refusal.usage(
            f"checkpoint {folder.name} has no {name}",
            expected="every file that its kind documents",
            remedy="check model.path",
        )
    return path


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of a checkpoint folder; a missing file is a usage refusal, a broken damage."""
    path = part(folder, name)
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise refusal.damage(
            f"{name} of checkpoint {folder.name} is not JSON ({error})",
            expected="a JSON object",
            remedy="copy the checkpoint again",
        ) from error
    if not isinstance(document, dict):
        raise refusal.damage(
            f"{name} of checkpoint {folder.name} holds a {type(document).__name__}",
            expected="a JSON object",
            remedy="copy the checkpoint again",
        )
    return document


def read_config(folder: Path, *, kind: str) -> dict[str, Any]:
    """config.json of a checkpoint of the given kind, in the format this version reads."""
    config = read_json(folder, "config.json")
    found = (config.get("format"), config.get("kind"))
    if found != (FORMAT, kind):
        raise refusal.usage(
            f"checkpoint {folder.name} has format {found[0]} and kind {found[1]}",
            expected=f"format {FORMAT} and kind {kind}",
            remedy="choose the model that reads this kind",
        )
    return config


def choice(
    folder: Path, config: Mapping[str, Any], key: str, known: Mapping[str, Chosen]
) -> Chosen:
    """What a key of a checkpoint's config names, among what this model reads."""
    name = config.get(key)
    if not isinstance(name, str) or name not in known:
        close = refusal.nearest(str(name), known)
        raise refusal.usage(
            f"checkpoint {folder.name} has the {key} {name}",
            expected=" or ".join(known),
            remedy=f"did you mean {close}?" if close else f"choose the model that has this {key}",
        )
    return known[name]


@contextmanager
def described(folder: Path) -> Iterator[None]:
    """While a checkpoint's description is read: what it lacks or garbles is damage, named."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, StrictDataclassError) as error:
        raise refusal.damage(
            f"the description of checkpoint {folder.name} does not fit "
            f"({type(error).__name__}: {error})",
            expected="the keys and values that its kind documents",
            remedy="copy the checkpoint again, or write it anew with the training script",
        ) from error


def load_weights(module: torch.nn.Module, folder: Path, *, dtype: torch.dtype) -> None:
    """Load model.safetensors into a module, name by name, and hold the result against it."""
    stored = _stored(folder)
    expected = own_tensors(module)
    _check_names(set(stored), set(expected), folder=folder)
    for name, tensor in stored.items():
        if tensor.shape != expected[name].shape:
            raise refusal.damage(
                f"tensor {name} has shape {tuple(tensor.shape)}",
                expected=str(tuple(expected[name].shape)),
                remedy=f"check config.json of {folder.name}",
            )
    module.load_state_dict(stored, strict=False)  # the names are checked; tied ones follow
    _cast(module, dtype)
    module.eval().requires_grad_(requires_grad=False)
    _check_loaded(module.state_dict(), stored, dtype=dtype)


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers, a tied parameter under its first name only."""
    every = dict(module.named_parameters(remove_duplicate=False))
    buffers = {name: t for name, t in module.state_dict().items() if name not in every}
    return {**dict(module.named_parameters()), **buffers}


def use_device(device: str, *, threads: int) -> None:
    """Set the process's threads, and refuse a device that torch does not have."""
    torch.set_num_threads(threads)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise refusal.usage(
            f"device={device}, and torch {torch.__version__} finds no GPU",
            expected="a device of this machine",
            remedy="set device=cpu, or install torch for this GPU",
        )


def _stored(folder: Path) -> dict[str, torch.Tensor]:
    path = part(folder, "model.safetensors")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise refusal.damage(
            f"model.safetensors of checkpoint {folder.name} cannot be read ({error})",
            expected="a whole safetensors file",
            remedy="copy the checkpoint again",
        ) from error


def _cast(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Parameters and persistent buffers in `dtype`; what the module computed itself stays.

    Rotary frequencies in bfloat16 would turn late positions by whole radians.
    """
    stored = module.state_dict().keys()
    computed = {name: each for name, each in module.named_buffers() if name not in stored}
    module.to(dtype)
    for name, buffer in computed.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, buffer)


def _check_names(stored: set[str], expected: set[str], *, folder: Path) -> None:
    missing, unknown = sorted(expected - stored), sorted(stored - expected)
    if missing or unknown:
        raise refusal.damage(
            f"{len(missing)} tensors missing, {len(unknown)} unknown in {folder.name} "
            f"(first: {(missing + unknown)[0]})",
            expected="the tensors that config.json describes",
            remedy="check that config.json and model.safetensors belong together",
        )


def _check_loaded(
    loaded: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor], *, dtype: torch.dtype
) -> None:
    for name, tensor in stored.items():
        wanted = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if not torch.equal(loaded[name].cpu(), wanted):
            raise refusal.damage(
                f"tensor {name} differs from the file after loading",
                expected="equal values",
                remedy="report this: the trunk re-initialised a loaded weight",
            )
