"""Many draws from one prefill: our decode beside what a researcher would do today.

Random Gemma 3 text models, a prompt of 512 tokens, 24 greedy auxiliary tokens, 96 sampled action
tokens of 256 legal ids, 10 draws, 1 and 4 frames; all ways in one process, interleaved, medians.

    python benchmarks/decode.py --models tiny,small --repeats 3
    python benchmarks/decode.py --models 1b --device cuda --dtype bfloat16
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from arflow_eval import noise
from arflow_eval.codec.bins import BinCodec
from arflow_eval.codec.normalise import Quantiles
from arflow_eval.contracts import FrameId, Line, Observation, Sampling, Statistics, Suffix
from arflow_eval.decode import blocks
from arflow_eval.decode.frames import decode
from arflow_eval.decode.suffix import decode_frames
from arflow_eval.model import ar, gemma3

PROMPT, AUXILIARY, ACTIONS, BINS, DRAWS, TILE = 512, 24, 96, 256, 10, 4
MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "tiny": {
        "num_hidden_layers": 6, "hidden_size": 256, "intermediate_size": 1024, "vocab_size": 4096,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
    },
    "small": {
        "num_hidden_layers": 12, "hidden_size": 512, "intermediate_size": 2048,
        "vocab_size": 32768, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
    },
    "1b": {
        "num_hidden_layers": 26, "hidden_size": 1152, "intermediate_size": 6912,
        "vocab_size": 262144, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
    },
}  # fmt: skip
# ours is at least so many times as fast as each, at one frame and at four
WEIGHED: Final = ("shared", "copied", "generate")  # ways whose peak memory is traced
BARS: Final = {"generate": (2.3, 3.5), "naive": (5.0, 5.0), "sequential": (3.5, 3.5)}


@dataclass(frozen=True)
class FixedPrompt:
    """A prompt of random ids, one a frame, and a line of fixed length."""

    suffix: Suffix
    actions_from: int
    tokenizer: Any = None
    cameras: tuple[str, ...] = ()

    def encode(
        self, observation: Observation, images: Any = (), *, masked: Any = None
    ) -> list[int]:
        """Ids that depend on the frame's index alone."""
        del images, masked
        stream = np.random.default_rng(observation.frame.frame_index)
        return stream.integers(3, self.actions_from, PROMPT).tolist()


@dataclass(frozen=True)
class Silent(ar.ArPolicy):
    """Leaves its lines untold, since random ids are no text."""

    def text(self, tokens: Sequence[int]) -> str:
        """How many tokens there were."""
        return f"{len(tokens)} tokens"


