"""The difference of two gains: by hand, against the paired read, and on the screen."""

from typing import Any

import numpy as np
import pytest
import xarray
from rich.console import Console

import made_arms
from arflow_eval.reads.gain_difference import gain_difference, table
from arflow_eval.reads.made import made_arm, planted
from arflow_eval.reads.paired import paired_delta

SETTINGS: dict[str, Any] = {
    "window": 50, "resamples": 100, "seed": 0, "confidence": 0.95, "cluster": "repo",
}  # fmt: skip


@pytest.fixture(scope="module")
def arms() -> dict[str, xarray.Dataset]:
    return dict(made_arms.MADE["gain_difference"](None))


def test_both_gains_are_those_of_the_paired_read(arms: dict[str, xarray.Dataset]) -> None:
    found = gain_difference(**arms, **SETTINGS)
    for name in ("ours", "theirs"):
        alone = paired_delta(arms[f"{name}_changed"], arms[f"{name}_plain"], **SETTINGS)
        assert found[f"gain_{name}"]["chunk"]["mean"] == alone["delta_chunk"]["mean"]
        assert found[f"gain_{name}"]["first"]["ci95"] == alone["delta_first"]["ci95"]
        key = "interval_by_cluster"
        more = found["extended"][f"gain_{name}"]["chunk"][key]
        assert more == alone["extended"]["delta_chunk"][key]


def test_the_difference_is_paired_by_frame(arms: dict[str, xarray.Dataset]) -> None:
    found = gain_difference(**arms, **SETTINGS)["extended"]
    ours, theirs = (found[f"gain_{name}"]["chunk"]["mean"] for name in ("ours", "theirs"))
    assert found["difference"]["chunk"]["mean"] == pytest.approx(ours - theirs)
    # one base and proportional changes: a frame's gains rise and fall together
    width = {name: np.ptp(found[name]["chunk"]["interval_by_cluster"]["ci95"]) for name in
             ("gain_ours", "gain_theirs", "difference")}  # fmt: skip
    assert width["difference"] < width["gain_theirs"]


def test_equal_gains_differ_by_exactly_nothing_and_say_so() -> None:
    plain = made_arm(chunk_mae=6.0)
    changed = planted(plain, factor=0.9, draws=2, name="made@0.9", temperature=1.0)
    found = gain_difference(changed, plain, changed, plain, **SETTINGS)
    assert found["difference"]["chunk"]["mean"] == 0
    assert (
        "exactly 0" in found["extended"]["difference"]["chunk"]["interval_by_cluster"]["degenerate"]
    )


def test_the_screen_shows_gains_and_their_difference(arms: dict[str, xarray.Dataset]) -> None:
    definition = made_arms.definition("gain_difference")
    report = made_arms.carry_out(definition, arms)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(table(report))
    assert "ours - theirs, chunk" in shown.get()
    assert max(map(len, shown.get().splitlines())) <= 100
