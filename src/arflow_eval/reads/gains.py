"""What the best of a frame's draws gains over one prediction, where, and which draw it is."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Float64, Int64

from arflow_eval.reads.comparison import Finding
from arflow_eval.reads.delta import DELTA_PLACES, RATE_PLACES, rounded
from arflow_eval.reads.quarters import by_quarter, published_quarters, rounded_or_none
from arflow_eval.reads.stacks import Stack
from arflow_eval.stats.dispersion import rank_correlation
from arflow_eval.stats.ladder import best_draw, best_draw_counts

GAIN: Final = "greedy - best of N, per-frame chunk_mae; positive = choosing among draws helps"


def gains(
    gain: Float64[np.ndarray, "frame"],
    dispersion: Float64[np.ndarray, "frame"],
    *,
    quantiles: Sequence[float],
) -> Finding:
    """Quantiles of the gain, and how it goes with the dispersion of the draws."""
    levels = np.quantile(gain, quantiles).tolist()
    by_share = {f"{share:g}": level for share, level in zip(quantiles, levels, strict=True)}
    quarters = by_quarter(dispersion, {"gain": gain})
    correlation = rank_correlation(dispersion, gain)
    shown = {
        "definition": GAIN,
        "quantiles": {
            share: rounded(level, places=DELTA_PLACES) for share, level in by_share.items()
        },
        "by_dispersion_quartile": published_quarters(quarters),
        "spearman_dispersion_gain": rounded_or_none(correlation, places=RATE_PLACES),
    }
    exact = {
        "quantiles": by_share,
        "by_dispersion_quartile": quarters,
        "spearman_dispersion_gain": correlation,
    }
    return shown, exact


def best_draws(stack: Stack) -> dict[str, Any]:
    """How many frames each draw is the best of; draws that are alike share them evenly."""
    kept, first = stack.draws.scored, stack.draws.first_scored
    counts = {
        "chunk": best_draw_counts(stack.draws.mae[kept]),
        "first": best_draw_counts(stack.draws.first[first]),
    }
    return {
        **{name: each.tolist() for name, each in counts.items()},
        "largest_share": rounded(float(counts["chunk"].max() / kept.sum()), places=RATE_PLACES),
        "even_share": rounded(1 / stack.draws.total.shape[1], places=RATE_PLACES),
    }


def tied_best(mae: Float64[np.ndarray, "frame draw"]) -> int:
    """Frames with two best draws, of which the histogram counts the first."""
    best: Int64[np.ndarray, "frame"] = best_draw(mae)
    least = mae[np.arange(len(mae)), best]
    return int(((mae == least[:, None]).sum(axis=1) > 1).sum())
