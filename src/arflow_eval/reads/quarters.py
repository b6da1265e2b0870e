"""What goes with the spread of a frame's draws: means by quarter of the frames, and figures."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float64
from rich.table import Table

from arflow_eval.reads.delta import DELTA_PLACES, RATE_PLACES, rounded
from arflow_eval.reads.screen import columns
from arflow_eval.stats.dispersion import quartiles

DIFFERENCES: Final = ("gain", "deficit")  # published to more places than errors


def by_quarter(
    dispersion: Float64[np.ndarray, "frame"], values: Mapping[str, Float64[np.ndarray, "frame"]]
) -> dict[str, Any]:
    """The edges between the quarters by dispersion, and each quarter's frames and means.

    A mean of no frame is None, as where all draws spread alike and every frame is in the last.
    """
    edges, quarter = quartiles(dispersion)
    found = {"dispersion": dispersion, **values}
    rows = []
    for number in range(4):
        inside = quarter == number
        frames = int(inside.sum())
        means = {name: float(it[inside].mean()) if frames else None for name, it in found.items()}
        rows.append({"n_frames": frames, **means})
    return {"edges": edges.tolist(), "quarters": rows}


def published_quarters(exact: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The quarters as published: differences to 5 places, errors and dispersions to 4."""
    return [
        {
            name: value if name == "n_frames" else rounded_or_none(value, places=_places(name))
            for name, value in row.items()
        }
        for row in exact["quarters"]
    ]


def quarter_table(rows: Sequence[Mapping[str, Any]], *, of: str, names: Mapping[str, str]) -> Table:
    """Quarters on the screen; `names` are the headings of what is shown."""
    shown = columns([of, "frames", "dispersion", *names.values()], words=1)
    for number, row in enumerate(rows):
        figures = (decimals(row[name], places=4) for name in ("dispersion", *names))
        shown.add_row(f"{number + 1} of {len(rows)}", f"{row['n_frames']:,}", *figures)
    return shown


def rounded_or_none(value: float | None, *, places: int) -> float | None:
    """A published number, where there is one."""
    return None if value is None else rounded(value, places=places)


def decimals(value: float | None, *, places: int) -> str:
    """A number to so many places, or n/a where there is none."""
    return "n/a" if value is None else f"{value:.{places}f}"


def _places(name: str) -> int:
    return DELTA_PLACES if name in DIFFERENCES else RATE_PLACES
