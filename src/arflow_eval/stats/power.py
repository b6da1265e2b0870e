"""What a panel can tell apart, and how many frames an effect takes, with clustered frames.

z_p is the normal quantile at p. With confidence 1 - a and power 1 - b the factor is
z_(1 - a/2) + z_(1 - b): 2.80 at 95 % and 80 %.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from jaxtyping import Float64, Int, Int64
from scipy.special import ndtri

from arflow_eval.stats.intervals import cluster_sums, cr1_error


@dataclass(frozen=True)
class Need:
    """The size of a panel that shows an effect with the power asked for.

    Attributes:
        frames: frames, rounded up.
        clusters: clusters of the pilot's sizes that hold them, rounded up.
        correlation: intra-class correlation of the pilot's differences.
        design_effect: factor on the frames for their clustering; 1 if they were independent.
        deviation: standard deviation of the pilot's differences over all frames.
    """

    frames: int
    clusters: int
    correlation: float
    design_effect: float
    deviation: float


def detectable_effect(
    delta: Float64[np.ndarray, "frame"],
    cluster: Int[np.ndarray, "frame"],
    *,
    confidence: float,
    power: float,
) -> float:
    """Least mean difference that this panel shows with the given power, in delta's unit.

    MDE = (z_(1 - a/2) + z_(1 - b)) * SE, with the CR1 standard error of the mean over frames.
    On fewer than some 40 clusters it is optimistic, as is every normal quantile there.

    Raises:
        ValueError: there are fewer than two clusters.
    """
    sums, sizes = cluster_sums(delta, cluster)
    _require_two(sizes)
    return _factor(confidence=confidence, power=power) * cr1_error(sums, sizes)


def intraclass_correlation(
    delta: Float64[np.ndarray, "frame"], cluster: Int[np.ndarray, "frame"]
) -> float:
    """Share of the variance that lies between clusters, in [0, 1].

    The one-way analysis of variance for unequal sizes: (B - W) / (B + (n0 - 1) W), with B and W
    the mean squares between and within clusters and n0 = (n - sum(n_g^2) / n) / (G - 1);
    clipped at 0. Also 0 where no cluster has two frames, or all differences are the same: then
    nothing shows that frames move together.

    Raises:
        ValueError: there are fewer than two clusters.

    Source: Donner (1986), International Statistical Review 54(1), 67-82.
    """
    sums, sizes = cluster_sums(delta, cluster)
    _require_two(sizes)
    frames, clusters = len(delta), len(sizes)
    if frames == clusters or np.ptp(delta) == 0:
        return 0.0
    _, code = np.unique(cluster, return_inverse=True)
    means = sums / sizes
    between = (sizes * (means - delta.mean()) ** 2).sum() / (clusters - 1)
    within = ((delta - means[code]) ** 2).sum() / (frames - clusters)
    size = (frames - (sizes**2).sum() / frames) / (clusters - 1)
    return max(float((between - within) / (between + (size - 1) * within)), 0.0)


def design_effect(sizes: Int64[np.ndarray, "cluster"], *, correlation: float) -> float:
    """DEFF = 1 + (m (1 + CV^2) - 1) * correlation, with m the mean cluster size.

    CV is the sizes' coefficient of variation (ddof 0), so m (1 + CV^2) = sum(n_g^2) / sum(n_g).
    Without it a panel of uneven repos is far too small for the power asked.
    """
    return 1 + (float((sizes**2).sum() / sizes.sum()) - 1) * correlation


def needed(
    delta: Float64[np.ndarray, "frame"],
    cluster: Int[np.ndarray, "frame"],
    *,
    effect: float,
    confidence: float,
    power: float,
) -> Need:
    """Frames and clusters that show `effect`, judged from a pilot's paired differences.

    n = (z_(1 - a/2) + z_(1 - b))^2 * s^2 * DEFF / effect^2, with s^2 the variance of the
    differences over all frames and DEFF of the pilot's cluster sizes and correlation.

    Args:
        delta: the pilot's differences.
        cluster: a frame's cluster, any integers.
        effect: mean difference to show, in delta's unit; its sign does not matter.
        confidence: of the two-sided interval that must exclude 0, such as 0.95.
        power: share of panels in which it does, such as 0.8.

    Raises:
        ValueError: the effect is 0, or there are fewer than two clusters.
    """
    if effect == 0:
        raise ValueError("no panel is large enough to show an effect of 0")
    _, sizes = cluster_sums(delta, cluster)
    correlation = intraclass_correlation(delta, cluster)
    deviation = float(delta.std(ddof=1))
    factor = design_effect(sizes, correlation=correlation)
    units = _factor(confidence=confidence, power=power) * deviation / effect
    frames = ceil(units**2 * factor)
    return Need(
        frames=frames,
        clusters=ceil(frames * len(sizes) / len(delta)),
        correlation=correlation,
        design_effect=factor,
        deviation=deviation,
    )


def _factor(*, confidence: float, power: float) -> float:
    return float(ndtri(1 - (1 - confidence) / 2) + ndtri(power))


def _require_two(sizes: Int64[np.ndarray, "cluster"]) -> None:
    if len(sizes) < 2:
        raise ValueError(f"{len(sizes)} clusters; two at least are needed to see them differ")
