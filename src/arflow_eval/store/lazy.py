"""Variables that are read from a store's files as they are used."""

from typing import Any, final

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from arflow_eval.store.chunks import Chunks


def lazily(dataset: xarray.Dataset, name: str, chunks: Chunks) -> xarray.Variable:
    """A variable of an opened store whose values come straight from its chunk files."""
    described = dataset.variables[name]
    stored = indexing.LazilyIndexedArray(_Stored(chunks))
    data = indexing.MemoryCachedArray(stored)  # type: ignore[no-untyped-call] # as open_zarr does
    return xarray.Variable(described.dims, data, described.attrs, described.encoding, fastpath=True)


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
