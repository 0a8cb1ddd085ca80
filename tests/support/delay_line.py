"""One direction of a link as a pure state machine: when each byte that enters it comes out.

Knows delays, jitter, bandwidth and order; knows no socket and no clock: whoever uses it says
what time it is.
"""

import math
import random
from collections import deque
from dataclasses import dataclass

PIECE_BYTES = 16 * 1024
"""Under a bandwidth limit, more than this never comes out at once."""


@dataclass(frozen=True, slots=True)
class Link:
    """What one direction of a connection is like.

    Args:
        one_way_ms: what everything takes at least.
        jitter_ms: up to this much more, drawn evenly for each piece; order is kept, as TCP keeps
            it, so that a late piece holds up those behind it.
        bytes_per_s: how fast bytes enter the line, one after another; 0 means at once.

    Raises:
        ValueError: a figure that is negative or not finite.
    """

    one_way_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("one_way_ms", "jitter_ms", "bytes_per_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be 0 or more, and finite")


class DelayLine:
    """What is on its way in one direction. All times are seconds of one clock."""

    def __init__(self, link: Link, seed: int = 0) -> None:
        self.link = link
        self.in_flight_bytes = 0
        self._random = random.Random(seed)
        self._sent_s = -math.inf
        self._released_s = -math.inf
        self._pieces: deque[tuple[float, bytes]] = deque()

    def put(self, now_s: float, data: bytes) -> None:
        """`data` enters at `now_s`. Empty data is a mark of its own: it comes out in its turn."""
        limit = PIECE_BYTES if self.link.bytes_per_s else max(1, len(data))
        for start in range(0, max(1, len(data)), limit):
            self._put_piece(now_s, data[start : start + limit])

    def take(self, now_s: float) -> list[bytes]:
        """What has come out by `now_s`, in order; each piece once."""
        out = []
        while self._pieces and self._pieces[0][0] <= now_s:
            _, piece = self._pieces.popleft()
            self.in_flight_bytes -= len(piece)
            out.append(piece)
        return out

    def clear(self) -> None:
        """Drops what is on its way."""
        self._pieces.clear()
        self.in_flight_bytes = 0

    @property
    def next_s(self) -> float | None:
        """When the next piece comes out; None where nothing is on its way."""
        return self._pieces[0][0] if self._pieces else None

    def _put_piece(self, now_s: float, piece: bytes) -> None:
        sending_s = len(piece) / self.link.bytes_per_s if self.link.bytes_per_s else 0.0
        self._sent_s = max(now_s, self._sent_s) + sending_s
        travel_ms = self.link.one_way_ms + self._random.uniform(0.0, self.link.jitter_ms)
        self._released_s = max(self._released_s, self._sent_s + travel_ms / 1000)
        self._pieces.append((self._released_s, piece))
        self.in_flight_bytes += len(piece)
