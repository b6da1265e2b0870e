"""python -m arflow_eval.verify PATH...: whether stores and registrations are what they were.

A path is a run folder, its predictions.zarr, a folder that holds runs, or a registration's folder.
Of a store every chunk's checksum, every frame's digest and the fingerprint are computed again; of
a registration the chain of lock, amendments and ledger, and what it says of stores and reports.
Exit codes: 0 intact, 4 intact so far with something unwritten or missing, 5 changed or damaged.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import jobs, plain, refusal
from arflow_eval.verification.kinds import artefacts

FORMS: Final = "arflow-eval verify PATH ... [--json]"


def _verify(asked: Mapping[str, Any]) -> int:
    """Verify everything; one that cannot be read hides no other."""
    if not asked["words"]:
        raise plain.wrong("verify without a path", forms=FORMS, help_of="arflow-eval verify")
    found, codes = [], []
    for path in asked["words"]:
        try:
            listed = artefacts(Path(path))
        except refusal.Refusal as refused:
            codes.append(jobs.report(refused))
            continue
        for kind, place in listed:
            try:
                found.append(kind.verify(place))
            except refusal.Refusal as refused:
                codes.append(jobs.report(refused))
            else:
                codes.append(found[-1].exit_code)
                if not asked["json"]:
                    sys.stdout.writelines(f"{line}\n" for line in found[-1].lines())
                    sys.stdout.flush()
    if asked["json"]:
        sys.stdout.write(json.dumps([each.as_json() for each in found], indent=2) + "\n")
    return jobs.worst(codes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `verify` with the given words, the command line's by default; returns the exit code."""
    parser = plain.parser("verify", description=__doc__, words="runs, stores, folders of runs")
    parser.add_argument("--json", action="store_true", help="one JSON list, an entry an artefact")
    return plain.run(parser, argv, _verify, forms=FORMS)


if __name__ == "__main__":
    sys.exit(main())
