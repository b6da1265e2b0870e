"""The prompt format `bins`: instruction, a window of past states as bins, a request.

Token ids are laid out as text | state bins | action tokens. The text vocabulary holds the
special tokens named in `SPECIALS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float32

from arflow_eval.codec.bins import to_bins
from arflow_eval.codec.merges import read_tokenizer
from arflow_eval.codec.normalise import Quantiles
from arflow_eval.contracts import Line, Observation, Suffix
from arflow_eval.model import checkpoint
from arflow_eval.model.prompt import line, words

SPECIALS: Final = ("<bos>", "<states>", "<none>", "<masked>", "<request>", "<open>", "<actions>")


@dataclass(frozen=True)
class BinPrompt:
    """How a checkpoint writes its prompt; `past` counts frames back, oldest first."""

    tokenizer: Any
    quantiles: Quantiles
    past: tuple[int, ...]
    bins: int
    lines: tuple[Line, ...]
    cameras: tuple[str, ...] = ()

    @property
    def text_size(self) -> int:
        """The number of text tokens; state bins follow them."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def actions_from(self) -> int:
        """The id of the first action token."""
        return self.text_size + self.bins

    def special(self, name: str) -> int:
        """The id of a special token."""
        return int(self.tokenizer.token_to_id(name))

    def words(self, text: str) -> list[int]:
        """Plain text as token ids."""
        return words(self.tokenizer, text)

    @cached_property
    def suffix(self) -> Suffix:
        """What follows the prompt: the opener, the lines, the begin-of-actions marker."""
        (newline,) = self.words("\n")
        return Suffix(
            opener=(self.special("<open>"),),
            lines=self.lines,
            newline=newline,
            begin=self.special("<actions>"),
        )

    def encode(
        self,
        observation: Observation,
        images: Sequence[Sequence[int]] = (),
        *,
        masked: str | None = None,
    ) -> list[int]:
        """The prompt's ids. States from before the episode are `<none>`, never invented.

        `masked="state"` hides the states behind `<masked>`, as dropout did in training; any
        other name is that of a line, which is then not asked for.
        """
        if images:
            raise ValueError(f"{len(images)} images; a prompt of bins has none")
        asked = [each.name for each in self.lines if each.name != masked]
        return [
            self.special("<bos>"),
            *self.words(observation.task),
            self.special("<states>"),
            *self.state_ids(observation.states, masked=masked == "state"),
            self.special("<request>"),
            *(token for name in asked for token in self.words(name)),
        ]

    def state_ids(
        self, states: Float32[np.ndarray, "past state"], *, masked: bool = False
    ) -> list[int]:
        """Two ids or more a past frame: one bin a state dimension."""
        dimensions = states.shape[1]
        if masked:
            return [self.special("<masked>")] * (len(self.past) * dimensions)
        present = len(states) - 1
        known = [present - back for back in self.past if back <= present]
        binned = to_bins(self.quantiles.normalise(states[known]), bins=self.bins)
        unknown = (len(self.past) - len(known)) * dimensions
        return [self.special("<none>")] * unknown + (self.text_size + binned.ravel()).tolist()


def load(folder: Path, config: dict[str, Any], quantiles: Quantiles) -> BinPrompt:
    """The prompt of a checkpoint: its tokenizer.json, the `prompt` part of config.json, q01/q99."""
    tokenizer = read_tokenizer(checkpoint.part(folder, "tokenizer.json"))
    return BinPrompt(
        tokenizer=tokenizer,
        quantiles=quantiles,
        past=tuple(config["past"]),
        bins=int(config["bins"]),
        lines=tuple(line(each, tokenizer) for each in config["lines"]),
    )
