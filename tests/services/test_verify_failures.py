"""A verify process that dies in the middle of an answer: resumed, or said plainly."""

import asyncio

import pytest
from support.models import alone
from support.processes import Processes, free_port

from outrider import AsyncClient
from outrider.errors import DeadlineError, StateMismatchError, UnavailableError
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=64)
MODEL = "scripted:vocab=64,step_ms=20"
PROMPT = [7]
TOKENS = 80
DIES_AT = 12


async def test_an_answer_is_resumed_when_the_verifier_comes_back_on_its_port(
    processes: Processes,
) -> None:
    port = free_port()
    verify = processes.verify(MODEL, port=port)
    draft = processes.draft("scripted:vocab=64,drift=0.5")
    orchestrator = processes.orchestrator(verify, {"a": draft}, "--max-resumes", "8")
    async with AsyncClient(orchestrator.address, timeout_s=90) as client:
        generation = client.generate(PROMPT, max_tokens=TOKENS, temperature=1.0, seed=4)
        tokens = []
        async for token in generation:
            tokens.append(token.id)
            if len(tokens) == DIES_AT:
                verify.kill()
                verify = processes.verify(MODEL, port=port)
        result = await generation.result()
    assert tokens == alone(LAW, PROMPT, TOKENS, SamplingParams(temperature=1.0, seed=4))
    assert result.stats.resumes >= 1
    assert result.stats.emitted_tokens == TOKENS
    assert result.text == "".join(token.text for token in result.tokens)
    assert len(set(result.notices)) == len(result.notices)


async def test_an_answer_is_not_continued_by_another_model(processes: Processes) -> None:
    port = free_port()
    verify = processes.verify(MODEL, port=port)
    orchestrator = processes.orchestrator(verify, {}, "--max-resumes", "8")
    async with AsyncClient(orchestrator.address, timeout_s=90) as client:
        generation = client.generate(PROMPT, max_tokens=TOKENS, temperature=0)
        tokens = []
        with pytest.raises(StateMismatchError, match="another model"):
            async for token in generation:
                tokens.append(token.id)
                if len(tokens) == DIES_AT:
                    verify.kill()
                    verify = processes.verify(f"{MODEL},seed=99", port=port)
    assert tokens == alone(LAW, PROMPT, len(tokens))


async def test_a_verifier_gone_for_good_ends_the_answer_with_what_had_come(
    processes: Processes,
) -> None:
    verify = processes.verify(MODEL)
    orchestrator = processes.orchestrator(verify, {}, "--max-resumes", "1")
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        generation = client.generate(PROMPT, max_tokens=TOKENS, temperature=0)
        tokens = []
        with pytest.raises(UnavailableError) as failure:
            async for token in generation:
                tokens.append(token.id)
                if len(tokens) == DIES_AT:
                    verify.kill()
        assert generation.started is not None
        assert failure.value.request_id == generation.started.request_id
        assert f"{len(tokens)} tokens had arrived" in failure.value.message
        assert tokens == alone(LAW, PROMPT, len(tokens))
        with pytest.raises(UnavailableError, match="outrider serve verify"):
            await client.generate(PROMPT, max_tokens=4).result()


async def test_a_verifier_that_hangs_ends_the_answer_by_the_verdict_timeout(
    processes: Processes,
) -> None:
    verify = processes.verify("scripted:vocab=64,step_ms=60000")
    orchestrator = processes.orchestrator(verify, {}, "--verdict-timeout-s", "1")
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        with pytest.raises(DeadlineError, match="silent for 1 s after 0 tokens"):
            await asyncio.wait_for(client.generate(PROMPT, max_tokens=4).result(), 20)
    verify.kill()
