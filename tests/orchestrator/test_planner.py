"""The planner, pure: within bounds, off under break-even, on again when that may have changed."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner import (
    BUSY_SESSIONS,
    FIRST_CHANCE,
    HYSTERESIS,
    IDLE_ROUNDS,
    LOWEST_CHANCE,
    PROBE_ROUNDS,
    REST_ROUNDS,
    Limits,
    Observations,
    Pace,
    draft_at,
    plan,
)
from outrider.pass_times import PassTimes
from outrider.types import StepTiming, Verdict

LIMITS = Limits(num_speculative_tokens=7, width=1, proposal_top_k=64)


def seen(
    acceptance: float,
    *,
    row_us: float = 0.0,
    base_us: float = 20_000.0,
    step_us: float = 1_000.0,
    round_trip_us: float = 500.0,
    rounds: int = 100,
    idle_rounds: int = 0,
    resting: int = 0,
    tokens_per_pass: float = 3.0,
    sessions: float = 1.0,
) -> Observations:
    """What a session knows whose passes take base + row_us per row."""
    passes = PassTimes()
    for rows in (1, 2, 4, 8) * 8:
        passes = passes.add(rows, int(base_us + row_us * rows))
    return Observations(
        tested=(1000.0,) * 8,
        accepted=(1000.0 * acceptance,) * 8,
        rounds=rounds,
        idle_rounds=idle_rounds,
        resting=resting,
        tokens=30 * tokens_per_pass,
        cycle_us=30 * max(passes.predict(4), 1.0),
        sessions=sessions,
        draft_step_us=step_us,
        round_trip_us=round_trip_us,
        passes=passes,
    )


def least_chance(observations: Observations, limits: Limits = LIMITS) -> float:
    return plan(observations, limits, has_drafts=True).policy.min_chance


def test_without_drafts_nothing_is_waited_for_and_room_is_kept_for_those_that_join() -> None:
    made = plan(seen(0.9), LIMITS, has_drafts=False)
    assert made.draft.depth == made.policy.min_depth == made.policy.max_wait_us == 0
    assert made.policy.max_rows == 7


def test_where_no_drafted_row_is_allowed_nothing_is_drafted_and_nothing_waited_for() -> None:
    for limits in (LIMITS, replace(LIMITS, wait_nodes=3, max_wait_us=9_000)):
        made = plan(seen(0.9), replace(limits, num_speculative_tokens=0), has_drafts=True)
        assert made.draft.depth == made.policy.max_rows == 0
        assert made.policy.min_depth == made.policy.max_wait_us == 0


def test_without_run_ahead_a_draft_stops_where_the_next_pass_ends() -> None:
    assert plan(seen(0.9), LIMITS, has_drafts=True).draft.depth > 2 * 7
    waiting = replace(LIMITS, run_ahead=False)
    assert plan(seen(0.9), waiting, has_drafts=True).draft.depth == 7


def test_a_row_pays_where_its_chance_is_worth_the_time_it_takes() -> None:
    """Three tokens in 20.8 ms; a row of 0.2 ms costs what 0.029 tokens take."""
    dear = seen(0.8, row_us=200)
    assert least_chance(dear) == pytest.approx(3 / 20_800 * 200, rel=0.01)


def test_free_rows_are_used_down_to_the_lowest_chance() -> None:
    assert least_chance(seen(0.5, row_us=0.01)) == LOWEST_CHANCE


def test_before_anything_is_measured_a_likely_node_is_verified() -> None:
    made = plan(Observations(), LIMITS, has_drafts=True)
    assert (made.policy.min_chance, made.policy.max_rows) == (FIRST_CHANCE, 7)
    assert made.policy.min_depth == made.policy.max_wait_us == 0


def test_a_row_as_dear_as_a_pass_must_be_certain() -> None:
    assert least_chance(seen(0.5, row_us=50_000, base_us=0, tokens_per_pass=8)) == 1.0


def test_the_same_chance_counts_for_all_sessions_of_a_verifier() -> None:
    """What is shared is the time of the whole pass, so what a row must bring is its tokens' too."""
    alone = seen(0.8, row_us=200, tokens_per_pass=3)
    loaded = seen(0.8, row_us=200, tokens_per_pass=90, base_us=60_000)
    assert least_chance(loaded) == pytest.approx(90 / 60_800 * 200, rel=0.02)
    assert least_chance(alone) < least_chance(loaded)


