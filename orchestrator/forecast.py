"""What drafts will bring: tokens a second, the gain over the target alone, the best depth, and how
far away a draft may be.

Pure: times and acceptance in, figures out. Closed forms where they exist; for what the project does
by default, where drafting, waiting and verifying overlap, a simulation that asks the real planner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.simulation import PassCosts, Situation, run

TOKENS = 256
SEEDS = (1, 2, 3, 4)
FEW = SEEDS[:2]
"""For searches, which simulate many situations."""

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
PAYS = 1.03
"""A gain below this is called none: it is within what repeated runs vary."""

MOST_ROUND_TRIP_US = 1_000_000.0
_PRECISION_US = 500.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected of one request at a time. `ratio` is to the target alone, `bound_ratio` what free
    drafts that never keep the target waiting would give at most (`bound`).
    """

    tokens_per_s: float
    alone_tokens_per_s: float
    tokens_per_pass: float
    bound_ratio: float

    @property
    def ratio(self) -> float:
        """Times as fast as the target alone."""
        return self.tokens_per_s / self.alone_tokens_per_s


def forecast(situation: Situation, tokens: int = TOKENS, seeds: Sequence[int] = SEEDS) -> Forecast:
    """Simulates requests of `tokens` tokens, one for each seed."""
    runs = [run(situation, tokens, seed) for seed in seeds]
    emitted = sum(r.tokens for r in runs)
    return Forecast(
        tokens_per_s=1e6 * emitted / sum(r.us for r in runs),
        alone_tokens_per_s=1e6 / situation.token_alone_us,
        tokens_per_pass=emitted / sum(r.passes for r in runs),
        bound_ratio=bound(situation),
    )


def chain_tokens(acceptance: Sequence[float], nodes: int) -> float:
    """Expected tokens of a pass over a chain of `nodes`: 1 + the chance to get as far as each one.

    With one chance for all it is eq. 1 of Leviathan et al. 2023.

    >>> chain_tokens((0.5,), 2)
    1.75
    """
    reached, tokens = 1.0, 1.0
    for index in range(nodes):
        reached *= acceptance[min(index, len(acceptance) - 1)]
        tokens += reached
    return tokens


def bound(situation: Situation) -> float:
    """The most that drafts could give over the target alone: chains of the best length up to
    `num_speculative_tokens`, free, and always there when a pass starts. Of trees it is a bound that
    none reaches: as if each pass knew which of the guesses at a place is the target's, if any.

    max over n of E(n) t(1) / t(1 + n), with t a pass and what comes with it.
    """
    alone_us = situation.token_alone_us
    return max(
        chain_tokens(situation.acceptance, nodes)
        * alone_us
        / (situation.costs.of(1 + nodes) + situation.pass_overhead_us)
        for nodes in range(situation.limits.num_speculative_tokens + 1)
    )


def synchronous_ratio(situation: Situation) -> float:
    """Draft all nodes, send them, verify, send the verdict, again (Leviathan et al. 2023, theorem
    3.8, with the round trips that a draft on another machine adds).
    """
    nodes = situation.limits.num_speculative_tokens
    alone_us = situation.token_alone_us
    round_us = (
        nodes * situation.draft_step_us
        + situation.draft_wire_us
        + situation.verify_wire_us
        + situation.costs.of(1 + nodes)
        + situation.pass_overhead_us
    )
    return chain_tokens(situation.acceptance, nodes) * alone_us / round_us


@dataclass(frozen=True, slots=True)
class BestDepth:
    """The number of speculative tokens that promises most, and what it promises."""

    num_speculative_tokens: int
    forecast: Forecast


def best_depth(situation: Situation, depths: Sequence[int] = DEPTHS) -> BestDepth:
    """Tries `depths`; of those within one percent of the best, the smallest."""
    tried = [(depth, forecast(_at_depth(situation, depth), seeds=FEW)) for depth in depths]
    most = max(outcome.ratio for _, outcome in tried)
    depth, outcome = next((d, o) for d, o in tried if o.ratio >= 0.99 * most)
    return BestDepth(depth, outcome)


def break_even_round_trip_us(situation: Situation) -> float | None:
    """The longest round trip to the draft with which drafts still pay; None: with none they do.

    `MOST_ROUND_TRIP_US` stands for that and more.
    """

    def pays(round_trip_us: float) -> bool:
        away = replace(situation, draft_wire_us=round_trip_us, seen_round_trip_us=0.0)
        return forecast(away, seeds=FEW).ratio >= PAYS

    return _last_that(pays, MOST_ROUND_TRIP_US, _PRECISION_US)


def slowest_draft_step_us(situation: Situation) -> float | None:
    """The longest draft step with which drafts still pay, up to four bare passes; None: none."""

    def pays(step_us: float) -> bool:
        return (
            forecast(replace(situation, draft_step_us=step_us, seen_step_us=0.0), seeds=FEW).ratio
            >= PAYS
        )

    alone_us = situation.token_alone_us
    return _last_that(pays, 4 * alone_us, max(alone_us / 50, 1.0))


def needed_acceptance(situation: Situation) -> float | None:
    """The lowest chance for a drafted token with which drafts pay; None: not even 0.99."""

    def pays_short_of(shortfall: float) -> bool:
        needed = replace(situation, acceptance=(0.99 - shortfall,))
        return forecast(needed, seeds=FEW).ratio >= PAYS

    shortfall = _last_that(pays_short_of, 0.94, 0.01)
    return None if shortfall is None else 0.99 - shortfall


def _at_depth(situation: Situation, depth: int) -> Situation:
    return replace(situation, limits=replace(situation.limits, num_speculative_tokens=depth))


def _last_that(holds: Callable[[float], bool], most: float, precision: float) -> float | None:
    """The largest number from 0 to `most` for which it `holds`, if it does for small ones only."""
    if not holds(0.0):
        return None
    if holds(most):
        return most
    low, high = 0.0, most
    while high - low > max(precision, 0.05 * low):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


__all__ = [
    "BestDepth",
    "Forecast",
    "PassCosts",
    "Situation",
    "best_depth",
    "bound",
    "break_even_round_trip_us",
    "chain_tokens",
    "forecast",
    "needed_acceptance",
    "slowest_draft_step_us",
    "synchronous_ratio",
]
