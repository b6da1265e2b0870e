"""The frames of a smaller panel: from a sample plan in JSON, or from another store."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.contracts import FrameId
from arflow_eval.runs import STORE, run_folder
from arflow_eval.store.access import check_identities, identities, opened
from arflow_eval.store.describing import frames_of
from arflow_eval.store.layout import settings

LARGEST: Final = 2**26  # bytes of a plan
LISTS: Final = ("core", "labeled")


@dataclass(frozen=True)
class Selection:
    """Frames in panel order.

    Attributes:
        frames: their identities, each once.
        core: which of them are the core; None where the list does not say.
        panel: name of the panel, for people.
        origin: what it was taken from, as JSON; no path.
    """

    frames: tuple[FrameId, ...]
    core: tuple[bool, ...] | None
    panel: str
    origin: Mapping[str, Any]


def from_plan(path: Path) -> Selection:
    """The frames of a sample plan, core first, or of a bare list of [repo, episode, frame].

    Raises:
        Refusal: usage, for a file that is missing, too large or none of the two, or that lists no
            frame or one twice.
    """
    if not path.is_file():
        raise refusal.usage(
            f"there is no file {path}", expected="a sample plan in JSON", remedy="check --frames"
        )
    if path.stat().st_size > LARGEST:
        raise _wrong(path, found=f"has {path.stat().st_size:,} bytes")
    raw = path.read_bytes()
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, found=f"cannot be read ({type(error).__name__}: {error})") from error
    if isinstance(document, dict):
        core, labeled = (_listed(path, document.get(name, []), name=name) for name in LISTS)
        flags = (True,) * len(core) + (False,) * len(labeled)
    else:
        core, labeled, flags = _listed(path, document, name="the list"), (), None
    frames = core + labeled
    if not frames or len(set(frames)) < len(frames):
        raise _wrong(path, found="lists a frame twice" if frames else "lists no frames")
    digest = hashlib.sha256(raw).hexdigest()
    return Selection(frames, flags, path.stem, {"plan": path.name, "sha256": digest})


def from_store(path: Path) -> Selection:
    """The frames of another store, complete or not, in its order and with its core."""
    store = run_folder(path) / STORE
    with settings():
        group = opened(store)
        check_identities(group)
        frames, core = tuple(identities(group)), tuple(frames_of(group).core.tolist())
    panel = group.attrs.get("panel")
    origin = {key: group.attrs.get(key) for key in ("arm", "digest", "panel", "panel_digest")}
    return Selection(frames, core, str(panel or store.parent.name), {"like": origin})


def _listed(path: Path, entries: Any, *, name: str) -> tuple[FrameId, ...]:
    if not isinstance(entries, list):
        raise _wrong(path, found=f"has {name} that is no list")
    for place, entry in enumerate(entries):
        if not _is_frame(entry):
            raise _wrong(path, found=f"has entry {place} of {name} that is no frame")
    return tuple(FrameId(*entry) for entry in entries)


def _is_frame(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
        return False
    return all(type(number) is int and 0 <= number < 2**63 for number in entry[1:])


def _wrong(path: Path, *, found: str) -> refusal.Refusal:
    return refusal.usage(
        f"{path.name} {found}",
        expected="JSON with core and labeled lists of [repo, episode, frame], each frame once",
        remedy="give the sample plan of the smaller panel",
    )
