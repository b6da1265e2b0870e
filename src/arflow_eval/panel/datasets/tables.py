"""Parquet files as checked numpy columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from arflow_eval.panel.datasets.documents import MANY, broken
from arflow_eval.panel.extras import library


def column_names(path: Path, *, repo: str) -> list[str]:
    """The columns of a parquet file."""
    pyarrow, parquet = _pyarrow()
    try:
        return list(parquet.read_schema(path).names)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _unreadable(path, repo, error) from error


def read_table(path: Path, *, columns: Sequence[str], repo: str, episode: int | None = None) -> Any:
    """Some columns of a parquet file, of one episode's rows where one is given."""
    pyarrow, parquet = _pyarrow()
    chosen = None if episode is None else [("episode_index", "=", episode)]
    try:
        count = parquet.read_metadata(path).num_rows
        if count > MANY:
            raise broken(repo, f"{path.name} has {count:,} rows", expected=f"at most {MANY:,}")
        table = parquet.read_table(path, columns=list(columns), filters=chosen, partitioning=None)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _unreadable(path, repo, error) from error
    lacking = sorted(set(columns) - set(table.column_names))
    if lacking:
        raise broken(repo, f"{path.name} has no column {lacking[0]}", expected=", ".join(columns))
    return table


def vectors(table: Any, name: str, *, size: int, repo: str) -> Float32[np.ndarray, "index state"]:
    """A column of vectors of `size` numbers (or of numbers, where `size` is 1)."""
    pyarrow, _ = _pyarrow()
    column = table.column(name).combine_chunks()
    kinds = pyarrow.types
    varying = kinds.is_list(column.type) or kinds.is_large_list(column.type)
    if varying or kinds.is_fixed_size_list(column.type):
        if column.null_count or len(column.flatten()) != len(column) * size:
            raise broken(
                repo, f"{name} has rows of other lengths", expected=f"{size} numbers a row"
            )
        if varying and set(column.value_lengths().to_pylist()) - {size}:
            raise broken(
                repo, f"{name} has rows of other lengths", expected=f"{size} numbers a row"
            )
        column = column.flatten()
    values = _numbers(column, name, repo=repo)
    if len(values) != table.num_rows * size:
        raise broken(repo, f"{name} holds single numbers", expected=f"{size} numbers a row")
    rows: Float32[np.ndarray, "index state"] = values.astype(np.float32).reshape(-1, size)
    return rows


def floats(table: Any, name: str, *, repo: str) -> Float64[np.ndarray, "index"]:
    """A column of numbers, or of vectors of one number, in full precision."""
    pyarrow, _ = _pyarrow()
    column = table.column(name).combine_chunks()
    if pyarrow.types.is_nested(column.type):
        column = column.flatten()
    values: Float64[np.ndarray, "index"] = _numbers(column, name, repo=repo).astype(np.float64)
    if len(values) != table.num_rows:
        raise broken(repo, f"{name} has rows of other lengths", expected="one number a row")
    return values


def integers(
    table: Any, name: str, *, repo: str, least: int = 0, most: int = MANY
) -> Int64[np.ndarray, "index"]:
    """A column of integers between bounds."""
    values = floats(table, name, repo=repo)
    whole = np.isfinite(values) & (values == np.floor(values))
    if not (whole & (values >= least) & (values <= most)).all():
        raise broken(repo, f"{name} holds other values", expected=f"integers {least} to {most}")
    return values.astype(np.int64)


def present(table: Any, name: str, *, repo: str) -> Bool[np.ndarray, "index"]:
    """Which rows of a column hold a finite number."""
    pyarrow, _ = _pyarrow()
    column = table.column(name).combine_chunks()
    if not (pyarrow.types.is_floating(column.type) or pyarrow.types.is_integer(column.type)):
        raise broken(repo, f"{name} holds {column.type}", expected="numbers or nulls")
    values = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    found: Bool[np.ndarray, "index"] = np.isfinite(values)
    return found


def _numbers(column: Any, name: str, *, repo: str) -> Any:
    pyarrow, _ = _pyarrow()
    kind = column.type
    if not (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)) or column.null_count:
        raise broken(repo, f"{name} holds {kind} or nulls", expected="numbers")
    return column.to_numpy(zero_copy_only=False)


def _pyarrow() -> tuple[Any, Any]:
    return library("pyarrow", extra="lerobot"), library("pyarrow.parquet", extra="lerobot")


def _unreadable(path: Path, repo: str, error: Exception) -> Exception:
    reason = str(error).splitlines()[0][:120] if str(error) else error.__class__.__name__
    return broken(repo, f"{path.name} cannot be read ({reason})", expected="a parquet file")
