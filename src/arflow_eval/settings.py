"""What `evaluate` may be asked to do: its configuration as types, checked before a model loads."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, get_args

from arflow_eval import refusal
from arflow_eval.contracts import Family
from arflow_eval.decode_settings import (
    WORD,
    DecodeSettings,
    decode_settings,
    not_of_family,
    resolved,
)
from arflow_eval.values import (
    choice,
    did_you_mean,
    flag,
    plain_name,
    positive_or_null,
    text,
    text_or_null,
    texts_or_null,
    whole,
    whole_or_null,
    wrong,
)

BUNDLED: Final = Path(__file__).parent / "model" / "bundled"
CHECKPOINT_FILES: Final = ("config.json", "model.safetensors")
FAMILIES: Final[tuple[str, ...]] = get_args(Family)
OWN_FUNCTION: Final = "arflow_eval.model.function.load"
DTYPES: Final = ("float32", "bfloat16")


@dataclass(frozen=True)
class ModelSettings:
    """Which policy to load, and from where.

    `path` is null for a policy without weights; `function` is a user's own, of model=python.
    """

    target: str
    name: str
    family: Family
    path: str | None
    dtype: str
    function: str | None


@dataclass(frozen=True)
class PanelSettings:
    """Which frames: a frozen plan, its pinned SHA-256 (None: unpinned), recorded steps a frame.

    `root` to `cache` say where data of one's own lies and how it is read; `subset` and `limit`
    cut any panel.
    """

    target: str
    name: str
    plan: str | None
    digest: str | None
    steps: int
    sealed: bool
    root: str | None
    repos: tuple[str, ...] | None
    subset: str | None
    limit: int | None
    units: str
    cameras: tuple[str, ...] | None
    names: tuple[str, ...] | None
    cache: str | None


@dataclass(frozen=True)
class ShardSettings:
    """This process is number `index` of `count` that share one store."""

    index: int
    count: int


@dataclass(frozen=True)
class GateSettings:
    """A limit on the device-hours of the whole run (None: none), and what exceeding it does."""

    name: str
    device_hours: float | None
    measure_frames: int
    on_exceed: str


@dataclass(frozen=True)
class StoreSettings:
    """Where stores lie, how many frames a chunk holds, and whether tokens are kept."""

    root: str
    block: int
    tokens: bool


@dataclass(frozen=True)
class EvaluateSettings:
    """Everything `evaluate` reads. Two commands with equal settings are the same run."""

    model: ModelSettings
    decode: DecodeSettings
    panel: PanelSettings
    shard: ShardSettings
    store: StoreSettings
    gate: GateSettings
    seed: int
    window: int | None
    device: str
    threads: int
    batch: int
    registration: Mapping[str, Any] | None = None  # which locked arm this is; None: none


def evaluate_settings(config: Mapping[str, Any]) -> EvaluateSettings:
    """The composed configuration as types, its nulls resolved, or a refusal of what does not fit.

    `decode.T` null means 1 for sampled draws of a token policy and 0 for its greedy read;
    `decode.steps` null means 10 for a flow policy; `decode.determinism` null means exact on a
    CPU with one thread, else fixed_shape. A sealed panel is a guard refusal, except in the run of
    a registration's locked arm.
    """
    model = _model(config["model"])
    device = _device(config["device"])
    threads = whole(config["threads"], key="threads", least=1)
    decode = decode_settings(config["decode"], family=model.family)
    settings = EvaluateSettings(
        model=model,
        decode=resolved(decode, family=model.family, one_core=(device, threads) == ("cpu", 1)),
        panel=_panel(config["panel"]),
        shard=_shard(config["shard"]),
        store=StoreSettings(
            root=text(config["store"]["root"], key="store.root"),
            block=whole(config["store"]["block"], key="store.block", least=1),
            tokens=_tokens(config["store"]["tokens"], family=model.family),
        ),
        gate=_gate(config["gate"]),
        seed=_seed(config["seed"], noise=decode.noise),
        window=whole_or_null(config["window"], key="window", least=1),
        device=device,
        threads=threads,
        batch=whole(config["batch"], key="batch", least=1),
        registration=config.get("registration"),
    )
    if settings.panel.sealed and not opens_sealed(settings):
        raise refusal.sealed_panel(settings.panel.name)
    return settings


def opens_sealed(settings: EvaluateSettings) -> bool:
    """Whether these are the settings of a locked arm, which alone may open a sealed panel."""
    return bool((settings.registration or {}).get("opens_sealed"))


def arm_name(settings: EvaluateSettings) -> str:
    """The name of an arm in tables and folders: `ar_tiny`, `ar_tiny_draws10_t0.7`.

    A schedule is named by both its ends (`_t1to0.5`), a ticket bank as such (`_ticket`).
    """
    model, decode = settings.model, settings.decode
    if decode.name == "greedy" or model.family == "chunk":
        return model.name
    temperature = "" if decode.T is None else f"_t{decode.T:g}"
    final = "" if decode.T_final is None else f"to{decode.T_final:g}"
    ticket = "" if decode.tickets is None else "_ticket"
    return f"{model.name}_{decode.name}{decode.draws}{temperature}{final}{ticket}"


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
    target = text(config["_target_"], key="model._target_")
    return ModelSettings(
        target=target,
        name=plain_name(config["name"], key="model.name"),
        family=cast("Family", choice(config["family"], key="model.family", known=FAMILIES)),
        path=path,
        dtype=choice(config["dtype"], key="model.dtype", known=DTYPES),
        function=_function(config["function"], target=target),
    )


def _function(value: Any, *, target: str) -> str | None:
    named = text_or_null(value, key="model.function")
    if named is not None and target != OWN_FUNCTION:
        raise refusal.usage(
            f"model.function={named} with {target}",
            expected="a function with model=python alone",
            remedy="choose model=python, or drop model.function",
        )
    return named


def _tokens(value: Any, *, family: Family) -> bool:
    if flag(value, key="store.tokens") and family != "token":
        raise not_of_family("store.tokens=true", family=family, only="token")
    return bool(value)


def _panel(config: Mapping[str, Any]) -> PanelSettings:
    return PanelSettings(
        target=text(config["_target_"], key="panel._target_"),
        name=plain_name(config["name"], key="panel.name"),
        plan=text_or_null(config["plan"], key="panel.plan"),
        digest=text_or_null(config["digest"], key="panel.digest"),
        steps=whole(config["steps"], key="panel.steps", least=1),
        sealed=flag(config["sealed"], key="panel.sealed"),
        root=text_or_null(config["root"], key="panel.root"),
        repos=texts_or_null(config["repos"], key="panel.repos"),
        subset=text_or_null(config["subset"], key="panel.subset"),
        limit=whole_or_null(config["limit"], key="panel.limit", least=1),
        units=text(config["units"], key="panel.units"),
        cameras=texts_or_null(config["cameras"], key="panel.cameras"),
        names=texts_or_null(config["names"], key="panel.names"),
        cache=text_or_null(config["cache"], key="panel.cache"),
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


def _gate(config: Mapping[str, Any]) -> GateSettings:
    return GateSettings(
        name=plain_name(config["name"], key="gate.name"),
        device_hours=positive_or_null(config["device_hours"], key="gate.device_hours"),
        measure_frames=whole(config["measure_frames"], key="gate.measure_frames", least=1),
        on_exceed=choice(config["on_exceed"], key="gate.on_exceed", known=("stop", "warn")),
    )


def _seed(value: Any, *, noise: str) -> int:
    seed = whole(value, key="seed", least=0)
    if noise == "published" and seed >= WORD:
        raise wrong(
            "seed",
            seed,
            expected=f"a whole number < {WORD} with decode.noise=published",
            example="0",
        )
    return seed


def _device(value: Any) -> str:
    device = text(value, key="device")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise wrong("device", value, expected="cpu, cuda or cuda:N", example="cpu")
    return device
