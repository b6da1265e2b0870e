import copy
from pathlib import Path
from typing import Any

import pytest

from arflow_eval import settings
from arflow_eval.refusal import GUARD, USAGE, Refusal
from arflow_eval.settings import arm_name, checkpoint_folder, evaluate_settings

GREEDY: dict[str, Any] = {
    "seed": 0,
    "window": None,
    "device": "cpu",
    "threads": 1,
    "batch": 8,
    "shard": {"index": 0, "count": 1},
    "store": {"root": "outputs", "block": 16, "tokens": False},
    "model": {
        "_target_": "arflow_eval.model.gemma3.load",
        "name": "ar_tiny",
        "family": "token",
        "path": None,
        "dtype": "float32",
        "function": None,
    },
    "decode": {
        "_target_": "arflow_eval.decode.frames.decode",
        "name": "greedy",
        "draws": 1,
        "T": None,
        "steps": None,
        "solver": "euler",
        "tickets": None,
        "noise": "philox",
        "determinism": None,
        "schedule": "constant",
        "T_final": None,
        "reference": None,
        "mass": False,
    },
    "gate": {"name": "none", "device_hours": None, "measure_frames": 200, "on_exceed": "stop"},
    "panel": {
        "_target_": "arflow_eval.panel.bundled.pusht",
        "name": "pusht",
        "plan": "pusht.json",
        "digest": "9685",
        "steps": 50,
        "sealed": False,
        "root": None,
        "repos": None,
        "subset": None,
        "limit": None,
        "units": "pixel",
        "cameras": None,
        "names": None,
        "cache": None,
    },
}


def changed(**values: Any) -> dict[str, Any]:
    """GREEDY with dotted keys (written with two underscores) set."""
    config = copy.deepcopy(GREEDY)
    for key, value in values.items():
        *groups, last = key.split("__")
        node = config
        for group in groups:
            node = node[group]
        node[last] = value
    return config


SAMPLED = {"decode__name": "draws", "decode__draws": 10}
FLOW = {"model__family": "flow", "model__name": "flow_tiny"}
CHUNK = {"model__family": "chunk", "model__name": "state_copy"}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"decode__draws": 0, "decode__name": "draws"}, "decode.draws=0"),
        ({"decode__draws": True, "decode__name": "draws"}, "decode.draws=true"),
        ({"decode__draws": 10}, "decode.draws=10 with decode=greedy"),
        ({"decode__T": 0.7}, "decode.T=0.7 with decode=greedy"),
        ({**SAMPLED, "decode__T": -0.1}, "decode.T=-0.1"),
        ({**SAMPLED, "decode__T": float("inf")}, "decode.T=inf"),
        ({**SAMPLED, "decode__T": "hot"}, "decode.T=hot"),
        ({**SAMPLED, **FLOW, "decode__T": 0.7}, "decode.T=0.7 of a policy of family flow"),
        ({**SAMPLED, **CHUNK}, "decode=draws of a policy of family chunk"),
        ({"decode__steps": 5}, "decode.steps=5 of a policy of family token"),
        ({"decode__solver": "heun"}, "decode.solver=heun of a policy of family token"),
        ({**FLOW, "decode__steps": 0}, "decode.steps=0"),
        ({**FLOW, "decode__solver": "eulr"}, "decode.solver=eulr"),
        ({"decode__noise": "mersenne"}, "decode.noise=mersenne"),
        ({"decode__determinism": "batch"}, "decode.determinism=batch"),
        ({"decode__schedule": "cosine"}, "decode.schedule=cosine"),
        ({"decode__schedule": "linear"}, "decode.schedule=linear with decode=greedy"),
        (
            {**SAMPLED, "decode__schedule": "linear"},
            "decode.schedule=linear with decode.T_final=null",
        ),
        ({**SAMPLED, "decode__T_final": 0.5}, "decode.schedule=constant with decode.T_final=0.5"),
        ({**SAMPLED, "decode__T_final": -1}, "decode.T_final=-1"),
        ({"decode__tickets": "bank.npy"}, "decode.tickets=bank.npy with decode=greedy"),
        (
            {**SAMPLED, "decode__tickets": "bank.npy"},
            "decode.tickets=bank.npy of a policy of family token",
        ),
        (
            {**FLOW, "decode__reference": "state"},
            "decode.reference=state of a policy of family flow",
        ),
        ({**FLOW, "decode__mass": True}, "decode.mass=true of a policy of family flow"),
        ({**CHUNK, "store__tokens": True}, "store.tokens=true of a policy of family chunk"),
        ({"store__tokens": 1}, "store.tokens=1"),
        ({"batch": 0}, "batch=0"),
        ({**SAMPLED, "decode__noise": "published", "seed": 2**32}, "seed=4294967296"),
        ({"model__dtype": "float16"}, "model.dtype=float16"),
        ({"model__family": "diffusion"}, "model.family=diffusion"),
        ({"model__name": "a/b"}, "model.name=a/b"),
        ({"model__path": "/no/such"}, "no checkpoint at /no/such"),
        ({"panel__steps": 0}, "panel.steps=0"),
        ({"panel__sealed": None}, "panel.sealed=null"),
        ({"window": 0}, "window=0"),
        ({"seed": -1}, "seed=-1"),
        ({"shard__count": 0}, "shard.count=0"),
        ({"shard__index": 2, "shard__count": 2}, "shard.index=2 of shard.count=2"),
        ({"store__block": 0}, "store.block=0"),
        ({"store__root": ""}, "store.root="),
        ({"threads": 0}, "threads=0"),
        ({"device": "gpu"}, "device=gpu"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(values: dict[str, Any], found: str) -> None:
    with pytest.raises(Refusal) as refused:
        evaluate_settings(changed(**values))
    assert refused.value.exit_code == USAGE
    assert refused.value.found == found


def test_a_sealed_panel_is_refused_by_a_guard() -> None:
    with pytest.raises(Refusal, match="locked run of a registration") as refused:
        evaluate_settings(changed(panel__sealed=True))
    assert refused.value.exit_code == GUARD


def test_a_misspelt_choice_names_the_nearest() -> None:
    with pytest.raises(Refusal, match=r"did you mean decode\.solver=euler"):
        evaluate_settings(changed(**FLOW, decode__solver="eulr"))


@pytest.mark.parametrize(
    ("values", "temperature", "steps"),
    [
        ({}, 0.0, None),
        (SAMPLED, 1.0, None),
        ({**SAMPLED, "decode__T": 0}, 0.0, None),
        ({**SAMPLED, "decode__T": 0.7}, 0.7, None),
        (FLOW, None, 10),
        ({**FLOW, **SAMPLED, "decode__steps": 4}, None, 4),
        (CHUNK, None, None),
    ],
)
def test_nulls_resolve_to_what_the_family_does(
    values: dict[str, Any], temperature: float | None, steps: int | None
) -> None:
    decode = evaluate_settings(changed(**values)).decode
    assert (decode.T, decode.steps) == (temperature, steps)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "ar_tiny"),
        ({**SAMPLED, "decode__T": 0.70}, "ar_tiny_draws10_t0.7"),
        (SAMPLED, "ar_tiny_draws10_t1"),
        (FLOW, "flow_tiny"),
        ({**FLOW, **SAMPLED}, "flow_tiny_draws10"),
        ({**FLOW, **SAMPLED, "decode__tickets": "bank.npy"}, "flow_tiny_draws10_ticket"),
        (
            {**SAMPLED, "decode__schedule": "linear", "decode__T_final": 0.5},
            "ar_tiny_draws10_t1to0.5",
        ),
        (CHUNK, "state_copy"),
    ],
)
def test_an_arm_is_named_by_its_model_draws_and_temperature(
    values: dict[str, Any], name: str
) -> None:
    assert arm_name(evaluate_settings(changed(**values))) == name


