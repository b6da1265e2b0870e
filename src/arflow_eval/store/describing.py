"""A store that exists as the schema that would make it again."""

from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from arflow_eval.contracts import Frames, Space
from arflow_eval.store.access import array, code_names, variables
from arflow_eval.store.layout import Schema
from arflow_eval.store.vocabulary import COORDINATES


def frames_of(group: zarr.Group) -> Frames:
    """The identity columns of a store, in panel order."""
    columns = {
        name: np.asarray(array(group, name)[:])
        for name in ("repo", "task", *COORDINATES)
        if name != "panel_row"
    }
    return Frames(
        repos=tuple(code_names(group, "repo")), tasks=tuple(code_names(group, "task")), **columns
    )


def schema_of(group: zarr.Group) -> Schema:
    """What a store holds: its frames, space, sizes, block and the attributes that it was given."""
    names = {each.name for each in variables(group)}
    optional = {each.name for each in variables(group) if each.optional}
    shapes = {
        axis: length
        for each in variables(group)
        for axis, length in zip(each.axes, array(group, each.name).shape, strict=True)
    }
    given: dict[str, Any] = group.attrs.asdict()
    space = Space(
        state_names=tuple(given["state_names"]),
        action_names=tuple(given["action_names"]),
        state_units=given["state_units"],
        action_units=given["action_units"],
        fps=given["fps"],
    )
    bare = Schema(
        frames=frames_of(group),
        space=space,
        steps=shapes["step"],
        draws=shapes["draw"],
        block=array(group, "frame_digest").chunks[0],
        attributes=dict.fromkeys(("digest", "arm", "config", "horizon")),
        state_copy="state_copy" in names,
        measures=frozenset(optional),
        positions=shapes.get("position", 1),
    )
    own = bare.root_attributes().keys() - bare.attributes.keys()
    attributes = {key: value for key, value in given.items() if key not in own}
    return replace(bare, attributes=attributes)
