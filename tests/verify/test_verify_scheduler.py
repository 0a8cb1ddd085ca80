"""The verify scheduler in this process: admission, resuming, expiry, and whose error is whose."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from draft.gated import GatedModel
from support.models import alone
from support.waiting import until

from outrider.errors import (
    AbortedError,
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from outrider.models.scripted import ScriptedLaw
from outrider.plans import ReadinessPolicy
from outrider.types import (
    AcceptanceMode,
    Chunk,
    FinishReason,
    Node,
    NodeKind,
    ProposalRow,
    SamplingParams,
    StopConditions,
    VerifyOpening,
)
from verify_service import scheduler as scheduler_module
from verify_service.scheduler import Scheduler
from verify_service.sessions import MAX_UNREAD_VERDICTS, Session
from verify_service.settings import VerifySettings
from verify_service.verifier import Verifier

LAW = ScriptedLaw(vocab=8)
A_MINUTE = ReadinessPolicy(min_depth=1, max_wait_us=60_000_000, max_rows=8)


class FakeTime:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(scheduler_module, "time", fake)
    return fake


Start = Callable[..., tuple[Scheduler, GatedModel]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    schedulers: list[Scheduler] = []

    def make(kv: int = 4096, model: str = "vocab=8", **settings: Any) -> tuple[Scheduler, Any]:
        gated = GatedModel(model, kv)
        schedulers.append(Scheduler(Verifier(gated), VerifySettings(kv_tokens=kv, **settings)))
        return schedulers[-1], gated

    yield make
    for scheduler in schedulers:
        await scheduler.stop()


def opening(
    name: str = "s",
    prompt: tuple[int, ...] = (1, 2),
    emitted: tuple[int, ...] = (),
    max_tokens: int = 10,
    policy: ReadinessPolicy | None = None,
    sampling: SamplingParams | None = None,
) -> VerifyOpening:
    return VerifyOpening(
        name,
        prompt,
        emitted,
        sampling or SamplingParams(temperature=0, seed=0),
        StopConditions(max_tokens, ignore_eos=True),
        policy or ReadinessPolicy(max_rows=0),
    )


async def answer(session: Session) -> list[int]:
    """All tokens until the end; a session is read as a servicer reads it."""
    tokens: list[int] = []

    def is_over() -> bool:
        for verdict in session.read():
            tokens.extend(verdict.tokens)
        return session.finish_reason is not None or session.error is not None

    await until(is_over, "the end of the answer")
    assert session.error is None
    return tokens


async def test_without_drafts_it_is_ordinary_decoding(start: Start) -> None:
    scheduler, _ = start()
    session = await scheduler.open(opening())
    assert await answer(session) == alone(LAW, (1, 2), 10)
    assert session.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("budget", [1, 3, 512])
async def test_many_sessions_get_what_each_would_get_alone(start: Start, budget: int) -> None:
    scheduler, _ = start(max_pass_tokens=budget)
    sessions = [
        await scheduler.open(opening(str(i), prompt=tuple([i + 1] * (i * 3 + 1)))) for i in range(4)
    ]
    for i, session in enumerate(sessions):
        assert await answer(session) == alone(LAW, [i + 1] * (i * 3 + 1), 10)


async def test_a_resumed_session_goes_on_where_it_was(start: Start) -> None:
    scheduler, _ = start()
    whole = alone(LAW, (1, 2), 10)
    session = await scheduler.open(opening(emitted=tuple(whole[:4])))
    assert await answer(session) == whole[4:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": (1,) * 32}, "32 tokens .* context is 32"),
        ({"prompt": (1,) * 30, "emitted": (1,) * 3}, "30 tokens, 3 are emitted .* is 32"),
        ({"prompt": (8,)}, "token id 8; the model knows 0 to 7"),
        ({"emitted": (9,)}, "token id 9"),
    ],
)
async def test_an_opening_that_cannot_work_is_refused_before_the_model_is_asked(
    start: Start, changes: dict[str, Any], message: str
) -> None:
    scheduler, model = start(model="vocab=8,context=32")
    with pytest.raises(InvalidArgumentError, match=message):
        await scheduler.open(opening(**changes))
    assert model.opened == 0


async def test_a_session_of_a_whole_answer_is_over_when_it_is_opened(start: Start) -> None:
    scheduler, model = start(model="vocab=8,context=32")
    session = await scheduler.open(opening(prompt=(1,) * 30, emitted=(1, 1)))
    assert (session.at_end, session.finish_reason) == (FinishReason.LENGTH,) * 2
    assert session.ready_at() is None
    assert not model.passes


async def test_room_for_the_whole_answer_is_promised_or_refused(start: Start) -> None:
    scheduler, model = start(kv=64)
    waiting = [
        await scheduler.open(opening(name, prompt=(1,) * 12, policy=A_MINUTE, max_tokens=10))
        for name in ("a", "b")
    ]
    with pytest.raises(CapacityError, match=r"up to 22 tokens.*60 of 64.*--kv-tokens") as failure:
        await scheduler.open(opening("c", prompt=(1,) * 12, policy=A_MINUTE, max_tokens=10))
    assert failure.value.retry_after_s == 1.0
    await scheduler.close(waiting[0])
    await scheduler.open(opening("c", prompt=(1,) * 12, policy=A_MINUTE, max_tokens=10))
    assert model.opened == 3


async def test_drafted_rows_only_take_the_room_that_is_left(start: Start) -> None:
    scheduler, _ = start(kv=64, max_pass_tokens=9)
    wide = ReadinessPolicy(max_rows=4096)
    first = await scheduler.open(opening("a", prompt=(1,) * 12, policy=wide, max_tokens=10))
    second = await scheduler.open(opening("b", prompt=(1,) * 12, policy=wide, max_tokens=18))
    assert first.policy.max_rows == 8, "more fit in no pass"
    assert second.policy.max_rows == 64 - (12 + 10 + 8) - (12 + 18)


async def test_what_can_never_fit_is_not_told_to_come_back(start: Start) -> None:
    scheduler, _ = start(kv=64)
    with pytest.raises(CapacityError) as failure:
        await scheduler.open(opening(max_tokens=64))
    assert failure.value.retry_after_s is None


async def test_sessions_that_are_being_opened_have_their_promise_already(start: Start) -> None:
    scheduler, model = start(kv=64, max_sessions=2)
    model.hold("open")
    first = asyncio.create_task(scheduler.open(opening("a", max_tokens=30)))
    await model.wait_held()
    with pytest.raises(CapacityError, match="--kv-tokens"):
        await scheduler.open(opening("b", max_tokens=31))
    second = asyncio.create_task(scheduler.open(opening("b", max_tokens=20)))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError, match="--max-sessions"):
        await scheduler.open(opening("c", max_tokens=1))
    model.release()
    assert len(await answer(await first)) == 30
    assert len(await answer(await second)) == 20


async def test_an_opening_given_up_keeps_neither_promise_nor_cache(start: Start) -> None:
    scheduler, model = start(max_sessions=1)
    model.hold("open")
    given_up = asyncio.create_task(scheduler.open(opening()))
    await model.wait_held()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    model.release()
    await until(lambda: model.closed == 1, "the close")
    assert model.pinned == 0
    assert len(await answer(await scheduler.open(opening()))) == 10


async def test_the_session_that_is_opened_again_overtakes_the_first(start: Start) -> None:
    scheduler, model = start(kv=64)
    first = await scheduler.open(opening(policy=A_MINUTE, max_tokens=40))
    second = await scheduler.open(opening(max_tokens=40))
    assert isinstance(first.error, AbortedError)
    assert first.changed.is_set()
    await until(lambda: model.closed == 1, "the first one's close")
    assert len(await answer(second)) == 40
    await scheduler.close(first)
    await scheduler.close(second)
    assert (model.closed, model.pinned) == (2, 0)


async def test_of_two_openings_at_the_same_time_the_later_one_lives(start: Start) -> None:
    scheduler, model = start()
    model.hold("open")
    opened = [asyncio.create_task(scheduler.open(opening())) for _ in range(2)]
    await model.wait_held()
    model.release()
    first, second = [await one for one in opened]
    assert isinstance(first.error, AbortedError)
    assert len(await answer(second)) == 10
    await until(lambda: model.closed == 1, "the first one's close")


async def test_a_session_closed_while_its_pass_runs_is_freed_after_it(start: Start) -> None:
    scheduler, model = start()
    model.hold("forward")
    session = await scheduler.open(opening())
    await model.wait_held()
    closing = asyncio.create_task(scheduler.close(session))
    await asyncio.sleep(0)
    assert model.closed == 0
    model.release()
    await asyncio.wait_for(closing, 5)
    assert session.read() == []
    assert (model.closed, model.pinned) == (1, 0)


async def test_verdicts_that_nobody_reads_stop_the_session_and_then_end_it(
    start: Start, clock: FakeTime
) -> None:
    scheduler, model = start(idle_timeout_s=30)
    unread = await scheduler.open(opening("a", max_tokens=1000))
    await until(lambda: len(unread.verdicts) == MAX_UNREAD_VERDICTS, "a full outbox")
    passes = len(model.passes)
    clock.now += 29
    assert len(await answer(await scheduler.open(opening("b", max_tokens=5)))) == 5
    assert (unread.error, len(model.passes)) == (None, passes + 5), "it took part in no pass"
    clock.now += 2
    scheduler.wake()
    await until(lambda: unread.error is not None, "the end of the session")
    assert isinstance(unread.error, DeadlineError)


async def test_a_session_that_waits_for_drafts_is_woken_by_them(
    start: Start, clock: FakeTime
) -> None:
    scheduler, model = start()
    session = await scheduler.open(opening(prompt=(1,), policy=A_MINUTE))
    assert model.passes == []
    token = alone(LAW, (1,), 1)[0]
    session.tell(Chunk((Node(1 << 24, 0, token, 0.9, NodeKind.LISTED),)), clock.now)
    scheduler.wake()
    await until(lambda: bool(session.verdicts), "the verdict")
    [verdict] = session.read()
    assert verdict.tokens == tuple(alone(LAW, (1,), 2))
    assert verdict.node_ids == (1 << 24, 0)


async def test_without_drafts_it_waits_no_longer_than_its_policy(
    start: Start, clock: FakeTime
) -> None:
    scheduler, _ = start()
    session = await scheduler.open(opening(prompt=(1,), policy=A_MINUTE))
    clock.now += 59
    scheduler.wake()
    other = await scheduler.open(opening("other", max_tokens=1))
    assert len(await answer(other)) == 1
    assert session.verdicts == []
    clock.now += 2
    scheduler.wake()
    await until(lambda: len(session.verdicts) == 1, "the verdict")
    assert session.verdicts[0].tokens == tuple(alone(LAW, (1,), 1))


async def test_no_more_candidates_are_waited_for_than_the_tree_can_hold(
    start: Start, clock: FakeTime
) -> None:
    policy = ReadinessPolicy(min_depth=8, max_wait_us=60_000_000, max_rows=8)
    scheduler, _ = start(max_tree_nodes=2)
    session = await scheduler.open(opening(prompt=(1,), policy=policy))
    nodes = [Node(1 << 24 | i, 0, i, 0.1, NodeKind.LISTED) for i in range(8)]
    session.tell(Chunk(tuple(nodes)), clock.now)
    scheduler.wake()
    await until(lambda: bool(session.verdicts), "the verdict")


async def test_rejection_is_not_timed_by_what_follows_a_drawn_token(
    start: Start, clock: FakeTime
) -> None:
    """One candidate at the tip is enough; how many hang below it tells what it is."""
    policy = ReadinessPolicy(min_depth=8, max_wait_us=60_000_000, max_rows=8)
    rejection = SamplingParams(seed=1, mode=AcceptanceMode.REJECTION)
    scheduler, model = start()
    session = await scheduler.open(opening(prompt=(1,), policy=policy, sampling=rejection))
    row = ProposalRow(0, (3, 4), (0.5, 0.5))
    session.tell(Chunk((Node(1 << 24, 0, 3, 0.5, NodeKind.SAMPLED),), (row,)), clock.now)
    scheduler.wake()
    await until(lambda: bool(session.verdicts), "the verdict")
    assert len(model.passes) == 1


async def test_a_bug_in_a_pass_fails_its_sessions_and_not_the_service(
    start: Start, clock: FakeTime
) -> None:
    scheduler, model = start()
    waiting = await scheduler.open(opening("waiting", prompt=(1,), policy=A_MINUTE))
    model.breaks = lambda feeds: RuntimeError("a secret of the model")
    hit = await scheduler.open(opening("hit"))
    await until(lambda: hit.error is not None, "the error")
    assert isinstance(hit.error, InternalError)
    assert "secret" not in hit.error.message
    assert waiting.error is None
    model.breaks = lambda feeds: None
    assert len(await answer(await scheduler.open(opening("next")))) == 10


async def test_a_pass_that_does_not_fit_whole_is_run_one_by_one(start: Start) -> None:
    scheduler, model = start()
    model.breaks = lambda feeds: CapacityError("too many") if len(feeds) > 1 else None
    model.hold("forward")
    sessions = [await scheduler.open(opening("a"))]
    await model.wait_held()
    later = asyncio.create_task(scheduler.open(opening("b")))
    await asyncio.sleep(0)
    model.release()
    sessions.append(await later)
    for session in sessions:
        assert await answer(session) == alone(LAW, (1, 2), 10)


async def test_draining_refuses_and_ends_when_the_last_session_has(start: Start) -> None:
    scheduler, model = start()
    model.hold("open")
    opening_now = asyncio.create_task(scheduler.open(opening(policy=A_MINUTE)))
    await model.wait_held()
    draining = asyncio.create_task(scheduler.drain())
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="shutting down"):
        await scheduler.open(opening("b"))
    model.release()
    session = await opening_now
    assert not draining.done(), "a session that was being opened counts"
    await scheduler.close(session)
    await asyncio.wait_for(draining, 5)
