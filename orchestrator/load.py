"""Between how many requests an engine shares its drafts out. Pure; time comes in as an argument."""

HOLD_S = 5.0
"""Drafts that a request has left are given to others only after so long: the next request may come
at once, and each change costs a prefill and an index of the session."""


class Load:
    """The highest number of requests of the last seconds: more count at once, fewer later.

    >>> load = Load()
    >>> load.sharing(1, now=0.0), load.sharing(3, now=1.0), load.sharing(1, now=2.0)
    (1, 3, 3)
    >>> load.sharing(1, now=1.0 + HOLD_S)
    1
    """

    def __init__(self) -> None:
        self._most = 0
        self._until = 0.0

    def sharing(self, requests: int, now: float) -> int:
        """The number that counts where there are `requests` now."""
        if requests >= self._most or now >= self._until:
            self._most, self._until = requests, now + HOLD_S
        return self._most
