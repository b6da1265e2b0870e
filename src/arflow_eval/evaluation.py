"""The loop of an evaluation: for each unwritten block, observe, decode, write data, then mark.

Everything that can change a number is in the digest that names the store; everything else is
recorded beside it. Rerunning the same settings resumes; a complete store is only read.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from arflow_eval import beside, gates, provenance, refusal, store
from arflow_eval.columns import block_columns
from arflow_eval.contracts import (
    ChunkPolicy,
    Family,
    FlowPolicy,
    FrameDraws,
    Observation,
    Panel,
    Policy,
    Sampling,
    TokenPolicy,
)
from arflow_eval.decode import tickets
from arflow_eval.decode.probe import probe
from arflow_eval.model import function
from arflow_eval.progress import Advance, frames_done
from arflow_eval.sampling import measures, padded_frames, sampling
from arflow_eval.settings import EvaluateSettings, arm_name, checkpoint_folder
from arflow_eval.stopping import between_blocks

COLUMNS: Final = "arflow_eval.columns"  # makes what a store holds of what a decode returns
NO_PART: Final = ("target", "name")  # of a decode's settings, in what names a store
ATTENTION: Final = "shared_prefix"  # how rows attend to their frame's prompt

FAMILIES: Final[Mapping[Family, Any]] = {
    "token": TokenPolicy,
    "flow": FlowPolicy,
    "chunk": ChunkPolicy,
}

Load = Callable[[], Policy]
DecodeFrames = Callable[[Policy, Sequence[Observation], Sampling], list[FrameDraws]]


@dataclass(frozen=True)
class Outcome:
    """What a run left: its folder, whether the store is whole, and what this session computed."""

    folder: Path
    fingerprint: str | None
    computed: int
    seconds: float

    @property
    def store(self) -> Path:
        """The store itself."""
        return self.folder / "predictions.zarr"


def identity(settings: EvaluateSettings, panel: Panel) -> dict[str, Any]:
    """All that can change a prediction. Paths, names, shards, blocks and the window cannot."""
    return identity_on(settings, panel=panel.digest)


def identity_on(settings: EvaluateSettings, *, panel: str) -> dict[str, Any]:
    """`identity`, on a panel of which only the digest is known."""
    model, decode = settings.model, settings.decode
    folder = checkpoint_folder(model.path)
    targets = (model.target, decode.target, settings.panel.target)
    modules = [COLUMNS, *(target.rsplit(".", 1)[0] for target in targets)]
    return {
        "model": {
            "target": model.target,
            "dtype": model.dtype,
            "checkpoint": provenance.folder_digest(folder) if folder else None,
            **_function(model.function),
        },
        "decode": {
            **{name: value for name, value in vars(decode).items() if name not in NO_PART},
            "tickets": decode.tickets and tickets.digest(Path(decode.tickets)),
            "tile": decode.tile,
            "least": decode.least,
            "frames": padded_frames(settings),
            "attention": ATTENTION if model.family == "token" else None,
            "tokens": settings.store.tokens,
        },
        "panel": panel,
        "seed": settings.seed,
        "code": provenance.code_digest(modules),
    }


def _function(named: str | None) -> dict[str, str]:
    """A user's own function by its name and the source of its module."""
    if named is None:
        return {}
    return {"function": named, "source": hashlib.sha256(function.source(named)).hexdigest()}


def resolved(settings: EvaluateSettings) -> dict[str, Any]:
    """The configuration with its nulls resolved, without what only this process is about.

    Of paths only the last part is kept: folders may carry a person's name.
    """
    config = asdict(settings)
    own_keys = ("window", "shard", "store", "device", "threads", "batch", "registration", "gate")
    for own in own_keys:
        del config[own]
    path = settings.model.path
    config["model"]["path"] = path and Path(path).name
    del config["panel"]["cache"]
    for key in ("plan", "root", "subset"):
        place = config["panel"][key]
        config["panel"][key] = place and Path(place).name
    file = settings.decode.tickets
    config["decode"]["tickets"] = file and Path(file).name
    return config


