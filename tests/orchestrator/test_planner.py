"""The planner, pure: within bounds, off under break-even, on again when that may have changed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner import (
    PROBE_CYCLE,
    PROBE_ROUNDS,
    Limits,
    Observations,
    PassTimes,
    expected_tokens,
    plan,
)
from outrider.types import StepTiming, Verdict

LIMITS = Limits(num_speculative_tokens=7, width=1, proposal_top_k=64)


def seen(
    acceptance: float,
    *,
    row_us: float = 0.0,
    base_us: float = 20_000.0,
    step_us: float = 1_000.0,
    round_trip_us: float = 500.0,
    rounds: int = PROBE_ROUNDS,
) -> Observations:
    """What a session knows whose passes take base + row_us per row, outside of a probe."""
    passes = PassTimes()
    for rows in (1, 2, 4, 8) * 8:
        passes = passes.add(rows, int(base_us + row_us * rows))
    return Observations(
        tested=100.0,
        accepted=100.0 * acceptance,
        rounds=rounds,
        draft_step_us=step_us,
        round_trip_us=round_trip_us,
        passes=passes,
    )


def rows(observations: Observations, limits: Limits = LIMITS) -> int:
    return plan(observations, limits, has_drafts=True).policy.max_rows


def test_without_drafts_nothing_is_verified_and_nothing_waited_for() -> None:
    made = plan(seen(0.9), LIMITS, has_drafts=False)
    assert made.draft.depth == made.policy.max_rows == 0
    assert made.policy.min_depth == made.policy.max_wait_us == 0


def test_without_run_ahead_a_draft_stops_where_the_next_pass_ends() -> None:
    assert plan(seen(0.9), LIMITS, has_drafts=True).draft.depth == 14
    waiting = replace(LIMITS, run_ahead=False)
    assert plan(seen(0.9), waiting, has_drafts=True).draft.depth == 7


def test_free_rows_are_all_used() -> None:
    assert rows(seen(0.5)) == 7


def test_drafting_is_turned_off_under_break_even_and_tried_again() -> None:
    """Field bug 26. Rows so dear that a rejected one costs more than an accepted one saves."""
    hopeless = seen(0.2, row_us=20_000, base_us=1_000)
    off = plan(hopeless, LIMITS, has_drafts=True)
    assert off.policy.max_rows == off.draft.depth == 0
    again = replace(hopeless, rounds=PROBE_CYCLE)
    assert rows(again) == 7
    cycle = [rows(replace(hopeless, rounds=n)) for n in range(PROBE_CYCLE, 2 * PROBE_CYCLE)]
    assert cycle == [7] * PROBE_ROUNDS + [0] * (PROBE_CYCLE - PROBE_ROUNDS)


def test_after_better_probes_drafting_stays_on() -> None:
    observations = seen(0.2, row_us=20_000, base_us=20_000, rounds=PROBE_CYCLE)
    assert rows(replace(observations, rounds=PROBE_ROUNDS)) == 0
    for number in range(PROBE_CYCLE):
        timing = StepTiming(forward_us=20_000 + 100 * 8, rows=8)
        verdict = Verdict(number, 0, (1,) * 8, (*range(1, 8), 0), 7, None, timing)
        observations = observations.with_verdict(verdict)
    assert rows(replace(observations, rounds=PROBE_ROUNDS)) == 7


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 30_000))
def test_more_acceptance_never_means_fewer_rows(a: float, b: float, row_us: float) -> None:
    low, high = sorted((a, b))
    assert rows(seen(low, row_us=row_us)) <= rows(seen(high, row_us=row_us))


def test_waiting_pays_after_a_miss_where_drafts_are_quick_and_not_where_they_are_slow() -> None:
    quick = plan(seen(0.8, step_us=500), LIMITS, has_drafts=True).policy
    slow = plan(seen(0.8, step_us=60_000), LIMITS, has_drafts=True).policy
    far = plan(seen(0.8, round_trip_us=200_000), LIMITS, has_drafts=True).policy
    assert quick.min_depth > 0
    assert 0 < quick.max_wait_us < 30_000
    assert slow.min_depth == slow.max_wait_us == 0
    assert far.min_depth == far.max_wait_us == 0


def test_before_anything_is_known_nobody_waits() -> None:
    made = plan(Observations(), LIMITS, has_drafts=True)
    assert made.policy.min_depth == made.policy.max_wait_us == 0
    assert made.policy.max_rows == 7


def test_what_the_deployment_fixes_is_kept() -> None:
    fixed = replace(LIMITS, wait_nodes=3, max_wait_us=9_000)
    policy = plan(seen(0.1, step_us=60_000), replace(fixed, adaptive=False), True).policy
    assert (policy.min_depth, policy.max_wait_us, policy.max_rows) == (3, 9_000, 7)


def test_a_fixed_number_of_candidates_is_waited_for_with_a_planned_patience() -> None:
    """One of the two settings alone counts too."""
    fixed = replace(LIMITS, wait_nodes=3)
    policy = plan(seen(0.1, step_us=60_000), replace(fixed, adaptive=False), True).policy
    assert policy.min_depth == 3
    assert policy.max_wait_us > 0


def test_a_fixed_patience_bounds_the_planned_one() -> None:
    policy = plan(seen(0.9), replace(LIMITS, max_wait_us=1_200), has_drafts=True).policy
    assert policy.max_wait_us <= 1_200


observations = st.builds(
    seen,
    st.floats(0, 1),
    row_us=st.floats(0, 1e7),
    base_us=st.floats(0, 1e8),
    step_us=st.floats(0, 1e8),
    round_trip_us=st.floats(0, 1e8),
    rounds=st.integers(0, 10_000),
)
limits = st.builds(
    Limits,
    num_speculative_tokens=st.integers(1, 128),
    width=st.integers(1, 32),
    proposal_top_k=st.integers(1, 1024),
    wait_nodes=st.none() | st.integers(0, 4096),
    max_wait_us=st.none() | st.integers(0, 60_000_000),
    adaptive=st.booleans(),
)


@given(observations, limits, st.booleans())
def test_every_plan_is_one_that_the_services_take(
    seen_so_far: Observations, allowed: Limits, has_drafts: bool
) -> None:
    made = plan(seen_so_far, allowed, has_drafts)  # the dataclasses refuse what is out of bounds
    assert made.policy.max_rows <= allowed.num_speculative_tokens * allowed.width
    assert made.policy.min_depth <= made.policy.max_rows
    assert made.draft.depth <= 2 * allowed.num_speculative_tokens


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10**9)), max_size=40))
def test_predicted_times_are_never_negative_and_never_fall_with_more_rows(
    passes: list[tuple[int, int]],
) -> None:
    times = PassTimes()
    for count, us in passes:
        times = times.add(count, us)
    predictions = [times.predict(count) for count in (0, 1, 2, 8, 64, 5000)]
    assert all(prediction >= 0 for prediction in predictions)
    assert predictions == sorted(predictions)


@pytest.mark.parametrize(("acceptance", "nodes", "tokens"), [(0.0, 5, 1.0), (0.5, 2, 1.75)])
def test_expected_tokens_follow_the_paper(acceptance: float, nodes: int, tokens: float) -> None:
    assert expected_tokens(acceptance, nodes) == pytest.approx(tokens)


def test_a_path_that_ended_for_lack_of_nodes_tested_nothing_more() -> None:
    start = Observations(tested=0.0, accepted=0.0)
    whole = start.with_verdict(Verdict(0, 0, (1, 2, 3), (5, 6, 0), 2))
    assert (whole.tested, whole.accepted) == (2, 2)
    missed = start.with_verdict(Verdict(0, 0, (1, 2), (5, 0), 2))
    assert (missed.tested, missed.accepted) == (2, 1)
