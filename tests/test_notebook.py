"""Python use: the docs page runs as it stands, and says what the command line says."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import arflow_eval
from arflow_eval import cli, compose, reading
from arflow_eval.findings import findings
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.refusal import Refusal

PAGE = Path(__file__).parents[1] / "docs" / "notebooks.md"
BLOCKS = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(text: str) -> dict[str, Any]:
    """Run the blocks of a page in order, commands as the shell would; the names it leaves."""
    known: dict[str, Any] = {}
    for kind, block in BLOCKS.findall(text):
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), known)  # noqa: S102 - the page is our own
            continue
        for line in block.splitlines():
            program, flag, module, *words = shlex.split(line)
            assert (program, flag) == ("python", "-m")
            given = [word.replace("HELD", str(known.get("held"))) for word in words]
            given = [word.replace("COPIED", str(known.get("copied"))) for word in given]
            assert cli.main([module.removeprefix("arflow_eval."), *given]) == 0
    return known


def test_the_page_runs_as_it_stands_and_says_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = run_page(PAGE.read_text(encoding="utf-8"))
    written = known["path"].read_bytes()  # the command wrote last
    assert len(list(Path("outputs").glob("paired_delta-*"))) == 1
    assert known["found"].write().read_bytes() == written
    assert "did you mean arms.control" in known["said"]
    assert known["delta"].mean < known["delta"].by_cluster.high < 0
    assert known["curves"].sizes == {"step": 30, "joint": 2}


def made() -> dict[str, xarray.Dataset]:
    greedy = made_arm(chunk_mae=5.8602)
    draws = planted(greedy, factor=0.9, draws=10, name="made@0_draws10", temperature=1.0)
    return {"greedy": greedy, "draws": draws}


def test_a_registered_studys_findings_are_typed_too() -> None:
    arms = made()
    words = ["read=ar_sampled_draws", "arms.greedy=A", "arms.draws=B", "read.resamples=50"]
    config = compose.compose("read", words)
    definition = {**config["read"], "guards": {}, "oracles": {}}
    measure = compose.call_target(definition["_target_"])
    report = reading.run_read(definition, arms, measure=measure)
    found = findings(report, compose.call_target(f"{measure.__module__}.table"))
    assert found.decision == tuple(report["decision"]["assembly"])
    assert len(found.differences) >= 2
    for name, each in found.differences.items():
        place = report
        for key in name.split("."):
            place = place[key]
        assert round(each.mean, 5) == place["mean"]
        assert place["ci95"] == [round(each.by_frame.low, 5), round(each.by_frame.high, 5)]


def test_an_end_that_cannot_be_given_is_nan_and_says_why() -> None:
    few = {role: arm.isel(frame=slice(0, 16)) for role, arm in made().items()}
    arms = {"treatment": few["draws"], "control": few["greedy"]}
    found = arflow_eval.run_read("paired_delta", arms, ["read.cluster=repo", "read.resamples=50"])
    table = found.to_xarray()
    chunk = table.sel(difference="delta_chunk", by="cluster")
    assert np.isnan(chunk["interval"]).all()
    assert "4 clusters" in str(chunk["degenerate"].item())
    assert found.differences["delta_chunk"].by_cluster.low is None
    json.dumps(found.report, allow_nan=False)


def test_frame_errors_are_in_panel_order_and_cover_every_frame() -> None:
    arm = made()["draws"]
    shuffled = arm.isel(frame=np.random.default_rng(0).permutation(arm.sizes["frame"]))
    one, other = (arflow_eval.frame_errors(each, window=30) for each in (arm, shuffled))
    assert one.equals(other)
    assert one.sizes["frame"] == arm.sizes["frame"]
    error = np.abs(arm["prediction"].to_numpy()[:, 0, :30] - arm["truth"].to_numpy()[:, :30])
    assert one["chunk_mae"].to_numpy() == pytest.approx(error.mean(axis=(1, 2)), rel=1e-5)


def test_a_window_beyond_the_horizon_is_refused() -> None:
    with pytest.raises(Refusal, match="window of 60"):
        arflow_eval.frame_errors(made()["greedy"], window=60)
