"""Each check of a panel's data: what trips it, and what must not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arflow_eval import cli, panel_check, refusal
from arflow_eval.contracts import FrameId
from arflow_eval.panel import checks
from arflow_eval.panel.checks import Check, faults_of
from arflow_eval.panel.checks.duplicates import duplicate_episode, duplicate_frames, fingerprints
from arflow_eval.panel.checks.recording import Fault, Recording, is_arm
from arflow_eval.panel.checks.units import quantum
from arflow_eval.panel.plan import write_plan

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SO101 = SHARED / "TristanGabl__lerobot_robot_learning" / "robot_learning_2026"
TICK = 360 / 4096
NAMES = ("pan.pos", "lift.pos", "gripper.pos")
FRAMES = 200


def arm(seed: int = 0, *, repo: str = "me/good", **given: Any) -> Recording:
    """Two episodes of a healthy arm in degrees: encoder ticks, a lagging state, a gripper."""
    time = np.arange(FRAMES) / 30
    phases = np.random.default_rng(seed).uniform(0, 6, size=(2, 3))
    swing = np.array([40, 60, 45])
    wanted = np.concatenate(
        [swing * np.sin(time[:, None] + phase) + [0, 0, 50] for phase in phases]
    )
    ticks = np.round(wanted / TICK) * TICK
    values = np.column_stack([ticks[:, :2], wanted[:, 2]]).astype(np.float32)
    fields = {
        "units": "degree",
        "fps": 30.0,
        "state_names": NAMES,
        "action_names": NAMES,
        "states": values - np.float32(TICK),
        "actions": values,
        "timestamps": np.concatenate([time, time]),
        "episode": np.repeat([0, 4], FRAMES),
    }
    return Recording(repo=repo, **fields | given)


def changed(row: int, joint: int, value: float, *, of: str = "actions") -> Recording:
    recording = arm()
    values = getattr(recording, of).copy()
    values[row, joint] = value
    return replace(recording, **{of: values})


def test_a_healthy_arm_has_no_fault() -> None:
    assert faults_of(arm()) == []


def radians(recording: Recording) -> Recording:
    one = np.float32(np.pi / 180)
    return replace(recording, states=recording.states * one, actions=recording.actions * one)


def uneven() -> Recording:
    """Values normalised over each joint's own range."""
    actions = arm().actions.copy()
    for joint, size in enumerate((0.0488, 0.1668)):
        actions[:, joint] = np.round(actions[:, joint] / size) * size
    return replace(arm(), actions=actions)


def still() -> Recording:
    recording = arm()
    states, actions = recording.states.copy(), recording.actions.copy()
    states[FRAMES:], actions[FRAMES:] = states[FRAMES], actions[FRAMES]
    return replace(recording, states=states, actions=actions)


def wrapped() -> Recording:
    """A joint that passes the end of its encoder: 180 becomes -180."""
    recording = arm()
    states, actions = recording.states.copy(), recording.actions.copy()
    for values in (states, actions):
        turned = values[:, 0] + 170
        values[:, 0] = np.where(turned > 180, turned - 360, turned)
    return replace(recording, states=states, actions=actions)


def slow() -> Recording:
    timestamps = arm().timestamps.copy()
    timestamps[FRAMES + 50 :] += 0.3
    return replace(arm(), timestamps=timestamps)


def shorter() -> Recording:
    return replace(arm(), actions=arm().actions[:, :2], action_names=NAMES[:2])


def moved() -> Recording:
    shift = np.array([0, 20, 0], dtype=np.float32)
    return replace(arm(), states=arm().states + shift)


TRIPS: dict[str, tuple[Callable[[], Recording], int | None, str | None]] = {
    "not_finite": (lambda: changed(FRAMES + 3, 1, np.nan), 4, "lift.pos"),
    "dimensions": (shorter, None, None),
    "units_range": (lambda: radians(arm()), None, None),
    "units_quantum": (uneven, None, "pan.pos"),
    "velocity": (lambda: replace(arm(), action_names=(*NAMES[:2], "tool.vel")), None, "tool.vel"),
    "encoder_wrap": (wrapped, 0, "pan.pos"),
    "frozen_episode": (still, 4, None),
    "state_equals_action": (lambda: replace(arm(), states=arm().actions), None, None),
    "constant_offset": (moved, None, "lift.pos"),
    "off_rate": (slow, 4, None),
}


