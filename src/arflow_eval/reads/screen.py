"""A report on the screen, within 100 columns."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

INFLUENCES: Final = 3


def table(report: Mapping[str, Any]) -> Group:
    """The findings of a paired read: arms, differences, what they hang on, and their status."""
    findings, confidence = report["findings"], report["definition"]["confidence"]
    deltas = {key: value for key, value in findings.items() if key.startswith("delta_")}
    return Group(
        title(report),
        Text(
            f"{findings['n_core']:,} core frames, leading {findings['window']} steps,"
            f" errors in {findings['units']}"
        ),
        _arms(findings["arms_pooled"]),
        _deltas(deltas, confidence=confidence, units=findings["units"]),
        Text("treatment - control; below 0 the treatment predicts the recorded actions better"),
        *map(Text, _influences(deltas)),
        *map(Text, _remarks(deltas)),
        *standing(report),
    )


def title(report: Mapping[str, Any]) -> Text:
    """The name and the question of a read."""
    return Text(f"{report['read']}: {report['question']}", style="bold")


def standing(report: Mapping[str, Any]) -> list[Text]:
    """What a report may be taken for: its status, and how far its claim goes."""
    return [
        Text(f"status: {report['status']} ({report['status_reason']})"),
        Text(f"claim: {report['claim_boundary']}"),
    ]


def figure(value: float | None) -> str:
    """A number to three significant digits (0.00123, 4.56, 7,890), or n/a where there is none."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _arms(arms: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    shown = columns(["role", "arm", "chunk MAE", "first MAE", "draws", "failed draws"], words=2)
    for role, arm in arms.items():
        errors = (f"{arm[name]:.4f}" for name in ("chunk_mae", "first_mae"))
        shown.add_row(role, arm["arm"], *errors, f"{arm['draws']}", f"{arm['failed_draws']:,}")
    return shown


def _deltas(
    deltas: Mapping[str, Mapping[str, Any]], *, confidence: float, units: str
) -> RenderableType:
    level = f"{100 * confidence:g} %"
    by = next(iter(deltas.values()))["interval_by_cluster"]["cluster"]
    headings = [
        f"delta ({units})",
        "mean",
        f"{level} by frame",
        f"{level} by {by}",
        "wins",
        "frames",
        f"{by}s",
    ]
    shown = columns(headings, words=1)
    interval = f"ci{100 * confidence:g}"
    for name, delta in deltas.items():
        shown.add_row(
            f"{name.removeprefix('delta_')} MAE",
            f"{delta['mean']:+.4f}",
            _interval(delta[interval]),
            _interval(delta["interval_by_cluster"][interval]),
            f"{delta['arm_win_rate']:.1%}",
            f"{delta['n_frames']:,}",
            f"{delta['n_clusters']:,}",
        )
    return shown


def columns(headings: Sequence[str], *, words: int) -> Table:
    """An empty table whose first `words` columns hold words, and whose others hold numbers."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if number < words else "right", overflow="fold")
    return shown


def _influences(deltas: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"mean {name.removeprefix('delta_')} delta without {_influence(delta)}"
        for name, delta in deltas.items()
    ]


def _remarks(deltas: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a reader must know of the intervals, each remark once."""
    remarks: dict[str, None] = {}
    for kind in ("by_frame", "by_cluster"):
        for delta in deltas.values():
            words = delta[f"interval_{kind}"]
            remark = words.get("degenerate", words.get("note"))
            if remark:
                remarks[f"interval {kind.replace('_', ' ')}: {remark}"] = None
    return list(remarks)


def _influence(delta: Mapping[str, Any]) -> str:
    key = next(key for key in delta if key.startswith("most_influential_"))
    return ", ".join(
        f"{_group(row)} ({row['n_excl']:,} frames) {row['mean_without']:+.4f}"
        for row in delta[key][:INFLUENCES]
    )


def _group(row: Mapping[str, Any]) -> str:
    return f"episode {row['episode']}" if "episode" in row else f"{row['repo']}"


def _interval(ends: Sequence[float | None]) -> str:
    low, high = ends
    return "none" if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"
