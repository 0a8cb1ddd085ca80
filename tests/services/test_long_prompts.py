"""Prompts that are being read, on either side: they hold up nobody who is being answered, and a
long one holds up no short one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import fields
from itertools import accumulate

import pytest
from draft.drafted import opening
from draft.gated import GatedModel
from support.local import Local
from support.models import alone
from support.waiting import until

from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.settings import DraftSettings
from outrider.client import Result
from outrider.models.base import Feed
from outrider.models.scripted import ScriptedLaw
from outrider.pass_times import PassTimes
from outrider.plans import DraftPlan
from outrider.prompt_share import LEAST_PROMPT_TOKENS
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

    @classmethod
    def of(cls, seen: PassTimes) -> "FixedTimes":
        """What was seen so far, for good."""
        return cls(**{field.name: getattr(seen, field.name) for field in fields(seen)})

    @classmethod
    def make(cls) -> "FixedTimes":
        seen = PassTimes().add(1, 100).add(11, 200)
        return cls.of(seen)

    def add(self, rows: int, us: int) -> PassTimes:
        return self


MIXED = (1000, 8, 300, 8, 60)
"""Tokens of prompts in the order in which they come."""


def mixed_prompt(number: int) -> list[int]:
    return [number + 1] * MIXED[number]


def count_known(model: GatedModel, known: Callable[[], Iterable[object]]) -> list[int]:
    """How many sessions the scheduler had known by the time when a pass began, pass by pass."""
    counts: list[int] = []
    ever: set[object] = set()

    def look(feeds: Sequence[Feed]) -> None:
        ever.update(known())
        counts.append(len(ever))

    model.breaks = look
    return counts


def assert_read_fairly(passes: list[dict[int, tuple[int, ...]]], known: list[int]) -> None:
    """Each prompt is read as soon as it would be if all had got the same of every pass from the one
    on in which its session is known.

    The first pass had the longest one alone.
    """
    assert list(passes[0]) == [0]
    for number, length in enumerate(MIXED):
        read = accumulate(len(done.get(number, ())) for done in passes)
        needed = next(i for i, tokens in enumerate(read) if tokens >= length)
        came = next(i for i, count in enumerate(known) if count > number)
        others = sum(min(length, other) for other in MIXED)
        # A pass more for where a few tokens are left over, one for what is rounded.
        assert needed - came <= others / BUDGET + 2, (number, came, needed)


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
        verifier.times = FixedTimes.make()
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
    most = LEAST_PROMPT_TOKENS if are_times_known else BUDGET - 1
    assert max(read) <= most + PROMPTS, "of prompts, beside a tip of each that is answered"
    assert max(len(done[place]) for done in beside for place in done) <= most


async def test_a_target_reads_prompts_of_mixed_lengths_side_by_side(local: Local) -> None:
    model = GatedModel(MODEL, 4 * sum(MIXED))
    verify = await local.verify(model, max_pass_tokens=BUDGET, kv_tokens=4 * sum(MIXED))
    client = await local.orchestrator(verify)
    known = count_known(model, lambda: list(verify.scheduler._sessions))
    model.hold("forward")

    def answer(number: int) -> "asyncio.Task[Result]":
        prompt = mixed_prompt(number)
        return asyncio.create_task(client.generate(prompt, max_tokens=1, temperature=0).result())

    answers = [answer(0)]
    await model.wait_held()
    for number in range(1, len(MIXED)):
        answers.append(answer(number))
        await until(lambda n=number: len(verify.scheduler._promised) == n, "the opening")
    model.release()
    for number, result in enumerate(answers):
        assert [t.id for t in (await result).tokens] == alone(LAW, mixed_prompt(number), 1)
    assert_read_fairly(model.passes, known)


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
    scheduler.drafter.times = FixedTimes.make()
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
    assert max(beside) <= LEAST_PROMPT_TOKENS, "no pass was much longer for it"


async def test_a_draft_reads_prompts_of_mixed_lengths_side_by_side(
    drafting: tuple[Scheduler, GatedModel],
) -> None:
    scheduler, model = drafting
    plan = DraftPlan(1)
    known = count_known(model, lambda: list(scheduler._seats))
    model.hold("forward")
    seats = [await scheduler.open(opening(prompt=tuple(mixed_prompt(0)), plan=plan))]
    await model.wait_held()
    openings = []
    for number in range(1, len(MIXED)):
        prompt = tuple(mixed_prompt(number))
        openings.append(asyncio.create_task(scheduler.open(opening(prompt=prompt, plan=plan))))
        await until(lambda n=number: scheduler._opening == n, "the opening")
    model.release()
    seats += [await task for task in openings]
    await until(lambda: all(seat.chunks for seat in seats), "a node behind each prompt")
    assert_read_fairly(model.passes, known)


async def test_a_prompt_at_a_draft_takes_as_long_as_the_drafting_beside_it(
    drafting: tuple[Scheduler, GatedModel],
) -> None:
    """Where rows are cheap it is read in few passes, not in small bits."""
    scheduler, model = drafting
    seen = PassTimes().add(1, 1000).add(101, 2000)
    scheduler.drafter.times = FixedTimes.of(seen)
    model.hold("forward")
    await scheduler.open(opening(prompt=(1,), plan=DraftPlan(24)))
    await model.wait_held()
    slow_opening = asyncio.create_task(scheduler.open(opening(prompt=tuple(long_prompt(2)))))
    await until(lambda: scheduler._opening == 1, "the long prompt's opening")
    model.release()
    slow = await slow_opening
    await until(lambda: bool(slow.chunks), "the drafts behind the long prompt")
    bits = [len(done[1]) for done in model.passes if 1 in done and 0 in done][:7]
    assert bits == [BUDGET - 1] * 7
