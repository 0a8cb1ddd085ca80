"""Concurrent clients against the services of the scale rig: what they see, what it costs.

Knows the client SDK; starts no process.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from benchmarks.protocol_figures import ALONE, Load, Memory, Sample, kind_of
from benchmarks.protocol_services import Services
from outrider.client import AsyncClient, Result
from outrider.client.request import GenerateOptions

MEMORY_TOKENS = 32
"""Tokens that each session has when memory is read."""


async def sample(
    services: Services, address: str, load: Load, tokens: int, first_seed: int
) -> Sample:
    """One answer of `tokens` tokens for each client, all asked for at once."""
    async with AsyncClient(address) as client:
        # The channel is up and the drafts are known before the clock runs.
        await client.get_cluster()
        before, started_s = services.cpu_s(), time.perf_counter()
        seen = await asyncio.gather(
            *(
                _ask(client, index, {**_options(load), "max_tokens": tokens, "seed": seed})
                for index, seed in enumerate(range(first_seed, first_seed + load.clients))
            )
        )
        elapsed_s = time.perf_counter() - started_s
        after = services.cpu_s()
    cores: dict[str, float] = {}
    for name, used_s in after.items():
        kind = kind_of(name)
        cores[kind] = cores.get(kind, 0.0) + (used_s - before.get(name, 0.0)) / elapsed_s
    return Sample(
        load, tuple(times for times, _ in seen), tuple(result.stats for _, result in seen), cores
    )


async def memory(
    services: Services, address: str, load: Load, kinds: Mapping[str, str]
) -> list[Memory]:
    """Resident memory of services before and with `load.clients` sessions open. `kinds` has those
    that count: name to kind.

    One session has come and gone before, so that what a service loads on first use does not count.
    What Python keeps of freed memory makes later growth look smaller: measure before anything else.
    """
    async with AsyncClient(address) as client:
        await _ask(client, 0, {**_options(load), "max_tokens": MEMORY_TOKENS, "seed": 0})
        before = services.resident_bytes()
        reached = asyncio.Event()
        left = load.clients
        done = asyncio.Event()

        def has_enough() -> None:
            nonlocal left
            left -= 1
            if not left:
                reached.set()

        async def hold(index: int) -> None:
            # Room for far more than is read: the session stays open until `done`.
            options: GenerateOptions = {**_options(load), "max_tokens": 16 * MEMORY_TOKENS}
            await _hold(client, index, options, has_enough, done)

        holding = [asyncio.ensure_future(hold(index)) for index in range(load.clients)]
        waiting = asyncio.ensure_future(reached.wait())
        try:
            await asyncio.wait({waiting, *holding}, return_when=asyncio.FIRST_COMPLETED)
            for task in holding:
                if task.done():
                    task.result()
            with_sessions = services.resident_bytes()
        finally:
            done.set()
            waiting.cancel()
            await asyncio.gather(*holding)
    return [
        Memory(kind, load.clients, MEMORY_TOKENS, before[name], with_sessions[name])
        for name, kind in kinds.items()
    ]


async def _ask(
    client: AsyncClient, index: int, options: GenerateOptions
) -> tuple[tuple[float, ...], Result]:
    token_s: list[float] = []
    async with client.generate(f"client {index}", **options) as generation:
        async for _ in generation:
            token_s.append(time.perf_counter())
        return tuple(token_s), await generation.result()


async def _hold(
    client: AsyncClient,
    index: int,
    options: GenerateOptions,
    has_enough: Callable[[], None],
    done: asyncio.Event,
) -> None:
    """An answer that is read until everybody has enough, then given up."""
    count = 0
    async with client.generate(f"client {index}", **options) as generation:
        async for _ in generation:
            count += 1
            if count == MEMORY_TOKENS:
                has_enough()
            if done.is_set():
                return


def _options(load: Load) -> GenerateOptions:
    if load.mode == ALONE:
        return {"temperature": 1.0, "max_drafts": 0}
    return {"temperature": 1.0, "num_speculative_tokens": load.speculative_tokens}
