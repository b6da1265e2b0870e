"""What `evaluate` may be asked to do: its configuration as types, checked before a model loads."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, get_args

from arflow_eval import refusal
from arflow_eval.contracts import Family
from arflow_eval.values import (
    choice,
    did_you_mean,
    flag,
    plain_name,
    text,
    text_or_null,
    whole,
    whole_or_null,
    wrong,
)

BUNDLED: Final = Path(__file__).parent / "model" / "bundled"
CHECKPOINT_FILES: Final = ("config.json", "model.safetensors")
FAMILIES: Final[tuple[str, ...]] = get_args(Family)
DTYPES: Final = ("float32", "bfloat16")
SOLVERS: Final = ("euler", "heun")
NOISES: Final = ("philox",)
DETERMINISMS: Final = ("fixed_shape",)
FLOW_STEPS: Final = 10


@dataclass(frozen=True)
class ModelSettings:
    """Which policy to load, and from where. `path` is null for a policy without weights."""

    target: str
    name: str
    family: Family
    path: str | None
    dtype: str


@dataclass(frozen=True)
class DecodeSettings:
    """How to draw. `T` is None for a policy without one, `steps` for one that is no flow."""

    target: str
    name: str
    draws: int
    T: float | None
    steps: int | None
    solver: str
    noise: str
    determinism: str


@dataclass(frozen=True)
class PanelSettings:
    """Which frames: a frozen plan, its pinned SHA-256 (None: unpinned), recorded steps a frame."""

    target: str
    name: str
    plan: str
    digest: str | None
    steps: int
    sealed: bool


@dataclass(frozen=True)
class ShardSettings:
    """This process is number `index` of `count` that share one store."""

    index: int
    count: int


@dataclass(frozen=True)
class StoreSettings:
    """Where stores lie, and how many frames a chunk holds."""

    root: str
    block: int


@dataclass(frozen=True)
class EvaluateSettings:
    """Everything `evaluate` reads. Two commands with equal settings are the same run."""

    model: ModelSettings
    decode: DecodeSettings
    panel: PanelSettings
    shard: ShardSettings
    store: StoreSettings
    seed: int
    window: int | None
    device: str
    threads: int


def evaluate_settings(config: Mapping[str, Any]) -> EvaluateSettings:
    """The composed configuration as types, its nulls resolved, or a refusal of what does not fit.

    `decode.T` null means 1 for sampled draws of a token policy and 0 for its greedy read;
    `decode.steps` null means 10 for a flow policy. A sealed panel is a guard refusal.
    """
    model = _model(config["model"])
    settings = EvaluateSettings(
        model=model,
        decode=_decode(config["decode"], family=model.family),
        panel=_panel(config["panel"]),
        shard=_shard(config["shard"]),
        store=StoreSettings(
            root=text(config["store"]["root"], key="store.root"),
            block=whole(config["store"]["block"], key="store.block", least=1),
        ),
        seed=whole(config["seed"], key="seed", least=0),
        window=whole_or_null(config["window"], key="window", least=1),
        device=_device(config["device"]),
        threads=whole(config["threads"], key="threads", least=1),
    )
    if settings.panel.sealed:
        raise refusal.sealed_panel(settings.panel.name)
    return settings


def arm_name(settings: EvaluateSettings) -> str:
    """The name of an arm in tables and folders: `ar_tiny`, `ar_tiny_draws10_t0.7`."""
    model, decode = settings.model, settings.decode
    if decode.name == "greedy" or model.family == "chunk":
        return model.name
    temperature = "" if decode.T is None else f"_t{decode.T:g}"
    return f"{model.name}_{decode.name}{decode.draws}{temperature}"


def checkpoint_folder(path: str | None) -> Path | None:
    """The folder that `model.path` names: `bundled:NAME` lies in the package; null has none."""
    if path is None:
        return None
    bundled = path.startswith("bundled:")
    folder = BUNDLED / path.removeprefix("bundled:") if bundled else Path(path).expanduser()
    lacking = [name for name in CHECKPOINT_FILES if not (folder / name).is_file()]
    if lacking:
        names = [f"bundled:{option.name}" for option in BUNDLED.glob("*")] if bundled else []
        raise refusal.usage(
            f"no checkpoint at {path}" + (f" (no {lacking[0]})" if folder.is_dir() else ""),
            expected="a folder with config.json and model.safetensors",
            remedy=did_you_mean("model.path", path, names) or "check model.path",
        )
    return folder


def _model(config: Mapping[str, Any]) -> ModelSettings:
    path = text_or_null(config["path"], key="model.path")
    checkpoint_folder(path)
    return ModelSettings(
        target=text(config["_target_"], key="model._target_"),
        name=plain_name(config["name"], key="model.name"),
        family=cast("Family", choice(config["family"], key="model.family", known=FAMILIES)),
        path=path,
        dtype=choice(config["dtype"], key="model.dtype", known=DTYPES),
    )


def _decode(config: Mapping[str, Any], *, family: Family) -> DecodeSettings:
    settings = DecodeSettings(
        target=text(config["_target_"], key="decode._target_"),
        name=plain_name(config["name"], key="decode.name"),
        draws=whole(config["draws"], key="decode.draws", least=1),
        T=_temperature(config["T"]),
        steps=whole_or_null(config["steps"], key="decode.steps", least=1),
        solver=choice(config["solver"], key="decode.solver", known=SOLVERS),
        noise=choice(config["noise"], key="decode.noise", known=NOISES),
        determinism=choice(config["determinism"], key="decode.determinism", known=DETERMINISMS),
    )
    _check_greedy(settings)
    _check_family(settings, family=family)
    return _resolved(settings, family=family)


def _check_greedy(settings: DecodeSettings) -> None:
    if settings.name != "greedy":
        return
    for key, value, only in (("T", settings.T, None), ("draws", settings.draws, 1)):
        if value != only:
            raise refusal.usage(
                f"decode.{key}={value:g} with decode=greedy",
                expected="one read a frame, without a temperature",
                remedy=f"sample with decode=draws decode.{key}={value:g}",
            )


def _check_family(settings: DecodeSettings, *, family: Family) -> None:
    if family == "chunk" and settings.name != "greedy":
        raise refusal.usage(
            f"decode={settings.name} of a policy of family chunk",
            expected="decode=greedy: such a policy is deterministic and has no draws",
            remedy="drop decode=, or choose a token or flow model",
        )
    if family != "token" and settings.T is not None:
        raise refusal.usage(
            f"decode.T={settings.T:g} of a policy of family {family}",
            expected="a temperature for a token policy only",
            remedy="drop decode.T",
        )
    for key, value, default in (
        ("steps", settings.steps, None),
        ("solver", settings.solver, SOLVERS[0]),
    ):
        if family != "flow" and value != default:
            raise refusal.usage(
                f"decode.{key}={value} of a policy of family {family}",
                expected=f"solver {key} for a flow policy only",
                remedy=f"drop decode.{key}",
            )


def _resolved(settings: DecodeSettings, *, family: Family) -> DecodeSettings:
    values = dict(vars(settings))
    if family == "token" and settings.T is None:
        values["T"] = 0.0 if settings.name == "greedy" else 1.0
    if family == "flow" and settings.steps is None:
        values["steps"] = FLOW_STEPS
    return DecodeSettings(**values)


def _panel(config: Mapping[str, Any]) -> PanelSettings:
    return PanelSettings(
        target=text(config["_target_"], key="panel._target_"),
        name=plain_name(config["name"], key="panel.name"),
        plan=text(config["plan"], key="panel.plan"),
        digest=text_or_null(config["digest"], key="panel.digest"),
        steps=whole(config["steps"], key="panel.steps", least=1),
        sealed=flag(config["sealed"], key="panel.sealed"),
    )


def _shard(config: Mapping[str, Any]) -> ShardSettings:
    count = whole(config["count"], key="shard.count", least=1)
    index = whole(config["index"], key="shard.index", least=0)
    if index >= count:
        raise refusal.usage(
            f"shard.index={index} of shard.count={count}",
            expected=f"an index from 0 to {count - 1}",
            remedy="count shards from 0",
        )
    return ShardSettings(index=index, count=count)


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise wrong("decode.T", value, expected="a finite number >= 0, or null", example="0.7")
    return float(value)


def _device(value: Any) -> str:
    device = text(value, key="device")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise wrong("device", value, expected="cpu, cuda or cuda:N", example="cpu")
    return device
