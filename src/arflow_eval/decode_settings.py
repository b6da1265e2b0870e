"""The settings of a decode: its configuration as types, and which family takes which."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.contracts import Family
from arflow_eval.values import (
    choice,
    flag,
    plain_name,
    shown,
    text,
    text_or_null,
    whole,
    whole_or_null,
    wrong,
)

SOLVERS: Final = ("euler", "heun")
NOISES: Final = ("philox", "published")
# rows of a frame are padded to whole tiles of so many
TILES: Final = {"keyed": 1, "fixed_shape": 16, "exact": 4}
# and the rows of a forward to so many at least
LEAST: Final = {"keyed": 1, "fixed_shape": 1, "exact": 16}
SCHEDULES: Final = ("constant", "linear")
UNDECIDED: Final = ""
FLOW_STEPS: Final = 10
WORD: Final = 2**32  # a published stream's seed is one 32-bit word


@dataclass(frozen=True)
class DecodeSettings:
    """How to draw. `T` is None for a policy without one, `steps` for one that is no flow.

    `tickets` is a file, `T_final` the temperature at a block's end under a linear schedule,
    `reference` a condition that a second scoring masks.
    """

    target: str
    name: str
    draws: int
    T: float | None
    steps: int | None
    solver: str
    tickets: str | None
    noise: str
    determinism: str
    schedule: str
    T_final: float | None
    reference: str | None
    mass: bool

    @property
    def tile(self) -> int:
        """Rows of a frame are padded to whole tiles of so many."""
        return TILES[self.determinism]

    @property
    def least(self) -> int:
        """Rows of a forward are padded to so many at least."""
        return LEAST[self.determinism]


def decode_settings(config: Mapping[str, Any], *, family: Family) -> DecodeSettings:
    """A decode's configuration as types; nulls stay undecided until `resolved`."""
    determinism = config["determinism"]
    settings = DecodeSettings(
        target=text(config["_target_"], key="decode._target_"),
        name=plain_name(config["name"], key="decode.name"),
        draws=whole(config["draws"], key="decode.draws", least=1),
        T=_temperature(config["T"], key="decode.T"),
        steps=whole_or_null(config["steps"], key="decode.steps", least=1),
        solver=choice(config["solver"], key="decode.solver", known=SOLVERS),
        tickets=text_or_null(config["tickets"], key="decode.tickets"),
        noise=choice(config["noise"], key="decode.noise", known=NOISES),
        determinism=UNDECIDED
        if determinism is None
        else choice(determinism, key="decode.determinism", known=tuple(TILES)),
        schedule=choice(config["schedule"], key="decode.schedule", known=SCHEDULES),
        T_final=_temperature(config["T_final"], key="decode.T_final"),
        reference=text_or_null(config["reference"], key="decode.reference"),
        mass=flag(config["mass"], key="decode.mass"),
    )
    _check_greedy(settings)
    _check_schedule(settings)
    _check_family(settings, family=family)
    return settings


def _check_greedy(settings: DecodeSettings) -> None:
    if settings.name != "greedy":
        return
    for key, value, only in (
        ("T", settings.T, None),
        ("draws", settings.draws, 1),
        ("schedule", settings.schedule, SCHEDULES[0]),
        ("tickets", settings.tickets, None),
    ):
        if value != only:
            raise refusal.usage(
                f"decode.{key}={shown(value)} with decode=greedy",
                expected="one read a frame, without a temperature",
                remedy=f"sample with decode=draws decode.{key}={shown(value)}",
            )


def _check_schedule(settings: DecodeSettings) -> None:
    if (settings.schedule == "linear") == (settings.T_final is not None):
        return
    raise refusal.usage(
        f"decode.schedule={settings.schedule} with decode.T_final={shown(settings.T_final)}",
        expected="a final temperature for a linear schedule, and for no other",
        remedy="give for example decode.schedule=linear decode.T=1 decode.T_final=0.5",
    )


def _check_family(settings: DecodeSettings, *, family: Family) -> None:
    if family == "chunk" and settings.name != "greedy":
        raise refusal.usage(
            f"decode={settings.name} of a policy of family chunk",
            expected="decode=greedy: such a policy is deterministic and has no draws",
            remedy="drop decode=, or choose a token or flow model",
        )
    for key, value, default, only in (
        ("T", settings.T, None, "token"),
        ("schedule", settings.schedule, SCHEDULES[0], "token"),
        ("reference", settings.reference, None, "token"),
        ("mass", settings.mass, False, "token"),
        ("steps", settings.steps, None, "flow"),
        ("solver", settings.solver, SOLVERS[0], "flow"),
        ("tickets", settings.tickets, None, "flow"),
    ):
        if family != only and value != default:
            raise not_of_family(f"decode.{key}={shown(value)}", family=family, only=only)


def not_of_family(found: str, *, family: Family, only: str) -> refusal.Refusal:
    """The refusal of a setting that only another family of policies takes."""
    key = found.partition("=")[0]
    return refusal.usage(
        f"{found} of a policy of family {family}",
        expected=f"{key} for a {only} policy only",
        remedy=f"drop {key}",
    )


def resolved(settings: DecodeSettings, *, family: Family, one_core: bool) -> DecodeSettings:
    """The settings with their nulls decided; `one_core` says that a CPU runs one thread."""
    found = settings
    if family == "token" and settings.T is None:
        found = replace(found, T=0.0 if settings.name == "greedy" else 1.0)
    if family == "flow" and settings.steps is None:
        found = replace(found, steps=FLOW_STEPS)
    if settings.determinism == UNDECIDED:
        found = replace(found, determinism="exact" if one_core else "fixed_shape")
    return found


def _temperature(value: Any, *, key: str) -> float | None:
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise wrong(key, value, expected="a finite number >= 0, or null", example="0.7")
    return float(value)