def run_folder(settings: EvaluateSettings, *, panel: str, digest: str) -> Path:
    """`outputs/<arm>-<panel>-<digest>`: one configuration, one folder.

    A registration's arm has one of its own, `<experiment>-<arm>-<digest>-<lock>`: what was made
    outside of it never passes for it.
    """
    stamp = settings.registration
    if stamp is None:
        return Path(settings.store.root) / f"{arm_name(settings)}-{panel}-{digest[:8]}"
    name = f"{stamp['experiment']}-{stamp['arm']}-{digest[:8]}-{stamp['lock'][:8]}"
    return Path(settings.store.root) / (f"{name}-exploratory" if stamp["exploratory"] else name)


def run(settings: EvaluateSettings, panel: Panel, *, load: Load, decode: DecodeFrames) -> Outcome:
    """Evaluate the blocks that this shard still lacks; load the policy only if there are any."""
    started = time.monotonic()
    made_of = identity(settings, panel)
    digest = provenance.digest(made_of)
    folder = run_folder(settings, panel=panel.name, digest=digest)
    path = folder / "predictions.zarr"
    shard = {"shard_index": settings.shard.index, "shard_count": settings.shard.count}
    computed = 0
    if not path.exists() or store.missing(path, **shard):
        policy = load()
        check_policy(policy, panel, settings)
        how = sampling(settings, policy)
        found = probe(policy, _observed(panel, range(min(2, len(panel.frames)))), how)
        beside.check_probe(settings, found)
        attributes = _attributes(settings, panel, policy, made_of=made_of, digest=digest)
        store.open_or_create(path, _schema(settings, panel, policy, attributes))
        beside.record_writer(folder, settings, found)
        todo = store.missing(path, **shard)
        mine, left = (sum(map(len, part)) for part in (store.blocks(path, **shard), todo))
        title = f"{arm_name(settings)} on {panel.name}"
        measure, decide = _gated(folder, settings)
        with (
            frames_done(title, done=mine - left, total=mine) as shown,
            between_blocks(folder) as check,
        ):

            def advance(frames: int) -> None:
                shown(frames)
                measure(frames)

            for rows in todo:
                check()
                decide()
                observations = _observed(panel, rows)
                drawn = _draws(policy, observations, how, settings, decode=decode, advance=advance)
                store.write_block(path, rows, block_columns(panel, rows, observations, drawn))
                beside.record_seconds(folder, rows, drawn, shard=settings.shard.index)
                computed += len(rows)
    return Outcome(
        folder=folder,
        fingerprint=store.finalise(path),
        computed=computed,
        seconds=time.monotonic() - started,
    )


def _gated(
    folder: Path, settings: EvaluateSettings
) -> tuple[Callable[[int], None], Callable[[], None]]:
    """The cost gate of a run: what measures its frames, and what decides between blocks."""

    def left() -> int:
        done, total = store.progress(folder / "predictions.zarr")
        return total - done

    def exceeded(found: gates.Verdict) -> None:
        if settings.gate.on_exceed == "stop":
            raise gates.stopped(found)
        sys.stderr.write(f"warning: {found}, more than gate.device_hours={found.limit:g}\n")

    return gates.gated(
        folder,
        limit=settings.gate.device_hours,
        frames=settings.gate.measure_frames,
        devices=settings.shard.count,
        left=left,
        exceeded=exceeded,
        clock=time.monotonic,
    )


