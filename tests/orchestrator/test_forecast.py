"""Forecasts agree with closed forms where there are any, and move the right way where not."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.forecast import (
    MOST_ROUND_TRIP_US,
    PAYS,
    best_depth,
    bound,
    break_even_round_trip_us,
    chain_tokens,
    forecast,
    needed_acceptance,
    slowest_draft_step_us,
    synchronous_ratio,
)
from orchestrator.planner import Limits
from orchestrator.simulation import PassCosts, Situation, run

LIMITS = Limits(num_speculative_tokens=7, width=1, proposal_top_k=64)
USUAL = Situation(
    costs=PassCosts.line(40_000, 200),
    acceptance=(0.8,),
    draft_step_us=4_000,
    draft_wire_us=1_000,
    limits=LIMITS,
    verify_wire_us=500,
    pass_overhead_us=300,
)
SEEDS = range(1, 9)
MANY = range(1, 21)


def classic(situation: Situation) -> Situation:
    """Draft all, send, verify, send the verdict, again."""
    nodes = situation.limits.num_speculative_tokens
    limits = replace(
        situation.limits,
        adaptive=False,
        run_ahead=False,
        wait_nodes=nodes,
        max_wait_us=60_000_000,
    )
    return replace(situation, limits=limits)


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("round_trip_us", [0, 20_000, 200_000])
def test_synchronous_drafting_is_as_fast_as_its_formula_says(
    acceptance: float, round_trip_us: float
) -> None:
    met = classic(replace(USUAL, acceptance=(acceptance,), draft_wire_us=round_trip_us))
    assert forecast(met, seeds=MANY).ratio == pytest.approx(synchronous_ratio(met), rel=0.03)


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_free_drafts_next_door_reach_the_bound(acceptance: float) -> None:
    limits = replace(LIMITS, adaptive=False, wait_nodes=7, max_wait_us=10**6)
    met = replace(
        USUAL,
        acceptance=(acceptance,),
        draft_step_us=0.001,
        draft_wire_us=0.001,
        verify_wire_us=0.001,
        limits=limits,
    )
    assert forecast(met, seeds=MANY).ratio == pytest.approx(bound(met), rel=0.03)


@given(
    acceptance=st.floats(0.0, 0.99),
    step_us=st.floats(100, 80_000),
    round_trip_us=st.floats(0, 400_000),
    row_us=st.floats(0, 10_000),
)
@settings(max_examples=12, deadline=None)
def test_no_forecast_exceeds_the_bound_or_harms_much(
    acceptance: float, step_us: float, round_trip_us: float, row_us: float
) -> None:
    met = replace(
        USUAL,
        acceptance=(acceptance,),
        draft_step_us=step_us,
        draft_wire_us=round_trip_us,
        costs=PassCosts.line(40_000, row_us),
    )
    expected = forecast(met, tokens=256, seeds=SEEDS[:3])
    assert expected.ratio <= 1.12 * bound(met)
    assert expected.ratio >= 0.8


def test_a_draft_that_is_never_right_costs_next_to_nothing() -> None:
    expected = forecast(replace(USUAL, acceptance=(0.0,)), tokens=512)
    assert expected.tokens_per_pass == 1.0
    assert 0.95 < expected.ratio <= 1.0


def test_nearer_quicker_and_better_drafts_bring_more() -> None:
    usual = forecast(USUAL).ratio
    assert forecast(replace(USUAL, draft_wire_us=100_000)).ratio < usual
    assert forecast(replace(USUAL, draft_step_us=20_000)).ratio < usual
    assert forecast(replace(USUAL, acceptance=(0.6,))).ratio < usual
    assert forecast(replace(USUAL, costs=PassCosts.line(40_000, 8_000))).ratio < usual


def test_running_ahead_gains_over_drafting_in_turns() -> None:
    good = replace(USUAL, acceptance=(0.95,), draft_wire_us=20_000)
    assert forecast(good).ratio > 1.15 * synchronous_ratio(good)


def test_the_same_seeds_give_the_same_forecast() -> None:
    assert forecast(USUAL) == forecast(USUAL)
    assert run(USUAL, 100, 1) == run(USUAL, 100, 1) != run(USUAL, 100, 2)


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9])
def test_a_short_request_ends_at_its_length(tokens: int) -> None:
    outcome = run(replace(USUAL, acceptance=(1.0,)), tokens, 1)
    assert 0 <= outcome.tokens < tokens + 1
    assert outcome.passes >= 0


def test_drafted_tokens_are_accepted_as_often_as_they_were_said_to_be() -> None:
    limits = Limits(1, 1, 64, wait_nodes=1, max_wait_us=10**6, adaptive=False)
    runs = [run(replace(USUAL, acceptance=(0.7,), limits=limits), 500, seed) for seed in SEEDS]
    accepted, verified = sum(r.accepted for r in runs), sum(r.verified for r in runs)
    assert accepted + sum(r.passes for r in runs) == sum(r.tokens for r in runs)
    assert verified >= sum(r.passes for r in runs) - len(runs), (
        "one node in every pass but the last"
    )
    assert accepted / verified == pytest.approx(0.7, abs=0.03)


def test_chances_by_position_make_the_expected_tokens() -> None:
    assert chain_tokens((0.5,), 3) == (1 - 0.5**4) / (1 - 0.5)
    assert chain_tokens((0.9, 0.5), 3) == pytest.approx(1 + 0.9 + 0.45 + 0.225)
    draws = random.Random(1)
    total = 0
    for _ in range(20_000):
        total += 1
        for chance in (0.9, 0.5, 0.5):
            if draws.random() >= chance:
                break
            total += 1
    assert chain_tokens((0.9, 0.5), 3) == pytest.approx(total / 20_000, rel=0.02)


def test_dear_rows_call_for_shorter_chains() -> None:
    cheap = best_depth(replace(USUAL, acceptance=(0.9,)))
    dear = best_depth(replace(USUAL, acceptance=(0.9,), costs=PassCosts.line(40_000, 15_000)))
    assert dear.num_speculative_tokens < cheap.num_speculative_tokens


def test_break_even_is_where_drafts_stop_paying() -> None:
    limit = break_even_round_trip_us(replace(USUAL, acceptance=(0.6,)))
    assert limit is not None and 1_000 < limit < MOST_ROUND_TRIP_US
    at = replace(USUAL, acceptance=(0.6,))
    assert forecast(replace(at, draft_wire_us=0.5 * limit), seeds=(1, 2, 3)).ratio >= PAYS
    assert forecast(replace(at, draft_wire_us=2.0 * limit), seeds=(1, 2, 3)).ratio < PAYS
    assert break_even_round_trip_us(replace(USUAL, acceptance=(0.0,))) is None


def test_limits_of_draft_time_and_acceptance_are_found() -> None:
    slowest = slowest_draft_step_us(USUAL)
    assert slowest is not None and 10_000 < slowest < 45_000
    needed = needed_acceptance(replace(USUAL, acceptance=(0.1,)))
    assert needed is not None and 0.05 < needed < 0.6
    assert slowest_draft_step_us(replace(USUAL, acceptance=(0.0,))) is None


def test_a_pass_between_two_measured_lengths_is_on_the_line_between_them() -> None:
    costs = PassCosts((1, 4, 8), (10.0, 16.0, 36.0))
    assert [costs.of(rows) for rows in (1, 2, 4, 6, 8, 10)] == [10.0, 12.0, 16.0, 26.0, 36.0, 46.0]
    assert PassCosts((3,), (5.0,)).of(9) == 5.0
