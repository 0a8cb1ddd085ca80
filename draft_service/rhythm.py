"""When a session's commits come, and so for how long after one nobody waits for its nodes.

Pure: times in seconds on any one clock. It looks at no token, so what is sent when tells nothing of
one that is undecided (exactness, trap 2).
"""

from dataclasses import dataclass, replace

MEMORY = 0.8
"""Weight of the intervals before in the expected one."""

QUIET_SHARE = 0.25
"""A busy verifier begins its next pass as it sends a verdict, so what a draft makes in this share
of the time to the next commit comes in time even when it is sent at the end of it."""

MOST_QUIET_S = 0.05
LEAST_QUIET_S = 0.002
"""Less is not worth a timer."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The last commit and the expected interval to the next; 0: unknown, and nothing is quiet.

    >>> rhythm = Rhythm().heard(1.0).heard(1.1)
    >>> round(rhythm.quiet_until, 6), rhythm.heard(7.0).interval_s < 0.2
    (1.125, True)
    """

    last_at: float = 0.0
    interval_s: float = 0.0

    def heard(self, now: float) -> "Rhythm":
        """After a commit. A single long pause hardly counts."""
        if not self.last_at:
            return Rhythm(now)
        passed = now - self.last_at
        if not self.interval_s:
            return replace(self, last_at=now, interval_s=passed)
        passed = min(passed, 2 * self.interval_s)
        return Rhythm(now, MEMORY * self.interval_s + (1 - MEMORY) * passed)

    @property
    def quiet_until(self) -> float:
        """Up to then nodes may wait for those that follow them."""
        quiet_s = min(QUIET_SHARE * self.interval_s, MOST_QUIET_S)
        return self.last_at + quiet_s if quiet_s >= LEAST_QUIET_S else 0.0
