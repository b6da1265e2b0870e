"""Oracles of the selection ceiling: a ladder counted out, a lone draw, a planted best draw."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool, Float64, Int64

from arflow_eval.reads.made import made_arm
from arflow_eval.reads.oracles import Carry, Fired
from arflow_eval.stats.errors import mask

CLOSE: Final = 1e-9  # relative, of ladders computed by two routes in float64
RELATIVE: Final = 1e-6  # of errors planted in float32
ANCHOR: Final = 5e-5  # of numbers published to 4 places


def oracles(
    definition: Mapping[str, Any], carry: Carry, *, given: xarray.Dataset | None = None
) -> list[Fired]:
    """Effects planted on a made greedy arm, or on a given one, come out as planted.

    `oracles` of the definition have the `chunk_mae` that the made arm is scaled to, the `draws`
    of a planted stack, and the `best` draw's share of the greedy error.
    """
    stated = definition["oracles"]
    base = made_arm(chunk_mae=float(stated["chunk_mae"])) if given is None else given
    anchor = None if given is not None else float(stated["chunk_mae"])
    return [
        _ladder_fired(carry, base, draws=int(stated["draws"])),
        _lone_fired(definition, carry, base, anchor=anchor),
        _best_fired(carry, base, draws=int(stated["draws"]), best=float(stated["best"])),
    ]


def scaled_draws(
    arm: xarray.Dataset, factors: Float64[np.ndarray, "frame draw"], *, temperature: float | None
) -> xarray.Dataset:
    """The draws of an arm's policy: each has the greedy errors times its own factor."""
    truth, greedy = arm["truth"].to_numpy(), arm["prediction"].to_numpy()[:, :1]
    recorded = truth[:, None]
    stack = recorded + factors[:, :, None, None].astype(np.float32) * (greedy - recorded)
    by = "" if temperature is None else f"_t{temperature:g}"
    prediction = (("frame", "draw", "step", "action"), stack.astype(np.float32))
    return (
        arm.drop_vars("prediction")
        .assign(prediction=prediction)
        .assign_attrs(
            arm=f"{arm.attrs['arm']}_draws{factors.shape[1]}{by}", temperature=temperature
        )
        .assign_attrs(_unstated(arm))
    )


def uneven(frames: int, draws: int, *, seed: int = 1) -> Float64[np.ndarray, "frame draw"]:
    """Factors on the errors of draws that differ, from frame to frame more or less."""
    stream = np.random.default_rng(seed)
    spread = stream.uniform(0.05, 0.5, (frames, 1))
    return np.exp(spread * stream.normal(0, 1, (frames, draws)))


def _unstated(arm: xarray.Dataset) -> dict[str, Any]:
    """What a given arm says of its own draws, which is not so of planted ones."""
    keys = ("sample_draws", "config", "published", "summary", "pooled")
    return {key: None for key in keys if key in arm.attrs}


def _frame_mae(
    arm: xarray.Dataset, *, window: int
) -> tuple[Float64[np.ndarray, "frame draw"], Int64[np.ndarray, "frame"]]:
    """Errors of each draw of the scored core frames by another route, and their weights."""
    truth = arm["truth"].to_numpy()[:, :window].astype(np.float64)
    scored = _scored_steps(arm, window=window)
    rows = np.flatnonzero(arm["core"].to_numpy() & scored.any(axis=1))
    stack = arm["prediction"].to_numpy()[:, :, :window]
    errors = [
        [np.abs(draw[scored[row]] - truth[row][scored[row]]).mean() for draw in stack[row]]
        for row in rows
    ]
    return np.array(errors), scored[rows].sum(axis=1)


def _scored_steps(arm: xarray.Dataset, *, window: int) -> Bool[np.ndarray, "frame step"]:
    return mask(arm["truth"].to_numpy()[:, :window], arm["valid"].to_numpy()[:, :window])


def _ladder_fired(carry: Carry, base: xarray.Dataset, *, draws: int) -> Fired:
    """Whether every rung is the mean over all subsets of K draws, counted out."""
    stack = scaled_draws(base, uneven(base.sizes["frame"], draws), temperature=1.0)
    report = carry({"greedy": base, "draws": stack})
    found = report["extended"]["ladder"]["chunk_mae"]
    errors, weight = _frame_mae(stack, window=report["extended"]["window"])
    counted = [
        np.average(
            np.mean([errors[:, c].min(axis=1) for c in combinations(range(draws), size)], axis=0),
            weights=weight,
        )
        for size in range(1, draws + 1)
    ]
    worst = float(np.max(np.abs(np.array(found) / counted - 1)))
    return Fired(
        name="ladder_is_enumeration",
        passed=worst <= CLOSE,
        planted=f"{draws} draws of uneven errors, all {2**draws - 1:,} subsets",
        found=f"K = 1 {found[0]:.4f} to K = {draws} {found[-1]:.4f}, within {worst:.0e}",
    )


def _lone_fired(
    definition: Mapping[str, Any], carry: Carry, base: xarray.Dataset, *, anchor: float | None
) -> Fired:
    """Whether the ladder of a lone draw is its MAE, and that of the made arm the anchor."""
    guards = {name: it for name, it in definition["guards"].items() if name != "several_draws"}
    lone = scaled_draws(base, np.ones((base.sizes["frame"], 1)), temperature=1.0)
    alone = lone.assign(prediction=base["prediction"])
    report = carry({"greedy": base, "draws": alone}, guards=guards)
    exact = report["extended"]
    greedy = exact["arms_pooled"]["greedy"]
    equal = all(exact["ladder"][name] == [greedy[name]] for name in exact["ladder"])
    near = anchor is None or abs(greedy["chunk_mae"] - anchor) <= ANCHOR
    return Fired(
        name="lone_draw_is_the_anchor",
        passed=equal and near and report["paired_delta"]["greedy"]["chunk"]["mean"] == 0,
        planted="the greedy arm as one draw",
        found=f"K = 1 {exact['ladder']['chunk_mae'][0]:.4f}, {'' if equal else 'not '}its MAE",
    )


def _best_fired(carry: Carry, base: xarray.Dataset, *, draws: int, best: float) -> Fired:
    """Whether the draw that is best in each frame is found, and as good as planted."""
    frames = base.sizes["frame"]
    planned = np.random.default_rng(2).integers(0, draws, (2, frames)).min(axis=0)  # uneven
    factors = 1 + uneven(frames, draws)
    factors[np.arange(frames), planned] = best
    report = carry({"greedy": base, "draws": scaled_draws(base, factors, temperature=1.0)})
    exact = report["extended"]
    scored = _scored_steps(base, window=exact["window"]).any(axis=1)
    wanted = np.bincount(planned[base["core"].to_numpy() & scored], minlength=draws).tolist()
    share = exact["ladder"]["chunk_mae"][-1] / exact["arms_pooled"]["greedy"]["chunk_mae"]
    found = report["best_draw"]["chunk"] == wanted
    wins = report["gain"]["share_best_beats_greedy"]
    return Fired(
        name="planted_best_draw",
        passed=found and wins == 1 and abs(share - best) <= RELATIVE,
        planted=f"one draw a frame with errors x {best:g}",
        found=f"{'the' if found else 'not the'} planted draws; best of {draws} is greedy x"
        f" {share:.6f} and wins {wins:.0%}",
    )
