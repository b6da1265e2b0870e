"""What a panel can tell apart, and how many frames an effect takes, with clustered frames.

z_p is the normal quantile at p. With confidence 1 - a and power 1 - b the factor is
z_(1 - a/2) + z_(1 - b): 2.80 at 95 % and 80 %.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int, Int64
from scipy.special import ndtri

from arflow_eval.stats.intervals import cluster_sums, cr1_errors
from arflow_eval.stats.resampling import resampled


@dataclass(frozen=True)
class Pilots:
    """Clusters of paired differences: a pilot as one row, or resamples of it, one a row.

    Attributes:
        sizes: n_g, frames of each cluster.
        sums: S_g, sum of each cluster's differences, about the pilot's mean.
        squares: sum of each cluster's squared differences, about the pilot's mean.
    """

    sizes: Int64[np.ndarray, "resample cluster"]
    sums: Float64[np.ndarray, "resample cluster"]
    squares: Float64[np.ndarray, "resample cluster"]

    @property
    def frames(self) -> Int64[np.ndarray, "resample"]:
        """n, frames in all."""
        frames: Int64[np.ndarray, "resample"] = self.sizes.sum(axis=1)
        return frames

    @property
    def error(self) -> Float64[np.ndarray, "resample"]:
        """CR1 standard error of the mean over frames."""
        return cr1_errors(self.sums, self.sizes)

    @property
    def deviation(self) -> Float64[np.ndarray, "resample"]:
        """Standard deviation of the differences over all frames, ddof 1."""
        frames = self.frames
        about = self.squares.sum(axis=1) - self.sums.sum(axis=1) ** 2 / frames
        deviation: Float64[np.ndarray, "resample"] = np.sqrt(about / (frames - 1))
        return deviation

    @property
    def correlation(self) -> Float64[np.ndarray, "resample"]:
        """Intra-class correlation: share of the variance that lies between clusters, in [0, 1].

        The one-way analysis of variance for unequal sizes: (B - W) / (B + (n0 - 1) W), with B
        and W the mean squares between and within clusters and n0 = (n - sum(n_g^2) / n) /
        (G - 1); clipped at 0. Also 0 where no cluster has two frames, or all differences are
        the same: then nothing shows that frames move together.

        Source: Donner (1986), International Statistical Review 54(1), 67-82.
        """
        frames, clusters = self.frames, self.sizes.shape[1]
        explained = (self.sums**2 / self.sizes).sum(axis=1)
        mean_square = (explained - self.sums.sum(axis=1) ** 2 / frames) / (clusters - 1)
        rest = self.squares.sum(axis=1) - explained
        within = rest / np.maximum(frames - clusters, 1)
        size = (frames - (self.sizes**2).sum(axis=1) / frames) / (clusters - 1)
        total = mean_square + (size - 1) * within
        correlation = np.zeros(len(total))
        np.divide(
            mean_square - within, total, out=correlation, where=(total > 0) & (frames > clusters)
        )
        return np.maximum(correlation, 0)

    @property
    def typical_size(self) -> Float64[np.ndarray, "resample"]:
        """M (1 + CV^2) = sum(n_g^2) / sum(n_g): frames of the cluster that a frame is in."""
        typical: Float64[np.ndarray, "resample"] = (self.sizes**2).sum(axis=1) / self.frames
        return typical

    @property
    def design_effect(self) -> Float64[np.ndarray, "resample"]:
        """Factor on the frames needed for their clustering; see `design_effect`."""
        return design_effect(self.typical_size, correlation=self.correlation)


def pilot(delta: Float64[np.ndarray, "frame"], cluster: Int[np.ndarray, "frame"]) -> Pilots:
    """A pilot's paired differences, by cluster: one row.

    Raises:
        ValueError: there are fewer than two clusters.
    """
    about = delta - delta.mean() if np.ptp(delta) else np.zeros_like(delta)
    sums, sizes = cluster_sums(about, cluster)
    squares, _ = cluster_sums(about**2, cluster)
    if len(sizes) < 2:
        raise ValueError(f"{len(sizes)} clusters; two at least are needed to see them differ")
    return Pilots(sizes=sizes[None], sums=sums[None], squares=squares[None])


def design_effect(
    typical_size: Float64[np.ndarray, "resample"],
    *,
    correlation: Float64[np.ndarray, "resample"],
) -> Float64[np.ndarray, "resample"]:
    """DEFF = 1 + (m (1 + CV^2) - 1) * correlation, with m the mean cluster size.

    CV is the sizes' coefficient of variation (ddof 0). Without it a panel of uneven repos is far
    too small for the power asked.
    """
    effect: Float64[np.ndarray, "resample"] = 1 + (typical_size - 1) * correlation
    return effect


def detectable_effect(
    pilots: Pilots,
    *,
    confidence: float,
    power: float,
    frames: int | None = None,
    clusters: int | None = None,
) -> Float64[np.ndarray, "resample"]:
    """Least mean difference that a panel shows with the given power, in the differences' unit.

    MDE = (z_(1 - a/2) + z_(1 - b)) * SE, with the pilot's CR1 standard error at its own size. For
    a planned panel SE^2 is scaled by n / n' * DEFF' / DEFF: with `frames` or `clusters` alone the
    clusters keep the pilot's sizes, with both they are that much larger or smaller, as uneven as
    they were. On fewer than some 40 clusters it is optimistic, as is every normal quantile there.
    """
    size = pilots.frames / pilots.sizes.shape[1]
    planned_size = size if frames is None or clusters is None else frames / clusters
    planned = pilots.frames if clusters is None else clusters * planned_size
    planned = planned if frames is None else frames
    typical = pilots.typical_size * (planned_size / size)
    # a cluster of less than a frame is none: independent frames have no factor below 1
    inflation = np.maximum(design_effect(typical, correlation=pilots.correlation), 1)
    ratio = inflation / pilots.design_effect
    shown: Float64[np.ndarray, "resample"] = pilots.error * np.sqrt(pilots.frames / planned * ratio)
    return _factor(confidence=confidence, power=power) * shown


def needed_frames(
    pilots: Pilots, *, effect: float, confidence: float, power: float
) -> Float64[np.ndarray, "resample"]:
    """Frames, not rounded, that show a mean difference of `effect` with the given power.

    n = (z_(1 - a/2) + z_(1 - b))^2 * s^2 * DEFF / effect^2, with s the differences' standard
    deviation over all frames and DEFF of the pilot's cluster sizes and correlation.

    Args:
        pilots: the pilot's differences.
        effect: mean difference to show, in their unit; its sign does not matter.
        confidence: of the two-sided interval that must exclude 0, such as 0.95.
        power: share of panels in which it does, such as 0.8.

    Raises:
        ValueError: the effect is 0.
    """
    if effect == 0:
        raise ValueError("no panel is large enough to show an effect of 0")
    units = _factor(confidence=confidence, power=power) * pilots.deviation / effect
    frames: Float64[np.ndarray, "resample"] = units**2 * pilots.design_effect
    return frames


def resampled_range(
    of: Callable[[Pilots], Float64[np.ndarray, "resample"]],
    pilots: Pilots,
    *,
    resamples: int,
    seed: int,
    confidence: float,
) -> tuple[float, float]:
    """Percentile interval of a planning number over resampled clusters of the pilot."""
    sizes, sums, squares = pilots.sizes[0], pilots.sums[0], pilots.squares[0]
    found = np.empty(resamples)
    for rows, chosen in resampled(len(sizes), resamples=resamples, seed=seed):
        found[rows] = of(Pilots(sizes[chosen], sums[chosen], squares[chosen]))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(found, [tail, 100 - tail])
    return float(low), float(high)


def _factor(*, confidence: float, power: float) -> float:
    return float(ndtri(1 - (1 - confidence) / 2) + ndtri(power))
