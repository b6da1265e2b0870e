"""Checks of one array of a published file by its header: there, of its type, of its shape."""

from typing import Final

from arflow_eval import refusal
from arflow_eval.published.archive import LARGEST_ROW, Archive, resaved

INDEX, REPO, EPISODE, FRAME_INDEX, CORE = "index", "repo_id", "episode_index", "frame_index", "core"
IDENTITY: Final = (INDEX, REPO, EPISODE, FRAME_INDEX, CORE)
TRUTH, VALID, DRAWS = "truth", "valid", "draws"
COLUMNS: Final = (*IDENTITY, TRUTH, VALID)
# by kind: the numpy kinds and sizes that it takes, and how another type is made into it
KINDS: Final = {
    "text": ("U", None, "a.astype(str)"),
    "integer": ("iu", None, 'a.astype("int64")'),
    "int64": ("i", 8, 'a.astype("int64")'),
    "bool": ("b", 1, 'a.astype("bool")'),
    "float32": ("f", 4, 'a.astype("float32")'),
}
KIND_OF: Final = {
    INDEX: "int64",
    REPO: "text",
    EPISODE: "integer",
    FRAME_INDEX: "integer",
    CORE: "bool",
    TRUTH: "float32",
    VALID: "bool",
    DRAWS: "float32",
}


def check(
    archive: Archive,
    key: str,
    *,
    axes: str,
    shape: tuple[int | None, ...],
    kind: str | None = None,
) -> None:
    """Raise a usage refusal unless an array has this kind, and this shape where it is stated."""
    kind = KIND_OF[key] if kind is None else kind
    if key not in archive.members:
        raise missing(archive, key, expected=f"{key}, {kind} [{axes}]")
    member = archive.members[key]
    kinds, size, _ = KINDS[kind]
    little = member.dtype.byteorder in "<=|"
    if member.dtype.kind not in kinds or size not in (None, member.dtype.itemsize) or not little:
        raise wrong_type(archive, key, kind=kind)
    same = len(shape) == len(member.shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, member.shape, strict=True)
    )
    if not same:
        stated = ", ".join("any" if length is None else str(length) for length in shape)
        raise wrong_shape(archive, key, expected=f"[{axes}] = [{stated}]")
    if member.fortran:
        raise refusal.usage(
            f"{key} of {archive.path.name} lies in Fortran order",
            expected="C order, frame after frame",
            remedy=resaved(archive.path, key, expression="np.ascontiguousarray(a)"),
        )
    if member.row_bytes > LARGEST_ROW:
        raise wrong_shape(archive, key, expected=f"at most {LARGEST_ROW:,} bytes a frame")


def missing(archive: Archive, key: str, *, expected: str) -> refusal.Refusal:
    """The usage refusal of a file without an array."""
    close = refusal.nearest(key, archive.members)
    hint = f"; {close} comes closest" if close else ""
    return refusal.usage(
        f"{archive.path.name} has no {key}{hint}",
        expected=expected,
        remedy="write the file again with it",
    )


def wrong_type(archive: Archive, key: str, *, kind: str) -> refusal.Refusal:
    """The usage refusal of an array of another type, with the line that resaves it."""
    member = archive.members[key]
    pickled = ", which takes pickle to read" if member.dtype.hasobject else ""
    expression = KINDS[kind][2] if kind in KINDS else "a.astype(str)"
    return refusal.usage(
        f"{key} of {archive.path.name} is {member.dtype}{pickled}",
        expected=kind,
        remedy=resaved(archive.path, key, expression=expression),
    )


def wrong_shape(archive: Archive, key: str, *, expected: str) -> refusal.Refusal:
    """The usage refusal of an array of another shape."""
    return refusal.usage(
        f"{key} of {archive.path.name} has the shape {list(archive.members[key].shape)}",
        expected=expected,
        remedy="write the file again with one entry a frame in every array",
    )
