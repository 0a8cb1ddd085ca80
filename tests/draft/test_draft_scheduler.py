"""The draft scheduler in this process: who is refused, who goes next, and whose error is whose."""

import asyncio
from typing import Any

import pytest
from draft.drafted import VOCAB, opening
from draft.scheduled import FakeTime, Start, count
from support.waiting import until

from draft_service import scheduler as scheduler_module
from outrider.errors import (
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutriderError,
    StateMismatchError,
    TokenizerMismatchError,
    UnavailableError,
)
from outrider.plans import DraftPlan
from outrider.types import AcceptanceMode, Chunk, DraftCommit, Node, NodeKind, SamplingParams


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tokenizer_hash": "x"}, TokenizerMismatchError, "different tokenizers.*ngram:"),
        ({"prompt": (1, 8)}, InvalidArgumentError, "token id 8"),
        ({"emitted": (8,)}, InvalidArgumentError, "token id 8"),
        ({"vocab_size": 3, "emitted": (3,)}, InvalidArgumentError, "token id 3"),
    ],
)
async def test_an_opening_that_cannot_work_is_refused_before_the_model_is_asked(
    start: Start, changes: dict[str, Any], error: type[OutriderError], message: str
) -> None:
    scheduler, model = start("vocab=8,context=32,tokenizer=own")
    own_hash = model.info.tokenizer_hash
    with pytest.raises(error, match=message):
        await scheduler.open(opening(**{"tokenizer_hash": own_hash, **changes}))
    assert model.opened == 0


async def test_sessions_that_are_being_opened_count_as_open(start: Start) -> None:
    scheduler, model = start("tokenizer=any", max_sessions=1)
    model.hold("open")
    first = asyncio.create_task(scheduler.open(opening()))
    await model.wait_held()
    with pytest.raises(CapacityError, match="--max-sessions") as failure:
        await scheduler.open(opening())
    assert failure.value.retry_after_s == 1.0
    model.release()
    await scheduler.close(await first)
    await scheduler.open(opening())


async def test_draining_refuses_and_ends_when_the_last_session_has(start: Start) -> None:
    scheduler, _ = start("tokenizer=any")
    seats = [await scheduler.open(opening()) for _ in range(2)]
    draining = asyncio.create_task(scheduler.drain())
    await scheduler.close(seats[0])
    with pytest.raises(UnavailableError, match="shutting down"):
        await scheduler.open(opening())
    assert not draining.done()
    await scheduler.close(seats[1])
    await asyncio.wait_for(draining, 5)


async def test_a_session_drafts_to_its_plan_and_goes_on_after_a_commit(start: Start) -> None:
    scheduler, _ = start("tokenizer=any")
    seat = await scheduler.open(opening(plan=DraftPlan(3)))
    await until(lambda: count(seat) == 3, "three nodes")
    chain = [node for chunk in seat.chunks for node in chunk.nodes]
    scheduler.commit(seat, DraftCommit(0, (chain[0].token, chain[1].token)))
    await until(lambda: count(seat) == 5, "two more")


async def test_all_sessions_share_the_passes_however_small(start: Start, clock: FakeTime) -> None:
    scheduler, model = start("tokenizer=any", max_pass_tokens=1)
    model.hold("forward")
    first = await scheduler.open(opening(prompt=(1,), plan=DraftPlan(6)))
    await model.wait_held()
    second_opening = asyncio.create_task(scheduler.open(opening(prompt=(2,), plan=DraftPlan(6))))
    await until(lambda: scheduler._thread.is_wanted, "the opening, behind the pass")
    model.release()
    second = await second_opening
    await until(lambda: count(first) == count(second) == 6, "both drafts")
    turns = [place for done in model.passes for place in done]
    assert all(abs(turns[:n].count(0) - turns[:n].count(1)) <= 2 for n in range(1, 13)), turns


