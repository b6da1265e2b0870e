import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtri

from arflow_eval import noise
from arflow_eval.contracts import FrameId

FRAME = FrameId("owner/name", 3, 17)
OTHERS = [
    FrameId("owner/name2", 3, 17),
    FrameId("owner/name", 31, 7),
    FrameId("owner/name", 3, 18),
]
KINDS = ["philox", "published"]
ALL = 0xFFFFFFFF

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


def one_philox(counter: list[int], key: int) -> list[int]:
    """Philox4x32-10 of one counter, in Python's own integers."""
    a, b, c, d = counter
    low, high = key & ALL, key >> 32
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = right >> 32 ^ b ^ low, right & ALL, left >> 32 ^ d ^ high, left & ALL
        low, high = low + 0x9E3779B9 & ALL, high + 0xBB67AE85 & ALL
    return [a, b, c, d]


def one_uniform(domain: noise.Domain, frame: FrameId, counter: list[int], lane: int) -> float:
    key = noise.stream_key(domain, frame, seed=5)
    return (one_philox(counter, key)[lane] + 0.5) / 2**32


def tokens(
    kind: str = "philox",
    *,
    frames: list[FrameId] | None = None,
    draws: list[int] | range = range(10),
    ids: np.ndarray | None = None,
    vocabulary: int = 300,
    seed: int = 5,
) -> noise.TokenNoise:
    return noise.token_noise(
        kind,
        [FRAME] * len(draws) if frames is None else frames,
        np.array(draws),
        ids=np.arange(100) if ids is None else ids,
        vocabulary=vocabulary,
        seed=seed,
    )


def flow(kind: str, *, frame: FrameId = FRAME, draws: int = 3, seed: int = 5) -> np.ndarray:
    return noise.flow_noise(kind, frame, np.arange(draws), shape=(50, 2), seed=seed)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_known_answers(counter: str, key: str, expected: str) -> None:
    low, high = words(key)
    found = noise.philox(
        [np.array(word, dtype=np.uint32) for word in words(counter)],
        key=np.array(low | high << 32, dtype=np.uint64),
    )
    assert found.tolist() == words(expected)
    assert one_philox(words(counter), low | high << 32) == words(expected)


def test_blocks_of_positions_equal_numbers_computed_one_by_one() -> None:
    frames, draws = [FRAME, *OTHERS, FRAME], [0, 1, 9, 2, 4096]
    ids = np.array([1, 2, 6, 7, 8, 1001, 257_151])
    gumbel = tokens(frames=frames, draws=draws, ids=ids)
    for position in (0, 1, 31, 32, 77):
        uniform = np.array(
            [
                [
                    one_uniform("token", frame, [i >> 2, position, draw, 0], i & 3)
                    for i in ids.tolist()
                ]
                for frame, draw in zip(frames, draws, strict=True)
            ]
        )
        assert (gumbel(position) == -np.log(-np.log(uniform))).all()


def test_flow_noise_equals_numbers_computed_one_by_one() -> None:
    found = noise.flow_noise("philox", FRAME, np.array([0, 7]), shape=(3, 2), seed=5)
    uniform = [
        [one_uniform("flow", FRAME, [i >> 2, 0, draw, 0], i & 3) for i in range(6)]
        for draw in (0, 7)
    ]
    assert (found == ndtri(uniform).reshape(2, 3, 2).astype(np.float32)).all()


def test_philox_noise_is_what_it_has_always_been() -> None:
    found = tokens(draws=[0, 9], ids=np.array([0, 1, 258, 4095]))(33)
    assert found == pytest.approx(
        np.array(
            [
                [0.23794046770113494, 0.1227092477182763, 1.5313164966694102, 0.7532280287144849],
                [-0.3793752891973876, 1.7036689237493527, 0.3232155034163174, -0.04385057958984812],
            ]
        ),
        rel=1e-13,
    )
    chunks = noise.flow_noise("philox", FRAME, np.array([0, 9]), shape=(2, 2), seed=5)
    assert chunks.ravel() == pytest.approx(
        [
            *(-1.4760949611663818, -0.7681653499603271, -1.1821810007095337, 0.5674165487289429),
            *(-0.9736989736557007, 0.9781965613365173, -0.6946459412574768, -0.8249107003211975),
        ],
        rel=1e-6,
    )


