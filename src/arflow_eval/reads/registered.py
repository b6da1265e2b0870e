"""Guards of a registered study: what its arms must be, stated in the read's definition.

Each is one function of the paired arms and its settings: it returns None, or refuses with exit
code 3. A definition names those it wants under `guards`, each with its settings.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.reads.draw_guards import (
    mean_reproduced,
    name_extends_by_draws,
    no_temperature,
    same_checkpoint,
    same_index,
    several_draws,
    stated_draws,
)
from arflow_eval.reads.pairing import Arms, draws_behind
from arflow_eval.reads.pinned import (
    contamination,
    exclusion,
    fills_exactly,
    full_chunk,
    panel,
)
from arflow_eval.stats.scoring import arm_errors

Registered = Callable[[Arms], None]
AS_REGISTERED: Final = "evaluate the arm as it was registered"


def temperatures(arms: Arms, *, of: Mapping[str, float | int]) -> None:
    """Each role's arm was decoded at its registered temperature."""
    for role, wanted in of.items():
        found = arms[role].attrs.get("temperature")
        if found is None or float(found) != float(wanted):
            raise refusal.guard(
                f"the {role} arm has the temperature {found}",
                expected=f"the registered {wanted:g}",
                remedy=AS_REGISTERED,
            )


def draws(arms: Arms, *, of: Mapping[str, int]) -> None:
    """Each role's arm was sampled with its registered number of draws a frame."""
    for role, wanted in of.items():
        found = draws_behind(arms[role])
        if found != wanted:
            raise refusal.guard(
                f"the {role} arm has {found} draws a frame",
                expected=f"the registered {wanted}",
                remedy=AS_REGISTERED,
            )


def name_extends(arms: Arms, *, base: str, role: str, by: str) -> None:
    """One arm's name is another's and exactly this after it, so it cannot pass as another read."""
    found, start = (str(arms[name].attrs["arm"]) for name in (role, base))
    if found != start + by:
        raise refusal.guard(
            f"the {role} arm is called {found}",
            expected=f"the name of the {base} arm extended by exactly {by}: {start}{by}",
            remedy="give the arms of one policy to the roles they are for",
        )


def names_end(arms: Arms, *, of: Mapping[str, str]) -> None:
    """Each role's arm is called a policy's name and exactly its registered tag after it."""
    for role, tag in of.items():
        found = str(arms[role].attrs["arm"])
        if not found.endswith(tag) or found == tag:
            raise refusal.guard(
                f"the {role} arm is called {found}",
                expected=f"a name that ends in {tag}",
                remedy="give each arm to the role that it was evaluated for",
            )


def one_checkpoint(arms: Arms) -> None:
    """All arms come from the same weights."""
    found = {role: arm.attrs.get("checkpoint_digest") for role, arm in arms.items()}
    if len(set(found.values())) > 1 or None in found.values():
        said = ", ".join(f"{role} {str(digest)[:12]}" for role, digest in found.items())
        raise refusal.guard(
            f"the arms have different checkpoints, or none is known: {said}",
            expected="one checkpoint behind all arms",
            remedy="evaluate the arms from one checkpoint folder",
        )


def summaries_reproduced(arms: Arms, *, tolerance: float) -> None:
    """Summaries that an arm carries follow from its arrays; an arm without any passes."""
    for role, arm in arms.items():
        stored = arm.attrs.get("summary")
        if not stored:
            continue
        errors = arm_errors(arm, arm["core"].to_numpy(), window=int(arm.attrs["horizon"]))
        for name in ("chunk_mae", "first_mae"):
            found = getattr(errors, name)
            if name in stored and not abs(found - float(stored[name])) < tolerance:
                raise refusal.guard(
                    f"the {role} arm's arrays give the {name} {found:.4f}",
                    expected=f"its stored {float(stored[name]):.4f}, to {tolerance:g}",
                    remedy="find which of array and summary is not of this run",
                )


def baselines(arms: Arms, *, of: Sequence[str]) -> None:
    """Every arm carries these baselines: where all lack one, nothing was held against it."""
    for role, arm in arms.items():
        for name in of:
            if name not in arm:
                raise refusal.guard(
                    f"the {role} arm has no {name}",
                    expected=f"the baselines {' and '.join(of)} in every arm",
                    remedy="evaluate the arm on a panel with states and statistics",
                )


GUARDS: Final[Mapping[str, Callable[..., None]]] = {
    guard.__name__: guard
    for guard in (
        temperatures,
        draws,
        panel,
        baselines,
        name_extends,
        names_end,
        one_checkpoint,
        summaries_reproduced,
        contamination,
        exclusion,
        full_chunk,
        fills_exactly,
        stated_draws,
        several_draws,
        name_extends_by_draws,
        same_checkpoint,
        no_temperature,
        same_index,
        mean_reproduced,
    )
}
OF_STORES: Final = (
    "summaries_reproduced",
    "mean_reproduced",
)  # see arms whole, before they are cut to a subset
PINS: Final = (
    "panel",
    "contamination",
    "exclusion",
    "full_chunk",
)  # say what a registered panel holds


def unpinned(named: Mapping[str, Any]) -> dict[str, Any]:
    """The guards of a definition without those that hold on its registered panel alone."""
    return {name: settings for name, settings in named.items() if name not in PINS}


def chosen(named: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Registered]:
    """The guards of a definition with their settings, or a usage refusal of an unknown one."""
    found: dict[str, Registered] = {}
    for name, settings in named.items():
        if name not in GUARDS:
            close = refusal.nearest(name, GUARDS)
            raise refusal.usage(
                f"no guard is called {name}",
                expected=f"one of {', '.join(GUARDS)}",
                remedy=f"did you mean {close}?" if close else "drop it from read.guards",
            )
        guard = GUARDS[name]
        given = dict(settings or {})
        wanted = [
            each.name
            for each in inspect.signature(guard).parameters.values()
            if each.kind is each.KEYWORD_ONLY
        ]
        if set(given) != set(wanted):
            raise refusal.usage(
                f"read.guards.{name} has the keys {', '.join(given) or 'none'}",
                expected=", ".join(wanted) or "none",
                remedy=f"give {' and '.join(wanted) or 'it no keys'}",
            )
        found[name] = partial(guard, **given)
    return found