@pytest.mark.parametrize(
    ("values", "level", "tile"),
    [
        ({}, "exact", 4),
        ({"threads": 2}, "fixed_shape", 16),
        ({"device": "cuda"}, "fixed_shape", 16),
        ({"device": "cuda", "decode__determinism": "exact"}, "exact", 4),
        ({"decode__determinism": "keyed"}, "keyed", 1),
    ],
)
def test_a_cpu_with_one_thread_is_exact_and_all_else_of_fixed_shape(
    values: dict[str, Any], level: str, tile: int
) -> None:
    decode = evaluate_settings(changed(**values)).decode
    assert (decode.determinism, decode.tile) == (level, tile)


def test_a_sweep_that_says_the_default_aloud_is_the_same_run() -> None:
    silent = evaluate_settings(changed(**SAMPLED))
    assert evaluate_settings(changed(**SAMPLED, decode__T=1)) == silent


def test_a_policy_without_weights_has_no_checkpoint() -> None:
    assert checkpoint_folder(None) is None


def test_a_checkpoint_is_a_folder_of_two_files(tmp_path: Path) -> None:
    for name in settings.CHECKPOINT_FILES:
        with pytest.raises(Refusal, match=rf"no checkpoint at .* \(no {name}\)"):
            checkpoint_folder(str(tmp_path))
        (tmp_path / name).touch()
    assert checkpoint_folder(str(tmp_path)) == tmp_path


def test_a_bundled_checkpoint_lies_in_the_package_and_has_a_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BUNDLED", tmp_path)
    (tmp_path / "ar_tiny").mkdir()
    for name in settings.CHECKPOINT_FILES:
        (tmp_path / "ar_tiny" / name).touch()
    assert checkpoint_folder("bundled:ar_tiny") == tmp_path / "ar_tiny"
    with pytest.raises(Refusal, match=r"did you mean model\.path=bundled:ar_tiny"):
        checkpoint_folder("bundled:ar_tny")
