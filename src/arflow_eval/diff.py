"""The `diff` command: configuration, code, data and results of any two artefacts, key by key."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import jobs, refusal
from arflow_eval.registration.comparing import artefact, as_markdown, as_text, compared

HELP: Final = """\
usage: arflow-eval diff A B [--json | --markdown]

A and B are any two of: locks, amendments, stores, reports, configurations (yaml), or folders that
hold one. Configuration, code, data and results stand side by side, key by key.
"""
FLAGS: Final = ("--json", "--markdown")


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two artefacts; returns the exit code, 0 also where they differ."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "-h" in words or "--help" in words:
        sys.stdout.write(HELP)
        return 0
    return jobs.run(_compare, {"words": words})


def _compare(asked: Mapping[str, Any]) -> int:
    flags = [word for word in asked["words"] if word.startswith("-")]
    paths = [word for word in asked["words"] if not word.startswith("-")]
    unknown = [flag for flag in flags if flag not in FLAGS]
    if unknown or len(paths) != 2 or len(flags) > 1:
        raise refusal.usage(
            f"diff {' '.join(asked['words'])}",
            expected="two paths, and --json or --markdown",
            remedy="see arflow-eval diff --help",
        )
    left, right = (artefact(Path(path)) for path in paths)
    found = compared(left, right)
    if "--json" in flags:
        sys.stdout.write(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write((as_markdown if "--markdown" in flags else as_text)(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
