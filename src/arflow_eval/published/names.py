"""The name of a published prediction: `pred:NAME@TAG[_drawsN[_tT|_ticket]]`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arflow_eval import refusal
from arflow_eval.contracts import Family

PREFIX: Final = "pred:"
BASELINES: Final = {"state_copy": "pred:state-copy", "state_copy_norm": "pred:state-copy-norm"}
RELEASE: Final = "release"
EXPECTED: Final = "pred:NAME@TAG[_drawsN[_tT|_ticket]]"
NUMBER: Final = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
# a variant, such as _selfsubgoal, may stand between tag and draws; it never holds draws itself
PATTERN: Final = re.compile(
    r"pred:(?P<name>[^@]+)@(?P<tag>[A-Za-z0-9.-]+)"
    r"(?P<variant>[_+](?:(?!draws).)*?)??"
    rf"(?:_draws(?P<draws>[1-9]\d*)(?:_t(?P<T>{NUMBER})(?:to(?P<final>{NUMBER}))?"
    r"|(?P<ticket>_ticket))?)?"
)


@dataclass(frozen=True)
class Name:
    """What the key of a prediction says.

    Attributes:
        key: the whole key, `pred:` included.
        name: of the model.
        tag: a training step, or `release`.
        variant: what stands between tag and draws, such as `_selfsubgoal`; usually empty.
        draws: number of draws whose mean the prediction is; None for one read a frame.
        T: temperature of the draws; None where the key has none.
        T_final: temperature at a block's end, under a schedule.
        ticket: whether the draws start from a bank of tickets.
    """

    key: str
    name: str
    tag: str
    variant: str = ""
    draws: int | None = None
    T: float | None = None
    T_final: float | None = None
    ticket: bool = False

    @property
    def policy(self) -> str:
        """The key without `pred:`, as a draws file and a report call it."""
        return self.key.removeprefix(PREFIX)

    @property
    def checkpoint(self) -> str:
        """The model and its training step."""
        return f"{self.name}@{self.tag}"

    @property
    def family(self) -> Family | None:
        """`token` with a temperature, `flow` with draws without one or a release, else unknown."""
        if self.T is not None:
            return "token"
        return "flow" if self.draws is not None or self.tag == RELEASE else None


def parsed(key: str) -> Name:
    """What a key says, or a usage refusal of one that is not `pred:NAME@TAG…`."""
    found = PATTERN.fullmatch(key)
    temperatures = [found["T"], found["final"]] if found else []
    printed = all(text is None or f"{float(text):g}" == text for text in temperatures)
    if found is None or not printed:
        raise refusal.usage(
            f"the prediction {key}",
            expected=f"{EXPECTED}, with T as %g prints it",
            remedy="rename the key to what made it, such as pred:bijou@40000_draws10_t0.7",
        )
    return Name(
        key=key,
        name=found["name"],
        tag=found["tag"],
        variant=found["variant"] or "",
        draws=None if found["draws"] is None else int(found["draws"]),
        T=None if found["T"] is None else float(found["T"]),
        T_final=None if found["final"] is None else float(found["final"]),
        ticket=found["ticket"] is not None,
    )


def chosen(keys: Sequence[str], asked: str | None, *, path: Path) -> Name:
    """The prediction of a file that was asked for, or its only one beside the baselines.

    Args:
        keys: every key of the file.
        asked: the key of an arm, with or without `pred:`.
        path: the file, for what a refusal says.
    """
    arms = [key for key in keys if key.startswith(PREFIX) and key not in BASELINES.values()]
    listed = ", ".join(arms) or "none"
    if asked is None:
        if len(arms) == 1:
            return parsed(arms[0])
        raise refusal.usage(
            f"{path.name} holds {len(arms)} predictions beside the baselines: {listed}",
            expected="one, or the choice of one",
            remedy=f"give for example --arm '{arms[0]}'" if arms else "choose another file",
        )
    key = PREFIX + asked.removeprefix(PREFIX)
    if key in arms:
        return parsed(key)
    close = refusal.nearest(key, arms)
    raise refusal.usage(
        f"{path.name} holds no prediction {key}",
        expected=f"one of {listed}",
        remedy=f"did you mean --arm '{close}'?" if close else "choose one of them with --arm",
    )
