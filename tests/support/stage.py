"""An event loop in a thread of its own, for services before which a test waits in another way than
by `await`, like one that drives a browser.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0


class Stage:
    """Runs coroutines while it is entered; what still runs when it is left is cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Stage":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.run(self._cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _cancel_others(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
