"""When nodes leave a draft: at once where somebody waits for them, together where nobody does."""

import threading
from collections.abc import Sequence

import pytest
from draft.drafted import VOCAB, opening
from draft.gated import HOLD_S, GatedModel
from draft.scheduled import FakeTime, Start
from support.waiting import until

from draft_service import rhythm
from draft_service.scheduler import Scheduler, Seat
from outrider.models.base import Feed
from outrider.plans import DraftPlan
from outrider.types import AcceptanceMode, DraftCommit, SamplingParams


class SlowFrom:
    """Passes from a number on wait for `go`."""

    def __init__(self, model: GatedModel) -> None:
        self.go = threading.Event()
        self._left = 10**6
        model.breaks = self._wait

    def after(self, passes: int) -> None:
        """So many passes do not wait."""
        self._left = passes

    def _wait(self, feeds: Sequence[Feed]) -> None:
        self._left -= 1
        assert self._left >= 0 or self.go.wait(HOLD_S), "it was never let go"


@pytest.fixture
def long_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quiet stays so to the end of the test."""
    monkeypatch.setattr(rhythm, "MOST_QUIET_S", 1e9)


async def commit_in_turns(scheduler: Scheduler, seat: Seat, clock: FakeTime, depth: int) -> None:
    """Commits a minute apart, so that some time after the last one is quiet."""
    for base in range(2):
        await until(lambda: tree_depth(seat) == depth, "the whole draft")
        clock.now += 60
        scheduler.take(seat, len(seat.chunks))
        scheduler.commit(seat, DraftCommit(base, (first_token(seat),)))
    await until(lambda: tree_depth(seat) == depth, "the whole draft")


def tree_depth(seat: Seat) -> int:
    return -1 if seat.news else seat.session.tree.depth


def first_token(seat: Seat) -> int:
    return next(iter(seat.session.tree.root.children))


SAMPLED = SamplingParams(seed=1, mode=AcceptanceMode.REJECTION)


@pytest.mark.parametrize("others", [0, 1])
async def test_of_many_sessions_none_gets_a_message_for_each_node_that_nobody_waits_for(
    start: Start, clock: FakeTime, long_quiet: None, others: int
) -> None:
    scheduler, model = start("tokenizer=any")
    slow = SlowFrom(model)
    for i in range(others):
        await scheduler.open(opening(prompt=(i,), plan=DraftPlan(0)))
    seat = await scheduler.open(opening(plan=DraftPlan(4)))
    await commit_in_turns(scheduler, seat, clock, 4)
    scheduler.take(seat, len(seat.chunks))
    slow.after(1)
    scheduler.commit(seat, DraftCommit(2, (first_token(seat), (first_token(seat) + 1) % VOCAB)))
    await until(lambda: seat.chunks or seat.held, "a node")
    assert (len(seat.chunks), len(seat.held)) == ((0, 1) if others else (1, 0))
    slow.go.set()
    await until(lambda: len(seat.chunks) == 4, "all when no more can follow")
    assert not seat.held


async def test_what_is_held_goes_after_a_while_though_more_may_follow(
    start: Start, clock: FakeTime
) -> None:
    scheduler, model = start("tokenizer=any")
    slow = SlowFrom(model)
    await scheduler.open(opening(prompt=(1,), plan=DraftPlan(0)))
    seat = await scheduler.open(opening(plan=DraftPlan(4)))
    await commit_in_turns(scheduler, seat, clock, 4)
    scheduler.take(seat, len(seat.chunks))
    slow.after(1)
    scheduler.commit(seat, DraftCommit(2, (first_token(seat), (first_token(seat) + 1) % VOCAB)))
    await until(lambda: len(seat.chunks) == 1, "the first node, while the second is being made")
    slow.go.set()


async def test_trap_2_when_drawn_nodes_go_does_not_depend_on_whether_more_can_follow(
    start: Start, clock: FakeTime, long_quiet: None
) -> None:
    """A drawn end of the text lets nothing follow, and must be as late as any other token."""
    scheduler, _ = start("tokenizer=any")
    await scheduler.open(opening(prompt=(1,), plan=DraftPlan(0)))
    every = range(VOCAB)
    seat = await scheduler.open(opening(plan=DraftPlan(1), sampling=SAMPLED, ends=every))
    await commit_in_turns(scheduler, seat, clock, 1)
    await until(lambda: seat.chunks or seat.held, "a node")
    assert (len(seat.chunks), len(seat.held)) == (0, 1)
