"""A store as a Parquet table: one row a frame and draw, bit for bit, a row group a block.

What a frame has once (truth, masks, baselines) stands in each of its rows. A chunk is a list of
fixed size, the actions of its first step first; the metadata of its field has the sizes. NaN stays
NaN with its bits: numbers are stored plain, since a dictionary would make all NaN one.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Shaped

from arflow_eval.exchange.sources import Source, taken
from arflow_eval.stats.errors import failed_draws
from arflow_eval.store.access import all_blocks, array, variables
from arflow_eval.store.layout import Schema
from arflow_eval.store.vocabulary import DIGEST_BYTES, Variable

FORMAT: Final = "arflow_eval parquet 1"
TEXT: Final = ("arm", "repo", "task")
NUMBERS: Final = ("episode", "frame_index", "index", "panel_row")
WORDS: Final = pa.dictionary(pa.int32(), pa.string())
ROW: Final = (
    *((name, WORDS) for name in TEXT),
    *((name, pa.int64()) for name in NUMBERS),
    ("core", pa.bool_()),
    ("draw", pa.int32()),
    ("failed", pa.bool_()),
    ("frame_digest", pa.binary(DIGEST_BYTES)),
)


def write_table(of: Source, path: Path) -> int:
    """Write a complete store to a file that nobody else sees yet; returns its rows.

    Every value is held against the digest of its frame on the way.

    Raises:
        Refusal: damage, where a row of the store is not what was written.
    """
    schema = _schema(of)
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=list(TEXT)) as file:
        for block in all_blocks(of.group):
            table = pa.Table.from_arrays(_columns(of, block), schema=schema)
            file.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
    return rows


def _schema(of: Source) -> Any:
    """Types of all columns. The metadata holds strings and JSON."""
    attributes = of.group.attrs.asdict()
    described = {
        "format": FORMAT,
        **{key: str(attributes[key]) for key in ("arm", "digest", "fingerprint", "action_units")},
        "action_names": json.dumps(attributes["action_names"]),
        "attributes": json.dumps(attributes, allow_nan=False),
    }
    fields = [pa.field(name, kind, nullable=False) for name, kind in ROW]
    fields += [_field(of.schema, each, of) for each in variables(of.group)]
    return pa.schema(fields, metadata=described)


def _field(schema: Schema, variable: Variable, of: Source) -> Any:
    axes = [axis for axis in variable.axes if axis not in ("frame", "draw")]
    sizes = [schema.sizes[axis] for axis in axes]
    kind = pa.from_numpy_dtype(np.dtype(variable.dtype))
    stated = array(of.group, variable.name).attrs.asdict()
    described: dict[str, str] = {
        key: str(stated[key]) for key in ("long_name", "units") if key in stated
    }
    described |= {"axes": " ".join(axes), "sizes": json.dumps(sizes)}
    listed = pa.list_(pa.field("element", kind, nullable=False), int(np.prod(sizes)))
    return pa.field(variable.name, listed if axes else kind, nullable=False, metadata=described)


def _columns(of: Source, block: range) -> list[Any]:
    """The rows of one block, frame after frame and its draws in order."""
    place = np.arange(block.start, block.stop)
    values = taken(of, place)
    draws = of.schema.draws
    frames = of.schema.frames
    known = {
        "arm": (np.zeros(len(block), np.int64), (str(of.group.attrs["arm"]),)),
        "repo": (frames.repo[place], frames.repos),
        "task": (frames.task[place], frames.tasks),
    }
    found = [
        pa.DictionaryArray.from_arrays(np.repeat(codes, draws).astype(np.int32), pa.array(names))
        for codes, names in (known[name] for name in TEXT)
    ]
    numbers = {"panel_row": np.arange(len(frames)), **vars(frames)}
    found += [pa.array(np.repeat(numbers[name][place], draws)) for name in (*NUMBERS, "core")]
    found.append(pa.array(np.tile(np.arange(draws, dtype=np.int32), len(block))))
    found.append(pa.array(failed_draws(values["prediction"]).reshape(-1)))
    marks = np.repeat(of.marks.digests[place], draws, axis=0)
    found.append(pa.array(list(map(bytes, marks)), pa.binary(DIGEST_BYTES)))
    return found + [_column(values[each.name], each, draws) for each in variables(of.group)]


def _column(values: Shaped[np.ndarray, "..."], variable: Variable, draws: int) -> Any:
    rows = values if "draw" in variable.axes else np.repeat(values, draws, axis=0)
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    rest = [axis for axis in variable.axes if axis not in ("frame", "draw")]
    if not rest:
        return flat
    each = len(flat) // (len(values) * draws)
    kind = pa.list_(pa.field("element", flat.type, nullable=False), each)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)
