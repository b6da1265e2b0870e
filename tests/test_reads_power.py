"""The power read: a pilot's numbers by hand, what is planned from them, and what is refused."""

from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

from arflow_eval import compose, reading, refusal
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.power import planning, table
from arflow_eval.stats.intervals import cluster_sums, cr1_error
from arflow_eval.stats.scoring import arm_errors


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    words = ["read=power", "read.cluster=repo", "arms.treatment=T", "arms.control=C"]
    return dict(compose.compose("read", words)["read"])


@pytest.fixture(scope="module")
def arms() -> dict[str, xarray.Dataset]:
    control = made_arm(chunk_mae=6.0)
    return {
        "treatment": planted(control, factor=0.9, draws=1, name="made@0.9", temperature=0.0),
        "control": control,
    }


def carry_out(definition: dict[str, Any], arms: dict[str, Any], **changed: Any) -> dict[str, Any]:
    settings = {"resamples": 200, **changed}
    return reading.run_read({**definition, **settings}, arms, measure=planning)


def differences(arms: dict[str, xarray.Dataset]) -> tuple[np.ndarray, np.ndarray]:
    core = arms["control"]["core"].to_numpy()
    both = [arm_errors(arms[role], core, window=50).frame_mae for role in ("treatment", "control")]
    _, repo = np.unique(arms["control"]["repo_name"].to_numpy()[core], return_inverse=True)
    return both[0] - both[1], repo


def test_the_detectable_difference_is_of_the_paired_differences(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    delta, repo = differences(arms)
    error = cr1_error(*cluster_sums(delta, repo))
    found = carry_out(definition, arms, clusters=4 * 240)["chunk"]
    assert found["detectable"]["by_the_pilot"] == pytest.approx(2.801585 * error, abs=1e-5)
    assert found["detectable"]["as_planned"] == pytest.approx(2.801585 * error / 2, abs=1e-5)
    assert (found["n_frames"], found["n_clusters"]) == (len(delta), 240)


def test_the_wanted_difference_takes_a_size_that_shows_it(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    needed = carry_out(definition, arms, effect=0.05)["chunk"]["needed"]
    again = carry_out(definition, arms, **needed)["chunk"]["detectable"]["as_planned"]
    assert again == pytest.approx(0.05, rel=0.02)  # CR1 and ANOVA agree so far


def test_every_number_has_an_interval_and_says_how(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    report = carry_out(definition, arms, effect=0.05, frames=17_204, clusters=878)
    for metric in ("chunk", "first"):
        numbers = dict(report["extended"][metric])
        assert numbers.pop("mean_cluster_size") > 1
        assert len(numbers) == 6
        for entry in numbers.values():
            low, high = entry["ci95"]
            assert low <= entry["value"] <= high
            assert "clusters, 200 resamples" in entry["method"]
    assert set(report["definitions"]) > {"detectable", "needed", "design_effect"}


def test_without_a_plan_there_is_what_the_pilot_itself_shows(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    found = carry_out(definition, arms)["chunk"]
    assert found["needed"] is None
    assert set(found["detectable"]) == {"by_the_pilot"}


def test_a_pilot_of_few_clusters_has_no_interval_and_says_so(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    few = {role: arm.isel(frame=slice(0, 16)) for role, arm in arms.items()}
    report = carry_out(definition, few)
    assert report["chunk"]["n_clusters"] == 4
    assert report["extended"]["chunk"]["design_effect"]["ci95"] == [None, None]
    assert "4 clusters" in report["extended"]["chunk"]["design_effect"]["degenerate"]
    assert "optimistic" in report["extended"]["note"]


def test_a_pilot_that_shows_nothing_is_refused(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    with pytest.raises(refusal.Refusal, match="the difference is 0 on each") as caught:
        carry_out(definition, {"treatment": arms["control"], "control": arms["control"]})
    assert caught.value.exit_code == refusal.GUARD
    one = {role: arm.isel(frame=slice(0, 4)) for role, arm in arms.items()}
    with pytest.raises(refusal.Refusal, match="in 1 repos"):
        carry_out(definition, one)


@pytest.mark.parametrize(
    "changed",
    [{"effect": 0}, {"effect": -1.0}, {"power": 1}, {"frames": 1}, {"clusters": 2.5}],
)
def test_a_plan_that_cannot_be_is_a_usage_error(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset], changed: dict[str, Any]
) -> None:
    (key,) = changed
    with pytest.raises(refusal.Refusal, match=f"read.{key}=") as caught:
        carry_out(definition, arms, **changed)
    assert caught.value.exit_code == refusal.USAGE


def test_the_screen_shows_the_plan_within_100_columns(
    definition: dict[str, Any], arms: dict[str, xarray.Dataset]
) -> None:
    report = carry_out(definition, arms, effect=0.05, frames=17_204, clusters=878)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(table(report))
    text = shown.get()
    assert "17,204 core frames in 878 repos; wanted difference: 0.05" in text
    assert max(map(len, text.splitlines())) <= 100
