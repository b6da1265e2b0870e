"""From a command line to jobs: Hydra's flags, one run, or a sweep under one of its launchers."""

import argparse
import functools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode

from arflow_eval import jobs, refusal
from arflow_eval.compose.book import (
    Application,
    Arrange,
    Book,
    hydra_errors,
    open_book,
    parse,
    single_run,
)
from arflow_eval.jobs import Job, Task
from arflow_eval.settings import EvaluateSettings, evaluate_settings


def application(
    name: Application,
    task: Task,
    argv: Sequence[str] | None = None,
    *,
    arrange: Arrange | None = None,
) -> int:
    """Run a command line: flags of Hydra and overrides (those of the process by default).

    Runs `task` once for every different configuration of a sweep, and returns the worst status.
    A task returns its status; a refusal it raises becomes its status, and never stops a sweep.
    `arrange` turns a configuration that names an experiment into the one its registration locked.
    """
    try:
        with hydra_errors():
            run = _prepare(name, task, sys.argv[1:] if argv is None else argv, arrange)
        return run()
    except refusal.Refusal as refused:
        return jobs.report(refused)
    except KeyboardInterrupt:
        return jobs.INTERRUPTED


def _prepare(
    name: Application, task: Task, argv: Sequence[str], arrange: Arrange | None
) -> Callable[[], int]:
    """Everything that can be refused, and then what is left to run."""
    parser = get_args_parser()
    arguments = _arguments(parser, argv)
    if arguments.config_dir is not None:
        folder = Path(arguments.config_dir).resolve()
        if not folder.is_dir():
            raise refusal.usage(
                f"no folder {folder}", expected="--config-dir DIR", remedy="check the path"
            )
        arguments.overrides.append(f"hydra.searchpath=['file://{folder}']")
    if arguments.hydra_help or arguments.shell_completion:
        return functools.partial(_show, open_book(name, []), parser, arguments)
    book = open_book(name, arguments.overrides, arrange=arrange)
    if arguments.cfg or arguments.help or arguments.info:
        book.valid(single_run(book.task))
        return functools.partial(_show, book, parser, arguments)
    if not arguments.multirun and book.composed.hydra.mode != RunMode.MULTIRUN:
        overrides = single_run(book.task)
        return functools.partial(_run, book, task, Job(tuple(overrides), book.checked(overrides)))
    return _prepare_sweep(book, task, sweeper=book.composed.hydra.sweeper)


def _arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    parser.exit_on_error = False
    try:
        arguments, unknown = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise refusal.usage(
            str(error), expected="a flag as --hydra-help shows it", remedy="see --hydra-help"
        ) from error
    if unknown:
        raise _unrecognised(parser, unknown, argv)
    if arguments.config_path or arguments.config_name or arguments.experimental_rerun:
        raise refusal.usage(
            "a flag that replaces this command's own configuration",
            expected="--config-dir DIR, which adds options to its groups",
            remedy="drop --config-path, --config-name or --experimental-rerun",
        )
    kinds = ("run", "multirun", "cfg", "info", "shell_completion")
    if sum(bool(getattr(arguments, kind)) for kind in kinds) > 1:
        raise refusal.usage(
            "two flags that exclude each other",
            expected=f"one of {', '.join('--' + kind.replace('_', '-') for kind in kinds)}",
            remedy="drop one",
        )
    return arguments


def _unrecognised(
    parser: argparse.ArgumentParser, unknown: Sequence[str], argv: Sequence[str]
) -> refusal.Refusal:
    flags = [argument for argument in unknown if argument.startswith("-")]
    if flags:
        known = re.findall(r"--[a-z-]+", parser.format_usage())
        close = refusal.nearest(flags[0], known)
        return refusal.usage(
            f"unknown flag {flags[0]}",
            expected="a flag that --hydra-help shows, or key=value",
            remedy=f"did you mean {close}?" if close else "see --hydra-help",
        )
    flag = next((it for it in reversed(argv[: argv.index(unknown[0])]) if it.startswith("-")), "-m")
    return refusal.usage(
        f"overrides on both sides of {flag}: {unknown[0]} stands apart",
        expected="all overrides on one side of the flags",
        remedy=f"put {flag} first or last",
    )


