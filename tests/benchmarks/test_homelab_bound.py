"""The bound is that of its docstring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.homelab_answer import Round
from benchmarks.homelab_bound import (
    LEAST_TESTED,
    acceptance,
    bound,
    expected_tokens,
    inner_rounds,
    pass_ms,
    pass_times,
)


def rounds(*counts: tuple[int, int, int]) -> list[Round]:
    """(times, nodes, accepted) each."""
    return [
        Round(nodes + 1, accepted, 1000, 0)
        for times, nodes, accepted in counts
        for _ in range(times)
    ]


def test_acceptance_counts_only_what_was_tested() -> None:
    # 8 chains of three: 2 rejected at once, 6 had the first accepted, 3 of them the second.
    seen = rounds((2, 3, 0), (3, 3, 1), (3, 3, 2))
    assert acceptance(seen)[:2] == (6 / 8, 3 / 6)
    # Chains that end before a position say nothing about it.
    assert acceptance(seen + rounds((50, 1, 1), (50, 0, 0)))[1] == 3 / 6


def test_positions_that_were_hardly_tested_are_left_out() -> None:
    assert len(acceptance(rounds((LEAST_TESTED, 2, 1)))) == 2
    assert len(acceptance(rounds((LEAST_TESTED - 1, 2, 1)))) == 0
    assert acceptance(()) == ()


def test_first_and_last_pass_are_left_out() -> None:
    assert inner_rounds(rounds((1, 5, 0), (2, 3, 1), (1, 1, 1))) == rounds((2, 3, 1))


def test_times_are_medians_of_rows_that_ran_often_enough() -> None:
    seen = [Round(1, 0, us, 0) for us in (5000, 4000, 90_000)] + [Round(2, 0, 1, 0)]
    assert pass_times(seen) == {1: 5.0}


@pytest.mark.parametrize(
    ("rows", "ms"), [(1, 100), (3, 120), (2, 110), (4, 140), (5, 160), (7, 190)]
)
def test_times_between_are_interpolated_and_beyond_go_on_as_before(rows: int, ms: float) -> None:
    assert pass_ms({1: 100.0, 3: 120.0, 5: 160.0}, rows) == pytest.approx(ms)


def test_one_known_time_holds_for_all_and_none_is_an_error() -> None:
    assert pass_ms({3: 7.0}, 1) == pass_ms({3: 7.0}, 9) == 7.0
    with pytest.raises(ValueError, match="no pass"):
        pass_ms({}, 1)


@given(st.floats(0, 0.99), st.integers(0, 12))
def test_expected_tokens_are_those_of_the_paper_where_all_positions_are_alike(
    rate: float, nodes: int
) -> None:
    closed = (1 - rate ** (nodes + 1)) / (1 - rate)
    assert expected_tokens([rate] * nodes, nodes) == pytest.approx(closed)


def test_the_bound_takes_the_best_chain_that_is_allowed() -> None:
    rates = (0.9, 0.9, 0.1)
    times = {1: 100.0, 2: 110.0, 3: 120.0, 4: 130.0}
    best = bound(rates, times, 7)
    assert best.nodes == 2
    assert best.speed_up == pytest.approx((1 + 0.9 + 0.81) * 100 / 120)
    assert bound(rates, times, 1).speed_up == pytest.approx(1.9 * 100 / 110)


def test_where_drafts_cannot_pay_the_bound_is_the_target_alone() -> None:
    assert bound((0.1,), {1: 100.0, 2: 200.0}, 5) == bound((), {1: 100.0}, 5)


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 50), st.integers(0, 8))
def test_the_bound_is_at_least_one_and_at_most_what_all_accepted_would_give(
    rates: list[float], row_ms: float, most: int
) -> None:
    times = {rows: 100 + row_ms * rows for rows in (1, 9)}
    assert 1 <= bound(rates, times, most).speed_up <= 1 + min(most, len(rates)) + 1e-9