def test_a_draft_goes_on_where_a_node_may_pay_in_the_pass_after_the_next() -> None:
    near = seen(0.8, row_us=2_000, round_trip_us=1)
    made = plan(near, LIMITS, has_drafts=True)
    assert made.draft.min_chance == pytest.approx(made.policy.min_chance**2, rel=0.01)
    assert draft_at(made, near, LIMITS, 1) == made.draft
    far = draft_at(made, near, LIMITS, 100_000)
    assert far.min_chance < made.draft.min_chance
    assert replace(far, min_chance=made.draft.min_chance) == made.draft


def test_a_draft_sends_what_a_pass_may_verify_and_no_less_likely_child() -> None:
    made = plan(seen(0.8, row_us=2_000), LIMITS, has_drafts=True)
    assert made.draft.least_sent == made.policy.min_chance > made.draft.min_chance
    free = plan(seen(0.8, row_us=2_000), replace(LIMITS, adaptive=False), has_drafts=True)
    assert free.draft.least_sent == free.policy.min_chance == 0


def test_the_draft_that_is_waited_for_is_the_one_whose_path_is_there_first() -> None:
    lookup, model, away = Pace(300, 50), Pace(200, 20_000), Pace(100_000, 5_000)
    assert Observations().with_drafts([]) == Observations()
    assert Observations().with_drafts([Pace(300, 0)]) == Observations(), "it has said nothing yet"
    for paces, first in (((lookup, model, away), lookup), ((model, away), model), ([away], away)):
        met = Observations(draft_step_us=1, round_trip_us=1).with_drafts(paces)
        assert (met.round_trip_us, met.draft_step_us) == (first.round_trip_us, first.step_us)


def test_a_least_chance_that_hardly_changes_is_left_as_it_is() -> None:
    first = plan(seen(0.8, row_us=200), LIMITS, has_drafts=True)
    near = plan(seen(0.8, row_us=200 * (1 + HYSTERESIS / 2)), LIMITS, True, first)
    assert near.policy.min_chance == first.policy.min_chance
    away = plan(seen(0.8, row_us=400), LIMITS, True, first)
    assert away.policy.min_chance > 1.5 * first.policy.min_chance


def test_what_wavers_a_little_is_told_seldom() -> None:
    """Passes by 2 %, steps of the draft by 10 %, acceptance from one verdict to the next."""
    random = Random(7)
    known, pace = seen(0.8, row_us=2_000), Pace(500, 5_000)
    current = plan(known, LIMITS, has_drafts=True)
    away = draft_at(current, known, LIMITS, 60_000)
    changes = changes_away = 0
    for _ in range(400):
        accepted = random.choice((0, 1, 2, 3, 4))
        ids = (*range(1, accepted + 1), 0)
        rows = random.randrange(2, 8)
        us = int((20_000 + 2_000 * rows) * random.uniform(0.98, 1.02))
        timing = StepTiming(forward_us=us, rows=rows)
        told = Verdict(0, 0, (1,) * len(ids), ids, rows - 1, None, timing, missed=accepted < 4)
        pace = pace.with_step(int(5_000 * random.uniform(0.9, 1.1)))
        known = known.with_drafts([pace]).with_verdict(told)
        before, current = current, plan(known, LIMITS, True, current)
        changes += current != before
        away_before, away = away, draft_at(current, known, LIMITS, 60_000, away)
        changes_away += away != away_before
    assert changes < 40
    assert changes_away < 60


def test_a_session_that_waits_goes_on_to_wait_a_little_longer_than_it_would_begin_to() -> None:
    begun = plan(seen(0.8, step_us=500), LIMITS, has_drafts=True)
    assert begun.policy.min_depth > 0
    busier = seen(0.8, step_us=500, sessions=BUSY_SESSIONS + 0.1)
    assert plan(busier, LIMITS, True, begun).policy.min_depth > 0
    assert plan(busier, LIMITS, True).policy.min_depth == 0
    busy = seen(0.8, step_us=500, sessions=BUSY_SESSIONS + 0.5)
    assert plan(busy, LIMITS, True, begun).policy.min_depth == 0


def idle(known: Observations, rounds: int, jitter: float = 0.0) -> Iterator[Observations]:
    """What it knows after 0, 1, ... rounds in which nothing was worth verifying."""
    random = Random(2)
    for _ in range(rounds):
        yield known
        us = int(20_000 * random.uniform(1 - jitter, 1 + jitter))
        known = known.with_verdict(Verdict(0, 0, (1,), (0,), 0, None, StepTiming(0, us, rows=1)))


