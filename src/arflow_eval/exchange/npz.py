"""The words of `convert npz`: published files into stores, and stores into such files."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from arflow_eval import refusal
from arflow_eval.contracts import Family
from arflow_eval.exchange.words import Kind, run
from arflow_eval.plain import say
from arflow_eval.published import Given, export_npz, import_npz
from arflow_eval.runs import run_folder
from arflow_eval.values import choice

NPZ: Final = ".npz"
FAMILIES: Final[tuple[str, ...]] = get_args(Family)
IMPORT_ONLY: Final = ("report", "family", "panel", "actions", "units", "fps")
KIND: Final = Kind(
    name="npz",
    forms="convert npz IN.npz OUT, or convert npz RUN ... OUT.npz",
    purpose="Import:  convert npz IN.npz OUT [--arm KEY] [--draws DRAWS.npz] [--report REPORT]\n"
    "Export:  convert npz RUN [RUN ...] OUT.npz [--draws OUT_draws.npz] [--arm KEY]",
    flags={
        "arm": ("KEY", "pred:NAME@TAG[_drawsN[_tT|_ticket]]"),
        "draws": ("FILE", "draws file of the prediction, read or written"),
        "report": ("FILE", "report with the arm's published numbers"),
        "family": ("NAME", "token, flow or chunk, where the name does not say"),
        "panel": ("NAME", "of the panel; by default that of the report's plan"),
        "actions": ("A,B", "their names; by default six are SO-101 joints"),
        "units": ("UNIT", "of the actions, degree by default"),
        "fps": ("RATE", "steps a second, 30 by default"),
    },
)


def main(argv: Sequence[str]) -> int:
    """Run `convert npz` with the words after it; returns the exit code."""
    return run(KIND, _convert, argv)


def _convert(words: Sequence[str], asked: Mapping[str, Any]) -> int:
    paths = [Path(word) for word in words]
    written = [path.suffix == NPZ for path in paths]
    if written == [True, False]:
        return _import(paths[0], run_folder(paths[1]), asked)
    if len(paths) > 1 and written[-1] and not any(written[:-1]):
        return _export(paths[:-1], paths[-1], asked)
    raise KIND.wrong(f"convert npz {' '.join(words)}".strip())


def _import(source: Path, out: Path, asked: Mapping[str, Any]) -> int:
    stated = {key: asked[key] for key in ("arm", "panel", "units") if asked[key] is not None}
    stated |= {key: Path(asked[key]) for key in ("draws", "report") if asked[key] is not None}
    if asked["actions"] is not None:
        stated["actions"] = tuple(asked["actions"].split(","))
    if asked["fps"] is not None:
        stated["fps"] = _rate(asked["fps"])
    if asked["family"] is not None:
        stated["family"] = choice(asked["family"], key="--family", known=FAMILIES)
    found = import_npz(source, out, Given(**stated))
    say(f"{found.name.policy}: {found.frames:,} frames, {found.draws} draws, {found.horizon} steps")
    if not found.computed:
        say("complete already: nothing was written")
    if found.assumed_greedy:
        say("taken as greedy, at temperature 0; a flow policy's single draw needs --family flow")
    if found.failed:
        say(f"{found.failed:,} of {found.frames * found.draws:,} draws failed; they are in no mean")
    if found.left_out:
        say(f"left out     {'; '.join(found.left_out)}")
    say(f"store        {found.folder / 'predictions.zarr'}")
    say(f"fingerprint  {found.fingerprint}")
    return 0


def _export(runs: Sequence[Path], out: Path, asked: Mapping[str, Any]) -> int:
    for key in IMPORT_ONLY:
        if asked[key] is not None:
            raise KIND.wrong(f"--{key} with an export")
    draws = None if asked["draws"] is None else Path(asked["draws"])
    found = export_npz(runs, out, draws=draws, arm=asked["arm"])
    say(f"{', '.join(found.keys)}: {found.frames:,} frames")
    for path in found.files:
        say(f"wrote        {path}")
    return 0


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise refusal.usage(f"--fps {text}", expected="steps a second", remedy="give --fps 30")
    return rate
