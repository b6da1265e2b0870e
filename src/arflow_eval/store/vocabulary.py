"""The vocabulary of a store: its variables, their axes, types and meanings, in digest order."""

from dataclasses import dataclass
from typing import Final

MARKS: Final = "frame_digest"
DIGEST_BYTES: Final = 16
COORDINATES: Final = ("episode", "frame_index", "index", "panel_row", "core")


@dataclass(frozen=True)
class Variable:
    """One array written blockwise: its axes (`frame` first), its type and what it is."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    long_name: str
    in_action_units: bool = False
    needs_state: bool = False
    optional: bool = False


def _measure(name: str, long_name: str, *, dtype: str = "float64", each: bool = False) -> Variable:
    """What a decode may record of a draw, or of each position of its action block."""
    axes = ("frame", "draw", "position") if each else ("frame", "draw")
    return Variable(name, axes, dtype, long_name, optional=True)


CHUNK: Final = ("frame", "step", "action")
# The order in which a frame digest takes them; a new variable is appended.
VARIABLES: Final = (
    Variable(
        "prediction",
        ("frame", "draw", "step", "action"),
        "float32",
        "predicted chunks, one per draw; NaN past the policy's horizon and for a failed decode",
        in_action_units=True,
    ),
    Variable("truth", CHUNK, "float32", "recorded chunks", in_action_units=True),
    Variable("valid", CHUNK[:2], "bool", "whether the step lies inside the episode"),
    Variable(
        "state_copy",
        CHUNK,
        "float32",
        "baseline: the present state at every step",
        in_action_units=True,
        needs_state=True,
    ),
    Variable(
        "state_copy_norm",
        CHUNK,
        "float32",
        "baseline: the present state in normalised space at every step",
        in_action_units=True,
        needs_state=True,
    ),
    Variable(
        "logprob",
        ("frame", "draw"),
        "float64",
        "log-probability of the action block at T = 1 after the mask; NaN where a policy has none",
    ),
    _measure(
        "logprob_sampling",
        "log-probability of the action block at the temperatures it was sampled at, after the mask",
    ),
    _measure("entropy", "entropy at T = 1 after the mask, in nats, summed over the block"),
    _measure(
        "top1_gap",
        "log-probability of the likeliest token less that of the next, mean over the block",
    ),
    _measure("block_length", "tokens of the action block", dtype="int32"),
    _measure("grammar_mass", "probability of the legal tokens at T = 1, mean over the block"),
    _measure(
        "reference_kl",
        "KL of the policy from itself with the reference condition masked, in nats",
    ),
    _measure(
        "reference_log_ratio",
        "log-probability of the block less that with the reference condition masked",
    ),
    _measure("tokens", "ids of the action block; -1 past its end", dtype="int32", each=True),
    _measure(
        "token_logprob",
        "log-probability of each token at T = 1 after the mask; NaN past the block's end",
        dtype="float32",
        each=True,
    ),
)

IDENTITIES: Final = {
    "repo": "code of the repo, a place in `names`",
    "task": "code of the task, a place in `names`",
    "episode": "episode of the repo",
    "frame_index": "position of the frame in its episode",
    "index": "position of the frame in the concatenated corpus",
    "panel_row": "position of the frame in the panel",
    "core": "whether the frame belongs to the panel's core",
}
