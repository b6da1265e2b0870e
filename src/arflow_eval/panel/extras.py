"""Libraries that an extra of this package brings, imported when they are needed."""

import importlib
from typing import Any

from arflow_eval import refusal


def library(name: str, *, extra: str) -> Any:
    """A module of an optional library, or a usage refusal with the line that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise refusal.usage(
            f"{error.name} is not installed",
            expected=f"the libraries of the extra {extra}",
            remedy=f'pip install "arflow-eval[{extra}]"',
        ) from error
