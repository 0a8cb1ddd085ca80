"""How long after a commit nobody waits: a share of the interval that commits come in."""

import pytest

from draft_service.rhythm import LEAST_QUIET_S, MOST_QUIET_S, QUIET_SHARE, Rhythm


def after(*times: float) -> Rhythm:
    rhythm = Rhythm()
    for time in times:
        rhythm = rhythm.heard(time)
    return rhythm


def test_nothing_waits_before_two_commits_tell_an_interval() -> None:
    assert Rhythm().quiet_until == after(5.0).quiet_until == 0.0


def test_a_share_of_the_interval_after_the_last_commit_is_quiet() -> None:
    rhythm = after(*(5 + 0.1 * i for i in range(8)))
    assert rhythm.quiet_until == pytest.approx(5.7 + QUIET_SHARE * 0.1)


def test_long_intervals_are_quiet_for_a_moment_only_and_short_ones_not_at_all() -> None:
    assert after(5.0, 8.0).quiet_until == pytest.approx(8 + MOST_QUIET_S)
    assert after(5.0, 5.0 + 3 * LEAST_QUIET_S).quiet_until == 0.0


def test_the_interval_follows_commits_that_come_faster() -> None:
    times = [5.0, 5.4, *(5.4 + 0.05 * i for i in range(1, 30))]
    assert after(*times).interval_s == pytest.approx(0.05, rel=0.05)
