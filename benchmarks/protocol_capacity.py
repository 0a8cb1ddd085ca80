"""How many clients a saturated target serves when drafts compute elsewhere, against a draft that
computes on the target's own device. The arithmetic is pure; what is measured is in
`protocol_crowd`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.protocol_ideal import Costs, expected_tokens
from orchestrator.cli.bench_rows import mean

COLOCATED = "colocated"
OFFLOADED = "offloaded"
COSTS = Costs(target_step_ms=40.0, target_row_ms=0.2, draft_step_ms=8.0)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is measured: for each of `clients` the draft on the target's device and elsewhere, with
    `nodes` drafted tokens at most in a pass of a session.
    """

    clients: tuple[int, ...]
    nodes: int = 4
    costs: Costs = COSTS

    def theory(self, clients: int) -> float:
        """1 + gamma t_d / t_v: the time that a round of drafting and verifying takes on one device
        over that of verifying alone, `clients` sessions with gamma drafted tokens each in a pass.

        After "Speculation at a Distance", arXiv 2606.25091. It supposes that the pass is full and
        each brings as many tokens as before, so nothing may be lost by drafting ahead.

        >>> round(Crowd(clients=(16,)).theory(16), 2)
        1.57
        """
        return 1 + self.nodes * self.costs.draft_step_ms / self._pass_ms(clients)

    def colocated_bound(self, acceptance: float, clients: int) -> float:
        """Tokens a second of one device where all sessions keep step, each drafting and each target
        pass has all of them, and nothing else takes time: clients x E(gamma) / (gamma t_d + t_v).
        """
        round_ms = self.nodes * self.costs.draft_step_ms + self._pass_ms(clients)
        return 1000 * clients * expected_tokens(acceptance, self.nodes) / round_ms

    def more(self, clients: int) -> int:
        """As many clients as the theory has served with the draft elsewhere."""
        return round(self.theory(clients) * clients)

    def _pass_ms(self, clients: int) -> float:
        return self.costs.pass_ms(clients * (1 + self.nodes))


@dataclass(frozen=True, slots=True)
class Turn:
    """One place of the draft and number of clients, measured once."""

    place: str
    clients: int
    tokens_per_s: float
    tokens_per_pass: float
    rows_per_pass: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """One number of clients over all repetitions. `clients_served` get from the offloaded
    deployment what each of `clients` gets from the co-located one; that against `clients` is
    `ratio`. `more_clients` are those that `theory` promises.

    The co-located sessions that were measured need not keep step, which makes their passes smaller
    and more, so `ratio` may flatter. `share_against_bound` does not: it is what `more_clients` get
    together against `theory` times the co-located bound.
    """

    clients: int
    more_clients: int
    colocated_tokens_per_s: float
    colocated_bound_tokens_per_s: float
    offloaded_tokens_per_s: float
    offloaded_more_tokens_per_s: float
    clients_served: float
    ratio: float
    theory: float
    share_of_theory: float
    share_against_bound: float
    colocated_tokens_per_pass: float
    offloaded_tokens_per_pass: float
    colocated_rows_per_pass: float
    offloaded_rows_per_pass: float


def served(clients: int, more: int, wanted_s: float, each_s: float, more_each_s: float) -> float:
    """With how many clients a deployment takes `wanted_s` seconds for a token of each, where it
    takes `each_s` with `clients` and `more_each_s` with `more` of them.

    A pass takes a straight line of time over its clients, and so does a token. What lies beyond
    `more` was not measured and does not count.

    >>> served(10, 20, wanted_s=3.0, each_s=2.0, more_each_s=4.0)
    15.0
    >>> served(10, 20, wanted_s=5.0, each_s=2.0, more_each_s=4.0)
    20.0
    """
    if wanted_s >= more_each_s or more_each_s <= each_s:
        # Not slower with more of them: noise, or room for all.
        return float(more if wanted_s >= more_each_s else clients * wanted_s / each_s)
    found = clients + (more - clients) * (wanted_s - each_s) / (more_each_s - each_s)
    return min(max(found, 0.0), float(more))


def capacities(turns: Sequence[Turn], crowd: Crowd, acceptance: float) -> list[Capacity]:
    """A row for each number of clients; `acceptance` is that of the laws."""
    return [_capacity(turns, crowd, acceptance, clients) for clients in crowd.clients]


def _capacity(turns: Sequence[Turn], crowd: Crowd, acceptance: float, clients: int) -> Capacity:
    more, theory = crowd.more(clients), crowd.theory(clients)
    own = [t for t in turns if (t.place, t.clients) == (COLOCATED, clients)]
    off = [t for t in turns if (t.place, t.clients) == (OFFLOADED, clients)]
    crowded = [t for t in turns if (t.place, t.clients) == (OFFLOADED, more)]
    speed, away, away_more = (mean([t.tokens_per_s for t in some]) for some in (own, off, crowded))
    bound = crowd.colocated_bound(acceptance, clients)
    count = served(clients, more, clients / speed, clients / away, more / away_more)
    return Capacity(
        clients=clients,
        more_clients=more,
        colocated_tokens_per_s=round(speed, 1),
        colocated_bound_tokens_per_s=round(bound, 1),
        offloaded_tokens_per_s=round(away, 1),
        offloaded_more_tokens_per_s=round(away_more, 1),
        clients_served=round(count, 1),
        ratio=round(count / clients, 3),
        theory=round(theory, 3),
        share_of_theory=round(count / clients / theory, 3),
        share_against_bound=round(away_more / (theory * bound), 3),
        colocated_tokens_per_pass=round(mean([t.tokens_per_pass for t in own]), 2),
        offloaded_tokens_per_pass=round(mean([t.tokens_per_pass for t in crowded]), 2),
        colocated_rows_per_pass=round(mean([t.rows_per_pass for t in own]), 1),
        offloaded_rows_per_pass=round(mean([t.rows_per_pass for t in crowded]), 1),
    )
