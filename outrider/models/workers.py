"""Threads for what takes seconds and no model, such as compiling a grammar. Knows no sessions.

Not the event loop's own threads: those have short work, which must not wait behind this, and a loop
waits for them when it ends. Nothing waits for these: a process ends while they are at work.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

THREADS = 2

STACK_BYTES = 128 * 2**20
"""Address space, of which only what is needed becomes memory. A schema of 64 KiB whose parts refer
to one another takes the grammar library through 8 MiB, and then ends the process."""


class Job(Generic[T]):
    """A call that a worker makes. Once begun it cannot be stopped, whoever gives up waiting."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._made: Future[T] = Future()
        self._seen = asyncio.wrap_future(self._made)

    async def result(self) -> T:
        """What the call returns or raises; a caller that is cancelled takes it back, unless it has
        begun."""
        try:
            return await asyncio.shield(self._seen)
        except asyncio.CancelledError:
            self._made.cancel()
            raise

    def when_over(self, then: Callable[[], None]) -> None:
        """Calls `then` on the loop when no worker is, or will be, at work on it: maybe now."""
        if self._seen.done():
            then()
        else:
            self._seen.add_done_callback(lambda _: then())

    def run(self) -> None:
        """Makes the call, in a worker's thread."""
        if not self._made.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:
            self._made.set_exception(error)
        else:
            self._made.set_result(result)

    def abandon(self) -> None:
        """Nobody will ask for its result: its loop ends."""
        self._seen.cancel()


class Workers:
    """A few threads; calls begin in the order in which they came."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._jobs: set[Job[Any]] = set()
        before = threading.stack_size(STACK_BYTES)
        for number in range(THREADS):
            threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True).start()
        threading.stack_size(before)

    def start(self, call: Callable[[], T]) -> Job[T]:
        """Queues `call`; whoever asks for it limits how many are queued."""
        job = Job(call)
        self._jobs.add(job)
        job.when_over(lambda: self._jobs.discard(job))
        self._waiting.put(job)
        return job

    def stop(self) -> None:
        """Drops what is queued and returns at once; what has begun is left to itself."""
        for job in list(self._jobs):
            job.abandon()
        for _ in range(THREADS):
            self._waiting.put(None)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            job.run()
            del job
