"""Contracts of every bundled policy, and what loading refuses."""

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arflow_eval import compose, refusal
from arflow_eval import decode_settings as settings_module
from arflow_eval.codec import normalise
from arflow_eval.contracts import FlowPolicy, FrameDraws, Panel, Policy, Sampling, TokenPolicy
from arflow_eval.decode import solver
from arflow_eval.decode.frames import decode
from arflow_eval.evaluate import evaluate, load_panel, load_policy
from arflow_eval.panel.bundled import DATA, demonstrations
from arflow_eval.settings import BUNDLED, evaluate_settings
from arflow_eval.summary import summarise

ROOT = Path(__file__).parent.parent
MODELS = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))
LEARNT = ("ar_tiny", "flow_tiny")
# options that leave the checkpoint to their user, and the kind of trunk it must have
BROUGHT = {"ar100k": "gemma4", "molmo2": "molmo2"}
with pytest.MonkeyPatch.context() as path:
    path.syspath_prepend(str(ROOT / "tools"))
    tiny: Any = importlib.import_module("make_tiny_checkpoint")


@pytest.fixture(scope="module")
def panel() -> Panel:
    return load_panel(evaluate_settings(compose.compose("evaluate", [])))


def load(name: str, panel: Panel, *overrides: str) -> Policy:
    settings = evaluate_settings(compose.compose("evaluate", [f"model={name}", *overrides]))
    return load_policy(settings, panel)


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What must be given beside `model=NAME`: a tiny checkpoint without cameras, or a function."""
    found: dict[str, list[str]] = {name: [] for name in MODELS}
    found["python"] = ["model.function=own_policy:held_state"]
    for name, kind in BROUGHT.items():
        folder = tmp_path_factory.mktemp(name)
        tiny.write(folder, kind, cameras=())
        found[name] = [f"model.path={folder}", "model.dtype=float32"]
    return found


@pytest.fixture(scope="module")
def policies(panel: Panel, brought: dict[str, list[str]]) -> dict[str, Policy]:
    return {name: load(name, panel, *brought[name]) for name in MODELS}


def sampling_of(policy: Policy) -> Sampling:
    """Decode settings that fit a policy's family: several draws where it has them."""
    token, flow = isinstance(policy, TokenPolicy), isinstance(policy, FlowPolicy)
    return Sampling(
        draws=3 if token or flow else 1,
        T=1.0 if token else None,
        steps=4 if flow else None,
        tile=4,
        least=16,
        seed=0,
    )


def drawn(policy: Policy, panel: Panel, rows: list[int], **changed: Any) -> list[FrameDraws]:
    seen = [panel.observe(row) for row in rows]
    return decode(policy, seen, replace(sampling_of(policy), **changed))


@pytest.mark.parametrize("name", MODELS)
def test_a_frames_draws_are_the_same_alone_in_another_order_and_again(
    policies: dict[str, Policy], panel: Panel, name: str
) -> None:
    policy = policies[name]
    together = drawn(policy, panel, [5, 9, 80])
    backwards = drawn(policy, panel, [80, 9, 5])
    alone = drawn(policy, panel, [9])
    for one, other in zip(together, reversed(backwards), strict=True):
        assert (one.prediction == other.prediction).all()
    assert (together[1].prediction == alone[0].prediction).all()
    assert np.array_equal(together[1].logprob, alone[0].logprob, equal_nan=True)


@pytest.mark.parametrize("name", LEARNT)
def test_a_draw_is_the_same_among_three_or_ten(
    policies: dict[str, Policy], panel: Panel, name: str
) -> None:
    three = drawn(policies[name], panel, [33])[0]
    ten = drawn(policies[name], panel, [33], draws=10)[0]
    assert (three.prediction == ten.prediction[:3]).all()
    assert np.array_equal(three.logprob, ten.logprob[:3], equal_nan=True)


