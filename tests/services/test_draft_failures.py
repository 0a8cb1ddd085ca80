"""Killing, stopping and bringing back a draft process: the answer is whole and the same."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.models import alone
from support.processes import Processes, ServiceProcess, free_port
from support.waiting import until_asked

from outrider import AsyncClient
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=64)
SLOW_TARGET = "scripted:vocab=64,step_ms=25"
PROMPT = [7]
COUPLED = SamplingParams(temperature=1.0, seed=4)
TOKENS = 72
TOKENS_WHILE_HUNG = 120
KILL_AT = 20


@pytest.fixture(scope="module")
def verify(module_processes: Processes) -> ServiceProcess:
    return module_processes.verify(SLOW_TARGET)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def orchestrator(
    module_processes: Processes, verify: ServiceProcess, port: int
) -> Iterator[ServiceProcess]:
    """It knows the drafts' address; each test brings a draft of its own."""
    address = f"127.0.0.1:{port}"
    yield module_processes.orchestrator(
        verify,
        {"rider": address},
        *("--wait-nodes", "2", "--max-wait-ms", "40", "--no-adaptive"),
        *("--num-speculative-tokens", "3"),
    )


@pytest.fixture
def draft(processes: Processes, port: int) -> ServiceProcess:
    # Wrong most of the time, so that an answer has rounds enough to be interrupted in.
    return processes.draft("scripted:vocab=64,drift=0.4", port=port)


async def is_used(client: AsyncClient) -> bool:
    return (await client.get_cluster()).drafts[0].usable


async def interrupted(
    client: AsyncClient, draft: ServiceProcess, number: signal.Signals, **options: Any
) -> Any:
    """The result of an answer in the middle of which the draft gets a signal."""
    generation = client.generate(PROMPT, **options)
    count = 0
    async for _ in generation:
        count += 1
        if count == KILL_AT:
            draft.signal(number)
    return await generation.result()


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"temperature": 0}, signal.SIGKILL),
        ({"temperature": 1.0, "seed": 4}, signal.SIGKILL),
        ({"temperature": 1.0, "seed": 4}, signal.SIGSTOP),
    ],
    ids=["killed-greedy", "killed-seeded", "stopped-seeded"],
)
async def test_an_answer_survives_the_loss_of_its_draft(
    orchestrator: ServiceProcess,
    draft: ServiceProcess,
    options: dict[str, Any],
    number: signal.Signals,
) -> None:
    """Field bug 23."""
    assert draft.address
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        await until_asked(lambda: is_used(client), "the use of the draft")
        tokens = TOKENS_WHILE_HUNG if number is signal.SIGSTOP else TOKENS
        result = await interrupted(client, draft, number, max_tokens=tokens, **options)
        sampling = COUPLED if "seed" in options else SamplingParams(temperature=0)
        assert [t.id for t in result.tokens] == alone(LAW, PROMPT, tokens, sampling)
        assert result.stats.accepted_tokens > 0
        assert result.stats.drafts[0].lost
        assert [n for n in result.notices if n.startswith("draft rider was lost: ")]

        after = await client.generate(PROMPT, max_tokens=4, temperature=0).result()
        assert after.stats.drafts == ()
        assert [n for n in after.notices if "draft rider is not used" in n]


async def test_a_draft_that_comes_back_is_used_again(
    orchestrator: ServiceProcess, processes: Processes, draft: ServiceProcess, port: int
) -> None:
    assert draft.address
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        await until_asked(lambda: is_used(client), "the use of the draft")
        draft.kill()
        await client.generate(PROMPT, max_tokens=4, temperature=0).result()
        again = processes.draft("scripted:vocab=64", port=port)
        assert again.port == port
        await until_asked(lambda: is_used(client), "the return of the draft")
        result = await client.generate(PROMPT, max_tokens=40, temperature=0).result()
        assert result.notices == ()
        assert result.stats.accepted_tokens > 0


async def test_a_stopped_draft_that_goes_on_does_no_harm(
    orchestrator: ServiceProcess, draft: ServiceProcess
) -> None:
    """What it sends late hangs off tokens that were decided long ago."""
    assert draft.address
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        await until_asked(lambda: is_used(client), "the use of the draft")
        generation = client.generate(PROMPT, max_tokens=60, temperature=0)
        tokens = []
        async for token in generation:
            tokens.append(token.id)
            if len(tokens) == 10:
                draft.signal(signal.SIGSTOP)
            if len(tokens) == 30:
                draft.signal(signal.SIGCONT)
        assert tokens == alone(LAW, PROMPT, 60)


async def test_losing_one_of_two_drafts_leaves_the_other_at_work(
    processes: Processes, module_processes: Processes, verify: ServiceProcess
) -> None:
    steady = processes.draft("scripted:vocab=64,drift=0.3")
    doomed = processes.draft("scripted:vocab=64,drift=0.4")
    orchestrator = processes.orchestrator(verify, {"steady": steady, "doomed": doomed})
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        results = await asyncio.gather(
            interrupted(client, doomed, signal.SIGKILL, max_tokens=TOKENS, temperature=0),
            client.generate([1, 2], max_tokens=TOKENS, temperature=0).result(),
        )
    for prompt, result in zip((PROMPT, [1, 2]), results, strict=True):
        assert [t.id for t in result.tokens] == alone(LAW, prompt, TOKENS)
        assert {d.name: d.lost for d in result.stats.drafts} == {"steady": False, "doomed": True}
