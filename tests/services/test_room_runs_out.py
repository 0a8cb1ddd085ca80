"""Where KV room runs out: what is idle gives way first, whoever is refused is told whether to come
back, and what was emitted is not lost.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest
from draft.gated import GatedModel
from support.local import TARGET, Local, Running
from support.models import alone
from support.waiting import until, until_asked

from outrider.errors import CapacityError
from outrider.models.base import Feed
from outrider.models.scripted import ScriptedLaw
from outrider.plans import DraftPlan
from outrider.types import DraftOpening, SamplingParams
from outrider.v1 import draft_pb2, draft_pb2_grpc
from outrider.wire.convert import draft_opening_to
from outrider.wire.errors import from_rpc_error

LAW = ScriptedLaw(vocab=64)
MODEL = "vocab=64"
KV = 256
GREEDY = SamplingParams(temperature=0, seed=1)


def prompt(number: int, length: int = 60) -> list[int]:
    """Prompts of different numbers share nothing."""
    return [number, *(i % 60 for i in range(1, length))]


def after(passes: int, error: CapacityError) -> Callable[[Sequence[Feed]], Exception | None]:
    """What a model raises, for all sessions, from some pass on."""
    left = [passes]

    def breaks(feeds: Sequence[Feed]) -> Exception | None:
        left[0] -= 1
        return error if left[0] < 0 else None

    return breaks


async def freed(*services: Running) -> None:
    for service in services:
        await until(lambda s=service: s.model.closed == s.model.opened, "freed sequences")


async def test_idle_prefixes_give_way_before_anybody_is_refused(local: Local) -> None:
    """At the target and at the draft: each has room for three such texts, and twelve come."""
    models = [GatedModel(MODEL, KV), GatedModel(MODEL, KV)]
    verify = await local.verify(models[0], kv_tokens=KV)
    draft = await local.draft(models[1], kv_tokens=KV)
    waiting = {"num_speculative_tokens": 3, "wait_nodes": 1, "max_wait_ms": 5000}
    client = await local.orchestrator(verify, {"a": draft}, adaptive=False, **waiting)
    for number in range(12):
        result = await client.generate(prompt(number), max_tokens=20, temperature=0).result()
        assert [t.id for t in result.tokens] == alone(LAW, prompt(number), 20)
        assert result.notices == ()
        assert not result.stats.drafts[0].lost
        await freed(verify, draft)
    for model in models:
        assert (model.pinned, model.model.cells.used > KV / 2) == (0, True), "it is full of them"
    again = await client.generate(prompt(11), max_tokens=20, temperature=0).result()
    assert again.stats.cached_tokens > 50, "those used last are the ones that are kept"
    assert again.stats.drafts[0].cached_tokens > 50


async def test_what_can_never_fit_is_refused_without_advice_to_come_back(local: Local) -> None:
    verify = await local.verify("scripted:vocab=64,step_ms=20", kv_tokens=100)
    client = await local.orchestrator(verify)
    with pytest.raises(CapacityError, match="lower max_tokens") as never:
        await client.generate([7], max_tokens=100).result()
    assert never.value.retry_after_s is None
    async with client.generate([7], max_tokens=60) as first:
        await anext(aiter(first))
        with pytest.raises(CapacityError, match="promised to 1 open sessions") as later:
            await client.generate([8], max_tokens=60).result()
        assert later.value.retry_after_s == 1.0
    await until(lambda: not verify.scheduler._sessions, "the end of the first")
    assert len((await client.generate([8], max_tokens=60).result()).tokens) == 60


@pytest.mark.parametrize("retry_after_s", [1.0, None])
async def test_an_answer_that_runs_out_of_room_ends_with_what_was_emitted(
    local: Local, retry_after_s: float | None
) -> None:
    """A device may have less room than it promised."""
    model = GatedModel(MODEL, KV)
    verify, draft = await local.verify(model), await local.draft(TARGET)
    client = await local.orchestrator(verify, {"a": draft})
    model.breaks = after(12, CapacityError("no room is left", retry_after_s=retry_after_s))
    generation = client.generate([7], max_tokens=200, temperature=0)
    with pytest.raises(CapacityError, match="no room is left") as failure:
        await generation.result()
    assert failure.value.retry_after_s == retry_after_s
    assert failure.value.request_id
    emitted = [token.id for token in generation.tokens]
    assert len(emitted) >= 12
    assert emitted == alone(LAW, [7], len(emitted))
    assert len(generation.text) > 0
    await freed(verify, draft)
    assert model.pinned == draft.model.model.cells.pinned == 0

    model.breaks = lambda feeds: None
    whole = await client.generate([7, *emitted], max_tokens=8, temperature=0).result()
    assert [t.id for t in whole.tokens] == alone(LAW, [7], len(emitted) + 8)[-8:]
    assert whole.stats.cached_tokens >= len(emitted) - 1, "nor is its KV lost"


async def test_one_session_that_runs_out_of_room_leaves_the_others_alone(local: Local) -> None:
    model = GatedModel(MODEL, KV)
    verify = await local.verify(model)
    client = await local.orchestrator(verify)

    def breaks(feeds: Sequence[Feed]) -> Exception | None:
        """Sequences that hold more than thirty tokens have no room."""
        if any(len(feed.sequence.tokens) > 30 for feed in feeds):
            return CapacityError("no room is left", retry_after_s=1.0)
        return None

    model.breaks = breaks
    hit, good = await asyncio.gather(
        client.generate([7], max_tokens=60, temperature=0).result(),
        client.generate([8], max_tokens=25, temperature=0).result(),
        return_exceptions=True,
    )
    assert isinstance(hit, CapacityError)
    assert [t.id for t in good.tokens] == alone(LAW, [8], 25)  # type: ignore[union-attr]


async def test_a_draft_that_runs_out_of_room_is_left_and_the_answer_is_whole(local: Local) -> None:
    model = GatedModel(MODEL, KV)
    verify, draft = await local.verify("scripted:vocab=64,step_ms=5"), await local.draft(model)
    client = await local.orchestrator(verify, {"a": draft})
    model.breaks = after(12, CapacityError("no room is left", retry_after_s=1.0))
    result = await client.generate([7], max_tokens=100, temperature=0).result()
    assert [t.id for t in result.tokens] == alone(LAW, [7], 100)
    assert [n for n in result.notices if n == "draft a has no room for now: no room is left"]
    assert not result.stats.drafts[0].lost
    await freed(draft)
    model.breaks = lambda feeds: None

    async def has_it_again() -> bool:
        result = await client.generate([7], max_tokens=20, temperature=0).result()
        return result.stats.accepted_tokens > 0

    await until_asked(has_it_again, "its part in a later answer")


class Drafting:
    """Raw draft sessions, as an orchestrator opens them."""

    def __init__(self, local: Local, draft: Running) -> None:
        self._local, self._draft = local, draft

    async def opened(self, name: str, tokens: Sequence[int], plan: DraftPlan) -> Any:
        """The call, once the session is open; raises what it is refused with."""
        info = self._draft.model.info
        opening = DraftOpening(
            name, 1, tuple(tokens), (), GREEDY, plan, info.tokenizer_hash, info.vocab_size
        )
        channel = await self._local.channel(self._draft.address)
        call = draft_pb2_grpc.DraftServiceStub(channel).Draft()
        await call.write(draft_pb2.DraftRequest(open=draft_opening_to(opening)))
        assert (await read(call)).HasField("opened")
        return call


async def read(call: Any) -> Any:
    try:
        return await asyncio.wait_for(call.read(), 20)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def test_a_draft_refuses_one_session_too_many_and_says_when_to_retry(local: Local) -> None:
    draft = await local.draft(TARGET, max_sessions=1)
    drafting = Drafting(local, draft)
    first = await drafting.opened("a", [7], DraftPlan(4))
    with pytest.raises(CapacityError, match="--max-sessions") as failure:
        await drafting.opened("b", [7], DraftPlan(4))
    assert failure.value.retry_after_s == 1.0
    first.cancel()
    await freed(draft)
    await drafting.opened("b", [7], DraftPlan(4))


async def test_a_draft_without_room_says_whether_to_come_back(local: Local) -> None:
    """Where others hold the room it will be free; what is larger than all of it never fits."""
    draft = await local.draft(TARGET, kv_tokens=100)
    drafting = Drafting(local, draft)
    first = await drafting.opened("a", prompt(1), DraftPlan(4))
    await until(lambda: draft.model.tokens >= 60, "the first prompt")
    beside = await drafting.opened("b", prompt(2), DraftPlan(4))
    with pytest.raises(CapacityError, match="KV cells") as later:
        await read(beside)
    assert later.value.retry_after_s == 1.0
    first.cancel()
    await until(lambda: draft.model.closed == 2, "freed sequences")
    again = await drafting.opened("b", prompt(2), DraftPlan(4))
    assert (await read(again)).HasField("chunk")
    again.cancel()
    await freed(draft)
    large = await drafting.opened("c", prompt(3, 120), DraftPlan(4))
    with pytest.raises(CapacityError, match="KV cells") as never:
        await read(large)
    assert never.value.retry_after_s is None
