import numpy as np
import pytest

from arflow_eval import noise
from arflow_eval.contracts import FrameId

FRAME = FrameId("owner/name", 3, 17)

KNOWN_ANSWERS = [  # counter, key, words: Random123's kat_vectors for philox4x32-10
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_known_answers(counter: str, key: str, expected: str) -> None:
    low, high = words(key)
    found = noise.philox(np.array(words(counter), dtype=np.uint32), key=low | high << 32)
    assert found.tolist() == words(expected)


def test_a_number_depends_on_its_draw_position_and_token_alone() -> None:
    key = noise.stream_key("token", FRAME, seed=0)
    together = noise.gumbel(np.arange(100), key=key, draws=np.arange(10), position=4)
    some = np.array([5, 41, 42, 99])
    alone = noise.gumbel(some, key=key, draws=np.array([7]), position=4)
    assert (together[7, some] == alone[0]).all()


def test_more_draws_leave_the_first_ones_as_they_were() -> None:
    key = noise.stream_key("flow", FRAME, seed=0)
    three = noise.normal((50, 2), key=key, draws=np.arange(3))
    ten = noise.normal((50, 2), key=key, draws=np.arange(10))
    assert (three == ten[:3]).all()


def test_every_part_of_an_identity_makes_another_stream() -> None:
    keys = [
        noise.stream_key("token", FRAME, seed=0),
        noise.stream_key("flow", FRAME, seed=0),
        noise.stream_key("token", FRAME, seed=1),
        noise.stream_key("token", FrameId("owner/name2", 3, 17), seed=0),
        noise.stream_key("token", FrameId("owner/name", 31, 7), seed=0),
        noise.stream_key("token", FrameId("owner/name", 3, 18), seed=0),
        noise.stream_key("token", FRAME, seed=2**40),
    ]
    assert len(set(keys)) == len(keys)


def test_uniforms_fill_the_open_interval_evenly() -> None:
    found = noise.uniform(np.arange(4096), key=11, draws=np.arange(64), position=0)
    assert found.min() > 0
    assert found.max() < 1
    counts = np.histogram(found, bins=64, range=(0, 1))[0]
    chi_squared = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_squared < 117  # 63 degrees of freedom: exceeded once in 40,000 seeds


def test_gumbel_noise_samples_the_softmax() -> None:
    logits = np.array([0.0, 1.0, 2.0, -1.0])
    gumbel = noise.gumbel(np.arange(4), key=5, draws=np.arange(40_000), position=0)
    share = np.bincount((logits + gumbel).argmax(axis=1), minlength=4) / 40_000
    expected = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(share - expected).max() < 0.01


def test_flow_noise_is_standard_normal() -> None:
    found = noise.normal((50, 2), key=9, draws=np.arange(1000))
    assert found.dtype == np.float32
    assert abs(float(found.mean())) < 0.02
    assert abs(float(found.std()) - 1) < 0.02