def policy(name: str, *, device: str, dtype: torch.dtype) -> ar.ArPolicy:
    """A random policy whose every block has exactly `ACTIONS` tokens."""
    torch.manual_seed(0)
    settings = dict(MODELS[name])
    layers = ["full_attention"] * settings["num_hidden_layers"]
    trunk = gemma3.text({**settings, "layer_types": layers, "max_position_embeddings": 2048})
    trunk.model.to(device=device, dtype=dtype).eval()
    first = settings["vocab_size"] - BINS
    said = tuple(range(3, 3 + AUXILIARY - 1))
    line = Line("subgoal", AUXILIARY, candidates=(said,))  # always of one length
    found = ar.assemble(
        trunk,
        prompt=FixedPrompt(Suffix((0,), (line,), newline=1, begin=2), actions_from=first),
        codec=BinCodec(bins=BINS, steps=ACTIONS // 2, actions=2),
        quantiles=Quantiles(-np.ones(2), np.ones(2)),
        relative=False,
    )
    return Silent(**vars(found))


def observations(count: int) -> list[Observation]:
    """Frames that differ in their identity alone."""
    zero = np.zeros((1, 2), np.float32)
    one = np.ones(2)
    return [
        Observation(
            frame=FrameId("bench/mark", 0, number), index=number, task="", states=zero,
            actions=zero[:0], statistics=Statistics(one, one, one, one),
        )
        for number in range(count)
    ]  # fmt: skip


def shared(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """Ours: one prefill a frame, rows = frames x draws over prefixes that are kept once."""
    decode(mine, seen, Sampling(draws=draws, seed=0, tile=TILE, T=1.0))


def copied(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """The same decoder with the prompt's cache copied to every draw, a frame at a time."""
    how = Sampling(draws=draws, seed=0, tile=TILE, T=1.0)
    for one in seen:
        decode(replace(mine, copies=True), [one], how)


def naive(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """A loop: every draw has its own prefill and its own suffix, one row at a time."""
    for one in seen:
        for _ in range(draws):
            cache = _prefilled(mine, one)
            _act(mine, _speak(mine, cache), cache)


def sequential(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """The published way, improved: draws one by one from a snapshot after the shared lines."""
    for one in seen:
        cache = _prefilled(mine, one)
        logits = _speak(mine, cache)
        for _ in range(draws):
            _act(mine, logits, _snapshot(cache))


def generate(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """The `generate(num_return_sequences=draws)` of transformers, all frames in one call."""
    prompts = [mine.prompt.encode(one) for one in seen]
    ids = torch.tensor(prompts, device=mine.trunk.device)
    count = AUXILIARY + ACTIONS
    mine.trunk.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=count,
        min_new_tokens=count, num_return_sequences=draws, pad_token_id=0,
    )  # fmt: skip


def generate_each(mine: ar.ArPolicy, seen: list[Observation], draws: int) -> None:
    """The same, a call a frame."""
    for one in seen:
        generate(mine, [one], draws)


WAYS: Final[Mapping[str, Callable[[ar.ArPolicy, list[Observation], int], None]]] = {
    "shared": shared,
    "copied": copied,
    "generate": generate,
    "generate_each": generate_each,
    "sequential": sequential,
    "naive": naive,
}


def _forward(mine: ar.ArPolicy, ids: list[int], cache: DynamicCache) -> torch.Tensor:
    tensor = torch.tensor([ids], device=mine.trunk.device)
    with torch.inference_mode():
        out = mine.trunk.model(tensor, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return out.logits[0, -1].float()


def _prefilled(mine: ar.ArPolicy, one: Observation) -> DynamicCache:
    cache = DynamicCache()
    _forward(mine, mine.prompt.encode(one), cache)
    return cache


def _speak(mine: ar.ArPolicy, cache: DynamicCache) -> torch.Tensor:
    logits = _forward(mine, list(mine.suffix.opener), cache)
    for _ in range(AUXILIARY):
        logits = _forward(mine, [int(logits.argmax())], cache)
    return _forward(mine, [mine.suffix.begin], cache)


def _act(mine: ar.ArPolicy, logits: torch.Tensor, cache: DynamicCache) -> None:
    legal = torch.from_numpy(mine.grammar.ids).to(logits.device)
    for position in range(ACTIONS):
        chances = logits[legal].softmax(dim=0)
        token = int(legal[torch.multinomial(chances, 1)])
        if position + 1 < ACTIONS:
            logits = _forward(mine, [token], cache)


def _snapshot(cache: DynamicCache) -> DynamicCache:
    copy = DynamicCache()
    for layer in cache.layers:
        kept = DynamicLayer()
        kept.__dict__.update(layer.__dict__)
        copy.layers.append(kept)
    return copy


def seconds_of(way: Callable[[], object], *, device: str) -> float:
    """Wall-clock seconds of one call."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    started = time.perf_counter()
    way()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_bytes(way: Callable[[], object], *, device: str) -> int:
    """Most bytes of tensors that one call held at a time, beyond what was held before."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        way()
    results: Any = profile.profiler.kineto_results
    changes = [event.nbytes() for event in results.events() if event.name() == "[memory]"]
    return int(np.cumsum(changes).max())


def share_of_noise_and_grammar(mine: ar.ArPolicy, *, device: str) -> tuple[float, float]:
    """Seconds a position of noise and grammar, and of a whole step, at one frame's draws."""
    frames, draws = [observations(1)[0].frame] * DRAWS, np.arange(DRAWS)
    grammar = mine.grammar
    states = np.full(DRAWS, grammar.start)

    def ours() -> None:
        gumbel = noise.token_noise(
            "philox", frames, draws, ids=grammar.ids, vocabulary=mine.vocabulary, seed=0
        )
        for position in range(ACTIONS):
            gumbel(position)
            _ = grammar.legal[states], grammar.following[states, draws]

    prefix = mine.prefill(observations(1)[0])

    def steps() -> None:
        how = Sampling(draws=DRAWS, seed=0, tile=TILE, T=1.0)
        blocks.sample(mine, [prefix], frames[:1], how)

    pairs = [(seconds_of(ours, device=device), seconds_of(steps, device=device)) for _ in range(5)]
    small, whole = (median(each) / ACTIONS for each in zip(*pairs, strict=True))
    return small, whole


def further_draw(mine: ar.ArPolicy, *, device: str) -> float:
    """Seconds of a further draw over those of the first draw's decode."""
    del device
    seen = observations(1)
    took: dict[int, list[float]] = {1: [], DRAWS: []}
    for _ in range(5):
        for draws, kept in took.items():
            (found,) = decode_frames(mine, seen, Sampling(draws=draws, seed=0, tile=TILE, T=1.0))
            kept.append(found.seconds["draws"])
    one, every = median(took[1]), median(took[DRAWS])
    return (every - one) / (DRAWS - 1) / one


def reference_share(mine: ar.ArPolicy) -> float:
    """Seconds of condition-masked scoring over those of sampling, at one frame's draws."""
    how = Sampling(draws=DRAWS, seed=0, tile=TILE, T=1.0, reference="state")
    found = [decode(mine, observations(1), how)[0].seconds for _ in range(3)]
    return median(each["reference"] / each["draws"] for each in found)


def main() -> None:
    """Measure, print a table a model, and say which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny,small")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--skip", default="", help="ways to leave out, such as naive")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=100)
    skipped = options.skip.split(",")
    ways = {name: way for name, way in WAYS.items() if name not in skipped}
    for name in options.models.split(","):
        dtype = getattr(torch, options.dtype)
        mine = policy(name, device=options.device, dtype=dtype)
        console.print(measured(name, mine, ways, options))


def measured(name: str, mine: ar.ArPolicy, ways: Mapping[str, Any], options: Any) -> Table:
    """The table of one model."""
    device = options.device
    table = Table(title=f"{name}, {options.dtype}, {device}: {DRAWS} draws, ms a frame")
    for column in ("way", "1 frame", "x ours", "4 frames", "x ours", "bar", "peak MB, 1 frame"):
        table.add_column(column, justify="left" if column == "way" else "right")
    took: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.repeats):
        for frames in (1, 4):
            seen = observations(frames)
            for way, run in ways.items():
                spent = seconds_of(lambda: run(mine, seen, DRAWS), device=device)  # noqa: B023
                took.setdefault((way, frames), []).append(spent / frames)
    rate = {key: median(values) for key, values in took.items()}
    peaks = {
        way: peak_bytes(lambda: run(mine, observations(1), DRAWS), device=device)  # noqa: B023
        for way, run in ways.items()
        if way in WEIGHED
    }
    for way in ways:
        ratios = [rate[way, frames] / rate["shared", frames] for frames in (1, 4)]
        bars = BARS.get(way)
        met = bars and all(ratio >= bar for ratio, bar in zip(ratios, bars, strict=True))
        table.add_row(
            way,
            *(
                text
                for frames, ratio in zip((1, 4), ratios, strict=True)
                for text in (f"{1e3 * rate[way, frames]:.0f}", f"{ratio:.2f}")
            ),
            f">= {bars[0]} / {bars[1]}: {'met' if met else 'MISSED'}" if bars else "",
            f"{peaks[way] / 2**20:.0f}" if way in peaks else "",
        )
    small, whole = share_of_noise_and_grammar(mine, device=device)
    extra = further_draw(mine, device=device)
    memory = peaks["shared"] / peaks["copied"]
    table.caption = (
        f"further draw {extra:.3f} of the first (bar 0.15); peak memory {memory:.2f} of the copy's "
        f"(bar 0.6); noise and grammar {1e6 * small:.0f} us, {100 * small / whole:.2f} % of a step "
        f"of {1e3 * whole:.2f} ms (bar 1 %); reference scoring {reference_share(mine):.2f} of "
        "sampling"
    )
    return table


if __name__ == "__main__":
    main()
