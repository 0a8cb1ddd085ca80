"""The second turn of a conversation reads only what is new, at the target and at the draft."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from models.tiny import save_checkpoints
from support.local import Local, Running
from support.models import alone
from support.waiting import until

from outrider import AsyncClient
from outrider.client import Result
from outrider.models.cells import common_prefix
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=64)
TARGET = "scripted:vocab=64"
PROMPT = tuple(range(40))
QUESTION = (9, 8, 7, 6, 5)
MOST = 4  # drafted tokens of one pass
WAITING: dict[str, Any] = {
    "num_speculative_tokens": MOST,
    "wait_nodes": 1,
    "max_wait_ms": 5000,
    "adaptive": False,
}
"""Every pass waits for the draft, which so has followed each verdict but the last."""


class Talk:
    """A target, a draft, and how many tokens each has run."""

    def __init__(self, verify: Running, draft: Running, client: AsyncClient) -> None:
        self.verify, self.draft, self.client = verify, draft, client

    async def turn(self, prompt: Sequence[int], **options: Any) -> tuple[Result, int]:
        """An answer, and the tokens that the target ran for it."""
        before = self.verify.model.tokens
        async with self.client.generate(list(prompt), max_tokens=24, **options) as generation:
            result = await generation.result()
        await until(lambda: self.verify.model.closed == self.verify.model.opened, "the end")
        await until(lambda: self.draft.model.closed == self.draft.model.opened, "the draft's end")
        return result, self.verify.model.tokens - before


async def talk(local: Local, draft: str, **settings: Any) -> Talk:
    verify, running = await asyncio.gather(local.verify(TARGET), local.draft(draft))
    client = await local.orchestrator(verify, {"a": running}, **WAITING | settings)
    return Talk(verify, running, client)


def ids(result: Result) -> list[int]:
    return [token.id for token in result.tokens]


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
@pytest.mark.parametrize("width", [1, 3])
async def test_the_second_turn_reads_only_what_is_new_on_both_sides(
    local: Local, mode: str, width: int
) -> None:
    """Also where the first answer had branches that were rejected, and others beside accepted."""
    it = await talk(local, f"{TARGET},drift=0.5", width=width)
    options = {"temperature": 1.0, "seed": 5, "mode": mode}
    first, ran = await it.turn(PROMPT, **options)
    assert (first.stats.cached_tokens, first.stats.drafts[0].cached_tokens) == (0, 0)
    assert ran == sum(first.stats.pass_rows)
    assert len(PROMPT) <= first.stats.pass_rows[0] <= len(PROMPT) + MOST
    assert 0 < first.stats.accepted_tokens < first.stats.verified_tokens, "some were rejected"

    said = (*PROMPT, *ids(first))
    second, ran = await it.turn((*said, *QUESTION), **options)
    # The last token of an answer is never run: nothing follows it.
    assert second.stats.cached_tokens == len(said) - 1
    assert ran == sum(second.stats.pass_rows)
    assert 1 + len(QUESTION) <= second.stats.pass_rows[0] <= 1 + len(QUESTION) + MOST
    assert second.stats.accepted_tokens > 0
    # A draft is not told the last verdict, after which nothing is drafted.
    [draft] = second.stats.drafts
    assert draft.cached_tokens >= len(said) - (MOST + 1) - 1
    assert draft.cached_tokens > len(PROMPT), "it kept the answer, too"


async def test_a_turn_behind_a_cache_is_the_targets_own(local: Local) -> None:
    """What the first turn left in the caches are the accepted tokens and nothing of other
    branches: whatever was tried, the next turn is what the target says behind the same text."""
    it = await talk(local, f"{TARGET},drift=0.5", width=3)
    for temperature, seed in ((0.0, 1), (1.0, 2)):
        sampling = SamplingParams(temperature=temperature, seed=seed)
        said = (seed, *PROMPT)
        for number in range(4):
            result, _ = await it.turn(said, temperature=temperature, seed=seed)
            assert ids(result) == alone(LAW, said, 24, sampling)
            assert (result.stats.cached_tokens > len(PROMPT)) is (number > 0)
            said = (*said, *ids(result), *QUESTION)


async def test_a_turn_that_goes_back_reads_on_from_where_it_went_back(local: Local) -> None:
    """An answer asked for again with another question shares what both have."""
    it = await talk(local, TARGET)
    first, _ = await it.turn(PROMPT, temperature=0)
    await it.turn((*PROMPT, *ids(first), *QUESTION), temperature=0)
    edited = (*PROMPT, *ids(first)[:10], 1, 2, 3)
    result, _ = await it.turn(edited, temperature=0)
    assert ids(result) == alone(LAW, edited, 24)
    assert result.stats.cached_tokens == result.stats.drafts[0].cached_tokens == len(PROMPT) + 10


async def test_a_chat_that_comes_back_as_text_is_read_from_its_last_answer_on(
    local: Local, tmp_path: Path
) -> None:
    """As chat clients send it: the whole conversation, tokenized anew every turn."""
    model = f"hf:{save_checkpoints(tmp_path)['llama']}"
    verify, draft = await asyncio.gather(
        local.verify(model, kv_tokens=1024), local.draft(model, kv_tokens=1024)
    )
    tokenizer = verify.model.tokenizer
    assert tokenizer is not None
    client = await local.orchestrator(verify, {"a": draft}, **WAITING)
    messages: list[dict[str, str]] = [{"role": "user", "content": "the cat"}]
    said: list[int] = []
    for number in range(3):
        prompt = tokenizer.encode_chat([(m["role"], m["content"]) for m in messages])
        # Letters that the tokenizer knows one by one, so that the text has one way to be read.
        result = await client.chat(messages, seed=number, regex="[jqxz]{12}").result()
        await until(lambda: verify.model.closed == verify.model.opened, "the end")
        await until(lambda: draft.model.closed == draft.model.opened, "the draft's end")
        assert common_prefix(said, prompt[:-1]) == len(said), "it goes on where it was"
        # Where the grammar ended an accepted run, even the last token was run.
        assert result.stats.cached_tokens - len(said) in ((-1, 0) if said else (0,))
        assert result.stats.drafts[0].cached_tokens >= len(said) - (MOST + 1) - 1
        assert result.stats.prompt_tokens == len(prompt)
        said = [*prompt, *ids(result)]
        messages += [
            {"role": "assistant", "content": result.text},
            {"role": "user", "content": "on the mat"},
        ]
