"""A call that is slow for as long as a test likes: what compiling a large grammar is like."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

HOLD_S = 20.0


class Slow:
    """Wraps `call`: where `is_slow(*arguments)` it waits for `release`."""

    def __init__(self, call: Callable[..., Any], is_slow: Callable[..., bool]) -> None:
        self._call = call
        self._is_slow = is_slow
        self._released = threading.Event()
        self.begun = 0
        self.ended = 0

    def __call__(self, *arguments: Any) -> Any:
        if not self._is_slow(*arguments):
            return self._call(*arguments)
        self.begun += 1
        assert self._released.wait(HOLD_S), "it was never released"
        self.ended += 1
        return self._call(*arguments)

    def release(self) -> None:
        """Lets all such calls go on."""
        self._released.set()


async def given_up(task: "asyncio.Task[Any]") -> None:
    """Cancels a task that has begun to wait."""
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
