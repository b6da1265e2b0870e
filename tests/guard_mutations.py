"""Every read's mutations, by guard: what must trip it, and words of its refusal.

A mutation is named for the guard that it trips, and where there are several for what it changes:
`panel of core frames`. Names that are no guard are functions that refuse while arms are joined or
measured.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import xarray

from made_arms import DIRTY, MASKED, RUNGS, families
from mutations import (
    Change,
    also,
    attribute,
    beside,
    cut_short,
    draws,
    everywhere,
    frames,
    imported,
    of_one_frame,
    pinned,
    renamed,
    setting,
    shifted,
    twice,
    unwritten,
    variable,
    without,
)

Mutations = dict[str, tuple[Change, str]]


def of_stores(role: str) -> Mutations:
    """Of the guards that every read runs."""
    return {
        "complete": (attribute(role, complete=False), f"the {role} arm is not marked complete"),
        "complete of frames": (unwritten(role), "complete, 7 of .* frames unwritten"),
        "no_duplicates": (twice(role), f"the {role} arm holds 1 frames more than once"),
    }


def of_pairs(role: str) -> Mutations:
    """Of the guards that every read of several arms runs, with the fault in one of them."""
    return {
        **of_stores(role),
        "same_space of units": (attribute(role, action_units="radian"), "action_units is"),
        "same_space of names": (attribute(role, action_names=["x"]), "action_names is"),
        "same_space of the rate": (attribute(role, fps=10.0), "fps is"),
        "same_frames": (shifted(role, "frame_index"), "frames are only in the"),
        "window_fits of a setting": (setting("window", 51), "a window of 51 steps"),
        "core_frames": (variable(role, "core", to=False, at=slice(None)), "core in only one"),
        "core_frames of none": (everywhere("core", to=False, at=slice(None)), "no core frame"),
        "same_truth": (variable(role, "truth", to=1e4), "recorded actions .* on 1 frames"),
        "same_truth of a NaN": (variable(role, "truth", to=np.nan), "actions .* on 1 frames"),
        "same_truth of a step": (
            variable(role, "valid", to=False, at=(slice(4, 6), 1)),
            "valid steps differ .* on [12] frames",
        ),
        "same_baselines": (variable(role, "state_copy", to=7), "state_copy differs"),
        "same_baselines of the norm": (
            variable(role, "state_copy_norm", to=7),
            "state_copy_norm differs",
        ),
        "same_baselines of one": (without("state_copy", role), "state_copy is in the .* arm only"),
    }


def of_horizons(role: str) -> Mutations:
    """Of a read on the arms' common horizon."""
    return {"window_fits": (attribute(role, horizon=30), "horizons differ")}


def of_rows(role: str) -> Mutations:
    """Of rows that must be aligned."""
    return {"same_index": (shifted(role, "index"), "index differs between")}


def of_summaries(role: str, **wrong: float) -> Mutations:
    """Of an arm whose stored errors are not those of its arrays."""
    return {
        f"summaries_reproduced of {name}": (
            attribute(role, summary={name: value}),
            f"the {role} arm's arrays give the {name} ",
        )
        for name, value in wrong.items()
    }


def of_one_checkpoint(guard: str, role: str) -> Mutations:
    return {
        guard: (attribute(role, checkpoint_digest="f" * 64), "different checkpoints"),
        f"{guard} that is unknown": (attribute(role, checkpoint_digest=None), "or none is known"),
    }


def of_baselines() -> Mutations:
    """Of arms that all lack a baseline, so that nothing would differ."""
    return {
        f"baselines of {name}": (without(name), f"arm has no {name};")
        for name in ("state_copy", "state_copy_norm")
    }


