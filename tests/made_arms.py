"""The arms that tests of reads are made of: every read's by role, and its definition on them."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import xarray

from arflow_eval import compose, store
from arflow_eval.contracts import Frames, Space
from arflow_eval.reading import run_read
from arflow_eval.reads.made import FRAMES, made_arm, planted
from arflow_eval.reads.planted_draws import scaled_draws, uneven

Arms = dict[str, xarray.Dataset]
DRAWS: Final = 4
QUARTER: Final = slice(1, None, 4)  # one frame of every made repo
RUNGS: Final = {"t0_5": 0.5, "t0_7": 0.7, "t1_0": 1.0, "t1_3": 1.3}
RUNG_FACTORS: Final = {"t0_5": 0.9586, "t0_7": 0.9684, "t1_0": 1.0, "t1_3": 1.0594}
BANKED: Final = {
    "snapflow_80k_ticket": 0.9,
    "snapflow_80k": 1.1,
    "ar_40k": 1.0,
    "ar_60k": 0.97,
    "er_60k": 1.25,
}
BANKED_MAE: Final = 6.0079
DIRTY: Final = [f"made/repo{number:03d}" for number in range(0, 240, 3)]
MASKED: Final = "made/repo001"
EMPTY: Final = [0, 3, 4]  # core frames of `fair_pair` without a valid step
TIMED: Final = 8  # frames of a run whose seconds were recorded
WHOLE: Final = "{rows: 960, core: 640, repos: 240, digest: whole}"
FOURTH: Final = "{rows: 240, core: 160, repos: 240, digest: null}"
# what a study that pins its panel is told, so that it reads the made one
OVERRIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "ar_sampled_draws": (f"read.guards.panel.one_of=[{WHOLE}, {FOURTH}]",),
    "temperature_table": (
        "read.guards.panel.one_of=[{rows: 240, core: 160, repos: 240, digest: q4}]",
    ),
    "matched_window": (
        f"read.guards.panel.one_of=[{WHOLE}]",
        f"read.contaminated=[{', '.join(DIRTY)}]",
        f"read.excluded=[{MASKED}]",
        "read.guards.contamination.repos=80",
        "read.guards.contamination.frames=320",
        "read.guards.contamination.core=240",
        "read.guards.contamination.clean_core=400",
        "read.guards.exclusion.frames=4",
        "read.guards.exclusion.core=3",
        *(f"read.anchors.{role}.value={BANKED_MAE * factor}" for role, factor in BANKED.items()),
    ),
}


def words(read: str) -> list[str]:
    """The command line of a read on its made arms, without the arms."""
    quick = [] if read == "cost" else ["read.resamples=200"]
    return [f"read={read}", *quick, *OVERRIDES.get(read, ())]


def definition(read: str) -> dict[str, Any]:
    """A read's definition on its made arms."""
    found: dict[str, Any] = json.loads(_composed(read))["read"]
    return found


def roles(read: str) -> list[str]:
    """The arms that a read's option of conf/read asks for."""
    return list(json.loads(_composed(read))["arms"])


@cache
def _composed(read: str) -> str:
    return json.dumps(compose.compose("read", [*words(read), "oracle=true"]))  # asks for no arms


