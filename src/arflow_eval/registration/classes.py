"""What a change of a registered key can move: words, how it runs, or what is estimated."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

KeyClass = Literal["cosmetic", "operational", "estimand"]
Stage = Literal["smoke", "sweep", "read"]
STAGES: Final[tuple[Stage, ...]] = ("smoke", "sweep", "read")

# The first pattern that fits a key says its class. A key that none fits is an estimand.
CLASSES: Final[tuple[tuple[str, KeyClass], ...]] = (
    ("question", "cosmetic"),
    ("background", "cosmetic"),
    ("notes*", "cosmetic"),
    ("published_amendments*", "cosmetic"),
    ("reads.*.read.question", "cosmetic"),
    ("reads.*.note", "cosmetic"),
    ("reads.*.read.anchors.*.source", "cosmetic"),
    ("gates.*.note", "cosmetic"),
    ("arms.*.window", "operational"),  # of the summary on the screen; a read has its own
    ("arms.*.device", "operational"),
    ("arms.*.threads", "operational"),
    ("arms.*.shard.*", "operational"),
    ("arms.*.gate.*", "operational"),
    ("arms.*.store.root", "operational"),
    ("arms.*.store.block", "operational"),
    ("arms.*.model.path", "operational"),  # its content is pinned, or bound once
    ("arms.*.panel.root", "operational"),
    ("arms.*.panel.cache", "operational"),
    ("arms.*.panel.plan", "operational"),  # its content is pinned by panel.digest
    ("gates.*.device_hours", "operational"),
    ("gates.*.measured_frames", "operational"),
    ("gates.*.resumable_every_frames", "operational"),
)
BATCH: Final = "arms.*.batch"


def key_class(key: str, document: Mapping[str, Any]) -> KeyClass:
    """The class of a dotted key of a registered document.

    `batch` is operational only where it cannot change a number: not where frames are padded to it.
    """
    if fnmatchcase(key, BATCH):
        arm = key.split(".")[1]
        padded = document["stores"].get(arm, {}).get("decode", {}).get("frames")
        return "operational" if padded is None else "estimand"
    return next((kind for pattern, kind in CLASSES if fnmatchcase(key, pattern)), "estimand")


def latest_stage(key: str) -> Stage:
    """The last stage that a change of a key may precede: arms and gates act in the sweep."""
    if key.startswith("gates.smoke."):
        return "smoke"
    return "sweep" if key.startswith(("arms.", "stores.", "gates.")) else "read"
