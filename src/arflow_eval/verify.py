"""python -m arflow_eval.verify PATH...: whether stores are what was written.

A path is a run folder, its predictions.zarr, or a folder that holds runs. Every chunk's checksum,
every frame's digest and the fingerprint are computed again. Exit codes: 0 intact, 4 intact so far
with frames unwritten or unchecked, 5 changed or damaged.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import jobs, plain, refusal
from arflow_eval.verification.finding import Damage, Finding
from arflow_eval.verification.kinds import artefacts

SHOWN: Final = 10  # frames of a variable, and ranges of unwritten rows
FORMS: Final = "arflow-eval verify PATH ... [--json]"


def lines(found: Finding) -> Iterator[str]:
    """A finding in words: its state, what is unwritten, and the first frames of every damage."""
    yield f"{found.state:<9} {found.path}: {_said(found)}"
    for each in found.damage:
        yield f"  {', '.join(each.variables)}: {each.how}{_count(each)}"
        for row, frame in list(zip(each.rows, each.frames, strict=True))[:SHOWN]:
            place = f"{frame.repo} episode {frame.episode} frame {frame.frame_index}"
            yield f"    row {row:<8,} {place}"
        if len(each.rows) > SHOWN:
            yield f"    and {len(each.rows) - SHOWN:,} more; --json lists all"


def _said(found: Finding) -> str:
    if found.state == "damaged":
        rows = {row for each in found.damage for row in each.rows}
        said = f"{len(rows):,} of {found.total:,} frames damaged" if rows else "damaged"
    elif found.state == "intact":
        return f"{found.total:,} frames, fingerprint {found.fingerprint}"
    else:
        said = f"{found.total - sum(map(len, found.unwritten)):,} of {found.total:,} frames intact"
    if found.unwritten:
        listed = [f"{rows.start}-{rows.stop - 1}" for rows in found.unwritten[:SHOWN]]
        more = len(found.unwritten) - len(listed)
        said += f"; unwritten rows {', '.join(listed)}{f' and {more:,} more ranges' * bool(more)}"
    elif not found.sealed:
        said += "; not yet checked and sealed, rerun its evaluate command"
    return said


def _count(each: Damage) -> str:
    return f" ({len(each.rows):,} frame{'s' * (len(each.rows) > 1)})" if each.rows else ""


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
                    sys.stdout.writelines(f"{line}\n" for line in lines(found[-1]))
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
