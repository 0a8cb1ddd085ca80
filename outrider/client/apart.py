"""gRPC in threads of its own, so that Ctrl-C can end a program that waits for an answer.

KeyboardInterrupt is raised wherever the main thread happens to be. Inside gRPC, or inside
`threading`'s conditions, that can leave a lock held for ever, and whoever closes the channel then
waits for ever. So the caller's thread runs neither: it puts work into queues and waits on queues,
which are whole after an interruption at any point.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")

READ_AHEAD = 16
"""Messages of a stream that wait for their reader, at most; gRPC holds the server up then."""

PATIENCE_S = 1.0
"""After the end of a client: answers that go with it are cancelled before it or after it."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a work returned, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


Outcomes = SimpleQueue[Outcome[T]]


class Worker:
    """A thread that does what it is given, in order. Nothing that takes long."""

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        _begin(_work, self._works)

    def post(self, work: Callable[[], object]) -> None:
        """Has `work`, which raises nothing, done soon. May be called anywhere, in `__del__` too."""
        self._works.put(work)

    def ask(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. An interruption leaves it to end by itself."""
        outcomes: Outcomes[T] = SimpleQueue()
        self.post(lambda: outcomes.put(_outcome(work)))
        value: T = outcomes.get().get()
        return value

    def ask_apart(self, work: Callable[[], T]) -> T:
        """As `ask`, for what takes long: in one more thread."""
        outcomes: Outcomes[T] = SimpleQueue()
        self.apart(work, outcomes.put)
        value: T = outcomes.get().get()
        return value

    def apart(self, work: Callable[[], T], tell: Callable[[Outcome[T]], None]) -> None:
        """Has `work` done in one more thread, which tells what came of it."""

        def begin() -> None:
            begun = _outcome(lambda: _begin(lambda: tell(_outcome(work))))
            if begun.error is not None:
                tell(Outcome(error=begun.error))

        self.post(begin)

    def end(self) -> None:
        """No work follows, but what follows within a moment."""
        self._works.put(None)


class Stream(Generic[T]):
    """The messages of a call that `start` starts, while they arrive."""

    def __init__(self, worker: Worker, start: Callable[[], Any]) -> None:
        """`start` returns an iterator of messages with a method `cancel`."""
        self._worker = worker
        self._calls: list[Any] = []
        self._arrivals: Outcomes[T] = SimpleQueue()
        self._permits: SimpleQueue[bool] = SimpleQueue()
        for _ in range(READ_AHEAD):
            self._permits.put(True)
        # None of these works holds the stream: it is cancelled when nobody has it any more.
        calls, permits, arrivals = self._calls, self._permits, self._arrivals

        def begin() -> None:
            calls.append(start())
            _begin(_read, calls[0], permits, arrivals)

        def try_to() -> None:
            begun = _outcome(begin)
            if begun.error is not None:
                arrivals.put(Outcome(error=begun.error))

        worker.post(try_to)

    def cancel(self) -> bool:
        """Ends the call, on the server too; soon."""
        calls, permits = self._calls, self._permits

        def end() -> None:
            permits.put(False)
            for call in calls:
                call.cancel()

        self._worker.post(end)
        return True

    def __del__(self) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        arrival = self._arrivals.get()
        if arrival.error is not None:
            self._arrivals.put(arrival)  # whoever reads on reads the end again
        self._permits.put(True)
        message: T = arrival.get()
        return message


def _begin(target: Callable[..., object], *arguments: object) -> None:
    Thread(target=target, args=arguments, name="outrider-client", daemon=True).start()


def _outcome(work: Callable[[], T]) -> Outcome[T]:
    try:
        return Outcome(work())
    except BaseException as error:
        return Outcome(error=error)


def _work(works: "SimpleQueue[Callable[[], object] | None]") -> None:
    patience_s: float | None = None
    while True:
        try:
            work = works.get(timeout=patience_s)
        except Empty:
            return
        if work is None:
            patience_s = PATIENCE_S
        else:
            work()


def _read(call: Any, permits: "SimpleQueue[bool]", arrivals: Outcomes[T]) -> None:
    """Hands the messages of a call on as fast as they are permitted; once one is not, none is."""
    is_wanted = True
    while True:
        is_wanted = is_wanted and permits.get()
        arrival: Outcome[T] = _outcome(lambda: next(call))
        if is_wanted or arrival.error is not None:
            arrivals.put(arrival)
        if arrival.error is not None:
            return
