"""One configuration is one job: run it to a status, and put the statuses of a sweep together."""

import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from arflow_eval.refusal import DAMAGE, GUARD, USAGE, WAITING, Refusal

Task = Callable[[dict[str, Any]], int]

FAILED: Final = 1
INTERRUPTED: Final = 130
WORST_FIRST: Final = (DAMAGE, GUARD, WAITING, USAGE, FAILED)


@dataclass(frozen=True)
class Job:
    """A checked configuration and the overrides that chose it."""

    overrides: tuple[str, ...]
    config: dict[str, Any]

    @property
    def title(self) -> str:
        """The overrides as typed."""
        return " ".join(self.overrides) or "no overrides"


def run(task: Task, config: dict[str, Any]) -> int:
    """The status of a task: its own, a refusal's exit code, or 1 where it broke.

    A refusal is one line on stderr, anything else its traceback.
    """
    try:
        return task(config)
    except Refusal as refused:
        return report(refused)
    except SystemExit as stopped:
        sys.stderr.write(f"error: the job called sys.exit({stopped.code!r}); status {FAILED}\n")
        return FAILED
    except Exception:  # noqa: BLE001 - the one boundary: whatever breaks a job, its traceback is shown and the sweep's other jobs run
        traceback.print_exc()
        return FAILED


def report(refused: Refusal) -> int:
    """Print a refusal as one line on stderr; returns its exit code."""
    sys.stderr.write(f"error: {' '.join(str(refused).split())}\n")
    return refused.exit_code


def worst(statuses: Iterable[int]) -> int:
    """The worst of a sweep's statuses, in the order 5, 3, 4, 2, and anything else as 1."""
    found = set(statuses) - {0}
    if not found:
        return 0
    return next((status for status in WORST_FIRST if status in found), FAILED)
