"""Seeds, several choices to one request, and which modes a request can ask for."""

import asyncio
from typing import Any

import pytest
from scipy import stats
from support.local import Local
from support.models import alone

from outrider import AsyncClient, Client, InvalidArgumentError
from outrider.client import Result
from outrider.models.scripted import ScriptedLaw
from outrider.seeds import choice_seed
from outrider.types import AcceptanceMode, SamplingParams
from verify_service.settings import VerifySettings

LAW = ScriptedLaw(vocab=16, seed=2)
MODEL = "scripted:vocab=16,seed=2"
PROMPT = [3]


async def served(local: Local, **settings: Any) -> AsyncClient:
    verify, draft = await asyncio.gather(
        local.verify(MODEL, max_sessions=64), local.draft(f"{MODEL},drift=0.2", max_sessions=64)
    )
    return await local.orchestrator(verify, {"a": draft}, **settings)


async def test_choices_are_independent_answers_of_which_each_can_be_replayed(local: Local) -> None:
    client = await served(local)
    results = await client.generate_choices(PROMPT, n=4, max_tokens=24, seed=17)
    for index, result in enumerate(results):
        assert result.seed == 17
        sampling = SamplingParams(seed=choice_seed(17, index))
        assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 24, sampling)
    assert len({tuple(t.id for t in result.tokens) for result in results}) == 4
    again = await client.generate(PROMPT, max_tokens=24, seed=17, choice_index=2).result()
    assert [t.id for t in again.tokens] == [t.id for t in results[2].tokens]
    plain = await client.generate(PROMPT, max_tokens=24, seed=17).result()
    assert [t.id for t in plain.tokens] == [t.id for t in results[0].tokens]


@pytest.mark.parametrize("is_async", [True, False])
async def test_more_choices_than_a_verifier_takes_by_default_are_answered(
    local: Local, is_async: bool
) -> None:
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft(f"{MODEL},drift=0.2"))
    client = await local.orchestrator(verify, {"a": draft})
    count = 40
    assert count > VerifySettings().max_sessions

    def ask() -> tuple[Result, ...]:
        with Client(client.address) as waiting:
            return waiting.generate_choices(PROMPT, count, max_tokens=4, seed=5)

    if is_async:
        results = await client.generate_choices(PROMPT, count, max_tokens=4, seed=5)
    else:
        results = await asyncio.to_thread(ask)
    for index, result in enumerate(results):
        sampling = SamplingParams(seed=choice_seed(5, index))
        assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 4, sampling)


async def test_choices_without_a_seed_can_be_replayed_too(local: Local) -> None:
    client = await served(local)
    results = await client.generate_choices(PROMPT, n=3, max_tokens=16)
    again = await client.generate_choices(PROMPT, n=3, max_tokens=16, seed=results[0].seed)
    for first, second in zip(results, again, strict=True):
        assert [t.id for t in first.tokens] == [t.id for t in second.tokens]


def test_the_first_tokens_of_two_choices_tell_nothing_of_one_another() -> None:
    """Over many seeds a table of the two tokens shows no association (alpha 1e-6)."""
    table = [[0] * 4 for _ in range(4)]
    law = ScriptedLaw(vocab=4, seed=1, sharpness=0.5)
    for seed in range(1500):
        first, second = (
            alone(law, [1], 1, SamplingParams(seed=choice_seed(seed, index)))[0] for index in (0, 1)
        )
        table[first][second] += 1
    assert stats.chi2_contingency(table).pvalue > 1e-6


@pytest.mark.parametrize("mode", ["auto", None])
async def test_auto_is_coupled_and_its_drawn_seed_replays_the_answer(
    local: Local, mode: str | None
) -> None:
    client = await served(local)
    result = await client.generate(PROMPT, max_tokens=32, mode=mode).result()
    assert result.mode is AcceptanceMode.COUPLED
    expected = alone(LAW, PROMPT, 32, SamplingParams(seed=result.seed))
    assert [t.id for t in result.tokens] == expected


async def test_a_deployment_can_choose_another_mode_and_a_request_its_own(local: Local) -> None:
    client = await served(local, mode="block")
    assert (await client.generate(PROMPT, max_tokens=4).result()).mode is AcceptanceMode.BLOCK
    own = await client.generate(PROMPT, max_tokens=4, mode="rejection").result()
    assert own.mode is AcceptanceMode.REJECTION
    auto = await client.generate(PROMPT, max_tokens=4, mode="auto").result()
    assert auto.mode is AcceptanceMode.COUPLED, "auto is a choice of its own"
    with pytest.raises(InvalidArgumentError, match="typical"):
        await client.generate(PROMPT, max_tokens=4, mode="typical").result()
