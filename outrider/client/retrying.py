"""When a call that failed is made again, and after how long. Pure: time comes in as an argument.

Made again is what may work the next time: nobody answered, the connection broke, the server is
ending, or it was full and said when to come back. Everything else stays an error.
"""

import random

from outrider.errors import CapacityError, OutriderError, UnavailableError

DEFAULT_RETRIES = 2
MOST_RETRIES = 100

FIRST_WAIT_S = 0.25
MOST_WAIT_S = 8.0


class Attempts:
    """The attempts of one request until `deadline`, times in seconds of one clock.

    After a failure so many `retries` may follow in a row; one that brought tokens begins a new row.
    """

    def __init__(self, retries: int, deadline: float) -> None:
        self.deadline = deadline
        self._retries = retries
        self._row = 0
        self._arrived = 0

    def wait_s(self, error: OutriderError, now: float, arrived: int = 0) -> float | None:
        """How long to wait before the next attempt, after one failed with `arrived` tokens in all;
        None: there is none.

        Waits double from one to the next, behind what the server asked for, with a random share
        taken off: many clients of a server that went down do not come back at once.
        """
        if not may_pass(error):
            return None
        if arrived > self._arrived:
            self._arrived, self._row = arrived, 0
        if self._row >= self._retries:
            return None
        most_s = min(FIRST_WAIT_S * 2.0**self._row, MOST_WAIT_S)
        wait_s = (error.retry_after_s or 0.0) + most_s * random.uniform(0.5, 1.0)
        if now + wait_s >= self.deadline:
            return None
        self._row += 1
        return wait_s


def may_pass(error: OutriderError) -> bool:
    """Whether the same call may work later."""
    if isinstance(error, CapacityError):
        return error.retry_after_s is not None
    return isinstance(error, UnavailableError)
