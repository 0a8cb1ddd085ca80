"""Random numbers are a function of (seed, stream, position, index), and the race has its law."""

import math
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from outrider.sampling.noise import PhiloxNoise, Stream, exponential_race

from .worlds import examples

ALPHA = 1e-6
SEEDS = (0, 1, 7, 2**63, 2**64 - 1)

GOLDEN_UNIFORM = [
    (0, 0, 0, 0.8133540609793564),
    (1, 0, 0, 0.0751511510959112),
    (7, 12345, 3, 0.7612225795595347),
    (18446744073709551615, 1048576, 255, 0.09963812760371127),
]
GOLDEN_ORDER = [
    (0, Stream.COUPLED, 0, [0, 2, 1, 5, 4, 3, 6, 7]),
    (7, Stream.DRAFT, 31, [0, 7, 5, 6, 2, 1, 4, 3]),
    (9223372036854775808, Stream.RESIDUAL, 4096, [2, 6, 0, 3, 5, 4, 7, 1]),
    (18446744073709551615, Stream.BONUS, 1048576, [2, 3, 7, 6, 1, 5, 4, 0]),
]

GOLDEN_COUPLED = [
    (0, 0, 47848),
    (7, 31, 47156),
    (2**64 - 1, 2**20, 46442),
]

WEIGHTS = st.sampled_from((0.0, 1.0, 1.0, 0.5, 3.0, 1e-30, 1e-300, 5e-324, 1e300))
NUMBERS = st.one_of(
    st.sampled_from((0.0, 2.0**-53, 0.25, 0.5, 1 - 2.0**-53)),
    st.integers(0, 2**53 - 1).map(lambda bits: bits * 2.0**-53),
)


def naive_race(weights: Sequence[float], numbers: Sequence[float], count: int) -> list[int]:
    """argmin -log1p(-v)/w over the tokens that have weight, ties to the lowest id."""
    times = {
        x: -math.log1p(-max(v, 2.0**-53)) / w
        for x, (w, v) in enumerate(zip(weights, numbers, strict=True))
        if w > 0
    }
    return sorted(times, key=lambda x: (times[x], x))[:count]


def coupled_rate(p: Sequence[float], q: Sequence[float]) -> float:
    """Chance that two races with the same numbers have the same winner."""
    return sum(
        1 / sum(max(py / p[x], qy / q[x]) for py, qy in zip(p, q, strict=True))
        for x in range(len(p))
        if p[x] > 0 and q[x] > 0
    )


def race(weights: Sequence[float], numbers: Sequence[float], count: int = 1) -> list[int]:
    ranked = exponential_race(
        torch.tensor(weights, dtype=torch.float64),
        torch.tensor(numbers, dtype=torch.float64),
        count,
    )
    return [token for token, _ in ranked]


def losing_above(weights: Sequence[float], rival: int, number: float) -> float:
    """The number of `rival` above which token 0, with `number`, wins their race: by bisection."""
    low, high = 0.0, 1.0
    for _ in range(45):
        middle = (low + high) / 2
        numbers = [1 - 2.0**-53] * len(weights)
        numbers[0], numbers[rival] = number, middle
        low, high = (low, middle) if race(weights, numbers)[0] == 0 else (middle, high)
    return high


@pytest.mark.parametrize("weights", [(1, 1), (1, 4), (0.7, 0.3), (2, 1, 1), (0.2, 0.3, 0.5)])
def test_winner_of_the_race_has_the_law_of_the_weights(weights: tuple[float, ...]) -> None:
    """Integrates, over token 0's number, the chance that all its rivals' numbers lose."""
    nodes, masses = np.polynomial.legendre.leggauss(24)
    chance = 0.0
    for node, mass in zip((nodes + 1) / 2, masses / 2, strict=True):
        number = 1 - (1 - node) ** 6  # smooths the integrand where the number nears 1
        loses = [1 - losing_above(weights, rival, number) for rival in range(1, len(weights))]
        chance += mass * 6 * (1 - node) ** 5 * math.prod(loses)
    assert chance == pytest.approx(weights[0] / sum(weights), abs=1e-6)


