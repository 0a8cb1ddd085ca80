"""What a pass takes of a long prompt costs by what it takes, not by what is left."""

import tracemalloc
from collections.abc import Callable

import pytest
from draft.drafted import opening
from draft.gated import GatedModel
from hypothesis import given
from hypothesis import strategies as st

from draft_service.drafter import Drafter
from outrider.models.base import ModelSequence
from outrider.plans import ReadinessPolicy
from outrider.sampling.history import History
from outrider.tree import TokenTree
from outrider.types import SamplingParams, StopConditions, VerifyOpening
from verify_service.sessions import Session

PROMPT = tuple(i % 7 for i in range(100_000))
PART = 16
LEAST_COPY_BYTES = 8 * 50_000


def verifying(prompt: tuple[int, ...], emitted: tuple[int, ...], cached: int) -> Session:
    sampling = SamplingParams(temperature=0, seed=0)
    told = VerifyOpening("s", prompt, emitted, sampling, StopConditions(9), ReadinessPolicy())
    sequence = ModelSequence([*prompt, *emitted][:cached])
    return Session(told, sequence, History(), 9, TokenTree(emitted), 0.0)


def peak_bytes(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cached", [0, 40_000])
def test_a_target_copies_only_the_part_that_it_runs(cached: int) -> None:
    session = verifying(PROMPT, (), cached)
    assert session.part(PART).pending == PROMPT[cached : cached + PART]
    assert peak_bytes(lambda: session.part(PART)) < LEAST_COPY_BYTES


def test_a_draft_copies_only_the_part_that_it_runs() -> None:
    drafter = Drafter(GatedModel("tokenizer=any,context=200000", 2 * len(PROMPT)))
    session = drafter.open(opening(prompt=PROMPT))
    task = session.task(PART)
    assert task is not None
    assert task.tokens == PROMPT[:PART]
    assert peak_bytes(lambda: session.task(PART)) < LEAST_COPY_BYTES


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 12), st.integers(0, 14))
def test_what_is_pending_goes_on_from_the_prompt_into_what_was_emitted(
    prompt: int, emitted: int, cached: int, most: int
) -> None:
    tokens = tuple(range(prompt + emitted))
    session = verifying(tokens[:prompt], tokens[prompt:], cached)
    assert session.pending(most) == tokens[cached : cached + most]
