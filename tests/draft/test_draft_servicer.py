"""Chunks that waited for the wire travel together, and never as more than a reader takes."""

import asyncio
from collections.abc import AsyncIterator

from draft.drafted import opening
from draft.gated import GatedModel
from support.waiting import until

from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler, Seat
from draft_service.servicer import DraftServicer
from draft_service.settings import DraftSettings
from outrider.plans import DraftPlan
from outrider.tree import TokenTree
from outrider.types import DraftOpening
from outrider.v1 import draft_pb2
from outrider.wire.convert import chunk_from, draft_opening_to

PLAN = DraftPlan(depth=256, width=32)


async def test_all_that_a_slow_reader_finds_comes_in_messages_that_it_takes() -> None:
    model = GatedModel("vocab=64,tokenizer=any")
    scheduler = Scheduler(Drafter(model), DraftSettings())
    half_closed = asyncio.Event()

    async def requests() -> AsyncIterator[draft_pb2.DraftRequest]:
        yield draft_pb2.DraftRequest(open=draft_opening_to(opening(plan=PLAN, vocab_size=64)))
        await half_closed.wait()

    stream = DraftServicer(scheduler, 1).Draft(requests(), None)  # type: ignore[arg-type]
    assert (await anext(stream)).WhichOneof("kind") == "opened"
    await until(lambda: len(model.passes) == PLAN.depth, "a whole plan's drafts")
    tree = TokenTree(capacity=PLAN.depth * PLAN.width)
    messages = 0
    while tree.pending < PLAN.depth * PLAN.width:
        response = await asyncio.wait_for(anext(stream), 10)
        tree.grow(chunk_from(response.chunk, 64, 1))
        messages += 1
    assert messages < PLAN.depth, "they travelled together"
    half_closed.set()
    assert await anext(stream, None) is None
    assert model.pinned == 0
    await scheduler.stop()


async def test_what_passes_have_read_by_then_is_not_told_as_cached() -> None:
    """The model's thread may be quicker than the stream."""
    scheduler = Scheduler(Drafter(GatedModel("tokenizer=any")), DraftSettings())
    opens = scheduler.open

    async def open_slowly(opening: DraftOpening) -> Seat:
        seat = await opens(opening)
        await until(lambda: bool(seat.chunks), "the first node")
        return seat

    async def requests() -> AsyncIterator[draft_pb2.DraftRequest]:
        yield draft_pb2.DraftRequest(open=draft_opening_to(opening()))
        await asyncio.Event().wait()

    scheduler.open = open_slowly  # type: ignore[method-assign]
    for cached in (0, 2):
        stream = DraftServicer(scheduler, 1).Draft(requests(), None)  # type: ignore[arg-type]
        assert (await anext(stream)).opened.cached_tokens == cached
        await stream.aclose()
    await scheduler.stop()
