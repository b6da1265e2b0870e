"""Guards of reads that look at the draws themselves: how many, whose, and what they pool to.

Arms that a published file holds without their draws, or that say nothing of how many they have,
are told apart here; each guard returns None, or refuses with exit code 3.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import xarray
from jaxtyping import Float32

from arflow_eval import refusal
from arflow_eval.reads.pairing import Arms
from arflow_eval.stats.errors import failed_draws, headline
from arflow_eval.stats.scoring import chosen_blocks

TAG: Final = re.compile(r"_draws(\d+)(_t[0-9.e+-]+(to[0-9.e+-]+)?)?(_ticket)?$")
POOLED: Final = "pooled.npy"  # the published mean of the draws, beside an imported store
OWN_ROLE: Final = "give the arms of one policy to the roles they are for"


def stated_draws(arms: Arms, *, of: Sequence[str]) -> None:
    """Each role's arm holds as many draws a frame as its metadata and its name say.

    Several draws are said by the name; metadata may be absent.
    """
    for role in of:
        arm = arms[role]
        held = arm.sizes["draw"]
        for where, stated in _statements(arm):
            if stated != held:
                raise refusal.guard(
                    f"the {role} arm holds {held} draws a frame and its {where} says {stated}",
                    expected="the draws that the arm was evaluated with, one by one",
                    remedy="evaluate the arm again, or import it with its draws file",
                )
        if held > 1 and TAG.search(str(arm.attrs["arm"])) is None:
            raise refusal.guard(
                f"the {role} arm holds {held} draws a frame and is called {arm.attrs['arm']}",
                expected=f"a name that ends in _draws{held}",
                remedy="give each arm to the role that it was evaluated for",
            )


def several_draws(arms: Arms, *, of: Sequence[str]) -> None:
    """Each role's arm has more than one draw a frame."""
    for role in of:
        if arms[role].sizes["draw"] < 2:
            raise refusal.guard(
                f"the {role} arm has a single draw a frame",
                expected="several draws: there is nothing to choose from or to spread",
                remedy="evaluate the arm with decode=draws, or import it with its draws file",
            )


def name_extends_by_draws(arms: Arms, *, base: str, role: str) -> None:
    """One arm's name is another's and exactly a tag of draws after it, at any temperature."""
    found, start = (str(arms[name].attrs["arm"]) for name in (role, base))
    if not found.startswith(start) or TAG.fullmatch(found[len(start) :]) is None:
        raise refusal.guard(
            f"the {role} arm is called {found}",
            expected=f"the {base} arm's name and its draws, {start}_drawsN or {start}_drawsN_tT",
            remedy=OWN_ROLE,
        )


def same_checkpoint(arms: Arms, *, of: Sequence[str]) -> None:
    """The arms of these roles come from the same weights."""
    found = {role: arms[role].attrs.get("checkpoint_digest") for role in of}
    if len(set(found.values())) > 1 or None in found.values():
        said = ", ".join(f"{role} {str(digest)[:12]}" for role, digest in found.items())
        raise refusal.guard(
            f"the {' and '.join(of)} arms have different checkpoints, or none is known: {said}",
            expected="one checkpoint behind them",
            remedy=OWN_ROLE,
        )


def no_temperature(arms: Arms, *, of: Sequence[str]) -> None:
    """Each role's arm has no temperature, as an arm of a flow policy has none."""
    for role in of:
        found = arms[role].attrs.get("temperature")
        if found is not None:
            raise refusal.guard(
                f"the {role} arm has the temperature {found:g}",
                expected="an arm of a flow policy, which has none",
                remedy=f"give a flow policy's draws to {role}",
            )


def same_index(arms: Arms) -> None:
    """A frame stands at one place of the corpus in every arm."""
    first, *others = arms
    wanted = arms[first]["index"].to_numpy()
    for role in others:
        differing = int((arms[role]["index"].to_numpy() != wanted).sum())
        if differing:
            raise refusal.guard(
                f"index differs between the {first} and {role} arms on {differing:,} frames",
                expected="rows that are aligned: one index for one frame",
                remedy="evaluate both arms on one panel, from one version of the data",
            )


def mean_reproduced(arms: Arms, *, of: Sequence[str], tolerance: float) -> None:
    """The mean of an arm's draws is its published pooled prediction; without one it passes.

    An imported store says in `published.pooled_digest` that it lies beside the store.
    """
    for role in of:
        arm = arms[role]
        pooled = _pooled(arm, role=role)
        if pooled is None:
            continue
        published = arm["panel_row"].to_numpy()  # the file keeps the order of the panel
        drifting = start = 0
        for prediction, _, _ in chosen_blocks(arm, np.ones(arm.sizes["frame"], dtype=bool)):
            mean = headline(prediction, failed_draws(prediction))
            wanted = pooled[published[start : start + len(mean)]]
            near = np.abs(mean - wanted) <= tolerance
            drifting += int((~(near | np.isnan(mean) & np.isnan(wanted)).all(axis=(1, 2))).sum())
            start += len(mean)
        if drifting:
            raise refusal.guard(
                f"the mean of the {role} arm's draws is not its pooled prediction"
                f" on {drifting:,} frames",
                expected=f"the same, to {tolerance:g}",
                remedy="take draws and predictions of one run, and import them again",
            )


def _statements(arm: xarray.Dataset) -> Iterator[tuple[str, int]]:
    """What an arm says of its number of draws, and where it says so."""
    if arm.attrs.get("sample_draws") is not None:
        yield "sample_draws", int(arm.attrs["sample_draws"])
    decode = (arm.attrs.get("config") or {}).get("decode", {})
    if decode.get("draws") is not None:
        yield "config", int(decode["draws"])
    tag = TAG.search(str(arm.attrs["arm"]))
    if tag is not None:
        yield "name", int(tag[1])


def _pooled(arm: xarray.Dataset, *, role: str) -> Float32[np.ndarray, "frame step action"] | None:
    """The pooled prediction beside an imported store; None where it has none."""
    if (arm.attrs.get("published") or {}).get("pooled_digest") is None:
        return None
    path = Path(arm.encoding.get("source", "")).parent / POOLED
    if not path.is_file():
        raise refusal.guard(
            f"the pooled prediction of the {role} arm is not beside its store",
            expected=f"{POOLED}, as its attributes say",
            remedy="give the path of the imported run folder, or import it again",
        )
    wanted = tuple(arm.sizes[axis] for axis in ("frame", "step", "action"))
    try:
        pooled: Float32[np.ndarray, "frame step action"] = np.load(
            path, mmap_mode="r", allow_pickle=False
        )
    except (OSError, ValueError, EOFError):
        found = "cannot be read as an array"
    else:
        if pooled.dtype == np.float32 and pooled.shape == wanted:
            return pooled
        found = f"is {pooled.dtype} of the shape {pooled.shape}"
    raise refusal.guard(
        f"the pooled prediction of the {role} arm {found}",
        expected=f"one float32 chunk a frame, of the shape {wanted}",
        remedy="import the predictions and draws again into another folder",
    )
