"""The settings that measures share, checked before a store is opened."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, get_args

from arflow_eval.values import choice, positive_or_null, whole, whole_or_null, wrong

Grouping = Literal["episode", "repo"]


def fraction(value: Any, *, key: str) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise wrong(key, value, expected="a number between 0 and 1", example="0.95")
    return float(value)


def fractions(value: Any, *, key: str) -> list[float]:
    """Numbers strictly between 0 and 1, at least one."""
    if not isinstance(value, list | tuple) or not value:
        raise wrong(key, value, expected="numbers between 0 and 1", example="[0.25,0.5,0.75]")
    return [fraction(each, key=key) for each in value]


CHECKS: Final[Mapping[str, Callable[..., Any]]] = {
    "window": partial(whole_or_null, least=1),
    "resamples": partial(whole, least=1),
    "seed": partial(whole, least=0),
    "confidence": fraction,
    "quantiles": fractions,
    "power": fraction,
    "effect": positive_or_null,
    "frames": partial(whole_or_null, least=2),
    "clusters": partial(whole_or_null, least=2),
    "first_draws": partial(whole_or_null, least=2),
    "cluster": partial(choice, known=get_args(Grouping)),
}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a read with the shared ones checked, or a usage refusal of one of them."""
    return {
        name: CHECKS[name](value, key=f"read.{name}") if name in CHECKS else value
        for name, value in settings.items()
    }