def test_published_noise_is_what_it_has_always_been() -> None:
    found = tokens("published", draws=[0, 9], ids=np.array([0, 1, 99]), vocabulary=100)(3)
    assert found == pytest.approx(
        np.array(
            [
                [-0.4688588082790375, 0.9739779829978943, -0.3392477333545685],
                [-0.3593989312648773, -0.7313127517700195, 0.6957940459251404],
            ]
        ),
        rel=1e-6,
    )
    chunks = noise.flow_noise("published", FRAME, np.array([0, 9]), shape=(2, 2), seed=5)
    assert chunks.ravel().tolist() == [
        *(-0.013731423765420914, 1.177232265472412, 0.950232207775116, 0.025596989318728447),
        *(0.40103182196617126, -0.28125864267349243, -2.752138614654541, 0.8082997798919678),
    ]


def published(frame: FrameId, *key: int) -> np.random.Generator:
    name = f"{frame.repo}\x1f{frame.episode}\x1f{frame.frame_index}".encode()
    digest = hashlib.blake2b(name, digest_size=16).digest()
    identity = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8, 12)]
    seed = np.random.SeedSequence([*key, *identity])
    return np.random.Generator(np.random.PCG64(seed))


def test_the_published_token_stream_is_an_exponential_vector_a_step() -> None:
    rows = [(FRAME, 0), (OTHERS[1], 0), (FRAME, 3)]
    gumbel = tokens("published", frames=[frame for frame, _ in rows], draws=[d for _, d in rows])
    streams = [published(frame, 0x41525344, 5, draw) for frame, draw in rows]
    for position in range(4):
        drawn = np.stack([s.standard_exponential(300, dtype=np.float32) for s in streams])
        assert drawn.dtype == np.float32
        assert (gumbel(position) == -np.log(drawn[:, :100])).all()


