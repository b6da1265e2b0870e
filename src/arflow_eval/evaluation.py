"""The loop of an evaluation: for each unwritten block, observe, decode, write data, then mark.

Everything that can change a number is in the digest that names the store; everything else is
recorded beside it. Rerunning the same settings resumes; a complete store is only read.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from arflow_eval import beside, provenance, refusal, store
from arflow_eval.contracts import FrameDraws, Observation, Panel, Policy
from arflow_eval.model.baseline import hold_state, hold_state_norm
from arflow_eval.progress import Advance, frames_done
from arflow_eval.settings import EvaluateSettings, arm_name, checkpoint_folder

Load = Callable[[], Policy]
DecodeFrames = Callable[[Policy, Sequence[Observation]], list[FrameDraws]]


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
    model, decode = settings.model, settings.decode
    folder = checkpoint_folder(model.path)
    modules = [target.rsplit(".", 1)[0] for target in (model.target, decode.target)]
    return {
        "model": {
            "target": model.target,
            "dtype": model.dtype,
            "checkpoint": provenance.folder_digest(folder) if folder else None,
        },
        "decode": {
            name: value for name, value in vars(decode).items() if name not in ("target", "name")
        },
        "panel": panel.digest,
        "seed": settings.seed,
        "code": provenance.code_digest([*modules, settings.panel.target.rsplit(".", 1)[0]]),
    }


def run_folder(settings: EvaluateSettings, *, panel: str, digest: str) -> Path:
    """`outputs/<arm>-<panel>-<digest>`: one configuration, one folder."""
    return Path(settings.store.root) / f"{arm_name(settings)}-{panel}-{digest[:8]}"


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
        attributes = _attributes(settings, panel, policy, made_of=made_of, digest=digest)
        store.open_or_create(path, _schema(settings, panel, attributes))
        beside.record_writer(folder, settings)
        title = f"{arm_name(settings)} on {panel.name}"
        done, total = store.progress(path)
        with frames_done(title, done=done, total=total) as advance:
            computed = _evaluate_blocks(
                settings, panel, policy, path, decode=decode, advance=advance
            )
    return Outcome(
        folder=folder,
        fingerprint=store.finalise(path),
        computed=computed,
        seconds=time.monotonic() - started,
    )


def check_policy(policy: Policy, panel: Panel, settings: EvaluateSettings) -> None:
    """The policy's chunks fit the panel's recorded ones, and the window fits both."""
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
    if settings.window is not None and settings.window > policy.horizon:
        raise refusal.guard(
            f"window={settings.window} with a horizon of {policy.horizon} steps",
            expected="a window inside the policy's horizon",
            remedy=f"set window={policy.horizon} or less",
        )


def _schema(
    settings: EvaluateSettings, panel: Panel, attributes: Mapping[str, Any]
) -> store.Schema:
    return store.Schema(
        frames=panel.frames,
        space=panel.space,
        steps=panel.steps,
        draws=settings.decode.draws,
        block=settings.store.block,
        attributes=attributes,
        state_copy=panel.space.shared,
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
        "config": dict(made_of),
        "panel": panel.name,
        "panel_digest": panel.digest,
        "checkpoint_digest": made_of["model"]["checkpoint"],
        "code_digest": made_of["code"],
        "family": settings.model.family,
        "temperature": settings.decode.T,
        "seed": settings.seed,
        "horizon": policy.horizon,
        "state_copy_absent": lacking,
        "registration": None,
    }


def _evaluate_blocks(
    settings: EvaluateSettings,
    panel: Panel,
    policy: Policy,
    path: Path,
    *,
    decode: DecodeFrames,
    advance: Advance,
) -> int:
    shard = {"shard_index": settings.shard.index, "shard_count": settings.shard.count}
    computed = 0
    for rows in store.missing(path, **shard):
        observations = [panel.observe(row) for row in rows]
        _check_states(observations)
        found = []
        for seen in observations:
            found += decode(policy, [seen])
            advance(1)
        store.write_block(path, rows, block_columns(panel, rows, observations, found))
        beside.record_seconds(path.parent, settings, rows, found)
        computed += len(rows)
    return computed


def block_columns(
    panel: Panel, rows: range, observations: Sequence[Observation], found: Sequence[FrameDraws]
) -> dict[str, Shaped[np.ndarray, "frame ..."]]:
    """The columns of a block; a shorter horizon leaves NaN in the steps past it."""
    targets = panel.targets(rows)
    draws, horizon, actions = found[0].prediction.shape
    prediction = np.full((len(rows), draws, panel.steps, actions), np.nan, dtype=np.float32)
    prediction[:, :, :horizon] = np.stack([frame.prediction for frame in found])
    columns = {
        "prediction": prediction,
        "truth": targets.truth,
        "valid": targets.valid,
        "logprob": np.stack([frame.logprob for frame in found]),
    }
    if panel.space.shared:
        for name, rule in (("state_copy", hold_state), ("state_copy_norm", hold_state_norm)):
            columns[name] = np.stack([rule(seen, panel.steps) for seen in observations])
    return columns


def _check_states(observations: Sequence[Observation]) -> None:
    for seen in observations:
        if not np.isfinite(seen.states).all():
            raise refusal.guard(
                f"a state of {seen.frame.repo} episode {seen.frame.episode} up to frame "
                f"{seen.frame.frame_index} is not finite",
                expected="finite states",
                remedy="leave the episode out of the panel, or mend the dataset",
            )