def test_every_check_has_a_recording_that_trips_it() -> None:
    assert set(TRIPS) == {check.__name__ for check in checks.CHECKS}


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_a_check_names_itself_the_set_the_episode_and_the_joint(check: Check) -> None:
    make, episode, joint = TRIPS[check.__name__]
    found = check(make())
    assert found
    assert {(fault.check, fault.repo) for fault in found} == {(check.__name__, "me/good")}
    assert (found[0].episode, found[0].joint) == (episode, joint)


@pytest.mark.parametrize("name", TRIPS)
def test_a_fault_trips_its_own_check_alone(name: str) -> None:
    make, _, _ = TRIPS[name]
    assert {fault.check for fault in faults_of(make())} == {name}


def test_normalised_values_are_no_degrees() -> None:
    small = replace(arm(), states=arm().states / 100, actions=arm().actions / 100)
    (fault,) = faults_of(small)
    assert "normalised" in fault.expected


def test_degrees_declared_as_radians_are_a_fault() -> None:
    (fault,) = checks.units_range(replace(arm(), units="radian"))
    assert "look like degrees" in fault.expected
    assert checks.units_range(replace(radians(arm()), units="radian")) == []


def test_other_units_have_no_fingerprint() -> None:
    assert faults_of(replace(radians(arm()), units="pixel")) == []


@pytest.mark.parametrize("of", ["states", "actions"])
def test_values_near_3141_are_a_wrap(of: str) -> None:
    (fault,) = checks.encoder_wrap(changed(30, 1, -3141.2, of=of))
    assert (fault.episode, fault.joint) == (0, "lift.pos")


def test_a_gripper_may_snap_shut_and_a_switch_may_leap() -> None:
    assert checks.encoder_wrap(changed(30, 2, 0.0)) == []
    actions = arm().actions.copy()
    actions[:, 0] = np.where(actions[:, 0] > 0, 100, -100)
    assert checks.encoder_wrap(replace(arm(), actions=actions)) == []


def test_still_frames_alone_are_no_fault() -> None:
    actions, states = arm().actions.copy(), arm().states.copy()
    actions[: FRAMES - 20], states[: FRAMES - 20] = actions[0], states[0]
    assert checks.frozen_episode(replace(arm(), actions=actions, states=states)) == []


def test_a_frozen_state_under_a_moving_action_is_no_frozen_episode() -> None:
    states = arm().states.copy()
    states[:FRAMES] = states[0]
    assert checks.frozen_episode(replace(arm(), states=states)) == []


def test_the_quantum_of_ticks_is_found_and_noise_has_none() -> None:
    rng = np.random.default_rng(0)
    ticks = rng.integers(0, 900, 2000) * 0.1668
    assert quantum(ticks.astype(np.float32).astype(np.float64)) == pytest.approx(0.1668, rel=1e-3)
    assert quantum(rng.uniform(-90, 90, 2000)) is None
    assert quantum(np.arange(5) * 0.1) is None


def test_smooth_degrees_without_any_quantum_are_no_fault() -> None:
    noise = np.random.default_rng(0).normal(0, 0.2, arm().actions.shape).astype(np.float32)
    assert checks.units_quantum(replace(arm(), actions=arm().actions + noise)) == []


def test_names_tell_arms_from_grippers_and_velocities() -> None:
    names = ("pan.pos", "Gripper", "joint_0_vel", "screwdriver.vel", "velvet", "left_finger")
    assert [is_arm(name) for name in names] == [True, False, False, False, True, False]


def both(*recordings: Recording) -> tuple[list[Fault], list[Fault]]:
    found = [fingerprints(each) for each in recordings]
    return duplicate_episode(found), duplicate_frames(found)


def test_other_data_is_no_duplicate() -> None:
    assert both(arm(0), arm(1, repo="me/other")) == ([], [])


def test_an_episode_in_two_sets_is_named_once() -> None:
    copy = replace(arm(1, repo="me/copy"), episode=np.repeat([7, 8], FRAMES))
    actions, states = copy.actions.copy(), copy.states.copy()
    actions[FRAMES:], states[FRAMES:] = arm().actions[:FRAMES], arm().states[:FRAMES]
    (fault,), frames = both(arm(), replace(copy, actions=actions, states=states))
    assert (fault.check, fault.repo, fault.episode) == ("duplicate_episode", "me/copy", 8)
    assert "episode 0 of me/good" in fault.found
    assert frames == []


