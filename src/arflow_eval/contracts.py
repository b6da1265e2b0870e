"""The types that cross rooms: what a panel offers, what a policy needs, what a decode returns.

Axes have one vocabulary everywhere: `frame draw step action`, and `row` for one
frame x draw pair. `past` counts an episode's frames up to and including the present one,
oldest first; `state` counts state dimensions; `position` counts tokens of an action block.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, Shaped, UInt8

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
    """Statistics of one repo's training data, in raw units. Never made from evaluation frames.

    The 1 % and 99 % quantiles are None where the dataset has none; a policy that normalises by
    them and brings no table of its own then refuses the repo.
    """

    state_mean: Float64[np.ndarray, "state"]
    state_std: Float64[np.ndarray, "state"]
    action_mean: Float64[np.ndarray, "action"]
    action_std: Float64[np.ndarray, "action"]
    state_q01: Float64[np.ndarray, "state"] | None = None
    state_q99: Float64[np.ndarray, "state"] | None = None
    action_q01: Float64[np.ndarray, "action"] | None = None
    action_q99: Float64[np.ndarray, "action"] | None = None


@runtime_checkable
class Images(Protocol):
    """A frame's camera images by name. A panel may decode one only when it is asked for."""

    def __getitem__(self, camera: str, /) -> UInt8[np.ndarray, "height width colour"]: ...
    def __contains__(self, camera: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


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
    images: Images = field(default_factory=dict[str, Any])

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


@dataclass(frozen=True)
class Grammar:
    """Which action tokens may follow, as tables over small integer states.

    Attributes:
        ids: every action token's id in the model's vocabulary, ascending.
        legal: which of `ids` may come next in a state.
        following: the state after each of `ids`; -1 where it is not legal.
        progress: share of a block that is spoken in a state, 0 at the start.
        start: the state before the first token.
        complete: the one state in which a block is whole; nothing is legal in it.
        longest: most tokens in a block.
    """

    ids: Int64[np.ndarray, "id"]
    legal: Bool[np.ndarray, "state id"]
    following: Int32[np.ndarray, "state id"]
    progress: Float64[np.ndarray, "state"]
    start: int
    complete: int
    longest: int


@dataclass(frozen=True)
class Line:
    """One auxiliary line of a suffix: at most `budget` greedy tokens, ended by the newline.

    `candidates`, where there are any, are the only texts the line may hold, as token ids.
    """

    name: str
    budget: int
    candidates: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Suffix:
    """What a token policy speaks after its prompt, in token ids.

    `opener`, then the lines (each ended by `newline`), then `begin`, then the action block.
    """

    opener: tuple[int, ...]
    lines: tuple[Line, ...]
    newline: int
    begin: int


@dataclass(frozen=True)
class Scores:
    """Logits of some tokens, in float32, and the log-sum-exp over the whole vocabulary.

    `total` is None unless it was asked for.
    """

    logits: Float32[np.ndarray, "row position id"]
    total: Float32[np.ndarray, "row position"] | None = None


@runtime_checkable
class TokenPolicy(Policy, Protocol):
    """An autoregressive policy: a prompt, auxiliary lines, then an action block of tokens.

    A prompt is kept once, as a prefix; rows are decoded over prefixes and never change them.
    """

    @property
    def suffix(self) -> Suffix: ...
    @property
    def grammar(self) -> Grammar: ...
    @property
    def conditions(self) -> frozenset[str]:
        """Inputs that training dropped at times, so that they may be masked."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model scores."""
        ...

    def prefill(self, observation: Observation, *, masked: str | None = None) -> Any:
        """The prompt of one frame at its exact length, as a prefix; one condition masked."""
        ...

    def rows(self, prefixes: Sequence[Any], *, each: int, total: int) -> Any:
        """Empty rows over prefixes: `each` a prefix in order, then idle ones up to `total`."""
        ...

    def extend(
        self,
        rows: Any,
        tokens: Int64[np.ndarray, "row position"],
        *,
        actions: bool,
        last: bool = True,
        total: bool = False,
    ) -> Scores:
        """Append tokens to every row; logits after the last of them, or after each.

        Logits are those of the grammar's ids where `actions`, else of the whole vocabulary;
        `total` asks for the log-sum-exp over the vocabulary too.
        """
        ...

    def grown(self, rows: Any, *, lengths: Sequence[int]) -> list[Any]:
        """The prefixes of rows with one row each, grown by each row's first `lengths` tokens."""
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
class Sampling:
    """How draws are taken: what a decode needs beside a policy and its frames.

    Attributes:
        draws: draws a frame.
        seed: of every draw's random stream.
        noise: which generator feeds the draws.
        tile: rows of a frame are padded to whole tiles of so many; 1 pads nothing.
        least: a forward with fewer rows in all is padded to so many; 1 pads nothing.
        frames: frames that every batch is padded to; None pads nothing.
        T: temperature of a token policy, 0 for greedy.
        final: temperature at the end of a block, where it falls or rises linearly.
        reference: condition that a second, teacher-forced scoring masks.
        mass: whether the probability inside the grammar is recorded.
        tokens: whether tokens and their log-probabilities are recorded.
        steps: solver steps of a flow policy.
        solver: name of a flow policy's solver.
        tickets: noise of draw d of every frame, in place of its own.
    """

    draws: int
    seed: int
    noise: str = "philox"
    tile: int = 1
    least: int = 1
    frames: int | None = None
    T: float | None = None
    final: float | None = None
    reference: str | None = None
    mass: bool = False
    tokens: bool = False
    steps: int | None = None
    solver: str = "euler"
    tickets: Float32[np.ndarray, "draw step action"] | None = None


@dataclass(frozen=True)
class FrameDraws:
    """All draws of one frame. A failed decode is NaN throughout, and is never averaged in.

    `measures` holds one array a measure, the draw first: see `store.layout.VARIABLES`.
    `seconds` holds this frame's share of what a batch took, by part.
    """

    prediction: Float32[np.ndarray, "draw step action"]
    logprob: Float64[np.ndarray, "draw"]
    measures: Mapping[str, Shaped[np.ndarray, "draw ..."]] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
