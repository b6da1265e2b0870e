"""The whole pipeline on bundled data and models: four runs, two frozen reads, one short story."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import compose, jobs, refusal
from arflow_eval.evaluate import evaluate
from arflow_eval.evaluation import Outcome
from arflow_eval.progress import duration
from arflow_eval.reading import run_read, write_report
from arflow_eval.summary import Summary, summarise

ARMS: Final = {
    "AR greedy": ["model=ar_tiny", "decode=greedy"],
    "AR draws": ["model=ar_tiny", "decode=draws", "decode.T=1", "decode.draws=10"],
    "flow-1": ["model=flow_tiny", "decode=greedy"],
    "flow-10": ["model=flow_tiny", "decode=draws", "decode.draws=10"],
}
STATUS: Final = (
    "Exploratory: no registration fixed these reads before the data existed. "
    "Open-loop error says nothing certain about success rates."
)
READS: Final = (("AR draws", "AR greedy"), ("flow-10", "flow-1"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; its results lie under outputs/. Returns the exit code."""
    if argv:
        return jobs.report(
            refusal.usage(
                f"demo {argv[0]}",
                expected="no arguments",
                remedy="choose models and frames with arflow-eval evaluate",
            )
        )
    return jobs.run(_demo, {})


def _demo(_: Mapping[str, Any]) -> int:
    started = time.monotonic()
    runs = {
        arm: evaluate(compose.compose("evaluate", [*overrides, "panel=pusht"]))
        for arm, overrides in ARMS.items()
    }
    reports = {}
    for treatment, control in READS:
        stores = {"treatment": runs[treatment].folder, "control": runs[control].folder}
        words = ["read=paired_delta", *(f"arms.{role}={path}" for role, path in stores.items())]
        config = compose.compose("read", words)
        measure = compose.call_target(config["read"]["_target_"])
        report = run_read(config["read"], config["arms"], measure=measure)
        reports[treatment] = (report, write_report(report, root=Path(config["store"]["root"])))
    sys.stdout.write(story(runs, reports, seconds=time.monotonic() - started) + "\n")
    return 0


def story(
    runs: Mapping[str, Outcome],
    reports: Mapping[str, tuple[Mapping[str, Any], Path]],
    *,
    seconds: float,
) -> str:
    """What came out, in ten lines, whatever it is."""
    found = {arm: summarise(outcome.store, window=None) for arm, outcome in runs.items()}
    any_arm = found["AR greedy"]
    paths = [str(path) for _, path in reports.values()]
    return "\n".join(
        [
            f"Two policies trained on PushT, {any_arm.frames} unseen frames, {duration(seconds)}.",
            f"Mean absolute error of the next {any_arm.window} positions, in {any_arm.units}s: "
            + ", ".join(
                f"{name.replace('_', '-')} {e:.1f}" for name, e in any_arm.baselines.items()
            )
            + ".",
            _arms("autoregressive", found, "AR greedy", "AR draws"),
            _arms("flow matching", found, "flow-1", "flow-10"),
            _delta("AR, mean of 10 draws - greedy", reports["AR draws"][0]),
            _delta("flow, mean of 10 draws - 1 draw", reports["flow-10"][0]),
            "Negative is better. The interval is clustered by episode: frames of one are alike.",
            STATUS,
            f"Every draw is kept: xarray.open_zarr('{runs['AR draws'].store}').",
            f"Next: {' and '.join(paths)}; then `arflow-eval evaluate --help`.",
        ]
    )


def _arms(family: str, found: Mapping[str, Summary], single: str, drawn: str) -> str:
    return (
        f"  {family:<15} one read {found[single].chunk_mae:.1f},"
        f" mean of ten draws {found[drawn].chunk_mae:.1f}"
        f" (first step {found[single].first_mae:.1f} and {found[drawn].first_mae:.1f})."
    )


def _delta(name: str, report: Mapping[str, Any]) -> str:
    delta = report["delta_chunk"]
    low, high = report["extended"]["delta_chunk"]["interval_by_cluster"]["ci95"]
    interval = "no interval" if low is None else f"95 % interval {low:+.2f} to {high:+.2f}"
    return (
        f"  {name}: {delta['mean']:+.2f}, {interval},"
        f" better on {100 * delta['arm_win_rate']:.0f} % of {delta['n_frames']} frames."
    )


if __name__ == "__main__":
    sys.exit(main())