@pytest.mark.parametrize("name", MODELS)
def test_chunks_are_in_pixels_and_shaped_as_the_policy_says(
    policies: dict[str, Policy], panel: Panel, name: str
) -> None:
    policy = policies[name]
    found = drawn(policy, panel, [0, 40])[0].prediction
    assert found.shape[1:] == (policy.horizon, policy.action_dim) == (50, 2)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert np.abs(found - 256).max() < (5000 if name in BROUGHT else 1000)  # those are random


def test_temperature_zero_equals_greedy_on_the_bundled_policy(
    policies: dict[str, Policy], panel: Panel
) -> None:
    greedy = drawn(policies["ar_tiny"], panel, [12, 60], draws=1, T=0.0)
    cold = drawn(policies["ar_tiny"], panel, [12, 60], draws=4, T=0.0)
    for one, four in zip(greedy, cold, strict=True):
        assert (four.prediction == one.prediction).all()


def test_the_auxiliary_line_tells_progress_as_a_percentage(
    policies: dict[str, Policy], panel: Panel
) -> None:
    lines = [each.lines["progress"] for each in drawn(policies["ar_tiny"], panel, [0, 3])]
    percents = [int(line.removeprefix("progress: ").removesuffix("%")) for line in lines]
    assert all(0 <= percent <= 100 for percent in percents)


@pytest.mark.parametrize("name", BROUGHT)
def test_a_brought_checkpoint_runs_from_the_command_line_to_a_summary(
    brought: dict[str, list[str]], name: str, tmp_path: Path
) -> None:
    words = [f"model={name}", *brought[name], "panel=pusht_q4", f"store.root={tmp_path}"]
    outcome = evaluate(
        compose.compose("evaluate", [*words, "decode=draws", "decode.draws=2", "store.tokens=true"])
    )
    assert outcome.folder.name.startswith(f"{name}_draws2_t1-pusht_q4-")
    assert summarise(outcome.store, window=None).chunk_mae > 0


@pytest.mark.parametrize("name", BROUGHT)
def test_a_model_without_its_checkpoint_says_which_key_is_missing(name: str) -> None:
    with pytest.raises(refusal.Refusal, match=r"model\.path not given"):
        compose.compose("evaluate", [f"model={name}"])


def training_episodes() -> list[int]:
    episodes: list[int] = json.loads((DATA / "pusht_split.json").read_text())["training"]
    return episodes


@pytest.mark.parametrize("name", LEARNT)
def test_norm_tables_are_those_of_training_episodes_and_their_mirror_images_alone(
    name: str,
) -> None:
    corpus = demonstrations()
    seen = [corpus.states[corpus.rows(episode)] for episode in training_episodes()]
    states = np.concatenate([*seen, *(512 - each[:, ::-1] for each in seen)])
    tables = json.loads((BUNDLED / name / "norm_stats.json").read_text())["state"]
    expected = normalise.quantiles(states)
    assert np.allclose(tables["q01"], expected.q01)
    assert np.allclose(tables["q99"], expected.q99)


@pytest.mark.parametrize("name", LEARNT)
def test_weights_are_small_safetensors_and_the_log_names_the_training_set(name: str) -> None:
    assert (BUNDLED / name / "model.safetensors").stat().st_size < 4_000_000
    log = json.loads((BUNDLED / name / "training_log.json").read_text())
    assert log["training_episodes"] == len(training_episodes())
    assert log["curve"][-1]["loss"] < log["curve"][0]["loss"]
    assert (BUNDLED / name / "MODEL_CARD.md").is_file()


@pytest.mark.parametrize("name", LEARNT)
def test_a_learnt_policy_beats_hold_last_and_state_copy_on_held_out_frames(
    name: str, tmp_path: Path
) -> None:
    def score(model: str) -> float:
        words = [f"model={model}", "panel=pusht", f"store.root={tmp_path}"]
        outcome = evaluate(compose.compose("evaluate", words))
        return summarise(outcome.store, window=None).chunk_mae

    learnt = score(name)
    assert learnt < score("hold_last")
    assert learnt < score("state_copy")


