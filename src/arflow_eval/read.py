"""The `read` command: a frozen analysis x finished stores -> a report and a table."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from arflow_eval import compose, refusal, registration
from arflow_eval.keys import MISSING
from arflow_eval.reading import run_oracles, run_read, write_report
from arflow_eval.reads.screen import oracle_table
from arflow_eval.stats import compiled
from arflow_eval.values import flag

WIDTH: Final = 100  # columns of a table that is not on a terminal


def task(config: dict[str, Any]) -> int:
    """Carry out one composed read: guards, measures, report, table. Returns the exit code."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if config["experiment"] is not None:
        for report, path in registration.carry_out(config):
            _show(report, path, console)
        return 0
    definition = config["read"]
    compiled.switch(on=flag(config["compiled"], key="compiled"))
    measure = compose.call_target(definition["_target_"])
    if config["oracle"]:
        given = config["arms"].get("greedy", MISSING)
        fired = run_oracles(definition, measure=measure, given=None if given == MISSING else given)
        console.print(oracle_table(definition, fired))
        return refusal.GUARD if any(not each.passed for each in fired) else 0
    registration.peek(config)
    report = run_read(definition, config["arms"], measure=measure)
    _show(report, write_report(report, root=Path(config["store"]["root"])), console)
    return 0


def _show(report: Mapping[str, Any], path: Path, console: Console) -> None:
    """A report as its measure's module lays it out, and where it lies."""
    module = report["extended"]["definition"]["measure"].rpartition(".")[0]
    console.print(compose.call_target(f"{module}.table")(report))
    console.print(f"report: {path}", soft_wrap=True, highlight=False, markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `read` with the given words, the command line's by default; returns the exit code."""
    return compose.application("read", task, argv, arrange=registration.locked_reads)


if __name__ == "__main__":
    raise SystemExit(main())
