"""Which thread may touch the trees of the sessions: the model's, and the event loop's while the
model runs. Knows no tree.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Trees:
    """A lock whose first owner, the model's thread, always comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_wanted = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """By the model's thread, between passes."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """By the model's thread, which holds them, for the time of a pass."""
        self._give()
        try:
            yield
        finally:
            self._take()

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """By the event loop, which must not wait; whether it has them now."""
        has_them = not self._is_wanted and self._lock.acquire(blocking=False)
        try:
            yield has_them
        finally:
            if has_them:
                self._lock.release()

    def _take(self) -> None:
        # A lock is not fair: a loop with many messages could take it again and again.
        self._is_wanted = True
        self._lock.acquire()

    def _give(self) -> None:
        self._is_wanted = False
        self._lock.release()
