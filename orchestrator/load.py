"""Between how many requests an engine shares its drafts out. Pure; time comes in as an argument."""

from collections import deque

HOLD_S = 5.0
"""Drafts that a request has left are given to others only after so long: the next request may come
at once, and each change costs a prefill and an index of the session."""


class Load:
    """The highest number of requests of the last seconds: more count at once, fewer later.

    >>> load = Load()
    >>> load.sharing(1, now=0.0), load.sharing(3, now=1.0), load.sharing(2, now=5.9)
    (1, 3, 3)
    >>> load.sharing(1, now=6.0), load.sharing(1, now=11.0)
    (2, 1)
    """

    def __init__(self) -> None:
        # When each number was last seen; earlier ones are higher, for lower ones never count.
        self._seen: deque[tuple[float, int]] = deque()

    def sharing(self, requests: int, now: float) -> int:
        """The number that counts where there are `requests` now."""
        while self._seen and self._seen[-1][1] <= requests:
            self._seen.pop()
        self._seen.append((now, requests))
        while self._seen[0][0] <= now - HOLD_S and len(self._seen) > 1:
            self._seen.popleft()
        return self._seen[0][1]
