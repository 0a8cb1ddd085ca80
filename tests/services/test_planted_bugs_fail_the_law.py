"""The chi-square test of `test_output_law` can fail: small wrongs on either side are found out."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.laws import ALPHA, joint_law, p_value
from support.local import Local
from torch import Tensor

import draft_service.drafter as drafter
import outrider.sampling.accepting as accepting
from outrider import AsyncClient
from outrider.models.scripted import ScriptedLaw
from outrider.sampling import rules
from outrider.sampling.proposing import Proposal, propose
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=4, seed=8)
MODEL = "scripted:vocab=4,seed=8"
PROMPT = [1]
TOKENS = 2

Plant = Callable[[pytest.MonkeyPatch], None]


def residual_without_subtraction(patch: pytest.MonkeyPatch) -> None:
    """A rejected token is redrawn from p itself."""
    patch.setattr(rules, "excess", lambda r, ids, q: r)


def acceptance_without_a_coin(patch: pytest.MonkeyPatch) -> None:
    """A token stands exactly where the target likes it at least as much as the draft did."""
    patch.setattr(rules, "accepts", lambda u, q, r: q <= r)


def sent_row_is_not_the_drawn_one(patch: pytest.MonkeyPatch) -> None:
    """The draft takes its most likely token and sends it as if it were drawn from the row."""

    def wrong(*arguments: Any, **options: Any) -> Proposal:
        proposal = propose(*arguments, **options)
        best = max(zip(proposal.row_probs, proposal.row_ids, strict=True))[1]
        return replace(proposal, candidates=(replace(proposal.candidates[-1], token=best),))

    patch.setattr(drafter, "propose", wrong)


def drafts_believed_without_the_target(patch: pytest.MonkeyPatch) -> None:
    """Every drafted token is accepted."""
    patch.setattr(rules, "accepts", lambda u, q, r: True)


def target_at_another_temperature(patch: pytest.MonkeyPatch) -> None:
    """The verifier drops the request's temperature."""
    right = accepting.accept

    def wrong(subtree: Any, logits: Tensor, sampling: SamplingParams, *rest: Any) -> Any:
        return right(subtree, logits, replace(sampling, temperature=1.0), *rest)

    patch.setattr("verify_service.verifier.accept", wrong)


async def sampled(client: AsyncClient, samples: int, mode: str) -> list[tuple[int, ...]]:
    """Many short answers, each pass waiting for the draft."""
    gate = asyncio.Semaphore(16)

    async def answer(seed: int) -> tuple[int, ...]:
        async with gate:
            result = await client.generate(
                PROMPT, max_tokens=TOKENS, mode=mode, seed=seed, temperature=0.6
            ).result()
        return tuple(token.id for token in result.tokens)

    return await asyncio.gather(*map(answer, range(samples)))


async def p_value_of_answers(local: Local, samples: int, mode: str) -> float:
    verify = await local.verify(MODEL, max_sessions=64)
    draft = await local.draft(f"{MODEL},drift=0.7", max_sessions=64)
    # One draw a place: several draws from four tokens make up for one another's wrongs.
    client = await local.orchestrator(
        verify, {"a": draft}, width=1, wait_nodes=1, max_wait_ms=2000, adaptive=False
    )
    law = joint_law(LAW, PROMPT, TOKENS, SamplingParams(temperature=0.6))
    return p_value(await sampled(client, samples, mode), law)


@pytest.mark.parametrize(
    ("plant", "samples", "mode"),
    [
        (residual_without_subtraction, 600, "rejection"),
        (acceptance_without_a_coin, 300, "rejection"),
        (sent_row_is_not_the_drawn_one, 300, "block"),
        (drafts_believed_without_the_target, 150, "rejection"),
        (target_at_another_temperature, 600, "rejection"),
        (residual_without_subtraction, 600, "block"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_planted_bug_breaks_the_law(
    local: Local, monkeypatch: pytest.MonkeyPatch, plant: Plant, samples: int, mode: str
) -> None:
    plant(monkeypatch)
    assert await p_value_of_answers(local, samples, mode) < ALPHA


@pytest.mark.parametrize("mode", ["rejection", "block"])
async def test_without_a_planted_bug_the_same_sample_passes(local: Local, mode: str) -> None:
    assert await p_value_of_answers(local, 600, mode) > ALPHA
