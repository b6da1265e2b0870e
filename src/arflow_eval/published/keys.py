"""The key under which a store is exported, from what it says of itself."""

from collections.abc import Mapping
from typing import Any, Final

from arflow_eval import refusal
from arflow_eval.published.names import EXPECTED, PREFIX, Name, parsed
from arflow_eval.published.recording import PUBLISHED

WITHOUT_WEIGHTS: Final = "0"  # the tag of a policy that was never trained
TAG_LETTERS: Final = 8  # of a checkpoint's digest


def key_of(attributes: Mapping[str, Any], asked: str | None, *, path: str) -> Name:
    """The key that was asked for, the one a store was imported under, or one made of its arm.

    An evaluated arm `MODEL_draws10_t1` becomes `pred:MODEL@TAG_draws10_t1`, where TAG is the start
    of its checkpoint's digest, and 0 for a policy without weights.

    Raises:
        Refusal: usage, where the arm does not name its model, or the key is none.
    """
    if asked is not None:
        return parsed(PREFIX + asked.removeprefix(PREFIX))
    if PUBLISHED in attributes:
        return parsed(str(attributes["pred_key"]))
    arm, model = str(attributes["arm"]), _model(attributes)
    if not model or not arm.startswith(model):
        raise refusal.usage(
            f"the arm {arm} of {path} does not name its model",
            expected=f"{EXPECTED} to export it under",
            remedy=f"give for example --arm 'pred:{arm}@1000'",
        )
    tag = (attributes.get("checkpoint_digest") or WITHOUT_WEIGHTS)[:TAG_LETTERS]
    return parsed(f"{PREFIX}{model}@{tag}{arm.removeprefix(model)}")


def _model(attributes: Mapping[str, Any]) -> str | None:
    config = attributes["config"]
    model = config.get("model") if isinstance(config, dict) else None
    return model.get("name") if isinstance(model, dict) else None
