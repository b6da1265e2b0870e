"""The words of `convert subset`: a store cut to the frames of a smaller panel."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval.exchange.selection import Selection, from_plan, from_store
from arflow_eval.exchange.subsetting import subset
from arflow_eval.exchange.words import Kind, run
from arflow_eval.plain import say
from arflow_eval.runs import STORE, run_folder

KIND: Final = Kind(
    name="subset",
    forms="convert subset RUN OUT --frames PLAN.json | --like RUN | --panel NAME",
    purpose="Cut a complete store to the frames of a smaller panel, in its order and with its core"
    " flags.\nEvery row keeps its digest; the store gets another.",
    flags={
        "frames": ("FILE", "sample plan, or a JSON list of [repo, episode, frame]"),
        "like": ("RUN", "a run whose frames, order and core flags are taken"),
        "panel": ("NAME", "an option of the group panel"),
    },
)


def main(argv: Sequence[str]) -> int:
    """Run `convert subset` with the words after it; returns the exit code."""
    return run(KIND, _convert, argv)


def _convert(words: Sequence[str], asked: Mapping[str, Any]) -> int:
    given = [name for name in KIND.flags if asked[name] is not None]
    if len(words) != 2:
        raise KIND.wrong(f"convert subset {' '.join(words)}".strip())
    if len(given) != 1:
        flags = " and ".join(f"--{name}" for name in given)
        raise KIND.wrong(f"convert subset with {flags or 'no frames named'}")
    whole, out = (run_folder(Path(word)) for word in words)
    found = subset(whole, out, _selection(given[0], asked[given[0]]))
    say(f"{found.frames:,} of {found.of:,} frames")
    say("left out     timings and writers, which stay beside the whole store")
    say(f"store        {found.folder / STORE}")
    say(f"fingerprint  {found.fingerprint}")
    return 0


def _selection(flag: str, value: str) -> Selection:
    if flag == "frames":
        return from_plan(Path(value))
    if flag == "like":
        return from_store(Path(value))
    panels = importlib.import_module("arflow_eval.exchange.panels")  # brings Hydra
    found: Selection = panels.from_panel(value)
    return found
