"""The idle time of the target is counted by pass, not by session."""

import pytest

from benchmarks.protocol_gap import Pass, gap_of, passes_of
from tests.benchmarks.measured import stats


def answer(gap_us: tuple[int, ...], forward_us: tuple[int, ...], batch_rows: tuple[int, ...]):
    return stats(gap_us=gap_us, forward_us=forward_us, batch_rows=batch_rows)


def test_sessions_of_one_pass_tell_of_it_once() -> None:
    first = answer((5, 100, 300), (40_000, 41_000, 42_000), (8, 16, 16))
    second = answer((7, 100, 300, 0), (39_000, 41_000, 42_000, 43_000), (8, 16, 16, 8))
    assert passes_of([first, second], skipped=1) == {
        Pass(100, 41_000, 16),
        Pass(300, 42_000, 16),
        Pass(0, 43_000, 8),
    }
    assert len(passes_of([first, second])) == 5


def test_passes_that_differ_in_one_thing_are_two() -> None:
    told = answer((1, 2, 1, 1), (10, 10, 11, 10), (4, 4, 4, 5))
    assert len(passes_of([told])) == 4


def test_the_share_is_that_of_all_idle_time_in_all_time_of_passes() -> None:
    gap = gap_of([Pass(0, 10_000, 1)] * 9 + [Pass(10_000, 10_000, 1)])
    assert gap.share == pytest.approx(0.1)
    assert (gap.p50_ms, gap.p95_ms) == (0.0, pytest.approx(5.5))