async def test_a_long_prompt_does_not_keep_others_from_drafting(
    start: Start, clock: FakeTime
) -> None:
    scheduler, model = start("tokenizer=any", max_pass_tokens=4)
    model.hold("forward")
    quick = await scheduler.open(opening(prompt=(1,), plan=DraftPlan(6)))
    await model.wait_held()
    slow_opening = asyncio.create_task(scheduler.open(opening(prompt=(2,) * 40)))
    await until(lambda: scheduler._thread.is_wanted, "the opening, behind the pass")
    model.release()
    slow = await slow_opening
    await until(lambda: count(slow) == 4, "the long prompt's drafts")
    assert count(quick) == 6
    assert all(0 in done for done in model.passes[:6]), model.passes
    assert any(1 in done for done in model.passes[:6]), "both took part in one pass"


async def test_a_burst_of_quick_passes_serves_whoever_has_room(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "time", FakeTime(tick_s=0.0))
    scheduler, _ = start("tokenizer=any")
    seats = [await scheduler.open(opening(prompt=(i,))) for i in range(4)]
    await until(lambda: all(count(seat) == 4 for seat in seats), "everyone's drafts")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (DraftCommit(3, (1,)), StateMismatchError),
        (DraftCommit(0, (VOCAB,)), InvalidArgumentError),
        (DraftCommit(0, (2**32 - 1,)), InvalidArgumentError),
    ],
)
async def test_a_commit_that_one_session_gets_wrong_harms_no_other(
    start: Start, wrong: DraftCommit, error: type[OutriderError]
) -> None:
    scheduler, _ = start("tokenizer=own")
    told = {"tokenizer_hash": scheduler.drafter.model.info.tokenizer_hash}
    bad, good = [await scheduler.open(opening(**told)) for _ in range(2)]
    await until(lambda: count(good) == 4, "the first drafts")
    scheduler.commit(bad, wrong)
    await until(lambda: bad.error is not None, "the error")
    assert isinstance(bad.error, error)
    assert bad.changed.is_set()
    scheduler.commit(good, DraftCommit(0, (1,)))
    await until(lambda: count(good) > 4, "the other one's drafts")
    assert good.error is None


async def test_a_session_that_does_not_fit_the_cache_fails_alone(start: Start) -> None:
    scheduler, _ = start("tokenizer=any", kv=24)
    good = await scheduler.open(opening(prompt=(1,)))
    big = await scheduler.open(opening(prompt=(2,) * 24))
    await until(lambda: big.error is not None, "the error")
    assert isinstance(big.error, CapacityError)
    await until(lambda: count(good) == 4, "the other one's drafts")
    assert good.error is None


async def test_a_bug_in_a_pass_fails_its_sessions_and_not_the_service(start: Start) -> None:
    scheduler, model = start("tokenizer=any")
    model.breaks = lambda feeds: RuntimeError("a secret of the model")
    hit = await scheduler.open(opening())
    await until(lambda: hit.error is not None, "the error")
    assert isinstance(hit.error, InternalError)
    assert "secret" not in hit.error.message
    model.breaks = lambda feeds: None
    fresh = await scheduler.open(opening())
    await until(lambda: count(fresh) == 4, "drafts of a new session")


async def test_an_opening_given_up_while_the_model_works_on_it_frees_the_sequence(
    start: Start,
) -> None:
    scheduler, model = start("tokenizer=any", max_sessions=1)
    model.hold("open")
    given_up = asyncio.create_task(scheduler.open(opening()))
    await model.wait_held()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    model.release()
    await until(lambda: model.closed == 1, "the close")
    assert (model.opened, model.pinned) == (1, 0)
    await scheduler.open(opening())


async def test_an_opening_given_up_while_it_waits_is_never_begun(start: Start) -> None:
    scheduler, model = start("tokenizer=any", max_sessions=2)
    model.hold("open")
    first = asyncio.create_task(scheduler.open(opening()))
    await model.wait_held()
    given_up = asyncio.create_task(scheduler.open(opening()))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    model.release()
    await first
    await scheduler.open(opening())
    assert model.opened == 2, "two sessions fit, and the one given up took no place"


