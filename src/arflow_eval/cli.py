"""The console script `arflow-eval`: its sub-commands are the entry points of the package."""

import importlib
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Final

from arflow_eval import jobs, refusal

COMMANDS: Final = {
    "evaluate": "model x decode x panel -> a store of predictions, one per draw",
    "read": "a frozen analysis x finished stores -> findings",
    "convert": "npz files <-> stores, stores -> Parquet, shards -> one store, a store -> a part",
    "panel": "panel check: what silently goes wrong in LeRobot datasets",
    "prereg": "lock, amend, show and compare registrations",
    "diff": "what differs between two locks, amendments, stores, reports or configurations",
    "status": "how far runs are, what they cost and what is left",
    "verify": "whether stores are what was written: which frames of which variable are not",
    "doctor": "whether stores are safe on a folder's file system",
    "demo": "both bundled models on the bundled panel, evaluated and read",
}
MODULES: Final = {"panel": "panel_check"}  # of commands whose name is a room's
HELP: Final = """\
usage: arflow-eval COMMAND [key=value … | path …] [flags]

{commands}

examples:
  arflow-eval evaluate
  arflow-eval evaluate decode=draws decode.T=0.7 decode.draws=10
  arflow-eval evaluate --multirun decode=draws decode.T=0.5,0.7,1.0,1.3
  arflow-eval read read=paired_delta arms.treatment=outputs/A arms.control=outputs/B
  arflow-eval convert npz banked.npz outputs/banked --arm pred:bijou@40000
  arflow-eval convert parquet outputs/A outputs/A.parquet
  arflow-eval panel check FOLDER
  arflow-eval prereg lock NAME
  arflow-eval diff outputs/A outputs/B
  arflow-eval status outputs
  arflow-eval verify outputs
  arflow-eval doctor outputs
  arflow-eval demo

arflow-eval COMMAND --help has the keys of a command. `python -m arflow_eval.COMMAND` is the same.
Exit codes: 0 done, 2 usage, 3 guard, 4 still waiting, 5 damaged data, 1 anything else.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command with the arguments after it; returns its exit code."""
    first, *rest = [*(sys.argv[1:] if argv is None else argv)] or [""]
    if first in COMMANDS:
        return int(importlib.import_module(f"arflow_eval.{MODULES.get(first, first)}").main(rest))
    if first in ("-h", "--help", ""):
        sys.stdout.write(_help())
        return 0 if first else refusal.USAGE
    if first == "--version":
        sys.stdout.write(f"arflow-eval {_version()}\n")
        return 0
    return jobs.report(_unknown(first))


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    return HELP.format(commands="\n".join(lines))


def _version() -> str:
    try:
        return metadata.version("arflow-eval")
    except metadata.PackageNotFoundError:
        return "(not installed, run from its source)"


def _unknown(command: str) -> refusal.Refusal:
    close = refusal.nearest(command, COMMANDS)
    return refusal.usage(
        f"unknown command {command}",
        expected=f"one of {', '.join(COMMANDS)}",
        remedy=f"did you mean {close}?" if close else "see arflow-eval --help",
    )
