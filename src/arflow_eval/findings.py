"""A report as typed findings and labelled arrays, for Python and notebooks."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray
from rich.console import Console, RenderableType

from arflow_eval.reading import write_report
from arflow_eval.stats.intervals import Interval

WIDTH: Final = 100  # columns of a table in a notebook
KINDS: Final = ("frame", "cluster")  # of intervals
ENDS: Final = ("low", "high")


@dataclass(frozen=True)
class Difference:
    """A paired difference, treatment - control, in full precision; units are the panel's.

    Attributes:
        definition: what is compared, over which frames, with which weights.
        mean: mean difference; negative where the treatment is better.
        median: median difference.
        win_rate: share of frames with a difference below 0; a tie is no win.
        ties: frames with a difference of exactly 0.
        frames: frames compared.
        clusters: clusters that they fall into.
        cluster: what a cluster is, `episode` or `repo`.
        confidence: nominal coverage of both intervals.
        by_frame: the published convention, which treats frames as independent.
        by_cluster: the interval to infer from.
    """

    definition: str
    mean: float
    median: float
    win_rate: float
    ties: int
    frames: int
    clusters: int
    cluster: str
    confidence: float
    by_frame: Interval
    by_cluster: Interval


@dataclass(frozen=True)
class Findings:
    """What a read found: its report, as it is written, and the way to its parts.

    Attributes:
        report: the report's JSON values.
        differences: every paired difference of the report, by its place, such as `delta_chunk`.
        layout: lays a report out for the screen.
    """

    report: Mapping[str, Any]
    differences: Mapping[str, Difference]
    layout: Callable[[Mapping[str, Any]], RenderableType]

    @property
    def status(self) -> str:
        """`confirmatory` or `exploratory`."""
        return str(self.report["extended"]["status"])

    @property
    def guards(self) -> tuple[str, ...]:
        """The guards that the arms passed."""
        return tuple(self.report["extended"]["guards_passed"])

    @property
    def decision(self) -> tuple[str, ...]:
        """The sentences that the expectations led to; none where the read decides nothing."""
        return tuple(self.report.get("decision", {}).get("assembly", ()))

    def to_xarray(self) -> xarray.Dataset:
        """The differences as one dataset; intervals are `by` frame and by cluster, to an `end`.

        An end that cannot be given is NaN; `degenerate` says why.
        """
        names = list(self.differences)
        found = list(self.differences.values())
        intervals = [[getattr(each, f"by_{kind}") for kind in KINDS] for each in found]
        ends = [
            [[np.nan if end is None else end for end in (of.low, of.high)] for of in each]
            for each in intervals
        ]
        reasons = [[of.degenerate or "" for of in each] for each in intervals]
        plain = ("definition", "mean", "median", "win_rate", "ties", "frames", "clusters")
        columns = {name: ("difference", [getattr(each, name) for each in found]) for name in plain}
        return xarray.Dataset(
            {
                **columns,
                "interval": (
                    ("difference", "by", "end"),
                    np.array(ends, dtype=np.float64).reshape(len(found), 2, 2),
                ),
                "degenerate": (("difference", "by"), np.array(reasons).reshape(-1, 2)),
            },
            coords={
                "difference": names,
                "by": list(KINDS),
                "end": list(ENDS),
            },
            attrs={"units": self._units(), "read": self.report["extended"]["read"]},
        )

    def curves(self) -> xarray.Dataset:
        """Both arms and their difference by `step` and by `joint`, where the read has them.

        Variables are `treatment_by_step`, `control_by_step`, `difference_by_step`,
        `low_by_step`, `high_by_step`, `frames_by_step`, and the same by joint.
        """
        about = self.report["extended"]
        variables: dict[str, Any] = {}
        for of in ("step", "joint"):
            rows = about.get(f"by_{of}", {}).get("rows", [])
            columns = [_row(of, row) for row in rows]
            for name in columns[0] if columns else ():
                values = [column[name] for column in columns]
                variables[name] = (of, [np.nan if it is None else it for it in values])
        return xarray.Dataset(variables, attrs={"units": self._units()})

    def write(self, root: Path | str = "outputs") -> Path:
        """Write `report.json` into a folder below `root`, as the command does; its path."""
        return write_report(self.report, root=Path(root))

    def __rich__(self) -> RenderableType:
        return self.layout(self.report)

    def _repr_html_(self) -> str:
        console = Console(width=WIDTH, record=True, file=io.StringIO())
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _units(self) -> str:
        about = self.report["extended"]
        return str(self.report.get("units", about.get("units", "")))


def findings(
    report: Mapping[str, Any], layout: Callable[[Mapping[str, Any]], RenderableType]
) -> Findings:
    """A report with its paired differences typed."""
    return Findings(
        report=report,
        differences={
            ".".join(path): _difference(published, more)
            for path, published, more in _differences(report, report["extended"], ())
        },
        layout=layout,
    )


def _differences(
    published: Any, more: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any], Mapping[str, Any]]]:
    """Every place of a report that holds a paired difference, as published and as we add to it."""
    if not isinstance(published, Mapping) or not isinstance(more, Mapping):
        return
    if "interval_by_cluster" in more:
        yield path, published, more
        return
    for key, part in more.items():
        if key in published:
            yield from _differences(published[key], part, (*path, key))


def _row(of: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """One step or joint by the names of its variables."""
    low, high = next(value for key, value in row.items() if key.startswith("ci"))
    plain = {name: row[name] for name in ("treatment", "control", "difference")}
    named = {**plain, "low": low, "high": high, "frames": row["n_frames"]}
    return {of: row[of], **{f"{name}_by_{of}": value for name, value in named.items()}}


def _difference(published: Mapping[str, Any], more: Mapping[str, Any]) -> Difference:
    key = next(key for key in more["interval_by_cluster"] if key.startswith("ci"))
    return Difference(
        definition=published["definition"],
        mean=more["mean"],
        median=more["median"],
        win_rate=more["arm_win_rate"],
        ties=more["n_ties"],
        frames=published["n_frames"],
        clusters=more["n_clusters"],
        cluster=more["interval_by_cluster"]["cluster"],
        confidence=float(key.removeprefix("ci")) / 100,
        by_frame=_interval(more["interval_by_frame"], key, units=published["n_frames"]),
        by_cluster=_interval(more["interval_by_cluster"], key, units=more["n_clusters"]),
    )


def _interval(found: Mapping[str, Any], key: str, *, units: int) -> Interval:
    low, high = found[key]
    return Interval(
        low=low,
        high=high,
        method=found["method"],
        clusters=units,
        note=found.get("note"),
        degenerate=found.get("degenerate"),
    )
