"""Oracles of the energy score: a lone draw's distance, scaled errors, two draws by hand."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray

from arflow_eval.reads.made import made_arm
from arflow_eval.reads.oracles import Carry, Fired
from arflow_eval.reads.planted_draws import scaled_draws, uneven
from arflow_eval.stats.errors import mask

EXACT: Final = 1e-12  # relative, of one distance by two routes
RELATIVE: Final = 1e-6  # of errors planted in float32
TERMS: Final = ("energy_score", "truth_term", "interaction_term", "fair_energy_score")
BY_HAND: Final = (0.5, 1.0, 0.5, 0.0)  # of two draws, 1 above and 1 below the truth


def planted_energies(
    definition: Mapping[str, Any],
    carry: Carry,
    *,
    flow: bool,
    given: xarray.Dataset | None = None,
) -> list[Fired]:
    """What is planted on a made greedy arm, or on a given one, has the score it must have.

    `oracles` of the definition have the `chunk_mae` that the made arm is scaled to, the `draws`
    of a planted stack and the `factor` on its errors. Where the read has a `flow` role, that
    gets the AR draws again.
    """
    stated = definition["oracles"]
    base = made_arm(chunk_mae=float(stated["chunk_mae"])) if given is None else given
    factors = uneven(base.sizes["frame"], int(stated["draws"]))
    factors[:, ::2] *= -1  # draws on both sides of the truth
    fired = [
        _lone_fired(carry, base, factors, flow=flow),
        _scaled_fired(carry, base, factors, factor=float(stated["factor"]), flow=flow),
        _by_hand_fired(carry, base, flow=flow),
    ]
    return [*fired, _self_fired(definition, carry, base, factors)] if flow else fired


def _arms(base: xarray.Dataset, factors: Any, *, flow: bool) -> dict[str, xarray.Dataset]:
    """The arms of the read: greedy, its draws, and where there is a flow role the same draws."""
    arms = {"greedy": base, "draws": scaled_draws(base, factors, temperature=1.0)}
    return {**arms, "flow": scaled_draws(base, factors, temperature=None)} if flow else arms


def _lone_fired(carry: Carry, base: xarray.Dataset, factors: Any, *, flow: bool) -> Fired:
    """Whether the score of one draw is its root mean square distance, without interaction."""
    exact = carry(_arms(base, factors, flow=flow))["extended"]
    found = exact["arms_pooled"]["greedy"]
    window = exact["window"]
    truth = base["truth"].to_numpy()[:, :window].astype(np.float64)
    scored = mask(base["truth"].to_numpy()[:, :window], base["valid"].to_numpy()[:, :window])
    distance, weight = 0.0, 0
    for row in np.flatnonzero(base["core"].to_numpy()):
        inside = scored[row]
        error = base["prediction"].to_numpy()[row, 0, :window][inside] - truth[row][inside]
        distance += float(np.sqrt((error**2).mean()) * error.size) if error.size else 0.0
        weight += error.size
    off = abs(found["energy_score"] / (distance / weight) - 1)
    return Fired(
        name="lone_draw_is_its_distance",
        passed=off <= EXACT and found["interaction_term"] == 0,
        planted="the greedy arm as one draw",
        found=f"{found['energy_score']:.6f}, off by {off:.0e}; interaction"
        f" {found['interaction_term']:g}",
    )


def _scaled_fired(
    carry: Carry, base: xarray.Dataset, factors: Any, *, factor: float, flow: bool
) -> Fired:
    """Whether errors times a factor have every term times that factor."""
    once = carry(_arms(base, factors, flow=flow))["extended"]["arms_pooled"]["draws"]
    scaled = _arms(base, factors * factor, flow=flow)
    found = carry(scaled)["extended"]["arms_pooled"]["draws"]
    ratios = [found[term] / once[term] for term in TERMS]
    return Fired(
        name="scaled_errors_scale_the_score",
        passed=all(abs(ratio / factor - 1) <= RELATIVE for ratio in ratios),
        planted=f"errors x {factor:g}",
        found=f"score x {ratios[0]:.6f}, truth x {ratios[1]:.6f}, interaction x {ratios[2]:.6f}",
    )


def _by_hand_fired(carry: Carry, base: xarray.Dataset, *, flow: bool) -> Fired:
    """Whether two draws, 1 above and 1 below the truth, have the score found by hand."""
    zero = xarray.zeros_like(base["truth"])
    unit = base.assign(truth=zero, prediction=xarray.ones_like(base["prediction"]))
    sides = np.tile([1.0, -1.0], (base.sizes["frame"], 1))
    found = carry(_arms(unit.assign_attrs(summary=None), sides, flow=flow))["extended"]
    terms = [found["arms_pooled"]["draws"][term] for term in TERMS]
    return Fired(
        name="two_draws_by_hand",
        passed=np.allclose(terms, BY_HAND, rtol=0, atol=EXACT),
        planted="draws +1 and -1, truth 0",
        found="truth {1:g}, interaction {2:g}, score {0:g}, fair {3:g}".format(*terms),
    )


def _self_fired(
    definition: Mapping[str, Any], carry: Carry, base: xarray.Dataset, factors: Any
) -> Fired:
    """Whether a flow stack with the very draws of the AR one differs by exactly 0."""
    report = carry(_arms(base, factors, flow=True))
    found = report["paired_delta"]["draws_flow"]
    interval = found[f"ci{100 * definition['confidence']:g}"]
    return Fired(
        name="self_pair",
        passed=found["mean"] == 0 and interval == [0, 0],
        planted="one stack in both families",
        found=f"{found['mean']:+.5f} {interval}",
    )