def test_winners_under_philox_have_the_law_of_the_weights() -> None:
    weights = torch.tensor([0.5, 0.0, 0.25, 0.2, 0.05], dtype=torch.float64)
    wins = torch.zeros(5)
    for position in range(6000):
        wins[PhiloxNoise(3).choose(weights, position, Stream.BONUS)] += 1
    used = weights > 0
    assert stats.chisquare(wins[used], 6000 * weights[used].numpy()).pvalue > ALPHA


def test_tokens_of_neighbouring_positions_are_independent() -> None:
    weights = torch.ones(3)
    winners = [PhiloxNoise(8).choose(weights, position, Stream.COUPLED) for position in range(4000)]
    cells = np.zeros((3, 3))
    for pair in pairwise(winners):
        cells[pair] += 1
    assert stats.chisquare(cells.ravel()).pvalue > ALPHA


def test_tokens_without_weight_never_win() -> None:
    weights = torch.tensor([0.5, 0.0, 0.5])
    winners = {PhiloxNoise(3).choose(weights, position, Stream.MATCH) for position in range(500)}
    assert winners == {0, 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_acceptance_numbers_are_uniform(seed: int) -> None:
    numbers = [PhiloxNoise(seed).uniform(position, 0) for position in range(3000)]
    assert stats.kstest(numbers, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("seed", SEEDS)
def test_acceptance_numbers_of_neighbouring_draws_are_independent(seed: int) -> None:
    noise = PhiloxNoise(seed)
    cells = np.zeros((4, 4))
    for position in range(3000):
        pair = noise.uniform(position, 0), noise.uniform(position, 1)
        cells[int(pair[0] * 4), int(pair[1] * 4)] += 1
    assert stats.chisquare(cells.ravel()).pvalue > ALPHA


@given(
    st.lists(st.tuples(WEIGHTS, NUMBERS), min_size=1, max_size=12).filter(
        lambda pairs: any(weight > 0 for weight, _ in pairs)
    ),
    st.integers(1, 13),
)
@examples(500)
def test_race_equals_the_naive_race(pairs: list[tuple[float, float]], count: int) -> None:
    weights, numbers = zip(*pairs, strict=True)
    assert race(weights, numbers, count) == naive_race(weights, numbers, count)


@given(st.integers(0, 2**64 - 1), st.integers(1, 5))
@examples(30)
def test_race_over_a_large_vocabulary_equals_the_naive_race(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.gamma(0.02, size=3000)
    numbers = generator.integers(0, 2**53, size=3000) * 2.0**-53
    expected = naive_race(weights.tolist(), numbers.tolist(), count)
    raced = exponential_race(torch.from_numpy(weights), torch.from_numpy(numbers), count)
    assert [token for token, _ in raced] == expected
    times = -np.log1p(-numbers) / np.where(weights > 0, weights, 1)
    assert [time for _, time in raced] == pytest.approx([times[token] for token in expected])


def test_race_without_any_weight_is_an_error() -> None:
    with pytest.raises(ValueError, match="every weight is zero"):
        race((0.0, 0.0), (0.5, 0.5))


def test_float32_weights_win_as_the_same_weights_in_float64() -> None:
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4])
    noise = PhiloxNoise(5)
    pairs = {
        (
            noise.choose(weights, position, Stream.COUPLED),
            noise.choose(weights.to(torch.float64), position, Stream.COUPLED),
        )
        for position in range(200)
    }
    assert all(one == other for one, other in pairs)


@pytest.mark.parametrize("vocab", [8, 9, 64, 1000, 128256])
def test_number_of_a_token_does_not_depend_on_the_vocabulary_size(vocab: int) -> None:
    weights = torch.zeros(vocab, dtype=torch.float64)
    weights[:8] = torch.arange(1, 9)
    ranks = [PhiloxNoise(9).rank(w, 8, 5, Stream.COUPLED) for w in (weights[:8], weights)]
    assert ranks[0] == ranks[1]


def test_every_seed_stream_position_and_index_gives_its_own_numbers() -> None:
    weights = torch.ones(64)
    keys = list(product(SEEDS, Stream, (0, 1, 2, 2**20), (0, 1, 2, 2**24)))
    orders = {
        tuple(PhiloxNoise(seed).rank(weights, 64, position, stream, index))
        for seed, stream, position, index in keys
    }
    assert len(orders) == len(keys)


def test_numbers_do_not_depend_on_what_was_asked_before() -> None:
    noise = PhiloxNoise(21)
    noise.choose(torch.ones(10), 3, Stream.DRAFT)
    assert noise.uniform(4, 2) == PhiloxNoise(21).uniform(4, 2)


@pytest.mark.parametrize(
    ("seed", "position", "index", "number"),
    GOLDEN_UNIFORM,
)
def test_acceptance_numbers_are_the_same_on_every_machine(
    seed: int, position: int, index: int, number: float
) -> None:
    assert PhiloxNoise(seed).uniform(position, index) == number


@pytest.mark.parametrize(("seed", "stream", "position", "order"), GOLDEN_ORDER)
def test_races_are_the_same_on_every_machine(
    seed: int, stream: Stream, position: int, order: list[int]
) -> None:
    assert PhiloxNoise(seed).rank(torch.ones(8), 8, position, stream) == order


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((0.7, 0.3), (0.5, 0.5)),
        ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)),
        ((0.9, 0.1, 0.0), (0.1, 0.1, 0.8)),
        ((0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1)),
    ],
)
def test_coupled_tokens_agree_as_often_as_the_coupling_says(
    p: tuple[float, ...], q: tuple[float, ...]
) -> None:
    """Pr[both x] = 1 / sum_y max(p_y/p_x, q_y/q_x): the race of max(p/p_x, q/q_x) is won by x."""
    rate = coupled_rate(p, q)
    count = 3000
    agreed = sum(
        PhiloxNoise(17).choose(torch.tensor(p), position, Stream.COUPLED)
        == PhiloxNoise(17).choose(torch.tensor(q), position, Stream.COUPLED)
        for position in range(count)
    )
    assert stats.binomtest(agreed, count, rate).pvalue > ALPHA


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=5))
@examples(200)
def test_coupled_rate_lies_within_the_bounds_of_the_paper(pairs: list[tuple[int, int]]) -> None:
    p_sum, q_sum = (max(sum(weights), 1) for weights in zip(*pairs, strict=True))
    p = [a / p_sum for a, _ in pairs] if any(a for a, _ in pairs) else [1 / len(pairs)] * len(pairs)
    q = [b / q_sum for _, b in pairs] if any(b for _, b in pairs) else [1 / len(pairs)] * len(pairs)
    tv = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    assert (1 - tv) / (1 + tv) - 1e-12 <= coupled_rate(p, q) <= 1 - tv + 1e-12


@pytest.mark.parametrize(("seed", "position", "token"), GOLDEN_COUPLED)
def test_coupled_tokens_are_the_same_on_every_machine(seed: int, position: int, token: int) -> None:
    """A change of the generator or of the race would make old seeds give other answers."""
    weights = torch.arange(1, 50_001, dtype=torch.float64)
    assert PhiloxNoise(seed).choose(weights, position, Stream.COUPLED) == token


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_races_on_a_gpu_have_the_winners_of_the_cpu(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    for position in range(50):
        weights = torch.rand(50_000, generator=generator, dtype=dtype) ** 8
        there = PhiloxNoise(3).rank(weights.cuda(), 8, position, Stream.COUPLED)
        assert there == PhiloxNoise(3).rank(weights, 8, position, Stream.COUPLED)
