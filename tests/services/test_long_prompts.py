"""Many long prompts that are being read hold up nobody who is being answered, on either side."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from draft.drafted import opening
from draft.gated import GatedModel
from support.local import Local
from support.models import alone
from support.waiting import until

from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.settings import DraftSettings
from outrider.models.scripted import ScriptedLaw
from outrider.pass_times import PassTimes
from outrider.plans import DraftPlan
from verify_service import scheduler as verify_scheduler
from verify_service.verifier import Verifier

VOCAB = 64
LAW = ScriptedLaw(vocab=VOCAB)
MODEL = f"vocab={VOCAB}"
PROMPTS = 12
LONG = 500
BUDGET = 64


def long_prompt(number: int) -> list[int]:
    """Each begins with a token of its own, so that none finds its prefix cached."""
    return [number, *(5 for _ in range(LONG - 1))]


class FixedTimes(PassTimes):
    """A row costs a tenth of a bare pass, whatever is measured."""

    def add(self, rows: int, us: int) -> PassTimes:
        return self


@pytest.mark.parametrize("are_times_known", [False, True])
async def test_an_answer_goes_on_in_every_pass_while_many_long_prompts_are_read(
    local: Local, are_times_known: bool
) -> None:
    """Where it is known what a row costs, prompts at most double the time of its passes, too."""
    model = GatedModel(MODEL, 2 * PROMPTS * LONG)
    verify = await local.verify(
        model, max_sessions=32, max_pass_tokens=BUDGET, kv_tokens=2 * PROMPTS * LONG
    )
    verifier: Verifier = verify.scheduler.verifier
    if are_times_known:
        seen = PassTimes().add(1, 100).add(11, 200)
        verifier.times = FixedTimes(seen.n, seen.x, seen.y, seen.xx, seen.xy)
    client = await local.orchestrator(verify)
    model.hold("forward")
    first = asyncio.create_task(client.generate([1, 2], max_tokens=100, temperature=0).result())
    await model.wait_held()
    others = [
        asyncio.create_task(
            client.generate(long_prompt(10 + i), max_tokens=3, temperature=0).result()
        )
        for i in range(PROMPTS)
    ]
    opening_now = verify.scheduler
    await until(lambda: len(opening_now._promised) == PROMPTS, "the long prompts' openings")
    model.release()
    results = [await task for task in (first, *others)]

    assert [t.id for t in results[0].tokens] == alone(LAW, [1, 2], 100)
    for i, result in enumerate(results[1:]):
        assert [t.id for t in result.tokens] == alone(LAW, long_prompt(10 + i), 3)
    beside = [done for done in model.passes if 0 in done]
    assert len(beside) == results[0].stats.target_passes, "a pass for every verdict"
    last = max(i for i, done in enumerate(model.passes) if 0 in done)
    assert len(beside) >= last, "and at most one pass, before it was there again, without it"
    read = [sum(map(len, done.values())) - len(done[0]) for done in beside]
    assert sum(1 for tokens in read if tokens) > 20, "the prompts were being read meanwhile"
    most = verify_scheduler.LEAST_PROMPT_TOKENS if are_times_known else BUDGET - 1
    assert max(read) <= most + PROMPTS, "of prompts, beside a tip of each that is answered"
    assert max(len(done[place]) for done in beside for place in done) <= most


@pytest.fixture
async def drafting() -> AsyncIterator[tuple[Scheduler, GatedModel]]:
    model = GatedModel("tokenizer=any", 2 * PROMPTS * LONG)
    scheduler = Scheduler(Drafter(model), DraftSettings(max_pass_tokens=BUDGET, max_sessions=32))
    yield scheduler, model
    await scheduler.stop()


async def test_a_draft_drafts_in_every_pass_while_many_long_prompts_are_read(
    drafting: tuple[Scheduler, GatedModel],
) -> None:
    scheduler, model = drafting
    model.hold("forward")
    quick = await scheduler.open(opening(prompt=(1,), plan=DraftPlan(24)))
    await model.wait_held()
    openings = [
        asyncio.create_task(scheduler.open(opening(prompt=tuple(long_prompt(2 + i % 6)))))
        for i in range(PROMPTS)
    ]
    await until(lambda: scheduler._opening == PROMPTS, "the long prompts' openings")
    model.release()
    seats = [await task for task in openings]
    await until(
        lambda: all(sum(len(c.nodes) for c in seat.chunks) == 4 for seat in seats),
        "the drafts behind the long prompts",
    )
    assert sum(len(chunk.nodes) for chunk in quick.chunks) == 24
    assert all(0 in done for done in model.passes[:24]), "a node in every pass"
    beside = [sum(map(len, done.values())) - len(done[0]) for done in model.passes[:24]]
    assert sum(1 for tokens in beside if tokens) >= 20, "the prompts were being read meanwhile"
    assert max(beside) <= 16, "no pass was much longer for it"