def carry_out(stated: Mapping[str, Any], arms: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    """The report of a read, without its oracles unless they are among what is `changed`."""
    measure = compose.call_target(stated["_target_"])
    return run_read({**stated, "oracles": {}, **changed}, arms, measure=measure)


@cache
def _greedy(chunk_mae: float) -> xarray.Dataset:
    return made_arm(chunk_mae=chunk_mae).assign_attrs(panel_digest="whole")


def pair() -> Arms:
    """Any two arms: the treatment has the errors of the control times 0.9."""
    control = _greedy(5.8026)
    treatment = planted(control, factor=0.9, draws=1, name="other@0", temperature=0.0)
    return {"treatment": treatment, "control": control}


def gains() -> Arms:
    """A change that takes a fifth off our errors, and a tenth off those of another policy."""
    plain = _greedy(5.8026)
    named = {
        "ours_changed": 0.8,
        "ours_plain": 1.0,
        "theirs_changed": 0.9 * 1.2,
        "theirs_plain": 1.2,
    }
    return {
        role: planted(plain, factor=factor, draws=1, name=f"{role}@0", temperature=0.0)
        for role, factor in named.items()
    }


def sampled(*, factor: float = 0.95) -> Arms:
    """Greedy, and ten equal draws at T = 1 with its errors times a factor."""
    greedy = _greedy(5.8026)
    name = f"{greedy.attrs['arm']}_draws10_t1"
    return {
        "greedy": greedy,
        "draws": planted(greedy, factor=factor, draws=10, name=name, temperature=1.0),
    }


def rungs() -> Arms:
    """Rungs of one policy: T = 1.0 on the full panel, the others on a quarter of it."""
    full = _greedy(6.7812)
    quarter = full.isel(frame=QUARTER).assign_attrs(panel_digest="q4")
    return {
        role: planted(
            full if role == "t1_0" else quarter,
            factor=RUNG_FACTORS[role],
            draws=10,
            name=f"{full.attrs['arm']}_draws10_t{temperature:g}",
            temperature=temperature,
        )
        for role, temperature in RUNGS.items()
    }


def candidates(*, factor: float = 0.95) -> Arms:
    """A candidate of 30 steps, and the banked arms with the same errors times theirs."""
    base = _greedy(BANKED_MAE)
    candidate = planted(base, factor=factor, draws=1, name="molmoact2@release", temperature=None)
    prediction = candidate["prediction"].to_numpy().copy()
    prediction[:, :, 30:] = np.nan
    candidate = candidate.assign(prediction=(candidate["prediction"].dims, prediction))
    banked = {
        role: planted(base, factor=each, draws=1, name=f"{role}@1", temperature=None)
        for role, each in BANKED.items()
    }
    ticket = banked["snapflow_80k_ticket"].assign_attrs(arm="bijou@80000_draws10_ticket")
    return {
        "candidate": candidate.assign_attrs(horizon=30),
        **banked,
        "snapflow_80k_ticket": ticket,
    }


def ceiling(*, draws: int = DRAWS) -> Arms:
    """Greedy, and draws of uneven size around the truth."""
    greedy = _greedy(5.8026)
    return {
        "greedy": greedy,
        "draws": scaled_draws(greedy, uneven(FRAMES, draws), temperature=1.0),
    }


def families(*, flow_draws: int = DRAWS) -> Arms:
    """Greedy, its draws on both sides of the truth, and the draws of a flow policy."""
    greedy = _greedy(5.8026)
    other = _greedy(6.6).assign_attrs(arm="flow@0", checkpoint_digest="e" * 64)
    factors = uneven(FRAMES, DRAWS) * np.resize([1, -1], DRAWS)
    return {
        "greedy": greedy,
        "draws": scaled_draws(greedy, factors, temperature=1.0),
        "flow": scaled_draws(other, uneven(FRAMES, flow_draws, seed=2), temperature=None),
    }


def one_family() -> Arms:
    """The arms of `families` without those of the flow policy."""
    return {role: arm for role, arm in families().items() if role != "flow"}


def fair_pair(*, control_draws: int = DRAWS) -> Arms:
    """An AR and a flow stack whose errors differ, on frames of which three have no valid step."""
    found = {}
    for role, size, name in (("treatment", 6.0, "made@0"), ("control", 5.3, "flow@0")):
        greedy = _greedy(size).assign_attrs(arm=name)
        valid = greedy["valid"].to_numpy().copy()
        valid[EMPTY] = False
        valid[9, 0] = False  # a first step that is not scored
        greedy = greedy.assign(valid=(greedy["valid"].dims, valid))
        ar = role == "treatment"
        factors = uneven(FRAMES, DRAWS if ar else control_draws, seed=1 if ar else 2)
        found[role] = scaled_draws(greedy, factors, temperature=1.0 if ar else None)
    return found


def timed(folder: Path) -> Arms:
    """A run of five draws on a few frames, none of them core, its seconds written to a folder."""
    few = _greedy(5.8026).isel(frame=slice(TIMED))
    run = planted(few, factor=1.0, draws=5, name="ar_draws5_t1", temperature=1.0)
    run = run.assign_coords(core=("frame", np.zeros(TIMED, bool)))
    seconds = {"prefill": [1.0] * TIMED, "draws": [3.0] * TIMED}
    (folder / "timings").mkdir(parents=True)
    shard = {"rows": [0, TIMED], "seconds": seconds}
    (folder / "timings" / "shard-0.jsonl").write_text(json.dumps(shard) + "\n")
    step = {"draws": 5, "first": 0.1, "all": 0.3}
    (folder / "timings" / "step-0.json").write_text(json.dumps(step))
    run.encoding["source"] = str(folder / "predictions.zarr")
    return {"run": run}


# a folder for what lies beside the stores -> the arms of a read, which pass its guards
MADE: Final[Mapping[str, Callable[[Path], Arms]]] = {
    "ar_sampled_draws": lambda _: sampled(),
    "cost": timed,
    "draws_fairness": lambda _: fair_pair(),
    "energy_score": lambda _: one_family(),
    "energy_score_flow": lambda _: families(),
    "gain_difference": lambda _: gains(),
    "matched_window": lambda _: candidates(),
    "paired_delta": lambda _: pair(),
    "power": lambda _: pair(),
    "selection_ceiling": lambda _: ceiling(),
    "temperature_table": lambda _: rungs(),
}


def written(arm: xarray.Dataset, folder: Path) -> Path:
    """The folder of a finished store that holds an arm."""
    path = folder / "predictions.zarr"
    steps, draws = arm.sizes["step"], arm.sizes["draw"]
    baselines = [name for name in ("state_copy", "state_copy_norm") if name in arm]
    actions = tuple(arm.attrs["action_names"])
    of_store = {"complete", "fingerprint", "action_names", "action_units", "fps"}
    attributes = {name: value for name, value in arm.attrs.items() if name not in of_store}
    schema = store.Schema(
        frames=_frames(arm),
        space=Space(actions, actions, *(str(arm.attrs["action_units"]),) * 2, arm.attrs["fps"]),
        steps=steps,
        draws=draws,
        block=256,
        attributes={"config": {}, **attributes},
        state_copy=len(baselines) > 0,
    )
    columns = {
        name: arm[name].to_numpy() for name in ("prediction", "truth", "valid", *baselines)
    } | {"logprob": np.zeros((arm.sizes["frame"], draws))}
    with mock.patch("os.fsync"):
        store.open_or_create(path, schema)
        for rows in store.blocks(path, shard_index=0, shard_count=1):
            block = {name: values[rows.start : rows.stop] for name, values in columns.items()}
            store.write_block(path, rows, block)
        store.finalise(path)
    return folder


def _frames(arm: xarray.Dataset) -> Frames:
    repos, codes = np.unique(arm["repo_name"].to_numpy(), return_inverse=True)
    columns = {name: arm[name].to_numpy() for name in ("episode", "frame_index", "index", "core")}
    tasks = np.zeros(len(codes), dtype=np.int64)
    return Frames(repos=tuple(repos.tolist()), tasks=("made",), repo=codes, task=tasks, **columns)
