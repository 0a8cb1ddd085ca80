"""Signals that mean stop: they raise KeyboardInterrupt until stopping has begun."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object] | int | None

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, Ctrl-C, SIGTERM and a closed terminal all raise KeyboardInterrupt.

    After `defer` they are only counted: stopping must not be stopped half-way. One more makes
    whoever stops hurry.
    """

    def __init__(self) -> None:
        self.count = 0
        self.status = 0
        """The exit status that the last signal stands for."""
        self._is_deferred = False
        self._seen = 0
        self._previous: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Interrupts":
        for number in STOPPING:
            # Under nohup, or in the background of a script, these are ignored on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def defer(self) -> None:
        """From now on signals are counted and raise nothing."""
        self._is_deferred = True
        self._seen = self.count

    @property
    def is_repeated(self) -> bool:
        """Whether one more has come since `defer`."""
        return self._is_deferred and self.count > self._seen

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.status = 128 + number
        if not self._is_deferred:
            raise KeyboardInterrupt
