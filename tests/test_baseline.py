import numpy as np
import pytest

from arflow_eval import refusal
from arflow_eval.contracts import ChunkPolicy, FrameId, Observation, Space, Statistics
from arflow_eval.model import baseline

SPACE = Space(("x", "y"), ("x", "y"), "pixel", "pixel", fps=10.0)


def observation(frames: int) -> Observation:
    """A pusher that moves by (1, 2) a frame, told to go 10 further than it is."""
    states = np.arange(frames, dtype=np.float32)[:, None] * np.array([1, 2], dtype=np.float32)
    return Observation(
        frame=FrameId("a/b", 0, frames - 1),
        index=frames - 1,
        task="push",
        states=states,
        actions=states[:-1] + 10,
        statistics=Statistics(
            state_mean=np.array([1.0, 1.0]),
            state_std=np.array([2.0, 0.0]),
            action_mean=np.array([5.0, 7.0]),
            action_std=np.array([4.0, 1.0]),
        ),
    )


def predicted(name: str, seen: Observation) -> np.ndarray:
    load = getattr(baseline, name)
    policy = load(folder=None, dtype="float32", device="cpu", threads=1, steps=12, space=SPACE)
    assert isinstance(policy, ChunkPolicy)
    return policy.predict(seen)


def test_state_copy_holds_the_present_state() -> None:
    assert (predicted("state_copy", observation(4)) == [3, 6]).all()


def test_state_copy_norm_carries_the_score_over_and_a_constant_state_gives_the_mean() -> None:
    assert (predicted("state_copy_norm", observation(4)) == [5 + 4 * (3 - 1) / 2, 7]).all()


def test_hold_last_holds_the_last_command_and_the_first_frame_its_state() -> None:
    assert (predicted("hold_last", observation(4)) == [12, 14]).all()
    assert (predicted("hold_last", observation(1)) == [0, 0]).all()


def test_constant_velocity_goes_on_for_ten_frames_and_then_holds() -> None:
    chunk = predicted("constant_velocity", observation(30))
    assert (chunk[0] == [30, 60]).all()
    assert (chunk[9] == [39, 78]).all()
    assert (chunk[11] == chunk[9]).all()
    assert (predicted("constant_velocity", observation(1)) == 0).all()


NAMES = ("state_copy", "state_copy_norm", "hold_last", "constant_velocity")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("states", [("x",), ("x", "y", "z")])
def test_states_of_another_number_make_no_actions(name: str, states: tuple[str, ...]) -> None:
    space = Space(states, ("x", "y"), "pixel", "pixel", fps=10.0)
    with pytest.raises(refusal.Refusal, match=f"{len(states)} states in pixel, 2 actions"):
        getattr(baseline, name)(
            folder=None, dtype="float32", device="cpu", threads=1, steps=5, space=space
        )


def test_only_scores_carry_over_to_other_units() -> None:
    space = Space(("x", "y"), ("x", "y"), "metre", "pixel", fps=10.0)
    loads = {name: getattr(baseline, name) for name in NAMES}
    settings = {"folder": None, "dtype": "float32", "device": "cpu", "threads": 1, "steps": 5}
    assert loads.pop("state_copy_norm")(**settings, space=space).horizon == 5
    for load in loads.values():
        with pytest.raises(refusal.Refusal, match="in the same units"):
            load(**settings, space=space)
