"""A policy of your own: a plain function from an observation to a chunk.

It is named on the command line, as in `model=python model.function=package.module:function`, and
imported when the policy is loaded, from the working directory too. Its horizon is the recorded
chunk's, or what an attribute `horizon` of the function says.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float32

from arflow_eval import refusal
from arflow_eval.contracts import Observation, Space

SPELLING: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Function:
    """A user's function as a deterministic policy.

    Attributes:
        name: `package.module:function`.
        call: the function; it gets an `Observation` and returns an array [step action] in raw
            units.
        horizon: steps of its chunks.
        action_dim: action dimensions of the panel.
    """

    name: str
    call: Callable[[Observation], Any]
    horizon: int
    action_dim: int

    def predict(self, observation: Observation) -> Float32[np.ndarray, "step action"]:
        """The function's chunk. A guard refusal where it is none of the right shape."""
        chunk = np.asarray(self.call(observation))
        if chunk.shape != (self.horizon, self.action_dim) or chunk.dtype.kind not in "fiu":
            raise refusal.guard(
                f"{self.name} returned {chunk.dtype} {list(chunk.shape)}",
                expected=f"numbers [{self.horizon} steps, {self.action_dim} actions]",
                remedy=f"return the whole chunk, or set {self.name.partition(':')[2]}.horizon",
            )
        return chunk.astype(np.float32)


def load(
    *,
    folder: Path | None,
    dtype: str,
    device: str,
    threads: int,
    steps: int,
    space: Space,
    function: str | None = None,
) -> Function:
    """The function that `model.function` names, as a policy of the panel's actions.

    Raises:
        Refusal: usage, where there is no such module or function.
    """
    del folder, dtype, device, threads
    if function is None:
        raise refusal.usage(
            "model=python without a function",
            expected="model.function=package.module:function",
            remedy="add model.function",
        )
    module_name, name = spelt(function)
    with _here(module_name):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not module_name.startswith(str(error.name)):
                raise  # the module is there, and lacks something of its own
            raise _no_module(module_name) from error
    found = getattr(module, name, None)
    if not callable(found):
        close = refusal.nearest(name, [it for it in vars(module) if callable(vars(module)[it])])
        raise refusal.usage(
            f"{module_name} has no function {name}",
            expected="a function from an observation to a chunk",
            remedy=f"did you mean {module_name}:{close}?" if close else "check model.function",
        )
    horizon = int(getattr(found, "horizon", steps))
    return Function(function, found, horizon=horizon, action_dim=len(space.action_names))


def spelt(function: str) -> tuple[str, str]:
    """The module and the name of `package.module:function`. A usage refusal of anything else."""
    if not SPELLING.fullmatch(function):
        raise refusal.usage(
            f"model.function={function}",
            expected="package.module:function",
            remedy="give for example model.function=my_policy:predict",
        )
    module, _, name = function.partition(":")
    return module, name


def source(function: str) -> bytes:
    """The source of the function's module, which is not run. It is part of a store's identity.

    Raises:
        Refusal: usage, where there is no such module.
    """
    module, _ = spelt(function)
    with _here(module):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError as error:
            raise _no_module(module) from error
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise _no_module(module)
    return Path(found.origin).read_bytes()


@contextmanager
def _here(module: str) -> Iterator[None]:
    """Import from the working directory as well, as `python -m` does, and the module anew.

    So what runs is the source that names the store, also after an edit in a notebook.
    """
    sys.modules.pop(module, None)
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _no_module(name: str) -> refusal.Refusal:
    return refusal.usage(
        f"there is no module {name}",
        expected="a Python module that can be imported from here",
        remedy="run in its folder, or install it",
    )
