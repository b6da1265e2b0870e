"""Where two arms differ, by step and by joint: direct sums, identities, missing intervals."""

import numpy as np
import pytest
import xarray

from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.paired import paired_delta
from arflow_eval.stats.intervals import cluster_interval
from arflow_eval.stats.pointwise import pointwise

SETTINGS = {"window": 50, "resamples": 50, "seed": 0, "confidence": 0.95, "cluster": "repo"}


@pytest.fixture(scope="module")
def arms() -> tuple[xarray.Dataset, xarray.Dataset]:
    control = made_arm(chunk_mae=6.0)
    better = planted(control, factor=0.9, draws=3, name="made@0.9", temperature=0.0)
    values = better["prediction"].to_numpy().copy()
    values[:, :, 10:, 2] += 4  # one joint is worse, from step 10 on
    return better.assign(prediction=(better["prediction"].dims, values)), control


def test_steps_and_joints_are_means_of_the_frames_that_score_them(
    arms: tuple[xarray.Dataset, xarray.Dataset],
) -> None:
    treatment, control = arms
    found = paired_delta(treatment, control, **SETTINGS)["extended"]
    core = control["core"].to_numpy()
    valid = control["valid"].to_numpy()[core]
    errors = [
        np.abs(arm["prediction"].to_numpy().astype(float).mean(axis=1) - arm["truth"].to_numpy())[
            core
        ]
        for arm in arms
    ]
    for step, row in enumerate(found["by_step"]["rows"]):
        inside = valid[:, step]
        left, right = (error[inside, step].mean() for error in errors)
        assert (row["step"], row["n_frames"]) == (step, inside.sum())
        assert row["treatment"] == pytest.approx(left, rel=1e-5)
        assert row["difference"] == pytest.approx(left - right, rel=1e-3, abs=1e-5)
    by_frame = [
        np.where(valid[..., None], error, 0).sum(axis=1) / valid.sum(axis=1)[:, None]
        for error in errors
    ]
    for joint, row in enumerate(found["by_joint"]["rows"]):
        assert row["joint"] == f"joint{joint}"
        assert row["control"] == pytest.approx(by_frame[1][:, joint].mean(), rel=1e-5)
    worse = [row["joint"] for row in found["by_joint"]["rows"] if row["ci95"][0] > 0]
    assert worse == ["joint2"]


def test_the_joints_differences_average_to_that_of_the_chunk(
    arms: tuple[xarray.Dataset, xarray.Dataset],
) -> None:
    found = paired_delta(*arms, **SETTINGS)["extended"]
    by_joint = [row["difference"] for row in found["by_joint"]["rows"]]
    assert np.mean(by_joint) == pytest.approx(found["delta_chunk"]["mean"], rel=1e-9)
    first = found["by_step"]["rows"][0]
    assert first["difference"] == pytest.approx(found["delta_first"]["mean"], rel=1e-9)


def test_an_interval_is_that_of_its_column_alone() -> None:
    stream = np.random.default_rng(0)
    delta = stream.normal(size=(90, 3)) + np.repeat(stream.normal(size=(30, 3)), 3, axis=0)
    cluster = np.repeat(np.arange(30), 3)
    scored = stream.random((90, 3)) < 0.6
    found = pointwise(delta, scored, cluster, confidence=0.9)
    for column in range(3):
        inside = scored[:, column]
        alone = cluster_interval(
            delta[inside, column], cluster[inside], resamples=1, seed=0, confidence=0.9
        )
        assert alone.method.startswith("CR1")
        assert found.low[column] == pytest.approx(alone.low, rel=1e-9)
        assert found.high[column] == pytest.approx(alone.high, rel=1e-9)
        assert found.clusters[column] == alone.clusters


def test_what_is_not_scored_counts_for_nothing() -> None:
    delta = np.random.default_rng(0).normal(size=(40, 2))
    scored = np.ones((40, 2), bool)
    scored[:7, 1] = False
    spoilt = delta.copy()
    spoilt[:7, 1] = np.nan
    cluster = np.arange(40) // 4
    one, other = (pointwise(each, scored, cluster, confidence=0.95) for each in (delta, spoilt))
    for name in ("mean", "low", "high", "frames", "clusters"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_self_pair_and_a_step_that_nobody_scores_say_why(
    arms: tuple[xarray.Dataset, xarray.Dataset],
) -> None:
    _, control = arms
    valid = control["valid"].to_numpy().copy()
    valid[:, 40:] = False
    control = control.assign(valid=(control["valid"].dims, valid))
    found = paired_delta(control, control, **SETTINGS)["extended"]
    rows = found["by_step"]["rows"]
    assert rows[0]["difference"] == 0
    assert rows[0]["ci95"] == [0, 0]
    assert "the difference is 0 on each" in rows[0]["degenerate"]
    assert rows[40]["degenerate"] == "scored in no frame"
    assert rows[40]["ci95"] == [None, None]
    assert rows[40]["treatment"] is None


def test_few_clusters_have_no_interval(arms: tuple[xarray.Dataset, xarray.Dataset]) -> None:
    few = [arm.isel(frame=slice(0, 16)) for arm in arms]
    rows = paired_delta(*few, **SETTINGS)["extended"]["by_joint"]["rows"]
    assert all(row["ci95"] == [None, None] for row in rows)
    assert all("4 clusters" in row["degenerate"] for row in rows)
