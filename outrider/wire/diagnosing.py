"""The two ends of Diagnose: a service tells what it runs on, its caller measures the line.

Knows calls, clocks and bytes; knows no model.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from outrider.errors import InvalidArgumentError
from outrider.host import HostFacts, ModelLoad, clock_us, host_facts

MAX_PAYLOAD_BYTES = 1024 * 1024
SMALL_CALLS = 9
_BIG_CALLS = 3
_FIRST_PAYLOAD_BYTES = 64 * 1024
_SLOW_S = 0.5
"""A line that takes longer for the first payload is slow enough to be measured by it."""

_FACTS_HOLD_S = 2.0

Ask = Callable[[bytes, int], Awaitable[HostFacts]]
"""A Diagnose call: payload to send, bytes wanted back."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as its caller measured it; see `ServiceDiagnosis`."""

    host: HostFacts
    round_trip_us: int
    clock_offset_us: int


class Teller:
    """Answers Diagnose for one service. Facts hold for two seconds, but for the clock: gathering
    them takes longer than a round trip that is measured.
    """

    def __init__(self, load: ModelLoad) -> None:
        self._load = load
        self._facts: HostFacts | None = None
        self._gathered_at = 0.0

    async def tell(self, payload_bytes: int, reply_bytes: int) -> tuple[HostFacts, bytes]:
        """The facts and the bytes to send back; raises InvalidArgumentError for too many."""
        for what, count in (("payload", payload_bytes), ("reply_bytes", reply_bytes)):
            if count > MAX_PAYLOAD_BYTES:
                raise InvalidArgumentError(
                    f"{what} has {count} bytes; give at most {MAX_PAYLOAD_BYTES}"
                )
        if self._facts is None or time.monotonic() > self._gathered_at + _FACTS_HOLD_S:
            self._facts = await asyncio.to_thread(host_facts, self._load)
            self._gathered_at = time.monotonic()
        return replace(self._facts, clock_us=clock_us()), bytes(reply_bytes)


async def measure_line(ask: Ask) -> Line:
    """Round trip and clock offset, by small calls one after another."""
    await ask(b"", 0)  # the first one gathers the facts
    round_trips: list[int] = []
    offsets: list[tuple[int, int]] = []
    for _ in range(SMALL_CALLS):
        sent_us, started_ns = clock_us(), time.perf_counter_ns()
        host = await ask(b"", 0)
        round_trips.append((time.perf_counter_ns() - started_ns) // 1000)
        # As NTP does (RFC 5905, section 8): the answer was made half-way, best in the quickest.
        offsets.append((round_trips[-1], host.clock_us - sent_us - round_trips[-1] // 2))
    return Line(host, int(statistics.median(round_trips)), min(offsets)[1])


async def measure_bandwidth(ask: Ask, round_trip_us: int) -> tuple[int, int]:
    """Bytes a second to the service and from it: the best of some calls, their round trip taken
    off. Congestion control needs some calls to speed up.
    """
    sent = await _rate(lambda count: ask(bytes(count), 0), round_trip_us)
    received = await _rate(lambda count: ask(b"", count), round_trip_us)
    return sent, received


async def _rate(move: Callable[[int], Awaitable[HostFacts]], round_trip_us: int) -> int:
    async def rate(count: int) -> tuple[float, float]:
        started_ns = time.perf_counter_ns()
        await move(count)
        seconds = (time.perf_counter_ns() - started_ns) / 1e9
        # A line can be quicker than its median: a tenth of the time is left at least.
        return seconds, count / max(seconds - round_trip_us / 1e6, seconds / 10)

    seconds, best = await rate(_FIRST_PAYLOAD_BYTES)
    if seconds < _SLOW_S:
        best = max([(await rate(MAX_PAYLOAD_BYTES))[1] for _ in range(_BIG_CALLS)])
    return int(best)
