"""What silently goes wrong in recorded data: one function a fault, each with a name."""

from collections.abc import Callable
from typing import Final

from arflow_eval.panel.checks.recording import Fault, Recording
from arflow_eval.panel.checks.units import units_quantum, units_range, velocity
from arflow_eval.panel.checks.values import (
    constant_offset,
    dimensions,
    encoder_wrap,
    frozen_episode,
    not_finite,
    off_rate,
    state_equals_action,
)

Check = Callable[[Recording], list[Fault]]

CHECKS: Final[tuple[Check, ...]] = (
    not_finite,
    dimensions,
    units_range,
    units_quantum,
    velocity,
    encoder_wrap,
    frozen_episode,
    state_equals_action,
    constant_offset,
    off_rate,
)
WHOLE: Final[tuple[Check, ...]] = (not_finite, off_rate)  # need every row


def faults_of(recording: Recording) -> list[Fault]:
    """Every fault of one dataset. Checks of values leave out the rows that are not finite."""
    finite = recording.finite()
    found: list[Fault] = []
    for check in CHECKS:
        found += check(recording if check in WHOLE else finite)
    return found
