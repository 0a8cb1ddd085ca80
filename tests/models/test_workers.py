"""Workers: what has begun runs to its end, what has not can be taken back, and nothing waits."""

import asyncio
import json
import threading

import pytest
from support.waiting import until

from outrider.models.workers import THREADS, Job, Workers
from outrider.sampling.grammar import MAX_GRAMMAR_BYTES, GrammarCompiler
from outrider.types import Grammar
from outrider.vocabulary import Vocabulary


class Gate:
    """A call that waits until it is let through."""

    def __init__(self) -> None:
        self.begun = 0
        self.open = threading.Event()

    def __call__(self) -> int:
        self.begun += 1
        assert self.open.wait(20)
        return 7


async def filled(workers: Workers, gate: Gate) -> list[Job[int]]:
    """Every thread is at work."""
    jobs = [workers.start(gate) for _ in range(THREADS)]
    await until(lambda: gate.begun == THREADS, "the first calls")
    return jobs


async def cancelled(job: Job[int]) -> None:
    waiting = asyncio.ensure_future(job.result())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_call_returns_and_raises() -> None:
    workers = Workers("test")
    assert await workers.start(lambda: 3).result() == 3
    with pytest.raises(ZeroDivisionError):
        await workers.start(lambda: 1 // 0).result()
    workers.stop()


async def test_a_call_that_has_begun_is_over_when_it_ends_not_when_its_caller_leaves() -> None:
    workers, gate = Workers("test"), Gate()
    over: list[int] = []
    for number, job in enumerate(await filled(workers, gate)):
        await cancelled(job)
        job.when_over(lambda number=number: over.append(number))  # type: ignore[misc]
    assert over == []
    gate.open.set()
    await until(lambda: sorted(over) == list(range(THREADS)), "the end of the calls")
    workers.stop()


async def test_a_call_that_has_not_begun_is_taken_back() -> None:
    workers, gate = Workers("test"), Gate()
    busy = await filled(workers, gate)
    over: list[str] = []
    queued = workers.start(gate)
    await cancelled(queued)
    queued.when_over(lambda: over.append("queued"))
    await until(lambda: over == ["queued"], "the end of the queued call")
    gate.open.set()
    assert [await job.result() for job in busy] == [7] * THREADS
    assert await workers.start(lambda: 1).result() == 1
    assert gate.begun == THREADS
    workers.stop()


@pytest.mark.parametrize("keyword", ["properties", "items", "additionalProperties"])
async def test_the_deepest_schema_that_can_be_sent_does_not_overrun_the_stack(keyword: str) -> None:
    def schema(depth: int) -> str:
        parts: dict[str, object] = {str(depth): {}}
        for i in range(depth):
            below = {"$ref": f"#/$defs/{i + 1}"}
            parts[str(i)] = {keyword: {"a": below} if keyword == "properties" else below}
        whole = {"$ref": "#/$defs/0", "$defs": parts}
        return json.dumps(whole, separators=(",", ":"))

    depth = max(d for d in range(1000, 1700, 10) if len(schema(d)) < MAX_GRAMMAR_BYTES)
    compiler = GrammarCompiler(Vocabulary((b"{", b"[", b"1"), (False,) * 3), ())
    workers = Workers("test")
    grammar = Grammar(json_schema=schema(depth))
    state = await workers.start(lambda: compiler.compile(grammar)).result()
    assert bool(state.text_mask().all())
    workers.stop()


async def test_stop_returns_while_calls_run_and_drops_what_is_queued() -> None:
    workers, gate = Workers("test"), Gate()
    await filled(workers, gate)
    queued = asyncio.ensure_future(workers.start(gate).result())
    await asyncio.sleep(0)
    workers.stop()
    with pytest.raises(asyncio.CancelledError):
        await queued
    gate.open.set()


def test_a_loop_ends_quietly_while_a_call_runs(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    threads: list[threading.Thread] = []

    async def serve() -> None:
        before = set(threading.enumerate())
        workers = Workers("test")
        threads.extend(set(threading.enumerate()) - before)
        await filled(workers, gate)
        workers.stop()

    asyncio.run(serve())
    gate.open.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
        assert thread.daemon
    assert caplog.records == []
