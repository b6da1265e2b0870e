"""Ticket banks, and flows that integrate from them."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from arflow_eval.contracts import FrameDraws, FrameId, Observation, Statistics
from arflow_eval.decode import solver, tickets
from arflow_eval.decode.tiles import padded
from arflow_eval.refusal import DAMAGE, USAGE, Refusal

SHAPE = (5, 2)


def bank(count: int = 12, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE), dtype=np.float32)


def saved(folder: Path, numbers: np.ndarray, *, name: str = "bank.npy") -> Path:
    path = folder / name
    if path.suffix == ".npy":
        np.save(path, numbers)
    else:
        safetensors.numpy.save_file({"tickets": np.ascontiguousarray(numbers)}, path)
    return path


def refused(path: Path, *, draws: int = 3, shape: tuple[int, int] = SHAPE) -> Refusal:
    with pytest.raises(Refusal) as caught:
        tickets.load(path, draws=draws, shape=shape)
    return caught.value


@pytest.mark.parametrize("name", ["bank.npy", "bank.safetensors"])
def test_the_first_tickets_of_a_bank_are_read_as_they_were_saved(tmp_path: Path, name: str) -> None:
    numbers = bank()
    found = tickets.load(saved(tmp_path, numbers, name=name), draws=3, shape=SHAPE)
    assert found.dtype == np.float32
    assert (found == numbers[:3]).all()


def test_the_same_tickets_have_one_digest_in_either_format(tmp_path: Path) -> None:
    numbers = bank()
    paths = [
        saved(tmp_path, numbers),
        saved(tmp_path, numbers, name="bank.safetensors"),
        saved(tmp_path, numbers.astype(">f4"), name="big_endian.npy"),
        saved(tmp_path, np.asfortranarray(numbers), name="columns_first.npy"),
    ]
    assert len({tickets.digest(path) for path in paths}) == 1
    assert re.fullmatch("[0-9a-f]{64}", tickets.digest(paths[0]))
    for path in paths:
        assert (tickets.load(path, draws=12, shape=SHAPE) == numbers).all()


def test_other_numbers_or_another_shape_have_another_digest(tmp_path: Path) -> None:
    numbers = bank()
    touched = numbers.copy()
    touched[-1, -1, -1] = np.nextafter(touched[-1, -1, -1], np.float32(9))
    banks = [numbers, touched, numbers[:-1], numbers.reshape(12, 2, 5)]
    paths = [saved(tmp_path, one, name=f"{k}.npy") for k, one in enumerate(banks)]
    assert len({tickets.digest(path) for path in paths}) == len(banks)


def test_a_bank_that_is_not_there_is_refused(tmp_path: Path) -> None:
    no = refused(tmp_path / "bank.npy")
    assert no.exit_code == USAGE
    assert "there is no file" in no.found


@pytest.mark.parametrize("name", ["bank.npz", "bank.pt", "bank"])
def test_a_file_of_another_kind_is_refused_by_its_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    no = refused(tmp_path / name)
    assert no.exit_code == USAGE
    assert no.expected == ".npy or .safetensors"


def test_fewer_tickets_than_draws_are_refused(tmp_path: Path) -> None:
    no = refused(saved(tmp_path, bank(4)), draws=10)
    assert (no.exit_code, no.found) == (USAGE, "bank.npy holds 4 tickets")
    assert no.expected == "at least 10, one a draw"


@pytest.mark.parametrize("shape", [(12, 2, 5), (12, 10), (120,), (), (12, 5, 2, 1)])
def test_tickets_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    numbers = np.zeros(shape, dtype=np.float32)
    no = refused(saved(tmp_path, numbers))
    assert no.exit_code == USAGE
    assert str(shape) in no.found
    assert "5 steps of 2 actions" in no.expected


@pytest.mark.parametrize("name", ["bank.npy", "bank.safetensors"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_numbers_of_another_type_are_refused(tmp_path: Path, name: str, dtype: str) -> None:
    no = refused(saved(tmp_path, bank().astype(dtype), name=name))
    assert no.exit_code == USAGE
    assert dtype in no.found
    assert "float32" in no.expected


def test_a_type_that_numpy_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bank.safetensors"
    safetensors.torch.save_file({"tickets": torch.zeros(12, *SHAPE, dtype=torch.bfloat16)}, path)
    no = refused(path)
    assert no.exit_code == USAGE
    assert "bfloat16" in no.found


def test_a_tensor_of_another_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bank.safetensors"
    safetensors.numpy.save_file({"noise": bank()}, path)
    no = refused(path)
    assert (no.exit_code, no.found) == (USAGE, "bank.safetensors holds noise")


def test_pickled_arrays_are_refused_unopened(tmp_path: Path) -> None:
    opened = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (opened,)

    path = tmp_path / "bank.npy"
    np.save(path, np.array([Trap()], dtype=object), allow_pickle=True)
    assert refused(path).exit_code == DAMAGE
    assert not opened.exists()


@pytest.mark.parametrize("name", ["bank.npy", "bank.safetensors"])
@pytest.mark.parametrize("kept", [0, 5, 20, 90, 300])
def test_a_torn_file_is_damage(tmp_path: Path, name: str, kept: int) -> None:
    path = saved(tmp_path, bank(), name=name)
    path.write_bytes(path.read_bytes()[:kept])
    assert refused(path).exit_code == DAMAGE


def test_an_archive_under_an_arrays_name_is_damage(tmp_path: Path) -> None:
    with (tmp_path / "bank.npy").open("wb") as file:
        np.savez(file, tickets=bank())
    assert refused(tmp_path / "bank.npy").exit_code == DAMAGE


@pytest.mark.parametrize("name", ["bank.npy", "bank.safetensors"])
def test_a_flipped_byte_of_a_header_is_refused_or_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    path = saved(tmp_path, bank(), name=name)
    whole = path.read_bytes()
    for place in range(128):
        torn = bytearray(whole)
        torn[place] ^= 0x15
        path.write_bytes(torn)
        try:
            found = tickets.load(path, draws=12, shape=SHAPE)
        except Refusal:
            continue
        assert found.shape == (12, *SHAPE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_damage_wherever_they_are(
    tmp_path: Path, value: float
) -> None:
    numbers = bank()
    numbers[11, 0, 0] = value
    no = refused(saved(tmp_path, numbers), draws=3)
    assert (no.exit_code, no.found) == (DAMAGE, "bank.npy holds 1 numbers that are not finite")


@pytest.mark.parametrize(
    ("rows", "tile", "expected"), [(1, 4, 4), (4, 4, 4), (5, 4, 8), (10, 1, 10), (0, 4, 4)]
)
def test_rows_are_padded_to_whole_tiles(rows: int, tile: int, expected: int) -> None:
    assert padded(rows, tile=tile) == expected


@dataclass(frozen=True)
class Decay:
    """dx/dt = context - x, element by element; it keeps the number of rows of every call."""

    horizon: int = SHAPE[0]
    action_dim: int = SHAPE[1]
    encoded: list[FrameId] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def encode(self, observation: Observation) -> float:
        self.encoded.append(observation.frame)
        return float(observation.state[0])

    def velocity(self, context: float, chunk: np.ndarray, time: float) -> np.ndarray:
        del time
        self.rows.append(len(chunk))
        return np.float32(context) - chunk

    def to_units(self, context: float, chunk: np.ndarray) -> np.ndarray:
        return chunk * 10 + context


def observation(*, frame_index: int = 0, state: float = 2) -> Observation:
    one = np.ones(1)
    return Observation(
        frame=FrameId("a/b", 0, frame_index),
        index=0,
        task="t",
        states=np.full((1, 1), state, dtype=np.float32),
        actions=np.zeros((0, 1), dtype=np.float32),
        statistics=Statistics(one, one, one, one),
    )


def drawn(seen: Observation, *, draws: int = 6, policy: Decay | None = None, **how: Any) -> Any:
    settings = {"steps": 3, "solver": "euler", "seed": 0, **how}
    found: FrameDraws = solver.decode_frame(policy or Decay(), seen, draws=draws, **settings)
    return found.prediction


def test_draw_d_starts_from_ticket_d_in_every_frame() -> None:
    here = drawn(observation(frame_index=0), tickets=bank(6))
    there = drawn(observation(frame_index=9), tickets=bank(6), seed=7)
    assert (here == there).all()
    assert len(np.unique(here, axis=0)) == 6


def test_a_ticket_is_integrated_as_it_is() -> None:
    numbers = bank(6)
    found = drawn(observation(state=0), tickets=numbers, steps=1)
    assert (found == 0).all()  # one Euler step of dx/dt = -x ends at 0 exactly
    halfway = drawn(observation(state=0), tickets=numbers, steps=2)
    assert halfway == pytest.approx(numbers / 4 * 10)


def test_without_tickets_frames_and_seeds_have_noise_of_their_own() -> None:
    here = drawn(observation(frame_index=0))
    assert (here != drawn(observation(frame_index=9))).all()
    assert (here != drawn(observation(frame_index=0), seed=1)).all()
    assert (here != drawn(observation(frame_index=0), tickets=bank(6))).all()


def test_the_context_still_counts_with_tickets() -> None:
    here = drawn(observation(state=2), tickets=bank(6))
    assert (here != drawn(observation(state=3), tickets=bank(6))).all()


@pytest.mark.parametrize("name", ["euler", "heun"])
@pytest.mark.parametrize("source", ["philox", "published", "tickets"])
def test_more_draws_change_none(name: str, source: str) -> None:
    how: dict[str, Any] = {"tickets": bank(17)} if source == "tickets" else {"noise": source}
    many = drawn(observation(), draws=17, solver=name, **how)
    for draws in (1, 3, 4, 10):
        assert (drawn(observation(), draws=draws, solver=name, **how) == many[:draws]).all()


@pytest.mark.parametrize("tile", [1, 2, 4, 16])
@pytest.mark.parametrize("with_tickets", [False, True])
def test_the_tile_does_not_matter_to_a_policy_of_elements(
    tile: int,
    with_tickets: bool,  # noqa: FBT001 - pytest passes parameters by position or name
) -> None:
    numbers = bank(6) if with_tickets else None
    found = drawn(observation(), tickets=numbers, tile=tile)
    assert (found == drawn(observation(), tickets=numbers)).all()


def test_a_frame_is_encoded_once_and_its_draws_integrated_in_one_batch_of_whole_tiles() -> None:
    policy = Decay()
    drawn(observation(), policy=policy, draws=10, tile=4, steps=3)
    assert len(policy.encoded) == 1
    assert policy.rows == [12, 12, 12]


def test_the_published_noise_gives_other_draws_than_ours() -> None:
    assert (drawn(observation(), noise="published") != drawn(observation())).all()


def test_seconds_say_where_the_time_went() -> None:
    found = solver.decode_frame(
        Decay(), observation(), draws=2, steps=2, solver="heun", seed=0, tickets=bank(2)
    )
    assert list(found.seconds) == ["prefill", "draws", "decode"]
    assert np.isnan(found.logprob).all()


def test_fewer_tickets_than_draws_are_no_decode() -> None:
    with pytest.raises(ValueError, match="5 tickets for 6 draws"):
        drawn(observation(), tickets=bank(5))


def test_an_unknown_noise_is_no_decode() -> None:
    with pytest.raises(ValueError, match="philox, published"):
        drawn(observation(), noise="filox")
