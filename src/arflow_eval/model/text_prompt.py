"""The prompt format `text`: segments of text, images and fields, for trunks with a tokenizer.

A segment is one of {"ids": [2]}, {"text": "Task: "}, {"image": "front"}, {"field": "task"},
{"field": "state"} and {"field": "request"}; each is tokenised by itself. The present state is
written as bins of its q01/q99 range, in decimals with blanks between. A segment with a
`condition` is replaced by its `masked` text where that condition is masked; the state's
condition is `state`. The request names the lines to speak; a masked line is not asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arflow_eval.codec.bins import to_bins
from arflow_eval.codec.merges import read_tokenizer
from arflow_eval.codec.normalise import Quantiles
from arflow_eval.contracts import Observation, Suffix
from arflow_eval.model import checkpoint
from arflow_eval.model.prompt import line, words

KINDS = frozenset({"ids", "text", "image", "field"})
FIELDS = frozenset({"task", "state", "request"})


@dataclass(frozen=True)
class TextPrompt:
    """How a checkpoint writes its prompt."""

    tokenizer: Any
    quantiles: Quantiles
    segments: tuple[Mapping[str, Any], ...]
    bins: int
    suffix: Suffix
    actions_from: int

    @property
    def cameras(self) -> tuple[str, ...]:
        """Cameras in the order of their segments."""
        return tuple(str(each["image"]) for each in self.segments if "image" in each)

    def encode(
        self,
        observation: Observation,
        images: Sequence[Sequence[int]] = (),
        *,
        masked: str | None = None,
    ) -> list[int]:
        """The prompt's ids, segment by segment."""
        waiting = iter(images)
        ids: list[int] = []
        for segment in self.segments:
            if "ids" in segment:
                ids += segment["ids"]
            elif "image" in segment:
                ids += next(waiting)
            else:
                ids += words(self.tokenizer, self._text(segment, observation, masked=masked))
        return ids

    def _text(
        self, segment: Mapping[str, Any], observation: Observation, *, masked: str | None
    ) -> str:
        field = segment.get("field")
        condition = segment.get("condition", "state" if field == "state" else None)
        if condition is not None and condition == masked:
            return str(segment.get("masked", ""))
        if field == "task":
            return observation.task
        if field == "state":
            placed = to_bins(self.quantiles.normalise(observation.state), bins=self.bins)
            return " ".join(map(str, placed.tolist()))
        if field == "request":
            return ", ".join(each.name for each in self.suffix.lines if each.name != masked)
        return str(segment["text"])


def load(folder: Path, config: dict[str, Any], quantiles: Quantiles) -> TextPrompt:
    """The prompt of a checkpoint: its tokenizer.json, the `prompt` part of config.json, q01/q99."""
    tokenizer = read_tokenizer(checkpoint.part(folder, "tokenizer.json"))
    for segment in config["segments"]:
        kinds = KINDS & segment.keys()
        if len(kinds) != 1 or not {segment.get("field", "task")} <= FIELDS:
            raise ValueError(f"prompt segment {segment}; one of {sorted(KINDS)} each")
    return TextPrompt(
        tokenizer=tokenizer,
        quantiles=quantiles,
        segments=tuple(config["segments"]),
        bins=int(config["bins"]),
        suffix=Suffix(
            opener=tuple(config["opener"]),
            lines=tuple(line(each, tokenizer) for each in config["lines"]),
            newline=int(config["newline"]),
            begin=int(config["begin"]),
        ),
        actions_from=int(config["actions_from"]),
    )
