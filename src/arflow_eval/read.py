"""The `read` command: a frozen analysis x finished stores -> a report and a table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from arflow_eval import compose, refusal
from arflow_eval.keys import MISSING
from arflow_eval.reading import run_oracles, run_read, write_report
from arflow_eval.reads.screen import oracle_table
from arflow_eval.stats import compiled
from arflow_eval.values import flag

WIDTH: Final = 100  # columns of a table that is not on a terminal


def task(config: dict[str, Any]) -> int:
    """Carry out one composed read: guards, measures, report, table. Returns the exit code."""
    definition = config["read"]
    compiled.switch(on=flag(config["compiled"], key="compiled"))
    measure = compose.call_target(definition["_target_"])
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if config["oracle"]:
        given = config["arms"].get("greedy", MISSING)
        fired = run_oracles(definition, measure=measure, given=None if given == MISSING else given)
        console.print(oracle_table(definition, fired))
        return refusal.GUARD if any(not each.passed for each in fired) else 0
    report = run_read(definition, config["arms"], measure=measure)
    path = write_report(report, root=Path(config["store"]["root"]))
    console.print(compose.call_target(f"{measure.__module__}.table")(report))
    console.print(f"report: {path}", soft_wrap=True, highlight=False, markup=False)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `read` with the given words, the command line's by default; returns the exit code."""
    return compose.application("read", task, argv)


if __name__ == "__main__":
    raise SystemExit(main())
