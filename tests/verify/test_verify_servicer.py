"""The verify stream beside the model's thread, which goes on while the stream is being written."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from support.waiting import until

from outrider.models.options import ModelOptions
from outrider.models.scripted import load
from outrider.plans import ReadinessPolicy
from outrider.tree import TokenTree
from outrider.types import SamplingParams, StopConditions, VerifyOpening
from outrider.v1 import verify_pb2
from outrider.wire.convert import verify_opening_to
from verify_service.scheduler import Scheduler
from verify_service.servicer import VerifyServicer
from verify_service.sessions import Session
from verify_service.settings import VerifySettings
from verify_service.verifier import Verifier

LENGTH = 20

real_commit = TokenTree.commit


def slow_commit(
    tree: TokenTree, tokens: Sequence[int], *, fresh: bool = False
) -> list[tuple[int, ...]]:
    """As a thread that loses the interpreter in the middle of settling a pass."""
    ids = real_commit(tree, tokens, fresh=fresh)
    time.sleep(0.002)
    return ids


async def requests() -> AsyncIterator[verify_pb2.VerifyRequest]:
    """An opening, and nothing more until the stream has ended."""
    opening = VerifyOpening(
        "s",
        (1, 2, 3),
        (),
        SamplingParams(temperature=0, seed=0),
        StopConditions(LENGTH, ignore_eos=True),
        ReadinessPolicy(),
    )
    yield verify_pb2.VerifyRequest(open=verify_opening_to(opening))
    await asyncio.Event().wait()


async def test_no_stream_ends_without_its_last_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenTree, "commit", slow_commit)
    verifier = Verifier(load("vocab=8,seed=1", ModelOptions(kv_tokens=4096)))
    settings: dict[str, Any] = {"kv_tokens": 4096}
    scheduler = Scheduler(verifier, VerifySettings(**settings))
    servicer = VerifyServicer(scheduler, 4)
    try:
        for _ in range(5):
            tokens = 0
            async for response in servicer.Verify(requests(), cast(Any, None)):
                tokens += len(response.verdict.tokens)
                await asyncio.sleep(0.0005)  # the message is on its way
            assert tokens == LENGTH
    finally:
        await scheduler.stop()


async def test_what_passes_have_read_by_then_is_not_told_as_cached() -> None:
    """The model's thread may be quicker than the stream."""
    verifier = Verifier(load("vocab=8,seed=1", ModelOptions(kv_tokens=4096)))
    settings: dict[str, Any] = {"kv_tokens": 4096}
    scheduler = Scheduler(verifier, VerifySettings(**settings))
    opens = scheduler.open

    async def open_slowly(opening: VerifyOpening) -> Session:
        session = await opens(opening)
        await until(lambda: session.finish_reason is not None, "the whole answer")
        return session

    scheduler.open = open_slowly  # type: ignore[method-assign]
    try:
        stream = VerifyServicer(scheduler, 4).Verify(requests(), cast(Any, None))
        told = [r.opened.cached_tokens async for r in stream if r.WhichOneof("kind") == "opened"]
        assert told == [0]
        stream = VerifyServicer(scheduler, 4).Verify(requests(), cast(Any, None))
        told = [r.opened.cached_tokens async for r in stream if r.WhichOneof("kind") == "opened"]
        assert told == [2], "all but the token whose row is wanted"
    finally:
        await scheduler.stop()
