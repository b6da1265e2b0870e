"""Costs counted by hand: two frames in a block, seconds that are easy to add."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arflow_eval import refusal
from arflow_eval.costs import Cost, read_timings, run_cost

BLOCK: dict[str, Any] = {
    "rows": [0, 2],
    "seconds": {"draws": [6.0, 2.0], "prefill": [1.0, 0.5], "lines": [0.25, 0.25]},
}
STEP = {"draws": 3, "first": 0.2, "all": 0.5}


def record(folder: Path, *lines: Any, shard: int = 0, end: str = "\n") -> Path:
    """Lines of a shard's timings, as JSON where they are not text."""
    path = folder / "timings" / f"shard-{shard}.jsonl"
    path.parent.mkdir(exist_ok=True)
    words = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(words) + end)
    return path


def record_step(folder: Path, step: Any, *, shard: int = 0) -> None:
    text = step if isinstance(step, str) else json.dumps(step)
    (folder / "timings" / f"step-{shard}.json").write_text(text)


def draws(rows: list[int], *seconds: float) -> dict[str, Any]:
    return {"rows": rows, "seconds": {"draws": list(seconds)}}


def found(folder: Path) -> Cost:
    cost = run_cost(read_timings(folder))
    assert cost is not None
    return cost


def test_seconds_are_summed_by_part_in_the_order_they_are_spent(tmp_path: Path) -> None:
    record(tmp_path, BLOCK, draws([2, 4], 3.0, 5.0))
    cost = found(tmp_path)
    assert list(cost.parts) == ["prefill", "lines", "draws"]
    assert [part.total for part in cost.parts.values()] == [1.5, 0.5, 16.0]
    assert [part.mean for part in cost.parts.values()] == [0.375, 0.125, 4.0]
    assert [part.median for part in cost.parts.values()] == [0.25, 0.125, 4.0]
    assert [part.share for part in cost.parts.values()] == [1.5 / 18, 0.5 / 18, 16 / 18]
    assert (cost.frames, cost.seconds_per_frame) == (4, 4.5)
    assert (cost.device_hours, cost.frames_per_device_hour) == (18 / 3600, 800.0)


def test_a_part_that_is_no_standard_one_is_counted_after_them(tmp_path: Path) -> None:
    record(tmp_path, {"rows": [0, 1], "seconds": {"cooling": [1.0], "reference": [2.0]}})
    assert list(found(tmp_path).parts) == ["reference", "cooling"]
    assert found(tmp_path).seconds_per_frame == 3.0


def test_shards_add_up(tmp_path: Path) -> None:
    for shard in (10, 9):
        record(tmp_path, draws([shard, shard + 1], 1800.0), shard=shard)
    assert read_timings(tmp_path).rows.tolist() == [9, 10]
    assert found(tmp_path).device_hours == 1.0


def test_the_last_line_of_a_row_wins(tmp_path: Path) -> None:
    record(tmp_path, draws([0, 2], 1.0, 2.0), draws([2, 3], 7.0), draws([0, 2], 3.0, 4.0))
    assert read_timings(tmp_path).seconds["draws"].tolist() == [3.0, 4.0, 7.0]


def test_the_first_draw_and_the_others_add_up_to_a_frames_draws(tmp_path: Path) -> None:
    record(tmp_path, BLOCK)
    record_step(tmp_path, STEP)
    cost = found(tmp_path)  # a mean of 4 seconds, of which 2/5 are the first draw's
    assert cost.first_draw_seconds == pytest.approx(1.6)
    assert cost.further_draw_seconds == pytest.approx(1.2)
    assert cost.further_to_first == pytest.approx(0.75)


def test_a_further_draw_never_costs_less_than_nothing(tmp_path: Path) -> None:
    record(tmp_path, BLOCK)
    record_step(tmp_path, {**STEP, "first": 0.6})
    cost = found(tmp_path)
    assert (cost.first_draw_seconds, cost.further_draw_seconds) == (4.0, 0.0)
    assert cost.further_to_first == 0.0


