"""Whole requests through an engine and real services: where answers end, which of several they are,
what is refused before anything was opened, and drafts that stop helping."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.drafts import FakeDraft, PatternDraft, SilentDraft, opened
from support.local import TARGET, Local, Running
from support.waiting import until

from orchestrator.engine import Engine
from orchestrator.peers import DraftPeer, VerifyPeer
from orchestrator.requests import GenerationRequest, Tokens
from orchestrator.session import Session
from orchestrator.settings import OrchestratorSettings
from outrider.client import AsyncClient, Result
from outrider.errors import InvalidArgumentError
from outrider.models.scripted import ScriptedLaw
from outrider.types import AcceptanceMode, FinishReason, SamplingParams, StopConditions
from outrider.v1 import draft_pb2

DRAFT = f"{TARGET},drift=0.2"
TOKENS = 40


async def answered(client: AsyncClient, **options: Any) -> Result:
    given: dict[str, Any] = {"max_tokens": TOKENS, "seed": 3}
    return await client.generate("hello", **(given | options)).result()


@pytest.mark.parametrize("drafts", [0, 2])
async def test_a_stop_string_cuts_the_answer_that_there_is_without_it(
    local: Local, drafts: int
) -> None:
    verify = await local.verify()
    names = {f"d{i}": await local.draft(DRAFT) for i in range(drafts)}
    client = await local.orchestrator(verify, names)
    for seed in range(6):
        whole = await answered(client, seed=seed)
        stop = whole.text[12 : 13 + seed % 3]
        cut = await answered(client, seed=seed, stop=["never said", stop])
        shown = await answered(client, seed=seed, stop=stop, include_stop=True)
        end = whole.text.find(stop)
        assert cut.text == whole.text[:end]
        assert shown.text == whole.text[: end + len(stop)]
        count = len(cut.tokens)
        assert [t.id for t in cut.tokens] == [t.id for t in whole.tokens[:count]]
        shorter = "".join(t.text for t in whole.tokens[: count - 1])
        longer = shorter + whole.tokens[count - 1].text
        assert stop not in shorter and stop in longer
        assert cut.finish_reason is FinishReason.STOP
        assert cut.stop_string == shown.stop_string == stop
        assert cut.stats.emitted_tokens == count
        assert cut.stats.accepted_tokens == sum(draft.accepted_tokens for draft in cut.stats.drafts)
        assert cut.stats.accepted_tokens == sum(token.is_drafted for token in cut.tokens)
    await until(lambda: verify.model.closed == verify.model.opened, "closing every sequence")


async def test_a_reader_that_pauses_longer_than_a_verifier_may_be_silent_loses_nothing(
    local: Local,
) -> None:
    verify = await local.verify()
    settings = OrchestratorSettings(
        ray="local", verify=verify.address, draft=[], verdict_timeout_s=0.2
    )
    engine = Engine(settings)
    await engine.start()
    request = GenerationRequest("r", "hello", SamplingParams(seed=3), StopConditions(400))
    emitted = 0
    try:
        async with contextlib.aclosing(engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, Tokens):
                    if not emitted:
                        await asyncio.sleep(0.5)  # until its inbox is full and nobody listens
                    emitted += len(event.tokens)
    finally:
        await engine.stop()
    assert emitted == 400


async def test_each_choice_is_replayed_by_seed_and_number_with_any_drafts(local: Local) -> None:
    verify = await local.verify()
    helped = await local.orchestrator(verify, {"a": await local.draft(DRAFT)})
    alone = await local.orchestrator(verify)
    results = await helped.generate_choices("hello", 4, max_tokens=TOKENS)
    assert len({result.text for result in results}) == 4
    [seed] = {result.seed for result in results}
    for index, result in enumerate(results):
        again = await answered(alone, seed=seed, choice_index=index)
        assert (again.text, again.seed) == (result.text, seed)
    assert (await answered(alone, seed=seed)).text == results[0].text


async def test_a_request_without_a_mode_has_the_deployments_and_says_so(local: Local) -> None:
    verify = await local.verify()
    matching = await local.orchestrator(verify, mode="match")
    default = await local.orchestrator(verify)
    assert (await answered(matching)).mode is AcceptanceMode.MATCH
    assert (await answered(matching, mode="auto")).mode is AcceptanceMode.COUPLED
    assert (await answered(matching, mode="rejection")).mode is AcceptanceMode.REJECTION
    assert (await answered(default)).mode is AcceptanceMode.COUPLED


BEYOND: dict[str, dict[str, Any]] = {
    "the prompt": {"prompt": [1, 64]},
    "logit_bias": {"logit_bias": {64: 1}},
    "allowed_token_ids": {"allowed_token_ids": [1, 64]},
    "banned_token_ids": {"banned_token_ids": [64]},
    "stop_token_ids": {"stop_token_ids": [64]},
    "min_tokens": {"prompt": [1] * 60, "min_tokens": 41, "max_tokens": 41},
}


async def test_what_can_never_work_is_refused_before_anything_is_opened(local: Local) -> None:
    verify = await local.verify(f"{TARGET},context=100")
    draft = SilentDraft()
    client = await local.orchestrator(verify, {"a": await local.fake_draft(draft)})
    for name, options in BEYOND.items():
        with pytest.raises(InvalidArgumentError, match=name):
            await client.generate(**({"prompt": "hi"} | options)).result()
    assert (verify.model.opened, draft.sessions) == (0, 0)


class DoneDraft(FakeDraft):
    """Opens the session, and has nothing to say."""

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()
        yield draft_pb2.DraftResponse(done=draft_pb2.DraftDone(reason="its context is full"))


async def test_a_draft_that_is_done_leaves_the_others_and_the_answer_as_they_are(
    local: Local,
) -> None:
    verify = await local.verify()
    right = PatternDraft(ScriptedLaw(vocab=64), 4, 4)
    drafts: dict[str, Running | str] = {
        "short": await local.fake_draft(DoneDraft()),
        "right": await local.fake_draft(right),
    }
    client = await local.orchestrator(verify, drafts, wait_nodes=4, max_wait_ms=20_000)
    alone = await local.orchestrator(verify)
    result = await answered(client, temperature=0)
    assert result.text == (await answered(alone, temperature=0)).text
    assert "draft short stopped helping: its context is full" in result.notices
    assert {draft.name: draft.lost for draft in result.stats.drafts} == {
        "short": False,
        "right": False,
    }
    assert result.stats.accepted_tokens > 0


async def test_a_draft_that_is_done_and_speaks_again_changes_nothing(local: Local) -> None:
    class Chatty(FakeDraft):
        async def session(self, opening: Any, requests: Any) -> AsyncIterator[Any]:
            yield opened()
            for reason in ("first", "second"):
                yield draft_pb2.DraftResponse(done=draft_pb2.DraftDone(reason=reason))

    client = await local.orchestrator(await local.verify(), {"a": await local.fake_draft(Chatty())})
    notices = (await answered(client)).notices
    assert [n for n in notices if "stopped helping" in n] == ["draft a stopped helping: first"]


async def test_a_draft_of_another_tokenizer_is_told_with_how_much_it_can_say(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DraftPeer, "shared_tokens", 12)
    monkeypatch.setattr(DraftPeer, "is_usable", True)
    foreign, own = SilentDraft(), SilentDraft()
    foreign.info = type(own.info)()
    foreign.info.CopyFrom(own.info)
    foreign.info.tokenizer_hash = "ab" * 32
    addresses = {"x": await local.fake_draft(foreign), "y": await local.fake_draft(own)}
    client = await local.orchestrator(await local.verify(), addresses)
    notices = (await answered(client)).notices
    assert notices == ("draft x has another tokenizer: it drafts the 12 tokens that both have",)


async def test_a_request_begins_with_what_others_learned_of_the_targets_passes(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    opened_as_before = Session.open_verify

    def open_verify(session: Session, peer: VerifyPeer, *, has_drafts: bool) -> None:
        begun.append(session.passes.n)
        opened_as_before(session, peer, has_drafts=has_drafts)

    monkeypatch.setattr(Session, "open_verify", open_verify)
    client = await local.orchestrator(await local.verify(), {"a": await local.draft(DRAFT)})
    first = await answered(client)
    await answered(client)
    assert begun[0] == 0
    assert begun[1] > 1
    assert first.stats.target_passes > 1
