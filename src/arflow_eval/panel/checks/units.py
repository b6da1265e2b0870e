"""Units: whether values can be what panel.units says they are."""

import math
from typing import Final

import numpy as np
from jaxtyping import Float64

from arflow_eval.panel.checks.recording import VELOCITY, Fault, Recording, is_arm

TURN: Final = {"degree": 360.0, "radian": 2 * math.pi}
TICKS: Final = 4096  # of the encoders of hobby arms, in one turn
LEAST_VALUES: Final = 20  # distinct values before their spacing says anything
FINEST: Final = 0.005  # degrees; below it a spacing may be that of floating point
NEAR: Final = 0.05  # of a quantum
SHARE: Final = 0.95  # of the gaps that must be whole quanta


def units_range(recording: Recording) -> list[Fault]:
    """Joints declared in degrees that never leave one radian's turn, or in radians that do."""
    arm = [values for _, name, values in recording.columns() if is_arm(name) and len(values)]
    if not arm or recording.units not in TURN:
        return []
    largest = max(float(np.abs(values).max()) for values in arm)
    if recording.units == "degree" and largest <= TURN["radian"]:
        guess = "normalised values" if largest <= 1 else "radians"
        return [_range(recording, largest, expected=f"degrees; these look like {guess}")]
    if recording.units == "radian" and largest > 2 * TURN["radian"]:
        return [_range(recording, largest, expected="radians; these look like degrees")]
    return []


def units_quantum(recording: Recording) -> list[Fault]:
    """Joints in degrees whose encoder steps are uneven and not whole 360/4096 degrees.

    Values normalised over each joint's own range have a step of their own; those of one robot in
    degrees all have the encoder's.
    """
    if recording.units != "degree" or units_range(recording):
        return []
    found = {
        (kind, name): quantum(values)
        for kind, name, values in recording.columns()
        if is_arm(name) and not _whole(values, TURN["degree"] / TICKS)
    }
    known = {each: size for each, size in found.items() if size is not None}
    if not known or len(known) < 2 or max(known.values()) < 1.02 * min(known.values()):
        return []
    return [
        Fault(
            "units_quantum",
            recording.repo,
            f"{kind} moves in steps of {size:.4f}, uneven between joints",
            f"steps of {TURN['degree'] / TICKS:.4f}, as degrees have",
            joint=name,
        )
        for (kind, name), size in known.items()
    ]


def velocity(recording: Recording) -> list[Fault]:
    """Dimensions that by their name are no position, in a panel of positions."""
    names = dict.fromkeys((*recording.state_names, *recording.action_names))
    return [
        Fault(
            "velocity",
            recording.repo,
            "by its name no position",
            f"positions in {recording.units}",
            joint=name,
        )
        for name in names
        if VELOCITY.search(name)
    ]


def quantum(values: Float64[np.ndarray, "index"]) -> float | None:
    """The step that all gaps between distinct values are multiples of; None where there is none."""
    gaps = _gaps(values)
    if len(gaps) < LEAST_VALUES:
        return None
    size = float(np.quantile(gaps, 0.02))
    times = np.maximum(np.round(gaps / size), 1)
    size = float((gaps * times).sum() / (times * times).sum())
    return size if size >= FINEST and _whole(values, size) else None


def _whole(values: Float64[np.ndarray, "index"], size: float) -> bool:
    gaps = _gaps(values) / size
    return bool(len(gaps)) and bool((np.abs(gaps - np.round(gaps)) < NEAR).mean() >= SHARE)


def _gaps(values: Float64[np.ndarray, "index"]) -> Float64[np.ndarray, "element"]:
    gaps: Float64[np.ndarray, "element"] = np.diff(np.unique(values))
    return gaps[gaps > 1e-4]  # closer values are one, apart by rounding


def _range(recording: Recording, largest: float, *, expected: str) -> Fault:
    found = f"no joint leaves ±{largest:.4g}" if largest < 10 else f"joints reach ±{largest:.4g}"
    return Fault("units_range", recording.repo, found, expected)
