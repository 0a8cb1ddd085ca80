"""Seed, temperature, top-p, top-k and min-p of a request reach target and drafts alike.

With shared noise two sides that warp alike always agree, so acceptance is the witness.
"""

import asyncio
from typing import Any

import pytest
from support.local import TARGET, Local
from support.models import alone

from outrider import AsyncClient
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=64)
CHAIN: dict[str, Any] = {"num_speculative_tokens": 7, "width": 1}
"""One candidate a place: of several, at most one is accepted, and another may hide a wrong one."""
WAITING: dict[str, Any] = {"wait_nodes": 7, "max_wait_ms": 5000, "adaptive": False, **CHAIN}
PROMPT = [7]
FOUR = {"a": 0.0, "b": 0.3, "c": 0.5, "d": 0.7}


async def agreeing(local: Local) -> AsyncClient:
    verify, draft = await asyncio.gather(local.verify(), local.draft())
    return await local.orchestrator(verify, {"a": draft}, **WAITING)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "min_p": 0.2},
        {"temperature": 2.0, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    ],
    ids=str,
)
async def test_coupled_drafts_of_the_same_model_are_accepted_without_exception(
    local: Local, sampling: dict[str, Any]
) -> None:
    client = await agreeing(local)
    result = await client.generate(PROMPT, max_tokens=64, seed=3, **sampling).result()
    assert result.stats.acceptance_rate == 1.0
    assert result.stats.target_passes == 8
    expected = alone(LAW, PROMPT, 64, SamplingParams(**sampling, seed=3))
    assert [token.id for token in result.tokens] == expected


@pytest.mark.parametrize(
    ("name", "ignored"),
    [("temperature", {"temperature": 1.0}), ("top_p", {"top_p": 1.0}), ("seed", {"seed": 4})],
)
async def test_a_draft_that_ignored_a_parameter_would_be_noticed(
    local: Local, monkeypatch: pytest.MonkeyPatch, name: str, ignored: dict[str, Any]
) -> None:
    """The test above can fail: here the draft gets one parameter wrong."""
    from dataclasses import replace

    import draft_service.servicer as servicer

    convert = servicer.draft_opening_from

    def wrong(message: Any) -> Any:
        opening = convert(message)
        return replace(opening, sampling=replace(opening.sampling, **ignored))

    monkeypatch.setattr(servicer, "draft_opening_from", wrong)
    client = await agreeing(local)
    result = await client.generate(
        PROMPT, max_tokens=64, seed=3, temperature=0.5, top_p=0.7
    ).result()
    assert result.stats.acceptance_rate < 1.0


@pytest.mark.parametrize("temperature", [None, 0, 1e-6, 1])
async def test_temperature_means_what_it_says(local: Local, temperature: float | None) -> None:
    """Field bug 11. Unset is 1, 0 is greedy, 1e-6 as good as greedy, 1 the model's own law."""
    client = await agreeing(local)
    result = await client.generate(PROMPT, max_tokens=48, seed=9, temperature=temperature).result()
    meant = 1.0 if temperature is None else temperature
    ids = [token.id for token in result.tokens]
    assert ids == alone(LAW, PROMPT, 48, SamplingParams(temperature=meant, seed=9))
    greedy = alone(LAW, PROMPT, 48)
    assert (ids == greedy) is (temperature in (0, 1e-6))


async def test_top_k_one_is_greedy_and_min_p_keeps_unlikely_tokens_out(local: Local) -> None:
    client = await agreeing(local)
    greedy = alone(LAW, PROMPT, 32)
    for narrow in ({"top_k": 1}, {"min_p": 0.999}, {"top_p": 1e-9}):
        result = await client.generate(PROMPT, max_tokens=32, temperature=1.0, **narrow).result()
        assert [token.id for token in result.tokens] == greedy, narrow


async def test_two_unseeded_requests_differ_and_each_can_be_replayed(local: Local) -> None:
    """Field bug 14."""
    client = await agreeing(local)
    first, second = await asyncio.gather(
        *(client.generate(PROMPT, max_tokens=32, temperature=1.0).result() for _ in range(2))
    )
    assert first.seed != second.seed
    assert first.tokens != second.tokens
    replay = await client.generate(PROMPT, max_tokens=32, temperature=1.0, seed=first.seed).result()
    assert [t.id for t in replay.tokens] == [t.id for t in first.tokens]


async def test_a_seed_gives_the_same_tokens_alone_and_under_load(local: Local) -> None:
    """Field bug 14."""
    client = await agreeing(local)
    expected = {
        seed: alone(LAW, PROMPT, 24, SamplingParams(temperature=1.0, seed=seed))
        for seed in range(8)
    }
    results = await asyncio.gather(
        *(
            client.generate(PROMPT, max_tokens=24, temperature=1.0, seed=seed).result()
            for seed in expected
        )
    )
    assert {r.seed: [t.id for t in r.tokens] for r in results} == expected
    assert len({tuple(tokens) for tokens in expected.values()}) == len(expected)


@pytest.mark.parametrize(
    ("drafts", "options"),
    [
        ({}, {}),
        ({"a": TARGET}, {}),
        ({"a": TARGET, "b": "scripted:vocab=64,drift=0.5"}, {}),
        ({name: f"scripted:vocab=64,drift={drift}" for name, drift in FOUR.items()}, {}),
        ({"nonsense": "scripted:vocab=64,drift=1"}, {}),
        ({"a": "scripted:vocab=64,drift=0.3"}, {"width": 3, "num_speculative_tokens": 2}),
        ({"a": TARGET}, {"max_drafts": 0}),
        ({"n": "ngram:"}, {}),
    ],
    ids=["alone", "one", "two", "four", "nonsense", "other-plan", "switched-off", "ngram"],
)
async def test_a_seeded_answer_is_the_same_with_any_drafts_and_any_plan(
    local: Local, drafts: dict[str, str], options: dict[str, int]
) -> None:
    verify = await local.verify()
    running = {name: await local.draft(model) for name, model in drafts.items()}
    client = await local.orchestrator(verify, running)
    sampling = SamplingParams(temperature=1.0, top_p=0.9, seed=11)
    result = await client.generate(
        [1, 2, 3], max_tokens=96, temperature=1.0, top_p=0.9, seed=11, **options
    ).result()
    assert [token.id for token in result.tokens] == alone(LAW, [1, 2, 3], 96, sampling)
