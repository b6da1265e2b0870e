"""Ticket banks: one noise vector a draw, so that draw d of every frame starts from the same one.

A bank is a float32 array [ticket, step, action] in a .npy file, or the tensor "tickets" of a
.safetensors file. Files from outside are untrusted: pickled arrays are refused.
"""

import hashlib
import tokenize
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float32
from safetensors import SafetensorError
from safetensors.numpy import load_file

from arflow_eval import refusal

TENSOR: Final = "tickets"
SUFFIXES: Final = (".npy", ".safetensors")
# what numpy and safetensors raise for bytes that are not what their suffix says
UNREADABLE: Final = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
    SafetensorError,
)


def load(
    path: Path, *, draws: int, shape: tuple[int, int]
) -> Float32[np.ndarray, "draw step action"]:
    """The first `draws` tickets of a bank, each of `shape` (steps, actions).

    A file that is missing, of another kind, or does not fit is a usage refusal; one that
    cannot be read or holds NaN or infinities is damage.
    """
    bank = _read(path)
    if bank.shape[1:] != shape or bank.ndim != 3:
        raise refusal.usage(
            f"{path.name} is an array of shape {bank.shape}",
            expected=f"[ticket, step, action] with {shape[0]} steps of {shape[1]} actions",
            remedy="make the bank for this model's horizon and action dimensions",
        )
    if len(bank) < draws:
        raise refusal.usage(
            f"{path.name} holds {len(bank)} tickets",
            expected=f"at least {draws}, one a draw",
            remedy="lower decode.draws, or make a larger bank",
        )
    return bank[:draws]


def digest(path: Path) -> str:
    """SHA-256 (hex) over type, shape and little-endian bytes of a whole bank.

    The same tickets have one digest in either format. Refuses what `load` refuses of any bank.
    """
    bank = _read(path)
    state = hashlib.sha256(f"{bank.dtype.name}\0{','.join(map(str, bank.shape))}\0".encode())
    state.update(bank.astype("<f4").tobytes())
    return state.hexdigest()


def _read(path: Path) -> Float32[np.ndarray, "..."]:
    if path.suffix not in SUFFIXES:
        raise refusal.usage(
            f"{path.name} ends in {path.suffix or 'no suffix'}",
            expected=" or ".join(SUFFIXES),
            remedy="save the bank with numpy.save or safetensors",
        )
    if not path.is_file():
        raise refusal.usage(
            f"there is no file {path}",
            expected="a bank of tickets",
            remedy="check decode.tickets",
        )
    try:
        arrays = _arrays(path)
    except TypeError as error:  # safetensors of a type that numpy has not, such as bfloat16
        raise _wrong_type(path, str(error)) from error
    except UNREADABLE as error:
        raise refusal.damage(
            f"{path.name} cannot be read ({error})",
            expected="a float32 array, not pickled",
            remedy="copy or make the bank again",
        ) from error
    if TENSOR not in arrays:
        raise refusal.usage(
            f"{path.name} holds {', '.join(sorted(arrays)) or 'no tensor'}",
            expected=f"a tensor named {TENSOR}",
            remedy="save the bank again under this name",
        )
    return _checked(path, arrays[TENSOR])


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npy":
        with path.open("rb") as file:
            return {TENSOR: np.lib.format.read_array(file, allow_pickle=False)}
    return load_file(path)


def _checked(path: Path, bank: np.ndarray) -> Float32[np.ndarray, "..."]:
    if bank.dtype.newbyteorder("=") != np.float32:
        raise _wrong_type(path, f"numbers of type {bank.dtype}")
    lost = np.count_nonzero(~np.isfinite(bank))
    if lost:
        raise refusal.damage(
            f"{path.name} holds {lost} numbers that are not finite",
            expected="finite noise throughout",
            remedy="copy or make the bank again",
        )
    return bank.astype(np.float32)


def _wrong_type(path: Path, found: str) -> refusal.Refusal:
    return refusal.usage(
        f"{path.name}: {found}",
        expected="float32, the type that flows are integrated in",
        remedy="convert the bank",
    )