def _show(book: Book, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """What Hydra prints instead of running."""
    name, overrides = book.application, arguments.overrides
    if arguments.help:
        book.hydra.app_help(config_name=name, args_parser=parser, args=arguments)
    elif arguments.hydra_help:
        book.hydra.hydra_help(config_name=name, args_parser=parser, args=arguments)
    elif arguments.cfg:
        book.hydra.show_cfg(
            config_name=name,
            overrides=overrides,
            cfg_type=arguments.cfg,
            package=arguments.package,
            resolve=arguments.resolve,
        )
    elif arguments.shell_completion:
        book.hydra.shell_completion(config_name=name, overrides=overrides)
    else:
        book.hydra.show_info(arguments.info, config_name=name, overrides=overrides)
    return 0


def _run(book: Book, task: Task, job: Job) -> int:
    """One job, under Hydra's own job set-up. It runs the configuration that was checked."""
    returned = book.hydra.run(
        config_name=book.application,
        task_function=lambda _: jobs.run(task, job.config),
        overrides=[*book.own, *job.overrides],
    )
    return _status(returned)


def _planned(book: Book, *, sweeper: Any) -> list[Job]:
    """The jobs of a sweep as Hydra's basic sweeper lists them, all checked, repeats left out."""
    if "max_batch_size" not in sweeper:
        raise refusal.usage(
            f"hydra.sweeper={sweeper.get('_target_')}",
            expected="hydra/sweeper=basic",
            remedy="list the values of each key",
        )
    lines = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    lines += [str(override.input_line) for override in book.task]
    overrides = parse(lines, loader=book.hydra.config_loader)
    (combinations,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return _distinct(
        [Job(tuple(combination), book.checked(combination)) for combination in combinations],
        application=book.application,
    )


def _prepare_sweep(book: Book, task: Task, *, sweeper: Any) -> Callable[[], int]:
    swept = _planned(book, sweeper=sweeper)
    config = book.load(["hydra.mode=MULTIRUN", *swept[0].overrides], mode=RunMode.MULTIRUN)
    callbacks = Callbacks(config)
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=book.hydra.config_loader, callbacks=callbacks),
        task_function=functools.partial(_swept, task, swept),
        config=config,
    )

    def launch() -> int:
        callbacks.on_multirun_start(config=config, config_name=book.application)
        size = sweeper.max_batch_size or len(swept)
        statuses: list[int] = []
        for start in range(0, len(swept), size):
            batch = [list(job.overrides) for job in swept[start : start + size]]
            statuses += map(_status, launcher.launch(batch, initial_job_idx=start))
        callbacks.on_multirun_end(config=config, config_name=book.application)
        return jobs.worst(statuses)

    return launch


def _distinct(planned: Sequence[Job], *, application: Application) -> list[Job]:
    """The jobs without those that repeat an earlier one (`0.70` after `0.7`), which are named."""
    kept: list[tuple[dict[str, Any] | EvaluateSettings, Job]] = []
    for job in planned:
        run = evaluate_settings(job.config) if application == "evaluate" else job.config
        first = next((other for known, other in kept if known == run), None)
        if first is None:
            kept.append((run, job))
        else:
            same = "listed twice" if job == first else f"the same run as {first.title}"
            sys.stderr.write(f"note: {job.title} is {same}; it runs once\n")
    return [job for _, job in kept]


def _swept(task: Task, swept: Sequence[Job], _: Any) -> int:
    """A job of a sweep, in whichever process the launcher chose: as checked when it was planned."""
    number = HydraConfig.get().job.num
    job = swept[number]
    sys.stdout.write(f"[{number + 1}/{len(swept)}] {job.title}\n")
    sys.stdout.flush()
    return jobs.run(task, job.config)


def _status(returned: JobReturn) -> int:
    return int(returned.return_value) if returned.status is JobStatus.COMPLETED else jobs.FAILED