def check_policy(policy: Policy, panel: Panel, settings: EvaluateSettings) -> None:
    """The policy is what its configuration says, and its chunks fit the panel and the window."""
    family = FAMILIES[settings.model.family]
    if not isinstance(policy, family):
        raise refusal.usage(
            f"model.family={settings.model.family} for {type(policy).__name__}",
            expected=f"a {family.__name__}",
            remedy="leave model.family as the option of the model sets it",
        )
    actions = len(panel.space.action_names)
    if policy.action_dim != actions:
        raise refusal.guard(
            f"{settings.model.name} predicts {policy.action_dim} action dimensions",
            expected=f"the {actions} of panel {panel.name}",
            remedy="choose a panel of the robot that the policy was trained on",
        )
    if policy.horizon > panel.steps:
        raise refusal.guard(
            f"{settings.model.name} predicts {policy.horizon} steps",
            expected=f"at most the {panel.steps} recorded steps of panel {panel.name}",
            remedy=f"set panel.steps={policy.horizon}",
        )
    reference = settings.decode.reference
    if reference is not None and isinstance(policy, TokenPolicy):
        _check_reference(reference, policy, settings)
    if settings.window is not None and settings.window > policy.horizon:
        raise refusal.guard(
            f"window={settings.window} with a horizon of {policy.horizon} steps",
            expected="a window inside the policy's horizon",
            remedy=f"set window={policy.horizon} or less",
        )


def _check_reference(reference: str, policy: TokenPolicy, settings: EvaluateSettings) -> None:
    if reference not in policy.conditions:
        known = sorted(policy.conditions)
        raise refusal.guard(
            f"decode.reference={reference} of {settings.model.name}",
            expected=f"a condition that its training dropped: {', '.join(known) or 'it has none'}",
            remedy=f"set decode.reference={known[0]}" if known else "drop decode.reference",
        )


def _schema(
    settings: EvaluateSettings, panel: Panel, policy: Policy, attributes: Mapping[str, Any]
) -> store.Schema:
    return store.Schema(
        frames=panel.frames,
        space=panel.space,
        steps=panel.steps,
        draws=settings.decode.draws,
        block=settings.store.block,
        attributes=attributes,
        state_copy=panel.space.shared,
        measures=measures(settings),
        positions=policy.grammar.longest if isinstance(policy, TokenPolicy) else 1,
        shards=settings.shard.count,
    )


def _attributes(
    settings: EvaluateSettings,
    panel: Panel,
    policy: Policy,
    *,
    made_of: Mapping[str, Any],
    digest: str,
) -> dict[str, Any]:
    lacking = "" if panel.space.shared else "states and actions differ in dimension or unit"
    return {
        "arm": arm_name(settings),
        "digest": digest,
        "config": resolved(settings),
        "identity": dict(made_of),
        "panel": panel.name,
        "panel_digest": panel.digest,
        "checkpoint_digest": made_of["model"]["checkpoint"],
        "code_digest": made_of["code"],
        "family": settings.model.family,
        "temperature": settings.decode.T,
        "determinism": settings.decode.determinism,
        "tile": settings.decode.tile,
        "attention": made_of["decode"]["attention"],
        "dtype": settings.model.dtype,
        "seed": settings.seed,
        "horizon": policy.horizon,
        "state_copy_absent": lacking,
        "registration": settings.registration and dict(settings.registration),
    }


def _draws(
    policy: Policy,
    observations: Sequence[Observation],
    how: Sampling,
    settings: EvaluateSettings,
    *,
    decode: DecodeFrames,
    advance: Advance,
) -> list[FrameDraws]:
    """The draws of a block's frames, a batch at a time."""
    found = []
    for start in range(0, len(observations), settings.batch):
        batch = observations[start : start + settings.batch]
        found += decode(policy, batch, how)
        advance(len(batch))
    return found


def _observed(panel: Panel, rows: range) -> list[Observation]:
    """Some rows' observations. A guard refusal where a state is not finite."""
    observations = [panel.observe(row) for row in rows]
    for seen in observations:
        if not np.isfinite(seen.states).all():
            raise refusal.guard(
                f"a state of {seen.frame.repo} episode {seen.frame.episode} up to frame "
                f"{seen.frame.frame_index} is not finite",
                expected="finite states",
                remedy="leave the episode out of the panel, or mend the dataset",
            )
    return observations
