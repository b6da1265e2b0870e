"""The types that cross rooms: what a panel offers, what a policy needs, what a decode returns.

Axes have one vocabulary everywhere: `frame draw step action`, and `row` for one
frame x draw pair. `past` counts an episode's frames up to and including the present one,
oldest first; `state` counts state dimensions; `position` counts tokens of an action block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, UInt8

Family = Literal["token", "flow", "chunk"]


class FrameId(NamedTuple):
    """A frame's identity. It keys every random stream and orders every read."""

    repo: str
    episode: int
    frame_index: int


@dataclass(frozen=True)
class Space:
    """Names, units and rate of a panel's states and actions, the same for all its repos."""

    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_units: str
    action_units: str
    fps: float

    @property
    def shared(self) -> bool:
        """Whether a state can stand in for an action (same dimensions, same units)."""
        return (
            len(self.state_names) == len(self.action_names)
            and self.state_units == self.action_units
        )


@dataclass(frozen=True)
class Statistics:
    """Statistics of one repo's training data, in raw units. Never made from evaluation frames."""

    state_mean: Float64[np.ndarray, "state"]
    state_std: Float64[np.ndarray, "state"]
    action_mean: Float64[np.ndarray, "action"]
    action_std: Float64[np.ndarray, "action"]


@dataclass(frozen=True)
class Observation:
    """What a policy may see of one frame: the present and the episode's past, in raw units.

    `states` ends with the present state. `actions` holds the commands of earlier frames
    only, so it is one row shorter and empty at an episode's first frame.
    """

    frame: FrameId
    index: int
    task: str
    states: Float32[np.ndarray, "past state"]
    actions: Float32[np.ndarray, "earlier action"]
    statistics: Statistics
    images: Mapping[str, UInt8[np.ndarray, "height width colour"]] = field(default_factory=dict)

    @property
    def state(self) -> Float32[np.ndarray, "state"]:
        """The present state."""
        present: Float32[np.ndarray, "state"] = self.states[-1]
        return present


@dataclass(frozen=True)
class Frames:
    """The identity columns of a panel, one entry a frame, in panel order."""

    repos: tuple[str, ...]
    tasks: tuple[str, ...]
    repo: Int64[np.ndarray, "frame"]
    task: Int64[np.ndarray, "frame"]
    episode: Int64[np.ndarray, "frame"]
    frame_index: Int64[np.ndarray, "frame"]
    index: Int64[np.ndarray, "frame"]
    core: Bool[np.ndarray, "frame"]

    def __len__(self) -> int:
        return len(self.repo)

    def ids(self, rows: Sequence[int] | None = None) -> list[FrameId]:
        """Identities of the given panel rows (all of them by default)."""
        chosen = range(len(self)) if rows is None else rows
        return [
            FrameId(
                self.repos[int(self.repo[row])],
                int(self.episode[row]),
                int(self.frame_index[row]),
            )
            for row in chosen
        ]


@dataclass(frozen=True)
class Targets:
    """The recorded chunks of some frames. A step past the episode's end is not `valid`."""

    truth: Float32[np.ndarray, "frame step action"]
    valid: Bool[np.ndarray, "frame step"]


@runtime_checkable
class Panel(Protocol):
    """A frozen, ordered list of frames with their observations and recorded chunks."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str:
        """SHA-256 over the frame list and the data it points into."""
        ...

    @property
    def frames(self) -> Frames: ...
    @property
    def space(self) -> Space: ...
    @property
    def steps(self) -> int:
        """Length of the recorded chunks."""
        ...

    def observe(self, row: int) -> Observation:
        """What a policy may see at a panel row."""
        ...

    def targets(self, rows: Sequence[int]) -> Targets:
        """Recorded chunks of panel rows."""
        ...


@runtime_checkable
class Policy(Protocol):
    """What every policy says of itself: the length of its chunks and its action dimensions."""

    @property
    def horizon(self) -> int: ...
    @property
    def action_dim(self) -> int: ...


@runtime_checkable
class ChunkPolicy(Policy, Protocol):
    """A deterministic policy: one chunk a frame, no draws."""

    def predict(self, observation: Observation) -> Float[np.ndarray, "step action"]:
        """The predicted chunk in raw units."""
        ...


@runtime_checkable
class FlowPolicy(Policy, Protocol):
    """A flow-matching policy: noise at t = 0 is carried to a chunk at t = 1."""

    def encode(self, observation: Observation) -> Any:
        """The context that all draws of a frame share."""
        ...

    def velocity(
        self, context: Any, chunk: Float32[np.ndarray, "row step action"], time: float
    ) -> Float32[np.ndarray, "row step action"]:
        """The derivative d chunk / d time in the policy's normalised space."""
        ...

    def to_units(
        self, context: Any, chunk: Float32[np.ndarray, "row step action"]
    ) -> Float[np.ndarray, "row step action"]:
        """Chunks in raw units."""
        ...


@runtime_checkable
class Grammar(Protocol):
    """Which action tokens may follow, as state -> legal ids. States are small integers."""

    @property
    def start(self) -> int: ...
    @property
    def complete(self) -> int:
        """The one state in which the action block is whole."""
        ...

    @property
    def ids(self) -> Int64[np.ndarray, "id"]:
        """Every action token's id in the model's vocabulary, ascending."""
        ...

    def legal(self, state: int) -> Bool[np.ndarray, "id"]:
        """Which of `ids` may come next."""
        ...

    def advance(self, state: int, token: int) -> int:
        """The state after an action token, given by its id."""
        ...


@dataclass(frozen=True)
class Line:
    """One auxiliary line of a suffix: at most `budget` greedy tokens, ended by the newline."""

    name: str
    budget: int


@dataclass(frozen=True)
class Suffix:
    """What a token policy speaks after its prompt, in token ids.

    `opener`, then the lines (each ended by `newline`), then `begin`, then the action block.
    """

    opener: tuple[int, ...]
    lines: tuple[Line, ...]
    newline: int
    begin: int


@runtime_checkable
class TokenPolicy(Policy, Protocol):
    """An autoregressive policy: a prompt, auxiliary lines, then an action block of tokens."""

    @property
    def suffix(self) -> Suffix: ...
    @property
    def grammar(self) -> Grammar: ...

    def prefill(self, observation: Observation) -> Any:
        """A fresh cache that holds the prompt of one frame at its exact length."""
        ...

    def fork(self, cache: Any, *, rows: int) -> Any:
        """`rows` copies of a one-row cache; the original stays as it is."""
        ...

    def extend(
        self, cache: Any, tokens: Int[np.ndarray, "row position"]
    ) -> Float32[np.ndarray, "row id"]:
        """Append tokens to every row of the cache; logits after the last one, in float32."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Auxiliary tokens as text."""
        ...

    def chunk(
        self, observation: Observation, tokens: Sequence[int]
    ) -> Float[np.ndarray, "step action"]:
        """An action block as a chunk in raw units. A block that is not one raises ValueError."""
        ...


@dataclass(frozen=True)
class FrameDraws:
    """All draws of one frame. A failed decode is NaN throughout, and is never averaged in."""

    prediction: Float32[np.ndarray, "draw step action"]
    logprob: Float64[np.ndarray, "draw"]
    lines: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