@pytest.mark.parametrize("step", [None, {"draws": 1, "first": 0.2, "all": 0.2}])
def test_without_a_step_or_with_one_draw_nothing_is_said_of_the_margin(
    tmp_path: Path, step: Any
) -> None:
    record(tmp_path, BLOCK)
    if step is not None:
        record_step(tmp_path, step)
    cost = found(tmp_path)
    assert cost.first_draw_seconds is None
    assert cost.further_draw_seconds is None
    assert cost.further_to_first is None


def test_the_margin_is_that_of_the_shards_that_measured_a_step(tmp_path: Path) -> None:
    record(tmp_path, draws([0, 1], 100.0), shard=0)
    record(tmp_path, draws([1, 2], 5.0), shard=1)
    record_step(tmp_path, STEP, shard=1)
    assert found(tmp_path).first_draw_seconds == pytest.approx(2.0)
    assert np.isnan(read_timings(tmp_path).first).tolist() == [True, False]


def test_a_run_without_timings_has_no_cost(tmp_path: Path) -> None:
    assert run_cost(read_timings(tmp_path)) is None
    record(tmp_path, '{"rows": [0, 1], "sec', end="")
    assert run_cost(read_timings(tmp_path)) is None


def test_a_block_of_no_part_times_no_frame(tmp_path: Path) -> None:
    record(tmp_path, BLOCK, {"rows": [2, 4], "seconds": {}})
    assert read_timings(tmp_path).rows.tolist() == [0, 1]


def test_frames_that_took_no_time_have_no_rate(tmp_path: Path) -> None:
    record(tmp_path, draws([0, 1], 0.0))
    cost = found(tmp_path)
    assert (cost.frames_per_device_hour, cost.parts["draws"].share) == (None, 0.0)


def test_a_last_line_that_a_killed_writer_left_unfinished_is_skipped(tmp_path: Path) -> None:
    record(tmp_path, BLOCK, json.dumps(draws([2, 4], 3.0, 5.0))[:-9], end="")
    assert read_timings(tmp_path).rows.tolist() == [0, 1]


def test_a_writer_that_went_on_in_an_unfinished_line_loses_no_block(tmp_path: Path) -> None:
    torn = json.dumps(draws([2, 4], 3.0, 5.0))
    record(tmp_path, BLOCK, torn[:-9] + torn, draws([4, 5], 1.0))
    assert read_timings(tmp_path).seconds["draws"].tolist() == [6.0, 2.0, 3.0, 5.0, 1.0]


@pytest.mark.parametrize(
    "line",
    [
        "0123",
        "[]",
        '{"rows": [0, 1]}',
        '{"rows": [0, 1], "seconds": {"draws": [1.0, 2.0]}}',
        '{"rows": [0, 1], "seconds": {"draws": [NaN]}}',
        '{"rows": [0, 1], "seconds": {"draws": [-1.0]}}',
        '{"rows": [0, 1], "seconds": {"draws": null}}',
        '{"rows": [1, 1], "seconds": {}}',
        '{"rows": [0, 1], "sec',
    ],
)
def test_any_other_line_that_is_no_block_is_damage_by_file_and_line(
    tmp_path: Path, line: str
) -> None:
    path = record(tmp_path, BLOCK, line, BLOCK)
    with pytest.raises(refusal.Refusal) as refused:
        read_timings(tmp_path)
    assert refused.value.exit_code == refusal.DAMAGE
    assert f"line 2 of {path}" in str(refused.value)


@pytest.mark.parametrize(
    "step", ["{", "[]", {"draws": 3}, {**STEP, "all": 0}, {**STEP, "first": float("nan")}]
)
def test_a_step_that_is_none_is_damage(tmp_path: Path, step: Any) -> None:
    record(tmp_path, BLOCK)
    record_step(tmp_path, step)
    with pytest.raises(refusal.Refusal, match=r"step-0\.json") as refused:
        read_timings(tmp_path)
    assert refused.value.exit_code == refusal.DAMAGE
