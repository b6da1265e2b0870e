"""Made arms, and what a researcher would do with them: whole arrays and well-known libraries.

numpy masked means, scoringrules with its numba backend, scipy.stats.bootstrap; for `read.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray
from jaxtyping import Bool, Float32, Float64, Int64
from scipy import stats

REPOS, SHARE, CONFIDENCE, SEED = 878, 17_204 / 25_800, 0.95, 0
MEASURES: Final = ("chunk", "first", "single chunk", "single first", "energy", "fair energy")
Report = Mapping[str, tuple[float, ...]]
Columns = dict[str, Float64[np.ndarray, "frame"]]


@dataclass(frozen=True)
class Arm:
    """One made arm; truth, mask, core and repos are shared by all."""

    prediction: Float32[np.ndarray, "frame draw step action"]
    truth: Float32[np.ndarray, "frame step action"]
    valid: Bool[np.ndarray, "frame step"]
    core: Bool[np.ndarray, "frame"]
    repo: Int64[np.ndarray, "frame"]

    @property
    def dataset(self) -> xarray.Dataset:
        """The arm as a read sees it."""
        axes = ("frame", "draw", "step", "action")
        return xarray.Dataset(
            {
                "prediction": (axes, self.prediction),
                "truth": (("frame", "step", "action"), self.truth),
                "valid": (("frame", "step"), self.valid),
            }
        )


def made(size: tuple[int, int, int, int]) -> dict[str, Arm]:
    """Two arms: smooth trajectories, errors that repos share, draws about them, ragged tails."""
    frames, draws, steps, actions = size
    rng = np.random.default_rng(1)
    share = rng.lognormal(0, 1, min(REPOS, frames))
    repo = np.sort(rng.choice(len(share), size=frames, p=share / share.sum()))
    time_of = np.arange(steps, dtype=np.float32)[:, None]
    phase = rng.uniform(0, 6, (frames, 1, actions)).astype(np.float32)
    truth = 30 * np.sin(phase + 0.05 * time_of)
    left = np.where(rng.random(frames) < 0.2, rng.integers(1, steps + 1, frames), steps)
    valid = np.arange(steps) < left[:, None]
    core = rng.random(frames) < SHARE
    arms = {}
    for role, spread in (("treatment", 2.0), ("control", 2.1)):
        prediction = rng.standard_normal((frames, draws, steps, actions), dtype=np.float32)
        prediction *= np.float32(spread)
        shared = rng.normal(0, 1, (len(share), 1, actions))[repo].astype(np.float32)
        own = rng.normal(0, 1, (frames, 1, actions)).astype(np.float32)
        prediction += (truth + (shared + own) * np.sqrt(time_of / steps))[:, None]
        arms[role] = Arm(prediction, truth, valid, core, repo)
    return arms


def reference(arms: Mapping[str, Arm], *, resamples: int) -> Report:
    """What a researcher would do with whole arrays and the well-known libraries."""
    columns, pooled = {}, {}
    for role, arm in arms.items():
        columns[role], pooled[role] = _reference_scores(arm)
    core = arms["control"].core
    repo = np.unique(arms["control"].repo[core], return_inverse=True)[1]
    found = {}
    for name in MEASURES:
        delta = columns["treatment"][name] - columns["control"][name]
        sums, sizes = np.bincount(repo, weights=delta), np.bincount(repo)
        by_frame = reference_interval((delta,), np.mean, resamples=resamples)
        by_cluster = reference_interval((sums, sizes), _ratio, resamples=resamples, paired=True)
        found[name] = (float(delta.mean()), *by_frame, *by_cluster)
    return {**pooled, **found}


def _reference_scores(arm: Arm) -> tuple[Columns, tuple[float, ...]]:
    prediction, truth = arm.prediction[arm.core], arm.truth[arm.core]
    mask = (arm.valid[arm.core] & np.isfinite(truth).all(axis=2))[:, :, None]
    elements = mask.sum(axis=(1, 2)) * truth.shape[2]
    error = np.where(mask, np.abs(prediction.mean(axis=1) - truth), 0)
    total, first = error.sum(axis=(1, 2), dtype=np.float64), error[:, 0].mean(axis=1)
    apart = np.where(mask[:, None], np.abs(prediction - truth[:, None]), 0)
    each, each_first = apart.sum(axis=(2, 3), dtype=np.float64), apart[:, :, 0].mean(axis=2)
    del apart
    scores = reference_energy(prediction, truth, mask, elements)
    values = (total / elements, first, each.mean(axis=1) / elements, each_first.mean(axis=1))
    pooled = (total.sum() / elements.sum(), first.mean())
    weighed = (float((score * elements).sum() / elements.sum()) for score in scores)
    return dict(zip(MEASURES, (*values, *scores), strict=True)), (*map(float, pooled), *weighed)


def reference_energy(prediction: Any, truth: Any, mask: Any, elements: Any) -> list[Any]:
    """Plain and fair energy scores by scoringrules; it has no mask, so unscored values are 0."""
    import scoringrules  # noqa: PLC0415 - it loads numba, which is weighed below

    draws = np.where(mask[:, None], prediction, 0).reshape(*prediction.shape[:2], -1)
    recorded = np.where(mask, truth, 0).reshape(len(truth), -1)
    return [
        scoringrules.es_ensemble(recorded, draws, estimator=form, backend="numba")
        / np.sqrt(elements)
        for form in ("nrg", "fair")
    ]


def reference_interval(
    data: tuple[Any, ...], statistic: Any, *, resamples: int, paired: bool = False
) -> tuple[float, float]:
    """A percentile interval by scipy, 100 resamples at once."""
    found = stats.bootstrap(
        data, statistic, method="percentile", n_resamples=resamples, batch=100, paired=paired,
        vectorized=True, rng=np.random.default_rng(SEED), confidence_level=CONFIDENCE,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def _ratio(sums: Any, sizes: Any, axis: int = -1) -> Any:
    return sums.sum(axis=axis) / sizes.sum(axis=axis)


def their_energies(arm: Arm) -> list[Any]:
    """Theirs, masked and all."""
    truth, valid = arm.truth[arm.core], arm.valid[arm.core]
    elements = valid.sum(axis=1) * truth.shape[2]
    return reference_energy(arm.prediction[arm.core], truth, valid[:, :, None], elements)


def their_plain(arm: Arm, dtype: type[np.floating[Any]]) -> Callable[[], Any]:
    """Their plain score alone, of arrays that are masked and in place."""
    import scoringrules  # noqa: PLC0415 - it loads numba, which is weighed below

    mask = arm.valid[arm.core][:, :, None]
    truth = np.where(mask, arm.truth[arm.core], 0).reshape(len(mask), -1).astype(dtype)
    draws = np.where(mask[:, None], arm.prediction[arm.core], 0).astype(dtype)
    draws = draws.reshape(*draws.shape[:2], -1)
    return lambda: scoringrules.es_ensemble(truth, draws, estimator="nrg", backend="numba")


def exact_energies(arm: Arm, *, frames: int) -> list[float]:
    """The plain score of the first core frames, from differences in extended precision."""
    found = []
    for row in np.flatnonzero(arm.core)[:frames]:
        draws = arm.prediction[row][:, arm.valid[row]].astype(np.longdouble).reshape(-1)
        points = draws.reshape(arm.prediction.shape[1], -1)
        near = points - arm.truth[row][arm.valid[row]].astype(np.longdouble).reshape(-1)
        apart = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2)).mean() / 2
        score = np.sqrt((near**2).sum(axis=1)).mean() - apart
        found.append(float(score / np.sqrt(np.longdouble(points.shape[1]))))
    return found
