"""A store as a dataset whose values are read from its chunk files as they are used."""

import copy
from typing import Any, final

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from arflow_eval.store.access import Root, files
from arflow_eval.store.chunks import Chunks
from arflow_eval.store.layout import settings


def dataset(root: Root) -> xarray.Dataset:
    """What `xarray.open_zarr` makes of a store, opened and read in less time."""
    laid = {name: files(root, name) for name in root.arrays}
    if any(each is None for each in laid.values()):
        with settings():
            opened: xarray.Dataset = xarray.open_zarr(root.path, chunks=None, consolidated=True)
            return opened
    attributes = dict(copy.deepcopy(root.attrs))
    coordinates = set(attributes.pop("coordinates").split())
    found = {name: _variable(root.arrays[name], each) for name, each in laid.items() if each}
    opened = xarray.Dataset(
        {name: each for name, each in found.items() if name not in coordinates},
        {name: each for name, each in found.items() if name in coordinates},
        attributes,
    )
    opened.encoding["source"] = str(root.path)  # as open_zarr notes it
    return opened


def _variable(described: Any, chunks: Chunks) -> xarray.Variable:
    axes = described["dimension_names"]
    lengths = (chunks.block, *chunks.shape[1:])
    stored = indexing.LazilyIndexedArray(_Stored(chunks))
    return xarray.Variable(
        axes,
        indexing.MemoryCachedArray(stored),  # type: ignore[no-untyped-call] # as open_zarr does
        copy.deepcopy(described["attributes"]),
        {"chunks": lengths, "preferred_chunks": dict(zip(axes, lengths, strict=True))},
        fastpath=True,
    )


@final
class _Stored(BackendArray):
    """An array of a store as xarray asks for it: along every axis a place, a slice or a list."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks
        self.shape = chunks.shape
        self.dtype = chunks.dtype.newbyteorder("=")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> Any:
        frames, *rest = key
        wanted = np.arange(self.shape[0])[frames]
        found = self.chunks.take(np.atleast_1d(wanted))
        for axis, part in reversed(list(enumerate(rest, start=1))):
            found = found[(slice(None),) * axis + (part,)]
        return found if np.ndim(wanted) else found[0]
