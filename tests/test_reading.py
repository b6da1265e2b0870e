"""The flow of a read: what it demands, what it reports, where it writes, what it shows."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

from arflow_eval import refusal, store
from arflow_eval.compose import call_target, conf_dir
from arflow_eval.reading import report_digest, run_read, write_report
from arflow_eval.reads.paired import paired_delta, table

FRAMES, STEPS = 24, 8
DEFINITION: dict[str, Any] = {
    "_target_": "arflow_eval.reads.paired.paired_delta",
    "name": "paired_delta",
    "question": "Is the treatment closer?",
    "window": None,
    "resamples": 200,
    "seed": 0,
    "confidence": 0.95,
    "cluster": "episode",
}


def make_arm(*, factor: float = 1.0, horizon: int = STEPS) -> xarray.Dataset:
    """A finished arm of one draw on 8 episodes of 3 frames; errors are `factor` x one sample."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 50, (FRAMES, STEPS, 2)).astype(np.float32)
    prediction = truth + (factor * rng.normal(0, 6, truth.shape)).astype(np.float32)
    prediction[:, horizon:] = np.nan
    rows = np.arange(FRAMES)
    return xarray.Dataset(
        {
            "prediction": (("frame", "draw", "step", "action"), prediction[:, None]),
            "truth": (("frame", "step", "action"), truth),
            "valid": (("frame", "step"), np.ones((FRAMES, STEPS), bool)),
        },
        coords={
            "episode": ("frame", rows // 3),
            "frame_index": ("frame", rows % 3),
            "panel_row": ("frame", rows),
            "core": ("frame", np.ones(FRAMES, bool)),
            "repo_name": ("frame", np.full(FRAMES, "owner/repo")),
        },
        attrs={
            "arm": f"ar_tiny_draws10_t{factor:g}",
            "complete": True,
            "fingerprint": f"{factor:g}/{horizon}".ljust(64, "0"),
            "digest": "0" * 64,
            "horizon": horizon,
            "action_names": ["x", "y"],
            "action_units": "pixel",
            "fps": 10.0,
        },
    )


def carry_out(arms: Mapping[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """A paired read of two made arms, or of the given ones, with some settings changed."""
    chosen = arms or {"treatment": make_arm(factor=0.9), "control": make_arm()}
    return run_read({**DEFINITION, **changed}, chosen, measure=paired_delta)


def test_a_report_says_what_was_read_and_how() -> None:
    found = carry_out()
    report = found["extended"]
    assert report["read"] == "paired_delta"
    assert report["status"] == "exploratory"
    assert "registration" in report["status_reason"]
    assert report["definition"]["window"] == STEPS  # resolved
    assert report["definition"]["measure"] == DEFINITION["_target_"]
    assert report["arms"]["control"]["arm"] == "ar_tiny_draws10_t1"
    assert "success rates" in report["claim_boundary"]
    assert found["delta_chunk"]["mean"] < 0


def test_the_guards_that_passed_are_listed_in_order() -> None:
    assert carry_out()["extended"]["guards_passed"] == [
        "complete",
        "same_space",
        "no_duplicates",
        "same_frames",
        "window_fits",
        "core_frames",
        "same_truth",
        "same_baselines",
    ]


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    path = write_report(carry_out(), root=tmp_path)
    first = path.read_bytes()
    assert write_report(carry_out(), root=tmp_path) == path
    assert path.read_bytes() == first
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


def test_storage_order_moves_no_byte_of_a_report(tmp_path: Path) -> None:
    arms = {"treatment": make_arm(factor=0.9), "control": make_arm()}
    order = np.random.default_rng(1).permutation(FRAMES)
    shuffled = {"treatment": arms["treatment"].isel(frame=order), "control": arms["control"]}
    first = write_report(carry_out(arms), root=tmp_path / "first")
    again = write_report(carry_out(shuffled), root=tmp_path / "again")
    assert first.read_bytes() == again.read_bytes()


def test_a_report_is_named_by_its_definition_and_its_arms(tmp_path: Path) -> None:
    arms = {"treatment": make_arm(factor=0.8), "control": make_arm()}
    reports = [carry_out(), carry_out(arms), carry_out(window=4), carry_out(seed=1)]
    paths = {write_report(report, root=tmp_path) for report in reports}
    assert len(paths) == len(reports)
    for path in paths:
        assert path.parent.parent == tmp_path
        assert path.parent.name.startswith("paired_delta-")
        assert len(path.parent.name) == len("paired_delta-") + 8


def test_a_report_is_json_without_nan(tmp_path: Path) -> None:
    path = write_report(carry_out(cluster="repo"), root=tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in a report")

    report = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    by_cluster = report["extended"]["delta_chunk"]["interval_by_cluster"]
    assert by_cluster["ci95"] == [None, None]
    assert by_cluster["degenerate"]


def test_a_self_pair_is_a_read_like_any_other() -> None:
    arm = make_arm()
    delta = carry_out({"treatment": arm, "control": arm})["delta_chunk"]
    assert (delta["mean"], delta["ci95"]) == (0.0, [0.0, 0.0])


def test_a_matched_window_reads_arms_of_different_horizons() -> None:
    arms = {"treatment": make_arm(factor=0.9, horizon=5), "control": make_arm()}
    with pytest.raises(refusal.Refusal, match="horizons differ") as refused:
        carry_out(arms)
    assert refused.value.exit_code == refusal.GUARD
    assert carry_out(arms, window=5)["window"] == 5


def test_a_failing_guard_leaves_no_report() -> None:
    arms = {"treatment": make_arm().isel(frame=slice(9)), "control": make_arm()}
    with pytest.raises(refusal.Refusal, match="only in the control arm") as refused:
        carry_out(arms)
    assert refused.value.exit_code == refusal.GUARD


def test_an_arm_without_a_fingerprint_is_not_written(tmp_path: Path) -> None:
    arms = {"treatment": make_arm().assign_attrs(fingerprint=None), "control": make_arm()}
    with pytest.raises(refusal.Refusal, match="the treatment arm has no fingerprint"):
        write_report(carry_out(arms), root=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"resample": 5}, "did you mean resamples?"),
        ({"window": 0}, "read.window=0"),
        ({"window": "all"}, "read.window=all"),
        ({"resamples": 0}, "read.resamples=0"),
        ({"seed": -1}, "read.seed=-1"),
        ({"confidence": 95}, "read.confidence=95"),
        ({"cluster": "episodes"}, "did you mean read.cluster=episode?"),
    ],
)
def test_a_setting_that_does_not_fit_is_a_usage_error(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(refusal.Refusal) as refused:
        carry_out(**changed)
    assert refused.value.exit_code == refusal.USAGE
    assert words in str(refused.value)


def test_a_missing_setting_is_a_usage_error() -> None:
    definition = {key: value for key, value in DEFINITION.items() if key != "seed"}
    arms = {"treatment": make_arm(), "control": make_arm()}
    with pytest.raises(refusal.Refusal, match="seed is missing"):
        run_read(definition, arms, measure=paired_delta)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (["treatment"], "the arm control is missing"),
        (["treatment", "controll"], "did you mean control?"),
    ],
)
def test_a_read_has_exactly_the_arms_its_measure_names(roles: list[str], words: str) -> None:
    with pytest.raises(refusal.Refusal) as refused:
        carry_out(dict.fromkeys(roles, make_arm()))
    assert refused.value.exit_code == refusal.USAGE
    assert words in str(refused.value)


