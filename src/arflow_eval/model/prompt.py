"""What a policy needs of a prompt format. A format is one file, named in a checkpoint's config."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from arflow_eval import refusal
from arflow_eval.contracts import Line, Observation, Suffix
from arflow_eval.model.trunk import Image


@runtime_checkable
class Prompt(Protocol):
    """How a checkpoint writes its prompt, and what it speaks after it."""

    @property
    def tokenizer(self) -> Any:
        """Between text and ids; of the library tokenizers."""
        ...

    @property
    def suffix(self) -> Suffix:
        """What is spoken after the prompt."""
        ...

    @property
    def actions_from(self) -> int:
        """The id of the first action token; the others follow it."""
        ...

    @property
    def cameras(self) -> tuple[str, ...]:
        """Cameras whose images the prompt holds, in its order."""
        ...

    def encode(
        self,
        observation: Observation,
        images: Sequence[Sequence[int]] = (),
        *,
        masked: str | None = None,
    ) -> list[int]:
        """The prompt's ids; `images` are the ids that stand for each camera's image.

        `masked` names a condition that is hidden, as dropout hid it in training.
        """
        ...


def chosen_images(observation: Observation, cameras: Sequence[str]) -> list[Image]:
    """The images of some cameras. A guard refusal where the frame lacks one: none is invented."""
    missing = [name for name in cameras if name not in observation.images]
    if missing:
        raise refusal.guard(
            f"{observation.frame.repo} episode {observation.frame.episode} has no camera "
            f"{missing[0]} (it has {', '.join(observation.images) or 'none'})",
            expected=f"the cameras {', '.join(cameras)} that the checkpoint's prompt names",
            remedy="choose a panel with these cameras, or name the panel's in prompt.cameras",
        )
    return [observation.images[name] for name in cameras]


def line(config: Mapping[str, Any], tokenizer: Any) -> Line:
    """An auxiliary line of a checkpoint's config: its name, budget and candidate texts."""
    texts = config.get("candidates", ())
    return Line(
        name=str(config["name"]),
        budget=int(config["budget"]),
        candidates=tuple(tuple(words(tokenizer, text)) for text in texts),
    )


def words(tokenizer: Any, text: str) -> list[int]:
    """Plain text as token ids, without what a tokenizer adds of its own."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)