async def test_a_session_closed_while_a_pass_runs_is_freed_after_it(start: Start) -> None:
    scheduler, model = start("tokenizer=any")
    model.hold("forward")
    seat = await scheduler.open(opening())
    await model.wait_held()
    closing = asyncio.create_task(scheduler.close(seat))
    await asyncio.sleep(0)
    assert model.closed == 0
    model.release()
    await asyncio.wait_for(closing, 5)
    await scheduler.close(seat)
    assert (model.closed, model.pinned) == (1, 0)
    other = await scheduler.open(opening())
    await until(lambda: count(other) == 4, "another session's drafts")


async def test_a_session_nobody_commits_to_expires(start: Start, clock: FakeTime) -> None:
    scheduler, _ = start("tokenizer=any", idle_timeout_s=60)
    silent = await scheduler.open(opening())
    lively = await scheduler.open(opening())
    await until(lambda: count(lively) == 4, "the first drafts")
    clock.now += 40
    scheduler.commit(lively, DraftCommit(0, (1,)))
    await until(lambda: count(lively) >= 4, "drafts after the commit")
    clock.now += 40
    scheduler.commit(lively, DraftCommit(1, (1,)))
    await until(lambda: silent.error is not None, "the end of the silent one")
    assert isinstance(silent.error, DeadlineError)
    assert lively.error is None


async def test_a_caller_that_does_not_read_is_not_drafted_for(
    start: Start, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "MAX_UNREAD_CHUNKS", 2)
    scheduler, _ = start("tokenizer=any")
    seat = await scheduler.open(opening(plan=DraftPlan(depth=5)))
    await until(lambda: not seat.is_draftable, "a full outbox")
    assert len(seat.chunks) == 2
    taken = scheduler.take(seat, 2)
    await until(lambda: not seat.is_draftable, "a full outbox")
    assert len(taken) == len(seat.chunks) == 2


async def test_commits_that_pile_up_are_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "MAX_UNAPPLIED_NEWS", 1)
    scheduler, model = start("tokenizer=any")
    seat = await scheduler.open(opening())
    model.hold("forward")
    await model.wait_held()
    scheduler.commit(seat, DraftCommit(0, (1,)))
    with pytest.raises(CapacityError, match="1 messages wait"):
        scheduler.commit(seat, DraftCommit(1, (1,)))
    model.release()


async def test_branches_that_pile_up_leave_room_for_commits(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "MAX_UNAPPLIED_NEWS", 4)
    scheduler, model = start("tokenizer=any")
    seat = await scheduler.open(opening())
    model.hold("forward")
    await model.wait_held()
    for counter in range(9):
        scheduler.adopt(seat, branch(counter))
    scheduler.commit(seat, DraftCommit(0, (1,)))
    scheduler.commit(seat, DraftCommit(1, (1,)))
    assert [type(news) for news in seat.news] == [Chunk, Chunk, DraftCommit, DraftCommit]
    model.release()


async def test_a_draft_that_draws_is_told_nothing_of_what_others_drew(start: Start) -> None:
    scheduler, _ = start("tokenizer=any")
    rejection = SamplingParams(seed=1, mode=AcceptanceMode.REJECTION)
    drawing = await scheduler.open(opening(sampling=rejection))
    other = await scheduler.open(opening())
    for seat in (drawing, other):
        scheduler.adopt(seat, branch(0))
    await until(lambda: not other.news and drawing.error is not None, "both to be looked at")
    assert isinstance(drawing.error, InvalidArgumentError)
    assert "branches of others" in str(drawing.error)
    assert other.error is None


def branch(counter: int) -> Chunk:
    """Of draft 2, right below the tip of an empty answer."""
    return Chunk((Node(2 << 24 | counter, 0, 5, 0.5, NodeKind.LISTED, 0.5),))
