"""The functions that a configuration may name: this package's own, imported when called for."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arflow_eval import keys, refusal
from arflow_eval.contracts import Panel
from arflow_eval.panel import cut
from arflow_eval.settings import EvaluateSettings, opens_sealed
from arflow_eval.values import did_you_mean


def call_target(target: str) -> Callable[..., Any]:
    """The function of this package that a `_target_` names, imported now."""
    if not keys.allowed_target(target):
        raise keys.foreign_target(f"_target_={target}")
    module_name, _, name = target.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(str(error.name)):
            raise
        raise refusal.usage(
            f"_target_={target} has no module {error.name}",
            expected="a function of arflow_eval",
            remedy="check the _target_ of the option's yaml",
        ) from error
    found = getattr(module, name, None)
    own = str(getattr(found, "__module__", "")).startswith(keys.TARGETS)
    if not callable(found) or not own:
        raise refusal.usage(
            f"_target_={target} is no function of {module_name}",
            expected="a function that this package defines",
            remedy=did_you_mean("_target_", target, [f"{module_name}.{it}" for it in vars(module)])
            or "check the _target_ of the option's yaml",
        )
    function: Callable[..., Any] = found
    return function


def load_panel(settings: EvaluateSettings) -> Panel:
    """The panel of a configuration; a sealed one only for the locked run of a registration."""
    chosen = settings.panel
    opened = {"opened": True} if chosen.sealed and opens_sealed(settings) else {}
    panel: Panel = call_target(chosen.target)(
        name=chosen.name,
        plan=chosen.plan,
        digest=chosen.digest,
        steps=chosen.steps,
        root=chosen.root,
        repos=chosen.repos,
        units=chosen.units,
        cameras=chosen.cameras,
        names=chosen.names,
        cache=chosen.cache,
        **opened,
    )
    if chosen.subset is not None:
        panel = cut.subset(panel, Path(chosen.subset).expanduser())
    return panel if chosen.limit is None else cut.limit(panel, chosen.limit)