def of_draws(role: str, *, name: str, tag: str) -> Mutations:
    """Of an arm that holds its four draws one by one, called a name and a tag of draws."""
    return {
        f"stated_draws of {role}": (attribute(role, sample_draws=10), "sample_draws says 10"),
        f"stated_draws of {role} in a configuration": (
            attribute(role, config={"decode": {"draws": 3}}),
            f"the {role} arm .* its config says 3",
        ),
        f"stated_draws of {role} in a name": (
            attribute(role, arm=f"{name}_draws8{tag}"),
            f"the {role} arm .* its name says 8",
        ),
        f"stated_draws of {role} without a tag": (
            attribute(role, arm=name),
            f"{name}; expected a name that ends in _draws4",
        ),
        f"several_draws of {role}": (
            draws(role, slice(1), arm=f"{name}_draws1{tag}"),
            f"the {role} arm has a single draw a frame",
        ),
        f"mean_reproduced of {role}": (
            imported(role, off=0.01),
            f"the mean of the {role} arm's draws is not its pooled prediction on 1 frames",
        ),
        f"mean_reproduced of {role} without its mean": (
            beside(role, Path.unlink),
            "not beside its store",
        ),
        f"mean_reproduced of {role} cut short": (beside(role, cut_short), "cannot be read"),
        f"mean_reproduced of {role} on other frames": (
            beside(role, of_one_frame),
            f"the {role} arm is float32 of the shape",
        ),
    }


def of_extension(base: str, role: str) -> Mutations:
    """Of draws that must be of the policy of one greedy arm."""
    two = draws(base, [0, 0], arm="made@0_draws2_t1")
    return {
        f"stated_draws of {base}": (
            attribute(base, sample_draws=10, pooled=True),
            f"the {base} arm holds 1 draws a frame and its sample_draws says 10",
        ),
        "draws": (
            also(two, attribute(role, arm="made@0_draws2_t1_draws4_t1")),
            f"the {base} arm has 2 draws",
        ),
        "name_extends_by_draws": (
            attribute(role, arm="other@0_draws4_t1"),
            "is called other@0_draws4_t1",
        ),
        "name_extends_by_draws and no more": (
            attribute(role, arm="made@0b_draws4_t1"),
            "is called made@0b_draws4_t1",
        ),
        **of_one_checkpoint("same_checkpoint", role),
    }


def of_temperatures(role: str, *, wanted: str) -> Mutations:
    return {
        f"temperatures of {role}": (
            attribute(role, temperature=0.6),
            f"the {role} arm has the temperature 0.6; expected the registered {wanted}",
        ),
        f"temperatures of {role} unknown": (attribute(role, temperature=None), "temperature None"),
    }


def of_panel(*, rows: int, core: int, repo: Sequence[int]) -> Mutations:
    """Of a panel with other rows, core rows or repos, in every arm."""
    return {
        "panel of rows": (frames(slice(rows - 1)), f"panel has the rows {rows - 1}"),
        "panel of core frames": (
            everywhere("core", to=True, at=slice(None)),
            f"core {rows}, .* expected the registered rows {rows}, core {core}, ",
        ),
        "panel of repos": (renamed("made/repo000", rows=list(repo)), "repos 239, "),
    }


LONE_FAMILY: Final[Mutations] = {
    **of_pairs("draws"),
    **of_horizons("draws"),
    **of_rows("draws"),
    **of_draws("draws", name="made@0", tag="_t1"),
    **of_extension("greedy", "draws"),
    **of_summaries("greedy", chunk_mae=5.81, first_mae=1.0),
    "cut_to_subset": (frames(slice(480), "greedy"), "only greedy may hold more"),
}

