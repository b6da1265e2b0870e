"""Declarative, pre-registered, offline evaluation of vision-language-action policies.

`open_run` opens a finished run as a labelled dataset, `frame_errors` scores each of its frames,
and `run_read` carries out a read on run folders or datasets. They are imported when first used,
so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arflow_eval.notebook import frame_errors, run_read
    from arflow_eval.store import open_run

__all__ = ["frame_errors", "open_run", "run_read"]

_ROOMS = {
    "frame_errors": "arflow_eval.notebook",
    "open_run": "arflow_eval.store",
    "run_read": "arflow_eval.notebook",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
