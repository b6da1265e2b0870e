"""Flow-matching policies: an encoder of past states and an action expert that moves noise.

A checkpoint folder holds config.json, model.safetensors and norm_stats.json. Chunks are told
relative to the present state and normalised by q01/q99; time runs from noise (0) to chunk (1).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor, nn

from arflow_eval.codec import normalise
from arflow_eval.contracts import Observation, Space
from arflow_eval.model import checkpoint


class Expert(nn.Module):
    """Encoder and action expert. The velocity is a linear guess for the data's spread, corrected.

    For unit noise and data of standard deviation s, the best linear guess of the velocity is
    (t s^2 - (1 - t)) / ((1 - t)^2 + t^2 s^2) times the point; the network adds the rest.
    """

    def __init__(
        self, *, features: int, chunk: int, context: int, width: int, blocks: int, spread: float
    ) -> None:
        super().__init__()
        self.spread = spread
        self.encoder = nn.Sequential(
            nn.Linear(features, context),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(context, context),
            nn.GELU(),
            nn.Dropout(0.1),
        )
        self.inlet = nn.Linear(chunk, width)
        self.time = nn.Linear(32, context)
        self.blocks = nn.ModuleList(Block(width=width, context=context) for _ in range(blocks))
        self.outlet = nn.Linear(width, chunk)

    def forward(
        self,
        context: Float[Tensor, "row context"],
        point: Float[Tensor, "row element"],
        time: Float[Tensor, "row"],
    ) -> Float[Tensor, "row element"]:
        """The velocity at a point of the way."""
        condition = nn.functional.silu(context + self.time(time_features(time)))
        hidden = self.inlet(point)
        for block in self.blocks:
            hidden = block(hidden, condition)
        t, variance = time[:, None], self.spread**2
        slope = (t * variance - (1 - t)) / ((1 - t) ** 2 + t**2 * variance)
        velocity: Tensor = slope * point + self.outlet(hidden)
        return velocity


class Block(nn.Module):
    """A residual layer, scaled and shifted by the condition."""

    def __init__(self, *, width: int, context: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(context, 2 * width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(
        self, hidden: Float[Tensor, "row width"], condition: Float[Tensor, "row context"]
    ) -> Float[Tensor, "row width"]:
        """Hidden + down(gelu(up(norm(hidden) * (1 + scale) + shift)))."""
        scale, shift = self.modulation(condition).chunk(2, dim=-1)
        inner: Tensor = self.norm(hidden) * (1 + scale) + shift
        moved: Tensor = hidden + self.down(nn.functional.gelu(self.up(inner)))
        return moved


def time_features(time: Float[Tensor, "row"]) -> Float[Tensor, "row 32"]:
    """Sines and cosines of sixteen octave-spaced frequencies, from half a turn a unit on."""
    frequencies = math.pi * 2 ** (torch.arange(16, device=time.device) / 3)
    angles = time[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def state_features(
    states: Float32[np.ndarray, "past state"],
    *,
    past: tuple[int, ...],
    quantiles: normalise.Quantiles,
) -> Float32[np.ndarray, "feature"]:
    """Past states, absolute and relative to the present, with a flag for each known one.

    A frame from before the episode gives zeros beside a flag of 0.
    """
    present = len(states) - 1
    known = np.array([back <= present for back in past])
    rows = states[[max(present - back, 0) for back in past]]
    absolute = quantiles.normalise(rows) * known[:, None]
    half_span = (quantiles.q99 - quantiles.q01) / 2
    relative = (rows - states[-1]) / half_span * 4 * known[:, None]
    return np.concatenate([absolute.ravel(), relative.ravel(), known]).astype(np.float32)


@dataclass(frozen=True)
class Context:
    """What the draws of a frame share: the encoded past, and the state that chunks start from."""

    encoded: Float[Tensor, "row context"]
    state: Float32[np.ndarray, "state"]


@dataclass(frozen=True)
class Flow:
    """A flow policy over past states."""

    expert: Expert
    past: tuple[int, ...]
    state_quantiles: normalise.Quantiles
    action_quantiles: normalise.Quantiles
    horizon: int
    action_dim: int

    def encode(self, observation: Observation) -> Context:
        """Encode the past once."""
        features = state_features(
            observation.states, past=self.past, quantiles=self.state_quantiles
        )
        with torch.inference_mode():
            encoded = self.expert.encoder(self._tensor(features[None]))
        return Context(encoded=encoded, state=observation.state)

    def velocity(
        self, context: Context, chunk: Float32[np.ndarray, "row step action"], time: float
    ) -> Float32[np.ndarray, "row step action"]:
        """The derivative of the chunk by time, in the normalised space."""
        rows = len(chunk)
        with torch.inference_mode():
            moved = self.expert(
                context.encoded.expand(rows, -1),
                self._tensor(chunk.reshape(rows, -1)),
                self._tensor(np.full(rows, time, dtype=np.float32)),
            )
        flat: Float32[np.ndarray, "row element"] = moved.float().cpu().numpy()
        velocity: Float32[np.ndarray, "row step action"] = flat.reshape(chunk.shape)
        return velocity

    def to_units(
        self, context: Context, chunk: Float32[np.ndarray, "row step action"]
    ) -> Float64[np.ndarray, "row step action"]:
        """Chunks in raw units: unnormalised, and moved to the present state."""
        origin: Float32[np.ndarray, "action"] = context.state[: self.action_dim]
        moved: Float64[np.ndarray, "row step action"] = (
            self.action_quantiles.restore(chunk) + origin
        )
        return moved

    def _tensor(self, values: Float32[np.ndarray, "..."]) -> Tensor:
        weight = self.expert.outlet.weight
        return torch.from_numpy(values).to(device=weight.device, dtype=weight.dtype)


def load(
    *, folder: Path | None, dtype: str, device: str, threads: int, steps: int, space: Space
) -> Flow:
    """A checkpoint folder as a policy, its tensors checked against the file."""
    if folder is None:
        raise TypeError("a flow policy is loaded from a folder")
    del steps, space  # a checkpoint knows its own; the evaluation compares them
    checkpoint.use_device(device, threads=threads)
    config = checkpoint.read_config(folder, kind="flow")
    tables = checkpoint.read_json(folder, "norm_stats.json")
    with checkpoint.described(folder):
        policy = assemble(Expert(**config["expert"]), config, tables)
    checkpoint.load_weights(policy.expert, folder, dtype=getattr(torch, dtype))
    policy.expert.to(device)
    return policy


def assemble(expert: Expert, config: dict[str, Any], tables: dict[str, Any]) -> Flow:
    """A policy of its parts."""
    return Flow(
        expert=expert,
        past=tuple(config["past"]),
        state_quantiles=normalise.from_json(tables["state"]),
        action_quantiles=normalise.from_json(tables["action"]),
        horizon=int(config["steps"]),
        action_dim=int(config["actions"]),
    )
