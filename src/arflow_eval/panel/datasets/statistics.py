"""A dataset's own statistics of state and action, as its files give them.

Version 2.1 keeps them an episode; they are put together as LeRobot does, weighted by count:
mean = sum n m / N, variance = sum n (v + (m - mean)^2) / N. Quantiles cannot be put together,
so they are read from stats.json or are absent. Nothing is made from frames.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from arflow_eval.contracts import Statistics
from arflow_eval.panel.datasets import documents
from arflow_eval.panel.datasets.documents import broken
from arflow_eval.panel.datasets.info import ACTION, STATE, Info

MOMENTS = ("mean", "std")
QUANTILES = ("q01", "q99")


def read_statistics(folder: Path, info: Info) -> Statistics | None:
    """The statistics of a dataset; None where it has no mean and std of state and action."""
    meta = folder / "meta"
    if (meta / "stats.json").is_file():
        document = documents.read_object(meta / "stats.json", repo=info.repo)
        tables = {key: _table(document.get(key), key, info) for key in (STATE, ACTION)}
    elif (meta / "episodes_stats.jsonl").is_file():
        lines = documents.read_lines(meta / "episodes_stats.jsonl", repo=info.repo)
        tables = {
            key: _joined([_of(line, key) for line in lines], key, info) for key in (STATE, ACTION)
        }
    else:
        return None
    if any(name not in table for table in tables.values() for name in MOMENTS):
        return None
    return Statistics(
        **{
            f"{key.rpartition('.')[2]}_{name}": table[name]
            for key, table in tables.items()
            for name in (*MOMENTS, *QUANTILES)
            if name in table
        }
    )


def to_json(statistics: Statistics | None) -> dict[str, list[float]] | None:
    """Statistics as JSON."""
    if statistics is None:
        return None
    return {name: value.tolist() for name, value in vars(statistics).items() if value is not None}


def from_json(document: Mapping[str, Sequence[float]] | None) -> Statistics | None:
    """The inverse of `to_json`."""
    if document is None:
        return None
    return Statistics(**{name: np.array(value, np.float64) for name, value in document.items()})


def _of(line: Mapping[str, Any], key: str) -> Any:
    stats = line.get("stats")
    return stats.get(key) if isinstance(stats, dict) else None


def _table(entry: Any, key: str, info: Info) -> dict[str, Float64[np.ndarray, "state"]]:
    if not isinstance(entry, dict):
        return {}
    size = len(info.state_names if key == STATE else info.action_names)
    found = {}
    for name in (*MOMENTS, *QUANTILES):
        if entry.get(name) is not None:
            found[name] = _vector(entry[name], f"{name} of {key}", size=size, repo=info.repo)
    return found


def _vector(values: Any, name: str, *, size: int, repo: str) -> Float64[np.ndarray, "state"]:
    numbers = values if isinstance(values, list) else [values]
    if len(numbers) != size:
        raise broken(repo, f"{name} has {len(numbers)} numbers", expected=f"{size}")
    return np.array(
        [documents.number(one, name=name, repo=repo, least=-1e12, most=1e12) for one in numbers]
    )


def _joined(
    entries: Sequence[Any], key: str, info: Info
) -> dict[str, Float64[np.ndarray, "state"]]:
    tables = [_table(entry, key, info) for entry in entries]
    if not tables or any(name not in table for table in tables for name in MOMENTS):
        return {}
    counts = np.array([_count(entry, info) for entry in entries], dtype=np.float64)
    weights = (counts / counts.sum())[:, None]
    means = np.stack([table["mean"] for table in tables])
    spreads = np.stack([table["std"] for table in tables])
    mean = (weights * means).sum(axis=0)
    variance = (weights * (spreads**2 + (means - mean) ** 2)).sum(axis=0)
    return {"mean": mean, "std": np.sqrt(variance)}


def _count(entry: Mapping[str, Any], info: Info) -> int:
    count = entry.get("count")
    (one,) = count if isinstance(count, list) and len(count) == 1 else (count,)
    return documents.whole(one, name="count of an episode", repo=info.repo, least=1)
