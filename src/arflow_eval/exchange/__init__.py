"""Conversions: stores into other stores and into other formats, values and digests unchanged.

`npz`, `parquet`, `merge` and `subset` are the words of the command line, one kind a module, read by
`words`. `sources` takes rows out of stores and holds them against their digests; `merging` and
`carrying` put the shards of several machines together, with what lies beside them; `selection`,
`panels` and `subsetting` cut a store to the frames of a smaller panel; `tables` writes Parquet.
The npz files of the published contract have a room of their own, `published/`.
"""
