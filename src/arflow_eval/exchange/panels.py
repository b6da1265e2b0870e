"""The frames of a panel of the configuration, by its name."""

from arflow_eval.compose import call_target, compose
from arflow_eval.exchange.selection import Selection


def from_panel(name: str) -> Selection:
    """The frames of `panel=name`, in its order and with its core.

    Raises:
        Refusal: usage for a name that is no panel, a guard for a sealed one.
    """
    chosen = compose("evaluate", [f"panel={name}"])["panel"]
    panel = call_target(chosen["_target_"])(
        name=chosen["name"], plan=chosen["plan"], digest=chosen["digest"], steps=chosen["steps"]
    )
    frames, core = tuple(panel.frames.ids()), tuple(panel.frames.core.tolist())
    return Selection(frames, core, panel.name, {"panel": panel.name, "panel_digest": panel.digest})
