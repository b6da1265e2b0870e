"""Auxiliary lines: one text a field, greedy, budgeted, ended by a newline, shared by all draws."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from arflow_eval.contracts import Line, Sampling, Suffix, TokenPolicy
from arflow_eval.decode.tiles import padded


@dataclass(frozen=True)
class Spoken:
    """What each frame spoke after its prompt.

    `tokens` run from the opener to the last newline, `spans` says where each line's lie in
    them (its newline included), `texts` has the lines by name, `rows` one row a frame.
    """

    rows: Any
    tokens: list[list[int]]
    spans: list[dict[str, slice]]
    texts: list[dict[str, str]]

    def without(self, name: str, *, frame: int) -> list[int]:
        """A frame's tokens, less those of one line where it has such a line."""
        said, span = self.tokens[frame], self.spans[frame].get(name, slice(0, 0))
        return said[: span.start] + said[span.stop :]


def speak(policy: TokenPolicy, prompts: Sequence[Any], how: Sampling) -> Spoken:
    """Decode the lines of all frames in step; a frame that is done idles until the others are.

    What an idle frame is fed lies past its own tokens, and is never part of its prefix.
    """
    suffix, frames = policy.suffix, len(prompts)
    total = padded(max(frames, how.frames or 0), tile=how.tile, least=how.least)
    rows = policy.rows(prompts, each=1, total=total)
    tokens = [list(suffix.opener) for _ in prompts]
    spans: list[dict[str, slice]] = [{} for _ in prompts]
    voices = [_voice(suffix, *each) for each in zip(tokens, spans, strict=True)]
    for voice in voices:
        next(voice)
    speaking = dict(enumerate(voices))
    fed = np.tile(np.array(suffix.opener), (total, 1))
    while speaking:
        logits = policy.extend(rows, fed, actions=False).logits[:, 0]
        fed = np.full((total, 1), suffix.newline)
        for frame, voice in list(speaking.items()):
            try:
                fed[frame] = voice.send(logits[frame])
            except StopIteration:
                del speaking[frame]
    texts = [
        {name: policy.text(said[span][:-1]) for name, span in lines.items()}
        for said, lines in zip(tokens, spans, strict=True)
    ]
    return Spoken(rows=rows, tokens=tokens, spans=spans, texts=texts)


def _voice(
    suffix: Suffix, said: list[int], spans: dict[str, slice]
) -> Generator[int, Float32[np.ndarray, "id"], None]:
    """One frame's lines: takes the logits after each of its tokens, gives the next token."""
    logits = yield -1  # nothing is said before the logits after the opener
    for line in suffix.lines:
        first = len(said)
        while (token := next_token(logits, line, said[first:], suffix.newline)) != suffix.newline:
            said.append(token)
            logits = yield token
        said.append(suffix.newline)
        spans[line.name] = slice(first, len(said))
        logits = yield suffix.newline


def next_token(
    logits: Float32[np.ndarray, "id"], line: Line, spoken: Sequence[int], newline: int
) -> int:
    """The greedy token of a line, ties to the lowest id; the newline where the line is full.

    A line with candidates follows those that begin with what is spoken.
    """
    if not line.candidates:
        return newline if len(spoken) >= line.budget else int(logits.argmax())
    place = len(spoken)
    open_ends = [(*each, newline) for each in line.candidates if each[:place] == tuple(spoken)]
    allowed = sorted({each[place] for each in open_ends})
    return allowed[int(logits[allowed].argmax())]
