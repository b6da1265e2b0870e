"""Values and times: wraps, stillness, copies, offsets, gaps."""

from typing import Final

import numpy as np

from arflow_eval.panel.checks.recording import Fault, Recording, is_arm
from arflow_eval.panel.checks.units import TURN

WRAPPED: Final = (3100.0, 3200.0)  # thousandths of a half turn in radians: |x| near 3141
DISTINCT: Final = 10  # values; a dimension with fewer is a switch, which may leap
EQUAL: Final = 0.99  # of the frames
LATE: Final = 1e-3  # seconds


def not_finite(recording: Recording) -> list[Fault]:
    """NaN or infinite states or actions."""
    found = []
    for kind, name, values in recording.columns():
        bad = ~np.isfinite(values)
        if bad.any():
            first = int(recording.episode[int(bad.argmax())])
            said = f"{int(bad.sum()):,} values of {kind} are not finite"
            found.append(Fault("not_finite", recording.repo, said, "finite values", first, name))
    return found


def dimensions(recording: Recording) -> list[Fault]:
    """States and actions of different dimensions: no state stands in for an action."""
    sizes = len(recording.state_names), len(recording.action_names)
    if recording.shared:
        return []
    said = f"{sizes[0]} state and {sizes[1]} action dimensions"
    return [Fault("dimensions", recording.repo, said, "as many of both")]


def encoder_wrap(recording: Recording) -> list[Fault]:
    """Joints that leap half their range and a quarter turn in one frame, or reach |x| near 3141."""
    found = []
    rows = recording.steps()
    least = TURN.get(recording.units, 0.0) / 4
    for kind, name, values in recording.columns():
        if not len(values):
            continue
        largest = int(np.abs(values).argmax())
        if WRAPPED[0] <= abs(values[largest]) <= WRAPPED[1]:
            said, row = f"{kind} reaches {values[largest]:.0f}", largest
        elif is_arm(name) and len(rows) and len(np.unique(values)) >= DISTINCT:
            leaps = np.abs(values[rows + 1] - values[rows])
            row = int(rows[int(leaps.argmax())])
            if leaps.max() < max(least, np.ptp(values) / 2):
                continue
            said = f"{kind} leaps by {leaps.max():.4g} of a range of {np.ptp(values):.4g}"
        else:
            continue
        episode = int(recording.episode[row])
        found.append(
            Fault(
                "encoder_wrap", recording.repo, said, "no leap from frame to frame", episode, name
            )
        )
    return found


def frozen_episode(recording: Recording) -> list[Fault]:
    """Episodes in which neither a state nor an action ever changes. Still frames are no fault."""
    still = []
    total = 0
    for episode, rows in recording.episodes():
        total += 1
        both = (recording.states[rows], recording.actions[rows])
        if len(both[0]) > 1 and all((each == each[0]).all() for each in both):
            still.append(episode)
    if not still:
        return []
    said = f"{len(still):,} of {total:,} episodes never move"
    return [Fault("frozen_episode", recording.repo, said, "motion in every episode", still[0])]


def state_equals_action(recording: Recording) -> list[Fault]:
    """States that are copies of the actions: any policy that holds the state knows the answer."""
    if not recording.shared or not len(recording.states):
        return []
    same = (recording.states == recording.actions).all(axis=1)
    if same.mean() < EQUAL:
        return []
    said = f"state equals action in {same.mean():.1%} of the frames"
    return [Fault("state_equals_action", recording.repo, said, "a measured state")]


def constant_offset(recording: Recording) -> list[Fault]:
    """Arm joints whose action lies a steady 1/24 turn or more from the state (15 degrees)."""
    if not recording.shared or recording.units not in TURN or not len(recording.states):
        return []
    found = []
    gaps = recording.actions.astype(np.float64) - recording.states
    for place, name in enumerate(recording.action_names):
        middle = float(np.median(gaps[:, place]))
        spread = float(np.median(np.abs(gaps[:, place] - middle)))
        if is_arm(name) and abs(middle) >= TURN[recording.units] / 24 and spread < abs(middle) / 2:
            said = f"action - state is {middle:+.4g} (median), ±{spread:.2g}"
            found.append(
                Fault("constant_offset", recording.repo, said, "one calibration", joint=name)
            )
    return found


def off_rate(recording: Recording) -> list[Fault]:
    """Timestamps that do not advance by 1/fps: steps of a chunk are then no steps of time."""
    rows = recording.steps()
    if not len(rows):
        return []
    passed = recording.timestamps[rows + 1] - recording.timestamps[rows]
    away = np.abs(passed - 1 / recording.fps)
    if not away.max() > LATE and np.isfinite(away).all():
        return []
    worst = int(recording.episode[rows[int(np.nan_to_num(away, nan=np.inf).argmax())]])
    said = f"{(away > LATE).mean():.0%} of steps last {passed.min():.3f} to {passed.max():.3f} s"
    expected = f"{1 / recording.fps:.4f} s at {recording.fps:g} fps"
    return [Fault("off_rate", recording.repo, said, expected, worst)]
