"""The published file contract: npz files of predictions, into stores and back, bit for bit.

`names` parses an arm's key, `archive` reads npz members by their headers and in slices, `checks`
and `contract` say what a file must hold, `joining` pairs a draws file with its predictions, `files`
has both and the `columns` that a store takes of them, `scanning` looks through all values once,
`reports` takes published numbers from a report, `recording` is what a store says of its origin,
`pooled` keeps a published mean of draws. `importing` and `exporting` are the two directions, with
`keys`, `arrays` and `writing` for the second.
"""

from arflow_eval.published.exporting import Exported, export_npz
from arflow_eval.published.files import Given
from arflow_eval.published.importing import Imported, import_npz

__all__ = ["Exported", "Given", "Imported", "export_npz", "import_npz"]