MUTATIONS: Final[Mapping[str, Mutations]] = {
    "paired_delta": {**of_pairs("treatment"), **of_horizons("treatment")},
    "power": {**of_pairs("treatment"), **of_horizons("treatment")},
    "gain_difference": {**of_pairs("theirs_changed"), **of_horizons("theirs_changed")},
    "cost": of_stores("run"),
    "ar_sampled_draws": {
        **of_pairs("draws"),
        **of_horizons("draws"),
        **of_rows("draws"),
        **of_temperatures("greedy", wanted="0"),
        **of_temperatures("draws", wanted="1"),
        "draws": (draws("draws", slice(9)), "the draws arm has 9 draws a frame"),
        "draws of greedy": (draws("greedy", [0, 0]), "the greedy arm has 2 draws a frame"),
        "draws behind a mean": (
            draws("draws", slice(1), pooled=True, sample_draws=8),
            "the draws arm has 8 draws a frame",
        ),
        **of_panel(rows=960, core=640, repo=(4, 5, 6, 7)),
        "panel of a subset": (frames(slice(480), "draws"), "panel has the rows 480"),
        "panel of another digest": (
            also(*(attribute(role, panel_digest="x") for role in ("greedy", "draws"))),
            "digest x; expected the registered .*digest whole or rows 240",
        ),
        **of_baselines(),
        "name_extends": (attribute("draws", arm="made@0_draws10_t0.7"), "extended by exactly"),
        "name_extends of another": (attribute("draws", arm="b@0_draws10_t1"), "by exactly"),
        "name_extends and no more": (attribute("draws", arm="made@0_draws10_t1_x"), "by exactly"),
        **of_one_checkpoint("one_checkpoint", "draws"),
        **of_summaries("greedy", chunk_mae=5.81, first_mae=1.0),
        "same_frames of a subset that is none": (
            also(frames(slice(1, None), "greedy"), frames(slice(480), "draws")),
            "frames are only in the",
        ),
    },
    "temperature_table": {
        **of_pairs("t0_7"),
        **of_horizons("t0_5"),
        **of_rows("t1_0"),
        **of_temperatures("t0_7", wanted="0.7"),
        **of_temperatures("t1_0", wanted="1"),
        "no_duplicates of the full panel": (twice("t1_0"), "the t1_0 arm holds 1 frames more"),
        "same_frames of a full panel that lacks one": (
            frames([row for row in range(960) if row != 5], "t1_0"),
            "1 frames are only in the t0_5 arm",
        ),
        "same_truth of the full panel": (variable("t1_0", "truth", to=1e4), "on 1 frames"),
        "same_baselines of the full panel": (variable("t1_0", "state_copy", to=7), "differs"),
        "draws": (draws("t1_3", slice(9)), "the t1_3 arm has 9 draws a frame"),
        "panel of rows": (
            frames(slice(1, None), *(role for role in RUNGS if role != "t1_0")),
            "panel has the rows 239",
        ),
        "panel of core frames": (everywhere("core", to=True, at=slice(None)), "core 240, "),
        "panel of repos": (
            also(
                *(variable(role, "repo_name", to="made/repo001", at=0) for role in RUNGS),
                *(variable(role, "episode", to=9, at=0) for role in RUNGS),
                variable("t1_0", "repo_name", to="made/repo001", at=1),
                variable("t1_0", "episode", to=9, at=1),
            ),
            "repos 239, ",
        ),
        "panel of another digest": (attribute("t0_7", panel_digest="x"), "digest x; expected"),
        "panel of full rungs": (
            lambda case: case.arms.update(
                {role: _as_rung(case.arms["t1_0"], case.arms[role]) for role in RUNGS}
            ),
            "panel has the rows 960",
        ),
        **of_baselines(),
        "names_end": (attribute("t0_5", arm="made@0_draws10_t0.7"), "ends in _draws10_t0.5"),
        "names_end without a policy": (attribute("t1_0", arm="_draws10_t1"), "in _draws10_t1"),
        **of_one_checkpoint("one_checkpoint", "t1_3"),
        **of_summaries("t0_5", chunk_mae=6.0, first_mae=1.0),
        "summaries_reproduced of the full panel": (
            attribute("t1_0", summary={"chunk_mae": 6.7912}),
            "arrays give the chunk_mae 6.7812",
        ),
        "cut_to_subset of a full panel as a rung": (
            lambda case: case.arms.update(t0_7=_as_rung(case.arms["t1_0"], case.arms["t0_7"])),
            "the t0_7 arm holds 960 frames and the t0_5 arm 240; .*; only t1_0 may hold more",
        ),
        "cut_to_subset of rungs that disagree": (
            frames(slice(1, None), "t0_5"),
            "the t0_7 arm holds 240 frames",
        ),
        "same_frames of rungs on other rows": (
            lambda case: case.arms.update(
                t0_7=_as_rung(case.arms["t1_0"].isel(frame=slice(2, None, 4)), case.arms["t0_7"])
            ),
            "240 frames are only in the t0_5 arm",
        ),
    },
    "matched_window": {
        **of_pairs("ar_60k"),
        **of_rows("er_60k"),
        "window_fits": (attribute("ar_60k", horizon=20), "a window of 30 steps"),
        "same_frames of one missing": (frames(slice(1, None), "ar_40k"), "1 frames are only in"),
        "draws": (draws("candidate", [0, 0]), "the candidate arm has 2 draws"),
        "names_end": (
            attribute("snapflow_80k_ticket", arm="bijou@80000_draws10"),
            "ends in _draws10_ticket",
        ),
        **of_panel(rows=960, core=640, repo=(8, 9, 10, 11)),
        "contamination of repos": (
            renamed("made/other", rows=[12, 13, 14, 15]),
            "the contaminated split has 79 repos; expected the registered 80",
        ),
        "contamination of frames": (renamed("made/repo000", rows=[5]), "has 321 frames"),
        "contamination of core frames": (
            also(everywhere("core", to=True, at=2), everywhere("core", to=False, at=4)),
            "the contaminated split has 241 core frames",
        ),
        "contamination of clean frames": (
            pinned("contamination", clean_core=399),
            "the contaminated split has 400 clean core frames",
        ),
        "contamination of another list": (pinned("contamination", of=DIRTY[1:]), "has 79 repos"),
        "contamination of no list": (pinned("contamination", of=[]), "has 0 repos"),
        "exclusion of frames": (renamed(MASKED, rows=[8]), "the exclusion has 5 frames"),
        "exclusion of core frames": (
            also(everywhere("core", to=True, at=5), everywhere("core", to=False, at=9)),
            "the exclusion has 4 core frames",
        ),
        "exclusion of a repo that is not there": (
            renamed("made/repo-001", rows=[4, 5, 6, 7]),
            "no frame of the panel is of the excluded repo made/repo001.*did you mean",
        ),
        "fills_exactly": (
            variable("candidate", "prediction", at=(700, 0, 29, 5), to=np.nan),
            "not finite within 30 steps on 1 frames",
        ),
        "fills_exactly of an infinite value": (
            variable("candidate", "prediction", at=(700, 0, 29, 5), to=np.inf),
            "not finite within 30 steps on 1 frames",
        ),
        "fills_exactly of the tail": (
            variable("candidate", "prediction", at=(700, 0, 30, 2), to=1),
            "not NaN after 30 steps on 1 frames",
        ),
        "full_chunk": (
            variable("er_60k", "prediction", at=(slice(None), 0, slice(40, None)), to=0),
            "the er_60k arm's whole chunk has the MAE",
        ),
        "full_chunk of another arm": (
            pinned("full_chunk", of={"ar_40k": 6.0079, "er_60k": 7.5283}),
            "its banked 7.5283",
        ),
        **of_summaries("ar_40k", chunk_mae=6.02, first_mae=1.0),
        "_floor": (without("state_copy"), "the arms carry no state_copy"),
    },
    "selection_ceiling": LONE_FAMILY,
    "energy_score": LONE_FAMILY,
    "energy_score_flow": {
        **{name: it for name, it in LONE_FAMILY.items() if name != "cut_to_subset"},
        **of_draws("flow", name="flow@0", tag=""),
        "no_temperature": (attribute("flow", temperature=1.0), "flow arm has the temperature 1"),
        "same_frames of flow": (shifted("flow", "frame_index"), "only in the flow arm"),
        "window_fits of flow": (attribute("flow", horizon=30), "flow 30 steps"),
        "same_index of flow": (shifted("flow", "index"), "index differs"),
        "matched": (
            lambda case: case.arms.update(flow=families(flow_draws=10)["flow"]),
            r"different numbers of draws a frame \(draws 4, flow 10\)",
        ),
    },
    "draws_fairness": {
        **of_pairs("control"),
        **of_horizons("control"),
        **of_rows("control"),
        **of_draws("treatment", name="made@0", tag="_t1"),
        **of_draws("control", name="flow@0", tag=""),
        **of_summaries("control", chunk_mae=9.0, first_mae=1.0),
        "matched": (
            draws("control", slice(3), arm="flow@0_draws3"),
            r"different numbers of draws a frame \(treatment 4, control 3\)",
        ),
    },
}


def _as_rung(full: xarray.Dataset, rung: xarray.Dataset) -> xarray.Dataset:
    """The rows of T = 1.0 under the name and temperature of another rung."""
    return full.assign_attrs({name: rung.attrs[name] for name in ("arm", "temperature")})
