"""Seeds of several answers to one request."""

import pytest

from outrider.errors import InvalidArgumentError
from outrider.seeds import MAX_CHOICE, choice_seed, resumed_seed

U64 = 2**64


def test_choice_zero_is_the_seed_itself() -> None:
    for seed in (0, 7, U64 - 1):
        assert choice_seed(seed, 0) == seed


def test_the_seeds_of_all_choices_differ_also_between_neighbouring_seeds() -> None:
    seeds = [choice_seed(s, c) for s in (0, 1, 2, U64 - 1) for c in range(MAX_CHOICE + 1)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < U64 for seed in seeds)


def test_a_choice_is_replayed_by_a_later_version() -> None:
    """Fixed values: a change would make stored (seed, choice) pairs give other answers."""
    assert [choice_seed(7, 1), choice_seed(7, 1023), choice_seed(U64 - 1, 1)] == [
        11449954185318916348,
        6025555344826634880,
        13304240091788627909,
    ]


def test_every_bit_of_the_seeds_is_a_coin() -> None:
    """Every bit is set in about half of 1024 seeds: within five standard deviations, 80."""
    seeds = [choice_seed(7, choice) for choice in range(1, MAX_CHOICE + 1)]
    for bit in range(64):
        assert abs(sum(seed >> bit & 1 for seed in seeds) - 512) < 80


@pytest.mark.parametrize(
    ("seed", "choice", "says"),
    [
        (-1, 0, "seed is -1"),
        (U64, 1, "seed is 18446744073709551616"),
        (0, -1, "choice is -1; give a whole number from 0 to 1023"),
        (0, 1024, "choice is 1024"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(seed: int, choice: int, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        choice_seed(seed, choice)


def test_what_follows_a_broken_stream_has_a_seed_of_its_own_for_each_place() -> None:
    seeds = [resumed_seed(seed, count) for seed in (0, 7, U64 - 1) for count in range(500)]
    assert len(set(seeds)) == len(seeds)
    assert [resumed_seed(seed, 0) for seed in (0, 7)] == [0, 7]
    choices = {choice_seed(7, choice) for choice in range(500)}
    assert choices.isdisjoint(resumed_seed(7, count) for count in range(1, 500))