def test_passes_that_waver_do_not_turn_drafting_on_and_off() -> None:
    """The first of a probe is there after about as long as ten passes, sometimes nine or eleven."""
    rounds = 1000
    known = idle(seen(0.2, round_trip_us=199_000, step_us=1_000), rounds, jitter=0.05)
    is_drafting = [plan(k, LIMITS, has_drafts=True).draft.depth > 0 for k in known]
    switches = sum(a != b for a, b in pairwise(is_drafting))
    assert switches <= 2 * rounds / (REST_ROUNDS + PROBE_ROUNDS + 9) + 1
    probes = "".join("x" if drafting else " " for drafting in is_drafting).split()[1:-1]
    assert all(PROBE_ROUNDS + 9 <= len(probe) <= PROBE_ROUNDS + 11 for probe in probes)


@pytest.mark.parametrize(
    ("away_us", "probe"), [(500.0, PROBE_ROUNDS + 1), (99_500.0, PROBE_ROUNDS + 6)]
)
def test_drafts_rest_under_break_even_and_try_again(away_us: float, probe: int) -> None:
    """Field bug 26. Nothing was worth verifying for a while: drafts stop, but for probes that last
    until what they bring can be there.
    """
    depths = [
        plan(known, LIMITS, has_drafts=True).draft.depth
        for known in idle(seen(0.2, round_trip_us=away_us), IDLE_ROUNDS + 2 * (REST_ROUNDS + probe))
    ]
    assert all(depths[:IDLE_ROUNDS])
    for cycle in (0, 1):
        start = IDLE_ROUNDS + cycle * (REST_ROUNDS + probe)
        assert not any(depths[start : start + REST_ROUNDS])
        assert all(depths[start + REST_ROUNDS : start + REST_ROUNDS + probe])


def test_drafts_that_rest_go_on_once_something_was_worth_verifying() -> None:
    *_, observations = idle(seen(0.2), IDLE_ROUNDS + 1)
    assert plan(observations, LIMITS, has_drafts=True).draft.depth == 0
    timing = StepTiming(forward_us=20_000, rows=2)
    observations = observations.with_verdict(Verdict(0, 0, (1, 2), (5, 0), 1, None, timing))
    assert plan(observations, LIMITS, has_drafts=True).draft.depth > 0


def test_rounds_count_as_idle_only_once_a_draft_has_said_something() -> None:
    """While it runs its prompt it has nothing to verify, which says nothing about its guesses."""
    bare = Verdict(0, 0, (1,), (0,), 0, None, StepTiming(forward_us=1000, rows=1))
    assert Observations().with_verdict(bare).idle_rounds == 0
    assert Observations(draft_step_us=5.0).with_verdict(bare).idle_rounds == 1


def test_waiting_pays_after_a_miss_where_drafts_are_quick_and_not_where_they_are_slow() -> None:
    quick = plan(seen(0.8, step_us=500), LIMITS, has_drafts=True).policy
    slow = plan(seen(0.8, step_us=60_000), LIMITS, has_drafts=True).policy
    far = plan(seen(0.8, round_trip_us=200_000), LIMITS, has_drafts=True).policy
    assert quick.min_depth > 0
    assert 0 < quick.max_wait_us < 30_000
    assert slow.min_depth == slow.max_wait_us == 0
    assert far.min_depth == far.max_wait_us == 0


def test_nobody_makes_the_passes_of_others_wait() -> None:
    policy = plan(seen(0.8, step_us=500, sessions=BUSY_SESSIONS + 0.1), LIMITS, True).policy
    assert policy.min_depth == policy.max_wait_us == 0


def test_waiting_in_vain_is_given_up() -> None:
    """Nodes that are not worth verifying are not worth waiting for either."""
    observations = Observations(draft_step_us=500.0, round_trip_us=500.0)
    bare = Verdict(0, 0, (1,), (0,), 0, None, StepTiming(forward_us=20_000, rows=1))
    waits = []
    for _ in range(40):
        policy = plan(observations, LIMITS, has_drafts=True).policy
        waits.append(policy.min_depth)
        observations = observations.with_verdict(bare, has_waited=policy.min_depth > 0)
    assert any(waits)
    assert not any(waits[20:])