def test_the_published_flow_stream_is_a_normal_chunk_a_draw() -> None:
    expected = [
        published(FRAME, 5, draw).standard_normal((50, 2), dtype=np.float32) for draw in range(3)
    ]
    assert (flow("published") == np.stack(expected)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_positions_may_be_asked_for_in_any_order(kind: str) -> None:
    gumbel, again = tokens(kind), tokens(kind)
    ascending = [gumbel(position) for position in range(40)]
    for position in (39, 0, 17, 17, 2, 33):
        assert (again(position) == ascending[position]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_see_the_others(kind: str) -> None:
    frames, draws = [FRAME, *OTHERS] * 3, [0, 0, 0, 0, 1, 1, 1, 1, 9, 9, 9, 9]
    together = tokens(kind, frames=frames, draws=draws)(4)
    order = [7, 0, 11]
    some = tokens(kind, frames=[frames[k] for k in order], draws=[draws[k] for k in order])(4)
    assert (some == together[order]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [[5], [5, 41, 42, 99], list(range(3, 90)), [99, 0, 50]])
def test_an_id_does_not_see_the_others(kind: str, ids: list[int]) -> None:
    assert (tokens(kind, ids=np.array(ids))(4) == tokens(kind)(4)[:, ids]).all()


def test_padding_the_vocabulary_leaves_philox_noise_as_it_is() -> None:
    assert (tokens(vocabulary=100)(4) == tokens(vocabulary=50_000)(4)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_more_draws_leave_the_first_ones_as_they_were(kind: str) -> None:
    assert (tokens(kind, draws=range(3))(2) == tokens(kind, draws=range(64))(2)[:3]).all()
    assert (flow(kind, draws=3) == flow(kind, draws=10)[:3]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_frames_seeds_and_positions_are_streams_of_their_own(kind: str) -> None:
    frames, draws = [FRAME, *OTHERS, FRAME, FRAME], [0, 0, 0, 0, 1, 2**20]
    ids = np.arange(300)
    streams = np.concatenate(
        [
            *(tokens(kind, frames=frames, draws=draws, ids=ids)(position) for position in (0, 1)),
            tokens(kind, draws=[5], ids=ids, seed=1)(0),  # not draw 1 of seed 5
        ]
    )
    correlation = np.corrcoef(streams)
    assert np.abs(correlation - np.eye(len(streams))).max() < 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_flow_draws_frames_and_seeds_are_streams_of_their_own(kind: str) -> None:
    parts = [
        flow(kind, draws=6),
        *(flow(kind, frame=frame, draws=1) for frame in OTHERS),
        flow(kind, draws=6, seed=1),
    ]
    streams = np.concatenate(parts).reshape(-1, 100)
    correlation = np.corrcoef(streams)
    assert np.abs(correlation - np.eye(len(streams))).max() < 0.45


def test_every_part_of_an_identity_makes_another_key() -> None:
    keys = [
        noise.stream_key("token", FRAME, seed=0),
        noise.stream_key("flow", FRAME, seed=0),
        noise.stream_key("token", FRAME, seed=1),
        *(noise.stream_key("token", frame, seed=0) for frame in OTHERS),
        noise.stream_key("token", FRAME, seed=2**40),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_draw_never_replays_the_flow_noise_of_its_frame(kind: str) -> None:
    gumbel = tokens(kind, draws=range(3))(0)
    as_normal = ndtri(np.exp(-np.exp(-gumbel)))
    chunks = flow(kind).reshape(3, 100)
    between = np.corrcoef(as_normal, chunks)[:3, 3:]
    assert np.abs(between).max() < 0.4
    assert not np.isin(as_normal.astype(np.float32), chunks).any()


def test_a_seed_sequence_cuts_numbers_into_words_and_pads_them() -> None:
    def state(*key: int) -> list[int]:
        return np.random.SeedSequence(key).generate_state(4).tolist()

    assert state(1) == state(1, 0)
    assert state(2**32) == state(0, 1)
    assert state(1, 0, 9) != state(1, 9)  # a part in the middle counts, even a zero


@pytest.mark.parametrize("word", [0, ALL])
def test_the_extreme_words_give_finite_noise(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def extreme(counter: list[np.ndarray], *, key: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(key.shape, *(part.shape for part in counter))
        return np.full((*shape, 4), word, dtype=np.uint32)

    monkeypatch.setattr(noise, "philox", extreme)
    assert np.isfinite(tokens()(0)).all()
    assert np.isfinite(flow("philox")).all()


def test_a_published_exponential_of_zero_gives_finite_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zeros = SimpleNamespace(standard_exponential=lambda size, dtype: np.zeros(size, dtype=dtype))
    monkeypatch.setattr(noise, "_published_stream", lambda *_: zeros)
    found = tokens("published")(0)
    assert found == pytest.approx(-np.log(float(np.finfo(np.float32).tiny)))


def test_uniforms_fill_the_open_interval_evenly() -> None:
    found = noise.uniform(
        np.arange(1024),
        position=np.array(0),
        draw=np.arange(64)[:, None],
        key=np.array(11, dtype=np.uint64),
    )
    assert found.shape == (64, 4096)
    assert found.min() > 0
    assert found.max() < 1
    counts = np.histogram(found, bins=64, range=(0, 1))[0]
    chi_squared = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_squared < 117  # 63 degrees of freedom: exceeded once in 40,000 seeds


@pytest.mark.parametrize("kind", KINDS)
def test_gumbel_noise_has_the_mean_and_variance_of_its_law(kind: str) -> None:
    gumbel = tokens(kind, draws=range(100), ids=np.arange(300))
    found = np.stack([gumbel(position) for position in range(10)])
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert found.mean() == pytest.approx(np.euler_gamma, abs=0.01)
    assert found.var() == pytest.approx(np.pi**2 / 6, abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_gumbel_noise_samples_the_softmax(kind: str) -> None:
    logits = np.array([0.0, 1.0, 2.0, -1.0])
    gumbel = tokens(kind, draws=range(100), ids=np.arange(4), vocabulary=4)
    chosen = [(logits + gumbel(position)).argmax(axis=1) for position in range(200)]
    share = np.bincount(np.concatenate(chosen), minlength=4) / 20_000
    expected = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(share - expected).max() < 0.015


@pytest.mark.parametrize("kind", KINDS)
def test_flow_noise_is_standard_normal(kind: str) -> None:
    found = flow(kind, draws=1000)
    assert found.dtype == np.float32
    assert found.shape == (1000, 50, 2)
    assert abs(float(found.mean())) < 0.02
    assert abs(float(found.std()) - 1) < 0.02


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'filox'; expected one of philox, published"):
        tokens("filox")
    with pytest.raises(ValueError, match="philox, published"):
        flow("filox")


def test_frames_and_draws_name_the_same_rows() -> None:
    with pytest.raises(ValueError, match="2 frames and 1 draws"):
        tokens(frames=[FRAME, FRAME], draws=[0])
