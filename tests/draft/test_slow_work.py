"""Grammars and vocabularies that take long cost their own callers time, and nobody else."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from draft.drafted import opening
from draft.gated import GatedModel
from support.slow import Slow, given_up
from support.waiting import until

from draft_service import servicer as servicer_module
from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.servicer import DraftServicer
from draft_service.settings import DraftSettings
from outrider.errors import CapacityError
from outrider.models.scripted import ScriptedTokenizer
from outrider.models.workers import THREADS
from outrider.types import DraftOpening, Grammar, SamplingParams
from outrider.v1 import draft_pb2
from outrider.wire.uploads import parts

GRAMMAR = SamplingParams(temperature=0, seed=1, grammar=Grammar(choice=("ab",)))


def told(model: GatedModel, **changes: object) -> DraftOpening:
    name = model.info.tokenizer_hash
    return opening(tokenizer_hash=name, **changes)  # type: ignore[arg-type]


def slow_scheduler(
    patch: pytest.MonkeyPatch, max_sessions: int
) -> tuple[Scheduler, GatedModel, Slow]:
    model = GatedModel("vocab=8")
    drafter = Drafter(model)
    slow = Slow(drafter.prepare, lambda asked, target: asked.sampling.grammar is not None)
    patch.setattr(drafter, "prepare", slow)
    return Scheduler(drafter, DraftSettings(max_sessions=max_sessions)), model, slow


async def test_openings_given_up_keep_their_places_until_their_grammars_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, model, slow = slow_scheduler(monkeypatch, max_sessions=THREADS + 1)
    large = told(model, sampling=GRAMMAR)
    held = scheduler.drafter.vocabularies.find(large.tokenizer_hash)
    tasks = [asyncio.create_task(scheduler.open(large)) for _ in range(THREADS)]
    await until(lambda: slow.begun == THREADS, "the compiling")
    for task in tasks:
        await given_up(task)
    seat = await scheduler.open(told(model))
    with pytest.raises(CapacityError, match="--max-sessions"):
        await scheduler.open(large)
    await scheduler.close(seat)
    assert held.sessions == THREADS
    slow.release()
    await until(lambda: slow.ended == THREADS, "the end of the compiling")
    await asyncio.wait_for(scheduler.drain(), 20)
    assert held.sessions == 0
    await scheduler.stop()


async def test_the_service_stops_while_a_grammar_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, model, slow = slow_scheduler(monkeypatch, max_sessions=4)
    task = asyncio.create_task(scheduler.open(told(model, sampling=GRAMMAR)))
    await until(lambda: slow.begun == 1, "the compiling")
    await scheduler.stop()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert slow.ended == 0
    slow.release()


async def test_uploads_given_up_keep_their_places_until_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servicer_module, "MAX_UPLOADS", THREADS)
    scheduler = Scheduler(Drafter(GatedModel("vocab=16")), DraftSettings())
    vocabularies = scheduler.drafter.vocabularies
    slow = Slow(vocabularies.read, lambda name, vocabulary: True)
    monkeypatch.setattr(vocabularies, "read", slow)
    servicer = DraftServicer(scheduler, 1)
    vocabulary = ScriptedTokenizer(16, None, range(4, 20)).vocabulary

    async def requests() -> AsyncIterator[draft_pb2.SetVocabularyRequest]:
        for part in parts(vocabulary):
            yield part

    def upload() -> "asyncio.Task[draft_pb2.SetVocabularyResponse]":
        return asyncio.create_task(servicer.SetVocabulary(requests(), None))  # type: ignore[arg-type]

    tasks = [upload() for _ in range(THREADS)]
    await until(lambda: slow.begun == THREADS, "the reading")
    for task in tasks:
        await given_up(task)
    with pytest.raises(CapacityError, match="being sent already"):
        await upload()
    slow.release()
    await until(lambda: slow.ended == THREADS, "the end of the reading")
    await until(lambda: servicer._uploads == 0, "the free places")
    assert (await upload()).shared_tokens == 12
    await scheduler.stop()