def test_drafts_make_first_what_the_verifier_waits_for() -> None:
    for limits in (LIMITS, replace(LIMITS, wait_nodes=3, max_wait_us=9_000, run_ahead=False)):
        made = plan(seen(0.8, step_us=500), limits, has_drafts=True)
        assert made.draft.min_depth == made.policy.min_depth > 0


def test_what_the_deployment_fixes_is_kept() -> None:
    fixed = replace(LIMITS, wait_nodes=3, max_wait_us=9_000, adaptive=False)
    policy = plan(seen(0.1, step_us=60_000), fixed, True).policy
    assert (policy.min_depth, policy.max_wait_us, policy.max_rows) == (3, 9_000, 7)
    assert policy.min_chance == 0


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
    idle_rounds=st.integers(0, 1000),
    resting=st.integers(-64, 28),
    tokens_per_pass=st.floats(1, 1e4),
    sessions=st.floats(1, 4096),
)
limits = st.builds(
    Limits,
    num_speculative_tokens=st.integers(0, 128),
    width=st.integers(1, 32),
    proposal_top_k=st.integers(1, 1024),
    wait_nodes=st.none() | st.integers(0, 4096),
    max_wait_us=st.none() | st.integers(0, 60_000_000),
    adaptive=st.booleans(),
    run_ahead=st.booleans(),
)


@given(observations, limits, st.booleans(), st.none() | observations)
def test_every_plan_is_one_that_the_services_take(
    seen_so_far: Observations, allowed: Limits, has_drafts: bool, before: Observations | None
) -> None:
    last = None if before is None else plan(before, allowed, True)
    made = plan(seen_so_far, allowed, has_drafts, last)  # the types refuse what is out of bounds
    assert made.policy.max_rows <= allowed.num_speculative_tokens
    assert made.policy.min_depth <= made.policy.max_rows
    assert made.draft.depth <= 256
    assert made.draft.min_chance <= made.policy.min_chance


def test_a_path_that_ended_for_lack_of_nodes_tested_nothing_more() -> None:
    whole = Observations().with_verdict(Verdict(0, 0, (1, 2, 3), (5, 6, 0), 2))
    assert (whole.tested, whole.accepted) == ((1, 1), (1, 1))
    missed = Observations().with_verdict(Verdict(0, 0, (1, 2), (5, 0), 2, missed=True))
    assert (missed.tested, missed.accepted) == ((1, 1), (1, 0))


def test_rejected_siblings_of_an_accepted_path_are_no_miss_at_its_end() -> None:
    whole = Observations().with_verdict(Verdict(0, 0, (1, 2, 3), (5, 6, 0), 6))
    assert (whole.tested, whole.accepted) == ((1, 1), (1, 1))


@given(st.lists(st.integers(0, 5), max_size=60))
def test_acceptance_at_each_place_is_what_was_seen_there(accepted: list[int]) -> None:
    """Passes over chains of five: place i is tested where i were accepted."""
    observations = Observations()
    for count in accepted:
        ids = (*range(1, count + 1), 0)
        verdict = Verdict(0, 0, (1,) * len(ids), ids, 5, missed=count < 5)
        observations = observations.with_verdict(verdict)
    survival = observations.survival(8)
    assert survival == sorted(survival, reverse=True)
    assert all(0 <= chance <= 1 for chance in survival)
    assert len(observations.tested) == len(observations.accepted)
    for tested, taken in zip(observations.tested, observations.accepted, strict=True):
        assert taken <= tested
    if len(accepted) > 40:
        first = sum(0.97**age for age, n in enumerate(reversed(accepted)) if n > 0)
        weight = sum(0.97**age for age in range(len(accepted)))
        assert observations.acceptance(0) == pytest.approx((first + 6) / (weight + 8), abs=1e-3)


@pytest.mark.parametrize(
    ("wait_us", "queue_us", "waited"), [(9_000, 0, True), (300, 0, False), (9_000, 8_900, False)]
)
def test_a_pass_waited_if_it_stood_ready_to_begin(
    wait_us: int, queue_us: int, waited: bool
) -> None:
    timing = StepTiming(wait_us=wait_us, queue_us=queue_us)
    made = plan(seen(0.8, step_us=2_000), LIMITS, has_drafts=True)
    assert 3_000 < made.policy.max_wait_us < 30_000
    assert made.has_waited(timing) == waited
    assert not plan(seen(0.8), LIMITS, has_drafts=False).has_waited(timing)
