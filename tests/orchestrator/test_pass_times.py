"""The planner's line through past passes, against numpy; and what quicker drafts change."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner import Limits, Observations, Pace, plan
from outrider.pass_times import FEW, MEMORY, ROW_MEMORY, PassTimes, most_per_time

LIMITS = Limits(num_speculative_tokens=7, width=1, proposal_top_k=64)
passes = st.lists(
    st.tuples(st.integers(1, 64), st.integers(1_000, 1_000_000)), min_size=2, max_size=FEW
)
"""So few that each counts for as long as it took."""


def fitted(observed: list[tuple[int, int]]) -> PassTimes:
    times = PassTimes()
    for rows, us in observed:
        times = times.add(rows, us)
    return times


@given(passes.filter(lambda observed: len({rows for rows, _ in observed}) > 1), st.integers(1, 64))
def test_the_prediction_is_numpys_weighted_line_where_that_rises(
    observed: list[tuple[int, int]], rows: int
) -> None:
    ages = np.arange(len(observed))[::-1]
    x, y = np.array(observed, dtype=float).T
    slope, _ = np.polyfit(x, y, 1, w=np.sqrt(ROW_MEMORY**ages))
    mean_x, mean_y = (np.average(values, weights=MEMORY**ages) for values in (x, y))
    expected = max(mean_y + slope * (rows - mean_x), 0.2 * mean_y) if slope > 0 else mean_y
    assert fitted(observed).predict(rows) == pytest.approx(expected, rel=1e-5)


@given(st.integers(1, 64), st.integers(1, 10**6), st.integers(1, 40), st.integers(1, 64))
def test_passes_of_one_size_predict_their_mean(size: int, us: int, count: int, rows: int) -> None:
    assert fitted([(size, us)] * count).predict(rows) == pytest.approx(us)


def test_what_a_row_costs_outlasts_many_passes_of_about_one_size() -> None:
    """In 150 passes of 64 rows that waver by a tenth, one row more or less tells nothing."""
    random = Random(5)
    times = fitted([(n, 40_000 + 200 * n) for n in (1, 8, 64, 256) * 8])
    for _ in range(150):
        rows = 64 + random.choice((-1, 0, 0, 0, 1))
        times = times.add(rows, int((40_000 + 200 * rows) * random.uniform(0.9, 1.1)))
    assert times.row_us == pytest.approx(200, rel=0.3)


@pytest.mark.parametrize("held_up_us", [2_000_000, 60_000_000])
def test_a_pass_that_was_held_up_once_hardly_counts(held_up_us: int) -> None:
    usual = [(n, 20_000 + 600 * n) for n in (1, 4, 8, 16) * 10]
    times = fitted([*usual, (16, 29_600 + held_up_us), *usual])
    assert times.row_us == pytest.approx(600, rel=0.35)
    assert times.predict(1) == pytest.approx(20_600, rel=0.1)


def test_passes_that_became_slower_for_good_are_believed_soon() -> None:
    times = fitted([(n, 20_000) for n in (1, 4, 8, 16) * 10] + [(4, 200_000)] * 60)
    assert times.predict(4) == pytest.approx(200_000, rel=0.25)


def test_without_a_pass_nothing_is_predicted() -> None:
    assert PassTimes().predict(8) == 0.0


def seen(acceptance: float, step_us: float) -> Observations:
    return Observations(
        tested=(1000.0,) * 8,
        accepted=(1000.0 * acceptance,) * 8,
        rounds=100,
        draft_step_us=step_us,
        round_trip_us=200.0,
        passes=fitted([(1, 20_000), (8, 21_000)] * 8),
    )


@given(st.floats(0, 1), st.floats(1, 200_000), st.floats(1, 200_000))
def test_a_quicker_draft_is_waited_for_at_least_as_long_in_nodes(
    acceptance: float, a: float, b: float
) -> None:
    quick, slow = sorted((a, b))
    waits = [plan(seen(acceptance, us), LIMITS, True).policy.min_depth for us in (quick, slow)]
    assert waits[0] >= waits[1]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 200_000))
def test_a_better_draft_is_waited_for_at_least_as_long_in_nodes(
    a: float, b: float, step_us: float
) -> None:
    low, high = sorted((a, b))
    waits = [plan(seen(rate, step_us), LIMITS, True).policy.min_depth for rate in (high, low)]
    assert waits[0] >= waits[1]


def test_zero_candidates_to_wait_for_means_no_wait() -> None:
    limits = replace(LIMITS, wait_nodes=0, max_wait_us=9_000)
    policy = plan(seen(0.9, 100.0), limits, True).policy
    assert (policy.min_depth, policy.max_wait_us) == (0, 0)


def test_a_step_of_a_draft_is_remembered_smoothly() -> None:
    assert Pace(300).with_step(1000).with_step(2000) == Pace(300, pytest.approx(1200))


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10**9)), max_size=40))
def test_predicted_times_are_never_negative_and_never_fall_with_more_rows(
    passes: list[tuple[int, int]],
) -> None:
    times = fitted(passes)
    predictions = [times.predict(count) for count in (0, 1, 2, 8, 64, 5000)]
    assert all(prediction >= 0 for prediction in predictions)
    assert predictions == sorted(predictions)


@given(
    st.lists(st.floats(0.001, 1), min_size=1, max_size=12),
    st.floats(1, 1e6),
    st.floats(0, 1e6),
)
def test_as_many_gains_are_taken_as_bring_the_most_per_time(
    gains: list[float], base_us: float, row_us: float
) -> None:
    gains = sorted(gains, reverse=True)
    times = fitted([(n, int(base_us + row_us * n)) for n in (1, 2, 4, 8, 16)])

    def rate(count: int) -> float:
        return sum(gains[:count]) / max(times.predict(count), 1.0)

    chosen = most_per_time(gains, times)
    assert rate(chosen) >= (1 - 1e-9) * max(rate(count) for count in range(1, len(gains) + 1))
