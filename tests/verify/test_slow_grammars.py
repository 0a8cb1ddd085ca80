"""A grammar that takes long to compile costs its own caller time, and nobody else."""

import asyncio
from dataclasses import replace

import pytest
from draft.gated import scripted
from support.slow import Slow, given_up
from support.waiting import until

from outrider.errors import CapacityError
from outrider.models.workers import THREADS
from outrider.plans import ReadinessPolicy
from outrider.sampling.history import History
from outrider.types import FinishReason, Grammar, SamplingParams, StopConditions, VerifyOpening
from verify_service.scheduler import Scheduler
from verify_service.settings import VerifySettings
from verify_service.verifier import Verifier, _followed

PLAIN = VerifyOpening(
    "plain", (1, 2), (), SamplingParams(seed=1), StopConditions(4), ReadinessPolicy()
)
LARGE = replace(
    PLAIN, session_id="large", sampling=SamplingParams(seed=1, grammar=Grammar(choice=("ab",)))
)


def slow_scheduler(patch: pytest.MonkeyPatch, max_sessions: int) -> tuple[Scheduler, Slow]:
    verifier = Verifier(scripted("vocab=8"))
    slow = Slow(verifier.history, lambda opening: opening.sampling.grammar is not None)
    patch.setattr(verifier, "history", slow)
    return Scheduler(verifier, VerifySettings(max_sessions=max_sessions, kv_tokens=4096)), slow


async def test_openings_given_up_keep_their_places_until_their_grammars_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, slow = slow_scheduler(monkeypatch, max_sessions=THREADS + 1)
    tasks = [
        asyncio.create_task(scheduler.open(replace(LARGE, session_id=str(i))))
        for i in range(THREADS)
    ]
    await until(lambda: slow.begun == THREADS, "the compiling")
    for task in tasks:
        await given_up(task)
    session = await scheduler.open(PLAIN)
    with pytest.raises(CapacityError, match="--max-sessions"):
        await scheduler.open(LARGE)
    await scheduler.close(session)
    slow.release()
    await until(lambda: slow.ended == THREADS, "the end of the compiling")
    drained = asyncio.create_task(scheduler.drain())
    await asyncio.wait_for(drained, 20)
    assert not scheduler._promised
    await scheduler.stop()


async def test_an_opening_given_up_before_its_grammar_was_begun_frees_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, slow = slow_scheduler(monkeypatch, max_sessions=THREADS + 1)
    busy = [
        asyncio.create_task(scheduler.open(replace(LARGE, session_id=str(i))))
        for i in range(THREADS)
    ]
    await until(lambda: slow.begun == THREADS, "the compiling")
    for _ in range(3):
        await given_up(asyncio.create_task(scheduler.open(LARGE)))
        await until(lambda: len(scheduler._promised) == THREADS, "the free place")
    slow.release()
    await asyncio.gather(*busy)
    assert slow.begun == THREADS
    await scheduler.stop()


async def test_the_service_stops_while_a_grammar_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, slow = slow_scheduler(monkeypatch, max_sessions=4)
    task = asyncio.create_task(scheduler.open(LARGE))
    await until(lambda: slow.begun == 1, "the compiling")
    await scheduler.stop()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert slow.ended == 0
    slow.release()


@pytest.mark.parametrize(
    ("tokens", "complete_at"),
    [
        ((0,), None),
        ((0, 1), 2),
        ((0, 1, 0), 2),
        ((0, 1, 7), 2),
        ((0, 7), None),
        ((1, 1), None),
        ((0, 0, 1), None),
    ],
)
def test_a_pass_tells_how_many_of_its_tokens_completed_the_grammar(
    tokens: tuple[int, ...], complete_at: int | None
) -> None:
    """Against the obvious loop: token by token."""
    verifier = Verifier(scripted("vocab=8,eos=7"))
    history = verifier.history(LARGE)
    reached, count = _followed(history, tokens)
    assert count == complete_at
    one_by_one: list[History] = [history]
    for token in tokens:
        one_by_one.append(one_by_one[-1].after((token,)))
    finished = [
        i for i, h in enumerate(one_by_one) if h.grammar is not None and h.grammar.is_finished
    ]
    assert finished == ([] if complete_at is None else [complete_at])
    assert reached.length == len(tokens)
    assert reached.counts == one_by_one[-1].counts


@pytest.mark.parametrize("emitted", [(), (0,)])
async def test_a_resumed_session_follows_its_grammar_from_where_it_was(
    emitted: tuple[int, ...],
) -> None:
    scheduler = Scheduler(Verifier(scripted("vocab=8,eos=7")), VerifySettings(kv_tokens=4096))
    session = await scheduler.open(replace(LARGE, emitted_ids=emitted))
    await until(lambda: session.finish_reason is not None, "the end")
    assert session.finish_reason is FinishReason.STOP
    assert list(session.tree.committed) == [0, 1]
    await scheduler.stop()
