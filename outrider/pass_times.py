"""How long a forward pass takes by its number of rows, learned from past passes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = 0.97
"""Weight that an observation keeps with each later one, for how long passes take now."""

ROW_MEMORY = 0.995
"""The same for what a row costs: that changes seldom, and passes of about one size tell little of
it."""

FEW = 8
MOST_LONGER = 3.0
"""After more than a few passes none counts as longer than so many times what was expected of it."""

LEAST_SHARE = 0.2
"""No pass is expected to take less than this share of the mean one."""


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Line through (rows, microseconds) of past passes, older ones fading: it goes through their
    mean, and rises by least squares over more of them.

    >>> times = PassTimes().add(1, 20_000).add(5, 80_000)
    >>> round(times.predict(3))
    50000
    """

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    row_n: float = 0.0
    row_x: float = 0.0
    row_y: float = 0.0
    row_xx: float = 0.0
    row_xy: float = 0.0

    def add(self, rows: int, us: int) -> "PassTimes":
        """With one more pass. One that was held up, by paging perhaps, counts as far as passes may
        really have changed.
        """
        if self.n > FEW:
            us = min(us, int(MOST_LONGER * self.predict(rows)) + 1)
        return PassTimes(
            self.n * MEMORY + 1,
            self.x * MEMORY + rows,
            self.y * MEMORY + us,
            self.row_n * ROW_MEMORY + 1,
            self.row_x * ROW_MEMORY + rows,
            self.row_y * ROW_MEMORY + us,
            self.row_xx * ROW_MEMORY + rows * rows,
            self.row_xy * ROW_MEMORY + rows * us,
        )

    @property
    def row_us(self) -> float | None:
        """What one more row costs, in microseconds; None: all passes had as many."""
        if self.row_n == 0:
            return None
        mean_x, mean_y = self.row_x / self.row_n, self.row_y / self.row_n
        spread = self.row_xx / self.row_n - mean_x**2
        if spread < 1e-6:
            return None
        return max(0.0, (self.row_xy / self.row_n - mean_x * mean_y) / spread)

    def predict(self, rows: float) -> float:
        """Expected microseconds of a pass with `rows` rows; at least flat, never negative."""
        if self.n == 0:
            return 0.0
        mean_x, mean_y = self.x / self.n, self.y / self.n
        return max(mean_y + (self.row_us or 0.0) * (rows - mean_x), LEAST_SHARE * mean_y)


def most_per_time(gains: Sequence[float], times: PassTimes) -> int:
    """How many of `gains`, which descend, a pass should take for the highest gain per time.

    Each takes a row. The gain per time rises with each further one up to the best number and falls
    from there, since passes take a straight line of time.

    >>> steep, flat = PassTimes().add(1, 100).add(2, 190), PassTimes().add(1, 100).add(9, 101)
    >>> most_per_time([0.9, 0.3, 0.1], steep), most_per_time([0.9, 0.3, 0.1], flat)
    (1, 3)
    """
    best, total, rate = 0, 0.0, 0.0
    for count, gain in enumerate(gains, start=1):
        total += gain
        now = total / max(times.predict(count), 1.0)
        if now < rate:
            break
        best, rate = count, now
    return best
