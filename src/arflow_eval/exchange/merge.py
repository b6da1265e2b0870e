"""The words of `convert merge`: shards from several machines into one store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.exchange.merging import Merged, merge
from arflow_eval.exchange.words import Kind, run
from arflow_eval.plain import say
from arflow_eval.runs import STORE, run_folder

SHOWN: Final = 5  # ranges of missing rows
KIND: Final = Kind(
    name="merge",
    forms="convert merge RUN RUN [RUN ...] OUT",
    purpose="Copy the written rows of stores of one configuration into one store.\n"
    "What is missing is said; evaluate writes it.",
)


def main(argv: Sequence[str]) -> int:
    """Run `convert merge` with the words after it; returns 4 while rows are missing."""
    return run(KIND, _convert, argv)


def _convert(words: Sequence[str], _: Mapping[str, Any]) -> int:
    if len(words) < 3:
        raise KIND.wrong(f"convert merge {' '.join(words)}".strip())
    *paths, out = map(Path, words)
    found = merge(paths, run_folder(out))
    for folder, rows in found.copied.items():
        say(f"copied       {rows:,} rows of {folder}")
    if found.left_out:
        say(f"left out     {'; '.join(found.left_out)}")
    say(f"store        {found.folder / STORE}")
    if found.fingerprint is not None:
        say(f"fingerprint  {found.fingerprint}")
        return 0
    return _waiting(found)


def _waiting(found: Merged) -> int:
    rows = sum(map(len, found.missing))
    listed = [f"{part.start}-{part.stop - 1}" for part in found.missing[:SHOWN]]
    more = len(found.missing) - len(listed)
    say(f"missing      rows {', '.join(listed)}{f' and {more:,} more ranges' if more else ''}")
    say(f"resume       evaluate looks for it in its store.root as {found.resumed_as}")
    say(f"             {rows:,} of {found.frames:,} rows are missing")
    return refusal.WAITING
