"""The arrays of a published file as finished stores give them, block by block."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Float32, Shaped

from arflow_eval import refusal
from arflow_eval.published import pooled
from arflow_eval.published.checks import COLUMNS, CORE, DRAWS, EPISODE, FRAME_INDEX, INDEX, REPO
from arflow_eval.published.columns import Block, block_ranges
from arflow_eval.published.names import BASELINES, Name
from arflow_eval.published.recording import PUBLISHED
from arflow_eval.published.writing import Member, held
from arflow_eval.stats.errors import failed_draws, headline

COORDINATES: Final = {
    INDEX: "index",
    REPO: "repo_name",
    EPISODE: "episode",
    FRAME_INDEX: "frame_index",
    CORE: "core",
}


@dataclass(frozen=True)
class Run:
    """A finished store in the frame order of the first one, and the key it is exported under."""

    folder: Path
    data: xarray.Dataset
    name: Name

    @property
    def origin(self) -> Mapping[str, Any]:
        """What the import of this store recorded; empty for an evaluated one."""
        found: Mapping[str, Any] = self.data.attrs.get(PUBLISHED, {})
        return found

    @property
    def draws(self) -> int:
        """Draws a frame in the store."""
        return int(self.data.sizes["draw"])


def predictions_of(runs: Sequence[Run]) -> dict[str, Member]:
    """A file of predictions: identity, truth, masks and baselines of the first run, chunks of all.

    Raises:
        Refusal: a guard, where two runs were imported with one scalar of different values;
            damage, where a published mean beside a store is not what it was.
    """
    first = runs[0]
    members = _columns(first, COLUMNS, dtypes=first.origin.get("dtypes", {}).get("predictions", {}))
    for name, key in BASELINES.items():
        members[key] = _stored(first.data[name])
    for run in runs:
        members[run.name.key] = _chunks(run)
    return members | {key: held(_scalar(value)) for key, value in _shared_scalars(runs).items()}


def _shared_scalars(runs: Sequence[Run]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for run in runs:
        for key, value in run.origin.get("scalars", {}).get("predictions", {}).items():
            if found.setdefault(key, value) != value:
                raise refusal.guard(
                    f"{key} is {found[key]['value']!r} and {value['value']!r} in the files that"
                    " these stores came from",
                    expected="one value in one file",
                    remedy="export them apart",
                )
    return found


def _columns(run: Run, keys: Sequence[str], *, dtypes: Mapping[str, str]) -> dict[str, Member]:
    """Identity columns, truth and mask, of the types they were imported with."""
    members = {}
    for key in keys:
        if key in COORDINATES:
            values = run.data[COORDINATES[key]].to_numpy()
            members[key] = held(values.astype(dtypes.get(key, values.dtype.str)))
        else:
            members[key] = _stored(run.data[key])
    return members


def _stored(variable: xarray.DataArray) -> Member:
    return Member(variable.dtype, variable.shape, partial(_blocks, variable))


def _blocks(variable: xarray.DataArray) -> Iterator[Block]:
    frames = variable.sizes["frame"]
    for rows in block_ranges(frames, row_bytes=variable.nbytes // frames):
        yield variable.isel(frame=slice(rows.start, rows.stop)).to_numpy()


def _chunks(run: Run) -> Member:
    """One chunk a frame: as it was published, or the mean of the draws."""
    prediction = run.data["prediction"]
    frames, _, steps, actions = prediction.shape
    shape = (frames, steps, actions)
    digest = run.origin.get("pooled_digest")
    if digest is not None:
        values = pooled.read(run.folder, digest=digest)
        order = run.data["panel_row"].to_numpy()
        ranges = block_ranges(frames, row_bytes=4 * steps * actions)
        parts = [order[part.start : part.stop] for part in ranges]
        return Member(values.dtype, shape, lambda: (values[part] for part in parts))
    return Member(prediction.dtype, shape, lambda: map(_mean, _blocks(prediction)))


def _mean(
    draws: Float32[np.ndarray, "frame draw step action"],
) -> Float32[np.ndarray, "frame step action"]:
    return draws[:, 0] if draws.shape[1] == 1 else headline(draws, failed_draws(draws))


def draws_of(run: Run) -> dict[str, Member]:
    """A draws file. Raises a guard where the store does not know its seed or noise."""
    dtypes = run.origin.get("dtypes", {}).get("draws")
    columns = COLUMNS if dtypes is None else tuple(dtypes)
    members = _columns(run, columns, dtypes=dtypes or {})
    members[DRAWS] = _stored(run.data["prediction"])
    recorded = run.origin.get("scalars", {}).get("draws")
    if recorded is not None:
        return members | {key: held(_scalar(value)) for key, value in recorded.items()}
    return members | {key: held(np.array(value)) for key, value in _own_scalars(run).items()}


def _own_scalars(run: Run) -> dict[str, Any]:
    attributes = run.data.attrs
    found = {
        "policy": run.name.policy,
        "sample_draws": run.draws,
        "seed": attributes.get("seed"),
        "noise_key": attributes["config"].get("decode", {}).get("noise"),
    }
    unknown = [key for key, value in found.items() if value is None]
    if unknown:
        raise refusal.guard(
            f"{run.folder} does not say its {' and '.join(unknown)}",
            expected="a store that evaluate or an import with --draws wrote",
            remedy="leave --draws out",
        )
    return found


def _scalar(recorded: Mapping[str, Any]) -> Shaped[np.ndarray, ""]:
    return np.array(recorded["value"]).astype(recorded["dtype"])
