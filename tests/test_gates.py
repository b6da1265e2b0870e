"""The cost gate, by a clock of its own: what is measured, when it decides, and what follows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arflow_eval import cli, gates, refusal, store
from arflow_eval.gates import Verdict, gated, read, record, verdict


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(
    folder: Path, clock: Clock, *, limit: float | None = 24.0, left: int = 0, devices: int = 1
) -> tuple[Callable[[int], None], Callable[[], None], list[Verdict]]:
    """A gate over 200 frames, and the verdicts that exceeded."""
    found: list[Verdict] = []
    measure, decide = gated(
        folder, limit=limit, frames=200, devices=devices, left=lambda: left,
        exceeded=found.append, clock=clock,
    )  # fmt: skip
    return measure, decide, found


def finish(measure: Callable[[int], None], clock: Clock, *, frames: int, each: float) -> None:
    for _ in range(frames):
        clock.now += each
        measure(1)


def test_exactly_the_limit_passes_and_a_frame_more_does_not() -> None:
    asked = {"limit": 24.0, "elapsed": 3600.0, "measured": 200, "seconds": 200.0, "devices": 1}
    inside, beyond = (verdict(left=left, **asked) for left in (23 * 3600, 23 * 3600 + 1))
    assert inside.projected == 24
    assert not inside.exceeded
    assert beyond.exceeded


def test_devices_share_what_is_left_and_all_of_them_are_spent() -> None:
    found = verdict(limit=1.0, elapsed=1800.0, measured=100, seconds=100.0, left=7200, devices=4)
    assert found.spent == 2  # four of them for half an hour
    assert found.projected == 4  # and 7,200 device-seconds, however many share them


def test_the_rate_is_measured_from_the_first_finished_frame(tmp_path: Path) -> None:
    clock = Clock()
    measure, decide, found = opened(tmp_path, clock, left=80_000)
    clock.now += 7200  # a slow start counts as spent, not as a rate
    finish(measure, clock, frames=201, each=1.0)
    decide()
    (made,) = found
    assert (made.frames_measured, made.seconds_measured) == (200, 200.0)
    assert made.spent == pytest.approx((7200 + 201) / 3600)
    assert made.projected == pytest.approx((7200 + 201 + 80_000) / 3600)


def test_too_few_frames_decide_nothing(tmp_path: Path) -> None:
    clock = Clock()
    measure, decide, found = opened(tmp_path, clock, left=10**9)
    finish(measure, clock, frames=200, each=1.0)
    decide()
    assert found == []
    assert read(tmp_path) is None


def test_it_decides_once_and_a_restart_follows_the_verdict(tmp_path: Path) -> None:
    clock = Clock()
    measure, decide, found = opened(tmp_path, clock, left=10**6)
    finish(measure, clock, frames=300, each=1.0)
    decide()
    decide()
    assert len(found) == 1
    _, _, again = opened(tmp_path, clock, left=0)
    assert again == found  # at once, before a frame
    _, _, moved = opened(tmp_path, clock, limit=1000.0, left=0)
    assert moved == []  # another limit is another question


def test_a_verdict_inside_the_limit_is_not_asked_again(tmp_path: Path) -> None:
    clock = Clock()
    measure, decide, found = opened(tmp_path, clock, left=10)
    finish(measure, clock, frames=300, each=1.0)
    decide()
    measure, decide, again = opened(tmp_path, clock, left=10**9)
    finish(measure, clock, frames=300, each=1.0)
    decide()
    assert found == again == []


def test_of_two_shards_the_first_decides_for_both(tmp_path: Path) -> None:
    clock = Clock()
    slow, quick = (opened(tmp_path, clock, left=left, devices=2) for left in (10**6, 0))
    for measure, _, _ in (slow, quick):
        finish(measure, clock, frames=300, each=1.0)
    slow[1]()
    quick[1]()
    assert slow[2] == quick[2]
    assert read(tmp_path) == slow[2][0]


def test_a_verdict_states_its_arithmetic_and_damage_is_said(tmp_path: Path) -> None:
    made = verdict(limit=1.0, elapsed=0.0, measured=10, seconds=5.0, left=7200, devices=1)
    assert record(tmp_path, made) == made == read(tmp_path)
    assert json.loads((tmp_path / "gate.json").read_text())["exceeded"] is False
    assert "7,200 frames left at 2 frames/s a device" in str(made)
    (tmp_path / "gate.json").write_text("{")
    with pytest.raises(refusal.Refusal, match="cannot be read") as caught:
        read(tmp_path)
    assert caught.value.exit_code == refusal.DAMAGE
    assert [path.name for path in tmp_path.iterdir()] == ["gate.json"]


RUN = ("evaluate", "model=hold_last", "panel=pusht_q4", "store.block=5", "gate=hours")


def test_a_run_that_would_cost_too_much_stops_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tight = ("gate.device_hours=1e-9", "gate.measure_frames=5", "batch=1")
    for _ in range(2):  # again at once, by the verdict
        assert cli.main([*RUN, *tight]) == refusal.WAITING
        assert "device-hours projected" in capsys.readouterr().err
    (run,) = Path("outputs").iterdir()
    done, total = store.progress(run / "predictions.zarr")
    assert 5 <= done < total
    assert gates.read(run) is not None
    assert cli.main([*RUN, *tight, "gate.on_exceed=warn"]) == 0
    assert "warning" in capsys.readouterr().err
    assert cli.main(RUN[:-1]) == 0  # a gate names no store
    assert len(list(Path("outputs").iterdir())) == 1


@pytest.mark.parametrize(
    "word", ["gate.device_hours=0", "gate.on_exceed=fall", "gate.measure_frames=0", "gate=hour"]
)
def test_a_gate_that_cannot_be_is_a_usage_error(word: str) -> None:
    assert cli.main([*RUN, word]) == refusal.USAGE
