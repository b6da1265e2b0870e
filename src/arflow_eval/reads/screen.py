"""A report on the screen, within 100 columns."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arflow_eval.reads.oracles import Fired

INFLUENCES: Final = 3
Deltas = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]  # as published, and added


def registered_table(
    report: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]], outcome: Sequence[Text]
) -> Group:
    """The findings of a registered study of two arms: both, their differences, the outcome."""
    about = report["extended"]
    return Group(
        title(report),
        Text(
            f"{about['counts']['n_core']:,} core frames, leading {about['window']} steps,"
            f" errors in {about['units']}"
        ),
        *compared(report, paths, units=about["units"]),
        *outcome,
        *standing(report),
    )


def compared(
    report: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]], *, units: str
) -> list[RenderableType]:
    """Arms, differences (each at a path of the report), what these hang on, and remarks."""
    arms = _arms(report["arms_pooled"], report["extended"]["arms_pooled"])
    return [arms, *deltas_of(report, paths, units=units)]


def deltas_of(
    report: Mapping[str, Any], paths: Mapping[str, tuple[str, ...]], *, units: str
) -> list[RenderableType]:
    """Differences (each at a path of the report), what these hang on, and remarks."""
    deltas = {
        name: (_at(report, path), _at(report["extended"], path)) for name, path in paths.items()
    }
    confidence = report["extended"]["definition"]["confidence"]
    return [
        _deltas(deltas, confidence=confidence, units=units),
        *map(Text, _influences(deltas)),
        *map(Text, _remarks(deltas)),
    ]


def concluded(report: Mapping[str, Any]) -> list[Text]:
    """Every expectation and what came of it, and the sentences of the decision."""
    lines = []
    for name, entries in report["expectations"].items():
        said = ", ".join(f"{key.replace('_', ' ')}: {_answer(it)}" for key, it in entries.items())
        lines.append(Text(f"{name.replace('_', ' ')}: {said}"))
    sentences = report["decision"]["assembly"]
    return [*lines, *(Text(f"decision: {sentence}", style="bold") for sentence in sentences)]


def oracle_table(definition: Mapping[str, Any], fired: Sequence[Fired]) -> Group:
    """What came of each planted effect, on the screen."""
    heading = Text(f"{definition['name']}: oracles", style="bold")
    if not fired:
        return Group(heading, Text("this read states none"))
    shown = columns(["oracle", "passed", "planted", "found"], words=4)
    for each in fired:
        answer = ("yes" if each.passed else "NO") if each.planted is not None else "-"
        shown.add_row(each.name, answer, each.planted or "-", each.found)
    return Group(heading, shown)


def _at(report: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = report
    for key in path:
        found = found[key]
    return found


def _answer(entry: Any) -> str:
    return {True: "yes", False: "no", None: "no interval"}.get(entry, str(entry))


def title(report: Mapping[str, Any]) -> Text:
    """The name and the question of a read, after what its registration deviated in."""
    about = report["extended"]
    deviations = about.get("registration", {}).get("deviations", [])
    shown = Text("".join(f"DEVIATION, {each}\n" for each in deviations), style="red")
    return shown.append(f"{about['read']}: {about['question']}", style="bold")


def standing(report: Mapping[str, Any]) -> list[Text]:
    """What a report may be taken for: its status, and how far its claim goes."""
    about = report["extended"]
    stamp = about.get("registration")
    registered = f"registration: {stamp['experiment']}, read {stamp['read']}" if stamp else ""
    return [
        Text(f"status: {about['status']} ({about['status_reason']})"),
        *([Text(f"{registered}, lock {stamp['lock'][:12]}")] if stamp else []),
        Text(f"claim: {about['claim_boundary']}"),
    ]


def figure(value: float | None) -> str:
    """A number to three significant digits (0.00123, 4.56, 7,890), or n/a where there is none."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _arms(
    arms: Mapping[str, Mapping[str, Any]], more: Mapping[str, Mapping[str, Any]]
) -> RenderableType:
    shown = columns(["role", "arm", "chunk MAE", "first MAE", "draws", "failed draws"], words=2)
    for role, arm in arms.items():
        errors = (f"{arm[name]:.4f}" for name in ("chunk_mae", "first_mae"))
        counts = (f"{more[role][name]:,}" for name in ("draws", "failed_draws"))
        shown.add_row(role, more[role]["arm"], *errors, *counts)
    return shown


def _deltas(deltas: Deltas, *, confidence: float, units: str) -> RenderableType:
    level = f"{100 * confidence:g} %"
    by = next(more for _, more in deltas.values())["interval_by_cluster"]["cluster"]
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
    for column in shown.columns[1:]:
        column.no_wrap = True  # where it is too wide, the names fold
    interval = f"ci{100 * confidence:g}"
    for name, (delta, more) in deltas.items():
        shown.add_row(
            name,
            f"{delta['mean']:+.4f}",
            _interval(delta[interval]),
            _interval(more["interval_by_cluster"][interval]),
            f"{delta['arm_win_rate']:.1%}",
            f"{delta['n_frames']:,}",
            f"{more['n_clusters']:,}",
        )
    return shown


def columns(headings: Sequence[str], *, words: int) -> Table:
    """An empty table whose first `words` columns hold words, and whose others hold numbers."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if number < words else "right", overflow="fold")
    return shown


def _influences(deltas: Deltas) -> list[str]:
    return [f"mean {name} delta without {_influence(delta)}" for name, (delta, _) in deltas.items()]


def _remarks(deltas: Deltas) -> list[str]:
    """What a reader must know of the intervals, each remark once."""
    remarks: dict[str, None] = {}
    for kind in ("by_frame", "by_cluster"):
        for _, more in deltas.values():
            words = more[f"interval_{kind}"]
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
