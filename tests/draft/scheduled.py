"""A draft scheduler in a test: its clock, and how it is made."""

import itertools
from collections.abc import Callable

from draft.gated import GatedModel

from draft_service.scheduler import Scheduler, Seat


class FakeTime:
    """`monotonic` stands still; each look at `perf_counter` is `tick_s` later: 1 s ends a burst."""

    def __init__(self, tick_s: float) -> None:
        self.now = 1000.0
        self._ticks = itertools.count()
        self._tick_s = tick_s

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return next(self._ticks) * self._tick_s


Start = Callable[..., tuple[Scheduler, GatedModel]]


def count(seat: Seat) -> int:
    return sum(len(chunk.nodes) for chunk in seat.chunks)
