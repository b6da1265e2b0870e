"""Declarative, pre-registered, offline evaluation of vision-language-action policies.

`open_run` opens a finished run as a labelled dataset; `run_read` carries out a read on datasets
or run folders. Both are imported when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arflow_eval.reading import run_read
    from arflow_eval.store import open_run

__all__ = ["open_run", "run_read"]

_ROOMS = {"open_run": "arflow_eval.store", "run_read": "arflow_eval.reading"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
