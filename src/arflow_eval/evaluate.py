"""python -m arflow_eval.evaluate: model x decode x panel -> outputs/<run>/predictions.zarr.

Every key of conf/evaluate.yaml can be overridden, as in
`python -m arflow_eval.evaluate decode=draws decode.T=0.5,0.7,1.0,1.3 --multirun`.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from arflow_eval import compose, evaluation, registration
from arflow_eval.compose import load_panel
from arflow_eval.contracts import Panel, Policy
from arflow_eval.progress import duration
from arflow_eval.settings import EvaluateSettings, checkpoint_folder, evaluate_settings
from arflow_eval.summary import Summary, summarise


def evaluate(config: Mapping[str, Any]) -> evaluation.Outcome:
    """Run one composed configuration to the end of this shard's blocks."""
    settings = evaluate_settings(config)
    panel = load_panel(settings)
    registration.begin(config, settings, panel)
    outcome = evaluation.run(
        settings,
        panel,
        load=partial(load_policy, settings, panel),
        decode=compose.call_target(settings.decode.target),
    )
    registration.finish(config, outcome.fingerprint)
    return outcome


def load_policy(settings: EvaluateSettings, panel: Panel) -> Policy:
    """The policy of a configuration; this is where a model's stack is imported."""
    load = compose.call_target(settings.model.target)
    named = settings.model.function
    own = {} if named is None else {"function": named}
    policy: Policy = load(
        folder=checkpoint_folder(settings.model.path),
        dtype=settings.model.dtype,
        device=settings.device,
        threads=settings.threads,
        steps=panel.steps,
        space=panel.space,
        **own,
    )
    return policy


def table(summary: Summary, outcome: evaluation.Outcome) -> Table:
    """The run in one line: errors in the action's units, frames, seconds."""
    shown = Table(title=f"chunk steps 1-{summary.window}, errors in {summary.units}")
    columns = ("arm", "chunk MAE", "first MAE", "state-copy", "state-copy-norm", "frames", "time")
    for column in columns:
        shown.add_column(column, justify="left" if column == "arm" else "right", no_wrap=True)
    baselines = [summary.baselines.get(name) for name in ("state_copy", "state_copy_norm")]
    shown.add_row(
        summary.arm,
        f"{summary.chunk_mae:.2f}",
        f"{summary.first_mae:.2f}",
        *("n/a" if value is None else f"{value:.2f}" for value in baselines),
        f"{summary.frames:,}",
        duration(outcome.seconds),
    )
    return shown


def job(config: Mapping[str, Any]) -> int:
    """One job of the command line: evaluate, then say what came out and where it lies."""
    outcome = evaluate(config)
    console = Console(width=100)
    if outcome.fingerprint is None:
        console.print(
            f"this shard is done; other blocks of {outcome.store} are not", soft_wrap=True
        )
        return 0
    if outcome.computed == 0:
        console.print("complete already: nothing was computed")
    if registration.shows_outcomes(config):
        summary = summarise(outcome.store, window=config["window"])
        console.print(table(summary, outcome))
        if summary.failed:
            failed = f"{summary.failed:,} of {summary.draws:,}"
            console.print(f"{failed} draws failed and are in no mean")
    for line in registration.standing(config):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"store        {outcome.store}", soft_wrap=True)
    console.print(f"fingerprint  {outcome.fingerprint}", soft_wrap=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    return compose.application("evaluate", job, argv, arrange=registration.locked_arm)


if __name__ == "__main__":
    sys.exit(main())