def test_stores_are_opened_by_path_and_reported_without_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = {"near": make_arm(factor=0.9), "far": make_arm()}
    monkeypatch.setattr(store, "open_run", lambda path: opened[Path(path).name])
    monkeypatch.chdir(tmp_path)
    report = carry_out({"treatment": "outputs/near", "control": Path("/elsewhere/far")})
    assert report["extended"]["arms"]["treatment"]["path"] == "outputs/near"
    assert report["extended"]["arms"]["control"]["path"] == "far"
    assert str(tmp_path) not in json.dumps(report)


def test_the_place_of_a_store_does_not_name_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "open_run", lambda _: make_arm())
    monkeypatch.chdir(tmp_path)
    here, there = (carry_out({"treatment": at, "control": at}) for at in ("a/run", "b/run"))
    assert report_digest(here) == report_digest(there)


def test_the_table_has_every_headline_within_100_columns() -> None:
    console = Console(width=100, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(table(carry_out()))
    shown = captured.get()
    assert max(map(len, shown.splitlines())) <= 100
    delta = carry_out()["delta_chunk"]
    for words in (
        "treatment",
        "ar_tiny_draws10_t0.9",
        "delta (pixel)",
        f"{delta['mean']:+.4f}",
        f"[{delta['ci95'][0]:+.4f}, {delta['ci95'][1]:+.4f}]",
        "95 % by episode",
        "100.0%",
        "without episode",
        "exploratory",
        "success rates",
    ):
        assert words in shown


@pytest.mark.parametrize(
    "option", sorted((conf_dir() / "read").glob("*.yaml")), ids=lambda it: it.stem
)
def test_the_module_of_every_read_has_a_table(option: Path) -> None:
    (line,) = (each for each in option.read_text().splitlines() if "_target_: " in each)
    module = line.rpartition(": ")[2].rpartition(".")[0]
    assert callable(call_target(f"{module}.table"))


def test_the_table_of_a_degenerate_read_says_why() -> None:
    console = Console(width=100)
    arm = make_arm()
    with console.capture() as captured:
        console.print(table(carry_out({"treatment": arm, "control": arm}, cluster="repo")))
    assert "exactly 0" in captured.get()


def test_reading_needs_no_torch_and_no_hydra() -> None:
    code = (
        "import sys, arflow_eval.reading, arflow_eval.reads.paired, arflow_eval.reads.screen;"
        "sys.exit(bool({'torch', 'hydra'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_read_command_imports_no_torch() -> None:
    code = "import sys, arflow_eval.read; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
