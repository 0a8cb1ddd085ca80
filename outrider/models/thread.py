"""The one thread in which a model runs, as an event loop sees it. Knows no sessions and no model.

A model is not thread-safe, and a pass must not block the loop, so everything that touches it goes
through here, one thing after the other.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class ModelThread:
    """Calls are made in the order in which they came."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._calls: list[Future[Any]] = []

    @property
    def is_wanted(self) -> bool:
        """Whether another call waits for the one that runs to return."""
        return any(not (call.running() or call.done()) for call in self._calls)

    async def call(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises."""
        return await asyncio.wrap_future(self._submit(call))

    async def open(self, make: Callable[[], T], close: Callable[[T], None]) -> T:
        """What `make` returns; it is closed again if the caller gives up while it is being made."""
        made = self._submit(make)
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            if not made.cancel():
                self.later(lambda: close(made.result()))
            raise

    def later(self, call: Callable[[], None]) -> "Future[None] | None":
        """Queues `call`, which a cancelled caller cannot take back; None: the thread has ended, and
        the model with it."""
        try:
            return self._submit(call)
        except RuntimeError:
            return None

    def stop(self) -> None:
        """Returns when what is queued is done."""
        self._executor.shutdown(wait=True)

    def _submit(self, call: Callable[[], T]) -> "Future[T]":
        queued = self._executor.submit(call)
        # A new list: the thread may be looking at the old one.
        self._calls = [*(other for other in self._calls if not other.done()), queued]
        return queued


async def finished(queued: "Future[None] | None") -> None:
    """Waits for a queued call; a caller that is cancelled meanwhile leaves it to run."""
    if queued is not None:
        await asyncio.shield(asyncio.wrap_future(queued))


async def wait_set(event: asyncio.Event, timeout_s: float) -> None:
    """Returns when `event` is set; sets it after `timeout_s` at the latest.

    Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the event.
    """
    timer = asyncio.get_running_loop().call_later(max(timeout_s, 0.0), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