def test_a_stretch_in_two_sets_is_found_wherever_it_lies() -> None:
    other = arm(1, repo="me/cut")
    actions, states = other.actions.copy(), other.states.copy()
    actions[250:330], states[250:330] = arm().actions[20:100], arm().states[20:100]
    episodes, (fault,) = both(arm(), replace(other, actions=actions, states=states))
    assert episodes == []
    assert (fault.check, fault.repo, fault.episode) == ("duplicate_frames", "me/cut", 4)
    assert "51 seconds" in fault.found


def test_standing_still_alike_is_no_duplicate() -> None:
    sets = []
    for seed in (0, 1):
        recording = arm(seed, repo=f"me/{seed}")
        actions, states = recording.actions.copy(), recording.states.copy()
        actions[10:190], states[10:190] = 1.0, 2.0
        sets.append(replace(recording, actions=actions, states=states))
    assert both(*sets) == ([], [])


def beside(folder: Path) -> Path:
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not beside this checkout")
    pytest.importorskip("pyarrow", reason="needs the extra lerobot")
    return folder


def report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    command = ["panel", "check", str(beside(folder)), "--json", "--cache", str(tmp_path), *words]
    status = cli.main(command)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, document


def test_the_six_real_so101_sets_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, document = report(capsys, tmp_path, SO101)
    assert (status, document["faults"]) == (0, [])
    assert sum(each["frames"] for each in document["sets"]) == 29_571


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("nimiCurtis__so101_rosbag2lerobot_dataset", {"units_range", "frozen_episode"}),
        ("adamya-singh__SO-ARM-101", {"units_range", "off_rate", "counts"}),
        (
            "HuangJunkai2023__CR5_TCP_test",
            {"units_range", "off_rate", "dimensions", "velocity"},
        ),
        ("jackvial__lerobot-data-studio", {"units_quantum", "velocity"}),
    ],
)
def test_real_sets_with_faults_are_caught(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str, names: set[str]
) -> None:
    status, document = report(capsys, tmp_path, SHARED / folder)
    assert status == refusal.GUARD
    assert {fault["check"] for fault in document["faults"]} == names


def test_sets_of_one_panel_must_be_alike(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = beside(SHARED)
    repos = [
        f"{SO101.relative_to(SHARED).as_posix()}/fold7",
        "HuangJunkai2023__CR5_TCP_test/lerobot_data",
    ]
    status, document = report(capsys, tmp_path, root, "--repos", ",".join(repos))
    assert status == refusal.GUARD
    (fault,) = [each for each in document["faults"] if each["check"] == "alike"]
    assert fault["repo"] == repos[1]


def test_a_set_that_cannot_be_read_is_a_fault_and_the_rest_is_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad" / "meta").mkdir(parents=True)
    (tmp_path / "bad" / "meta" / "info.json").write_text("{")
    (tmp_path / "good").symlink_to(beside(SO101) / "fold7")
    status = cli.main(["panel", "check", str(tmp_path), "--repos", "bad,good"])
    shown = capsys.readouterr().out
    assert status == refusal.GUARD
    assert "unreadable: bad: info.json is not JSON" in shown
    assert "1,794" in shown


def test_an_episode_that_a_plan_lists_and_the_set_lacks_is_a_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    frame = FrameId("fold7", 9, 0)
    write_plan(tmp_path / "plan.json", core=[frame], settings={"version": 1})
    plan = ["--plan", str(tmp_path / "plan.json")]
    status, document = report(capsys, tmp_path / "cache", SO101, *plan)
    assert status == refusal.GUARD
    assert [fault["check"] for fault in document["faults"]] == ["unreadable"]


def test_a_plan_limits_the_check_to_its_episodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    core = [FrameId("fold", 3, 0), FrameId("fold", 5, 0)]
    write_plan(tmp_path / "plan.json", core=core, settings={"version": 1})
    plan = ["--plan", str(tmp_path / "plan.json")]
    status, document = report(capsys, tmp_path / "cache", SO101, *plan)
    assert status == 0
    assert document["sets"][0]["episodes"] == 2


@pytest.mark.parametrize("words", [[], ["chek", "."], ["check"], ["check", ".", "--jsn"]])
def test_words_that_are_no_form_are_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert panel_check.main(words) == refusal.USAGE
    assert "panel check ROOT" in capsys.readouterr().err


def test_a_folder_without_datasets_is_a_usage_error(tmp_path: Path) -> None:
    assert panel_check.main(["check", str(tmp_path)]) == refusal.USAGE