@pytest.fixture(params=LEARNT)
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    folder = tmp_path / "checkpoint"
    shutil.copytree(BUNDLED / request.param, folder)
    return request.param, folder


def edit_config(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def truncate(folder: Path) -> None:
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(raw[: len(raw) // 2])


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no norm table": (lambda f: (f / "norm_stats.json").unlink(), "has no norm_stats.json"),
    "garbled json": (lambda f: (f / "norm_stats.json").write_text("{"), "is not JSON"),
    "another kind": (
        lambda f: edit_config(f, lambda c: c.update(kind="video")),
        "format 1 and kind video",
    ),
    "another format": (lambda f: edit_config(f, lambda c: c.update(format=9)), "has format 9"),
    "no horizon": (
        lambda f: edit_config(f, lambda c: (c.pop("steps", 0), c.pop("codec", 0))),
        "does not fit .KeyError",
    ),
    "another trunk": (
        lambda f: edit_config(f, lambda c: c.update(trunk="video", expert={"trunk": 1})),
        "has the trunk video|does not fit",
    ),
    "impossible sizes": (
        lambda f: edit_config(
            f,
            lambda c: (
                c.get("trunk_config", {}).update(hidden_size=-5),
                c.get("expert", {}).update(width=-5),
            ),
        ),
        "does not fit",
    ),
    "truncated weights": (truncate, "cannot be read"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_checkpoint_is_refused_by_name(
    copied: tuple[str, Path], panel: Panel, broken: str
) -> None:
    name, folder = copied
    change, message = BREAKS[broken]
    change(folder)
    with pytest.raises(refusal.Refusal, match=message):
        load(name, panel, f"model.path={folder}")


@pytest.mark.parametrize(
    "file", ["tokenizer.json", "fast.json", "norm_stats.json", "config.json", "model.safetensors"]
)
def test_every_file_that_is_missing_is_named(tmp_path: Path, panel: Panel, file: str) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(BUNDLED / "ar_tiny", folder)
    (folder / file).unlink()
    with pytest.raises(refusal.Refusal, match=f"no {file}") as refused:
        load("ar_tiny", panel, f"model.path={folder}")
    assert refused.value.exit_code == refusal.USAGE


@pytest.mark.parametrize("file", ["tokenizer.json", "fast.json"])
def test_a_tokenizer_file_that_holds_none_is_refused(
    tmp_path: Path, panel: Panel, file: str
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(BUNDLED / "ar_tiny", folder)
    (folder / file).write_text("{}")
    with pytest.raises(refusal.Refusal, match=f"{file} holds no tokenizer"):
        load("ar_tiny", panel, f"model.path={folder}")


@pytest.mark.parametrize("name", LEARNT)
def test_a_device_that_is_not_there_is_refused(panel: Panel, name: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(refusal.Refusal, match="finds no GPU"):
        load(name, panel, "device=cuda")


@pytest.mark.parametrize("name", LEARNT)
def test_the_model_card_tells_the_figures_of_the_training_log(name: str) -> None:
    log = json.loads((BUNDLED / name / "training_log.json").read_text())
    card = (BUNDLED / name / "MODEL_CARD.md").read_text()
    figures = [f"{value:.2f}" for value in log["held_out_chunk_mae_px"].values()]
    assert " | ".join(figures) in card
    assert f"{log['steps']:,} steps" in card


def test_the_solvers_that_may_be_asked_for_are_those_that_exist() -> None:
    assert set(settings_module.SOLVERS) == set(solver.SOLVERS)


def test_the_same_weights_under_another_path_are_the_same_run(copied: tuple[str, Path]) -> None:
    name, folder = copied
    words = [f"model={name}", "panel=pusht_q4", f"store.root={folder.parent}/out"]
    first = evaluate(compose.compose("evaluate", words))
    again = evaluate(compose.compose("evaluate", [*words, f"model.path={folder}"]))
    assert (again.folder, again.computed) == (first.folder, 0)
