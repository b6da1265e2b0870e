"""Reads from Python: the same words and the same reports as the command line's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray

from arflow_eval import compose, reading
from arflow_eval.findings import Findings, findings
from arflow_eval.reads.guards import window_fits
from arflow_eval.reads.pairing import in_panel_order, longest_window
from arflow_eval.stats.scoring import arm_errors
from arflow_eval.store import open_run

GIVEN = "given"  # stands for an arm while its read is composed


def run_read(
    read: str,
    arms: Mapping[str, Path | str | xarray.Dataset],
    overrides: Sequence[str] = (),
) -> Findings:
    """Carry out a read and return what it found.

    `run_read("paired_delta", {"treatment": A, "control": B}, ["read.window=30"])` is
    `python -m arflow_eval.read read=paired_delta arms.treatment=A arms.control=B read.window=30`,
    except that nothing is written: see `Findings.write`.

    Args:
        read: an option of `conf/read/`.
        arms: by role: run folders, stores, or datasets that `open_run` gave.
        overrides: further words of the command line.

    Raises:
        Refusal: as the command; its text is the command's one line.
    """
    words = [f"read={read}", *(f"arms.{role}={GIVEN}" for role in arms), *overrides]
    config = compose.compose("read", words)
    measure = compose.call_target(config["read"]["_target_"])
    report = reading.run_read(config["read"], {**config["arms"], **arms}, measure=measure)
    return findings(report, compose.call_target(f"{measure.__module__}.table"))


def frame_errors(run: Path | str | xarray.Dataset, *, window: int | None = None) -> xarray.Dataset:
    """Errors of every frame of a run, core or not, in panel order.

    Args:
        run: a run folder, a store, or a dataset that `open_run` gave.
        window: leading steps scored; None is the policy's horizon.

    Returns:
        `chunk_mae` (frame; NaN where no step is scored) and `first_mae` (frame; NaN where the
        first step is not), in the panel's action units, of the mean over the draws that did not
        fail; `failed_draws` (frame). Coordinates are the run's.

    Raises:
        Refusal: the store is not complete, or a scored prediction is not finite (guard).
    """
    opened = run if isinstance(run, xarray.Dataset) else open_run(run)
    arm = in_panel_order({"run": opened})["run"]
    window_fits({"run": arm}, window)
    window = longest_window({"run": arm}) if window is None else window
    errors = arm_errors(arm, np.ones(arm.sizes["frame"], dtype=bool), window=window)
    units = {"units": str(arm.attrs["action_units"])}
    return xarray.Dataset(
        {
            "chunk_mae": ("frame", errors.frame_mae, units),
            "first_mae": ("frame", np.where(errors.first_scored, errors.first, np.nan), units),
            "failed_draws": ("frame", errors.failed.sum(axis=1)),
        },
        coords={name: it for name, it in arm.coords.items() if it.dims == ("frame",)},
        attrs={"arm": str(arm.attrs["arm"]), "window": window},
    )
