"""python -m arflow_eval.convert npz: published files into stores, and stores into such files.

Import:  convert npz IN.npz OUT [--arm KEY] [--draws DRAWS.npz] [--report REPORT.json]
Export:  convert npz RUN [RUN ...] OUT.npz [--draws OUT_draws.npz] [--arm KEY]
Panels:  convert panel --help
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from arflow_eval import convert_panel, jobs, refusal
from arflow_eval.contracts import Family
from arflow_eval.published import Given, export_npz, import_npz
from arflow_eval.values import choice

KINDS: Final = ("npz",)
NPZ: Final = ".npz"
FAMILIES: Final[tuple[str, ...]] = get_args(Family)
IMPORT_ONLY: Final = ("report", "family", "panel", "actions", "units", "fps")
FORMS: Final = "convert npz IN.npz OUT, or convert npz RUN ... OUT.npz"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `convert` with the given words, the command line's by default; returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["panel"]:
        return convert_panel.main(words[1:])
    parser = _parser()
    try:
        arguments, unknown = parser.parse_known_intermixed_args(argv)
    except argparse.ArgumentError as error:
        return jobs.report(_wrong(str(error)))
    if unknown:
        known = [word for action in parser._actions for word in action.option_strings]  # noqa: SLF001 - argparse lists its flags nowhere else
        return jobs.report(_wrong(f"unknown flag {unknown[0]}", close=unknown[0], known=known))
    if arguments.help:
        sys.stdout.write(parser.format_help())
        return 0
    return jobs.run(_convert, vars(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="arflow-eval convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="npz, then the paths of either form"
    )
    parser.add_argument("--arm", metavar="KEY", help="pred:NAME@TAG[_drawsN[_tT|_ticket]]")
    parser.add_argument(
        "--draws", metavar="FILE", help="draws file of the prediction, read or written"
    )
    parser.add_argument("--report", metavar="FILE", help="report with the arm's published numbers")
    parser.add_argument(
        "--family", metavar="NAME", help="token, flow or chunk, where the name does not say"
    )
    parser.add_argument(
        "--panel", metavar="NAME", help="of the panel; by default that of the report's plan"
    )
    parser.add_argument(
        "--actions", metavar="A,B", help="their names; by default six are SO-101 joints"
    )
    parser.add_argument("--units", metavar="UNIT", help="of the actions, degree by default")
    parser.add_argument("--fps", metavar="RATE", help="steps a second, 30 by default")
    parser.add_argument("-h", "--help", action="store_true", help="show this and end")
    return parser


def _convert(asked: Mapping[str, Any]) -> int:
    kind, *words = asked["words"] or [""]
    if kind not in KINDS:
        raise _wrong(f"convert {kind}".strip(), close=kind, known=(*KINDS, "panel"))
    paths = [Path(word) for word in words]
    written = [path.suffix == NPZ for path in paths]
    if written == [True, False]:
        return _import(paths[0], paths[1], asked)
    if len(paths) > 1 and written[-1] and not any(written[:-1]):
        return _export(paths[:-1], paths[-1], asked)
    raise _wrong(f"convert npz {' '.join(words)}".strip())


def _import(source: Path, out: Path, asked: Mapping[str, Any]) -> int:
    if out.name == "predictions.zarr":
        out = out.parent
    stated = {key: asked[key] for key in ("arm", "panel", "units") if asked[key] is not None}
    stated |= {key: Path(asked[key]) for key in ("draws", "report") if asked[key] is not None}
    if asked["actions"] is not None:
        stated["actions"] = tuple(asked["actions"].split(","))
    if asked["fps"] is not None:
        stated["fps"] = _rate(asked["fps"])
    if asked["family"] is not None:
        stated["family"] = choice(asked["family"], key="--family", known=FAMILIES)
    found = import_npz(source, out, Given(**stated))
    _say(
        f"{found.name.policy}: {found.frames:,} frames, {found.draws} draws, {found.horizon} steps"
    )
    if not found.computed:
        _say("complete already: nothing was written")
    if found.assumed_greedy:
        _say("taken as greedy, at temperature 0; a flow policy's single draw needs --family flow")
    if found.failed:
        _say(
            f"{found.failed:,} of {found.frames * found.draws:,} draws failed; they are in no mean"
        )
    if found.left_out:
        _say(f"left out     {'; '.join(found.left_out)}")
    _say(f"store        {found.folder / 'predictions.zarr'}")
    _say(f"fingerprint  {found.fingerprint}")
    return 0


def _export(runs: Sequence[Path], out: Path, asked: Mapping[str, Any]) -> int:
    for key in IMPORT_ONLY:
        if asked[key] is not None:
            raise _wrong(f"--{key} with an export")
    draws = None if asked["draws"] is None else Path(asked["draws"])
    found = export_npz(runs, out, draws=draws, arm=asked["arm"])
    _say(f"{', '.join(found.keys)}: {found.frames:,} frames")
    for path in found.files:
        _say(f"wrote        {path}")
    return 0


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise refusal.usage(f"--fps {text}", expected="steps a second", remedy="give --fps 30")
    return rate


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _wrong(found: str, *, close: str = "", known: Sequence[str] = ()) -> refusal.Refusal:
    nearest = refusal.nearest(close, known)
    return refusal.usage(
        found,
        expected=FORMS,
        remedy=f"did you mean {nearest}?" if nearest else "see arflow-eval convert --help",
    )


if __name__ == "__main__":
    sys.exit(main())
