"""The most that drafting could give: what the measured acceptance is worth if drafts cost nothing.

Let a_i be the measured chance that the i-th node of a chain is accepted where all before it were,
E(n) = 1 + a_1 + a_1 a_2 + ... + a_1...a_n the tokens that a pass over a chain of n nodes then emits
on average, and t(r) the measured time of a target pass over r rows. The bound is

    max over 0 <= n <= the longest chain allowed of  E(n) t(1) / t(1 + n):

the speed-up over the target alone if every pass found the best chain length ready, for free, and
nothing besides the target's passes took time. Leviathan et al. 2023, theorem 3.8, with the cost of
drafts c = 0, measured a_i instead of one, and passes that take longer with more rows.
It holds for chains of this draft and this target; a tree, or a better draft, can pass it.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from benchmarks.homelab_answer import Round

LEAST_TESTED = 5
"""Positions that were tested less often are not counted on."""

LEAST_TIMED = 3
"""Row counts that were run less often are interpolated."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The best chain length, and the speed-up over the target alone that it would give."""

    nodes: int
    speed_up: float


def inner_rounds(rounds: Sequence[Round]) -> Sequence[Round]:
    """Without the first pass, whose rows hold prompt, and the last, which the answer's end cuts."""
    return rounds[1:-1]


def acceptance(rounds: Sequence[Round]) -> tuple[float, ...]:
    """a_1, a_2, ...: of the passes that tested the i-th node of their chain, how many accepted it.

    A node is tested where it was there and all before it were accepted. The list ends with the
    first position that was tested fewer than `LEAST_TESTED` times.
    """
    rates: list[float] = []
    while True:
        place = len(rates)
        tested = [r for r in rounds if r.rows - 1 > place and r.accepted >= place]
        if len(tested) < LEAST_TESTED:
            return tuple(rates)
        rates.append(sum(r.accepted > place for r in tested) / len(tested))


def pass_times(rounds: Sequence[Round]) -> dict[int, float]:
    """Median milliseconds of a pass by its rows, for the row counts that ran often enough."""
    by_rows: dict[int, list[int]] = {}
    for one in rounds:
        by_rows.setdefault(one.rows, []).append(one.forward_us)
    return {
        rows: statistics.median(times) / 1000
        for rows, times in sorted(by_rows.items())
        if len(times) >= LEAST_TIMED
    }


def pass_ms(times: Mapping[int, float], rows: int) -> float:
    """t(rows): measured, else on the line between the nearest row counts that were; beyond the
    largest one as much per row as from the smallest to the largest.

    Raises:
        ValueError: nothing was measured.
    """
    if not times:
        raise ValueError("no pass was timed")
    if rows in times:
        return times[rows]
    known = sorted(times)
    below = [r for r in known if r < rows]
    above = [r for r in known if r > rows]
    if below and above:
        low, high = below[-1], above[0]
    elif len(known) > 1:
        low, high = known[0], known[-1]
    else:
        return times[known[0]]
    slope = (times[high] - times[low]) / (high - low)
    if not above:
        return times[high] + max(0.0, slope) * (rows - high)
    return times[low] + slope * (rows - low)


def expected_tokens(rates: Sequence[float], nodes: int) -> float:
    """E(nodes): tokens of a pass over a chain of `nodes`."""
    reached: Iterator[float] = accumulate(rates[:nodes], mul)
    return 1 + sum(reached)


def bound(rates: Sequence[float], times: Mapping[int, float], most: int) -> Bound:
    """The bound over chains of at most `most` nodes, and no longer than `rates` reach."""
    alone_ms = pass_ms(times, 1)
    gains = [
        expected_tokens(rates, nodes) * alone_ms / pass_ms(times, 1 + nodes)
        for nodes in range(min(most, len(rates)) + 1)
    ]
    best = max(range(len(gains)), key=gains.__getitem__)
    return Bound(best, gains[best])
