"""Quantile normalisation: q01 -> -1, q99 -> +1, outliers clipped, constant dimensions to 0.

The tables travel with a checkpoint, or with a dataset's own statistics. Nothing is ever
recomputed from evaluation frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from arflow_eval import refusal
from arflow_eval.contracts import Statistics


@dataclass(frozen=True)
class Quantiles:
    """The 1 % and 99 % quantiles of each dimension, in raw units."""

    q01: Float64[np.ndarray, "action"]
    q99: Float64[np.ndarray, "action"]

    def normalise(
        self, values: Float[np.ndarray, "*rows action"]
    ) -> Float64[np.ndarray, "*rows action"]:
        """Raw units -> [-1, 1]; what lies outside the quantiles is clipped."""
        span = self.q99 - self.q01
        constant = span == 0
        scaled = 2 * (values - self.q01) / np.where(constant, 1, span) - 1
        clipped: Float64[np.ndarray, "*rows action"] = np.where(constant, 0, scaled).clip(-1, 1)
        return clipped

    def restore(
        self, values: Float[np.ndarray, "*rows action"]
    ) -> Float64[np.ndarray, "*rows action"]:
        """[-1, 1] -> raw units, without clipping; a constant dimension comes back constant."""
        restored: Float64[np.ndarray, "*rows action"] = self.q01 + (
            np.asarray(values, dtype=np.float64) + 1
        ) / 2 * (self.q99 - self.q01)
        return restored


def quantiles(values: Float[np.ndarray, "*rows action"]) -> Quantiles:
    """The tables of some training values."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
    return Quantiles(q01=np.quantile(flat, 0.01, axis=0), q99=np.quantile(flat, 0.99, axis=0))


def from_json(table: Mapping[str, list[float]]) -> Quantiles:
    """Tables as a checkpoint's norm_stats.json holds them."""
    return Quantiles(q01=np.array(table["q01"]), q99=np.array(table["q99"]))


def of_dataset(statistics: Statistics, *, repo: str) -> Quantiles:
    """The action quantiles of a repo, for a policy whose checkpoint brings no table of its own.

    Raises a guard refusal where the dataset has none (versions before 3 often lack them).
    """
    if statistics.action_q01 is None or statistics.action_q99 is None:
        raise refusal.guard(
            f"{repo} has no q01 and q99 of its actions",
            expected="both, in the checkpoint or in the dataset's statistics",
            remedy="choose a checkpoint with norm_stats.json, or convert the dataset to v3.0",
        )
    return Quantiles(q01=statistics.action_q01, q99=statistics.action_q99)


def to_json(table: Quantiles) -> dict[str, list[float]]:
    """The inverse of `from_json`."""
    return {"q01": table.q01.tolist(), "q99": table.q99.tolist()}
