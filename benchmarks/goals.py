"""What the rigs are to show, and what they showed: each goal beside its figure. Pure.

The home lab's goals are those of a pair like its own; where a run has not measured what a goal is
about, the goal is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.homelab_figure import Figure as LabFigure
from benchmarks.homelab_plan import LLAMACPP, OUTRIDER, SYNCHRONOUS
from benchmarks.protocol_capacity import Capacity
from benchmarks.protocol_figures import OUTRIDER as SCALE_OUTRIDER
from benchmarks.protocol_figures import Figure as ScaleFigure
from benchmarks.protocol_rounds import Round

NEAR_MS, FAR_MS = 0.2, 100.0
SAMPLED_SHARE = 0.9
"""Of the bound, at temperature 1 against temperature 0: the bound holds what acceptance costs."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What was to be reached: at least `wanted`, or (`at_most`) at most."""

    what: str
    wanted: float
    found: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        """Whether it was reached."""
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted

    @property
    def missing(self) -> float:
        """By which share of what was wanted it was missed; 0 where it was met.

        >>> Goal("speed", 2.0, 1.5).missing, Goal("gap", 2.0, 3.0, at_most=True).missing
        (0.25, 0.5)
        """
        return 0.0 if self.is_met else abs(self.found - self.wanted) / self.wanted


def table(goals: Iterable[Goal]) -> str:
    """Markdown: one goal a line, with by how much it was missed."""
    lines = ["| goal | wanted | found | missed by |", "|---|---|---|---|"]
    for goal in goals:
        bound = "at most" if goal.at_most else "at least"
        missed = "–" if goal.is_met else f"{goal.missing:.0%}"
        lines.append(f"| {goal.what} | {bound} {goal.wanted:g} | {goal.found:.2f} | {missed} |")
    return "\n".join(lines) + "\n"


def home_lab(figures: Sequence[LabFigure]) -> list[Goal]:
    """Outrider over a near and a far wire, against the target alone, what else there is, and the
    bound.
    """

    def at(mode: str, rtt_ms: float | None, temperature: float) -> LabFigure | None:
        return next(
            (
                f
                for f in figures
                if f.mode == mode
                and f.temperature == temperature
                and (rtt_ms is None or f.rtt_ms == rtt_ms)
            ),
            None,
        )

    def ratio(figure: LabFigure) -> float:
        return figure.ratio_to_target_alone

    goals: list[Goal] = []
    for rtt_ms, alone, synchronous in ((NEAR_MS, 2.5, 1.15), (FAR_MS, 2.1, 1.3)):
        own, where = at(OUTRIDER, rtt_ms, 0.0), f"T = 0, {rtt_ms:g} ms"
        if own is None:
            continue
        goals.append(Goal(f"{where}: × target alone", alone, ratio(own)))
        if rtt_ms == NEAR_MS and own.ratio_to_bound is not None:
            goals.append(Goal(f"{where}: of the bound", 0.8, own.ratio_to_bound))
        turns = at(SYNCHRONOUS, rtt_ms, 0.0)
        if turns is not None:
            found = ratio(own) / ratio(turns)
            goals.append(Goal(f"{where}: × synchronous drafting", synchronous, found))
        peer = at(LLAMACPP, None, 0.0)
        if rtt_ms == NEAR_MS and peer is not None:
            found = ratio(own) / ratio(peer)
            goals.append(Goal(f"{where}: × llama.cpp in process", 1.2, found))
        sampled = at(OUTRIDER, rtt_ms, 1.0)
        if sampled is not None and sampled.ratio_to_bound and own.ratio_to_bound:
            what = f"T = 1, {rtt_ms:g} ms: share of its bound, against that at T = 0"
            goals.append(Goal(what, SAMPLED_SHARE, sampled.ratio_to_bound / own.ratio_to_bound))
    return goals


def scale(
    figures: Sequence[ScaleFigure], rounds: Sequence[Round], capacities: Sequence[Capacity]
) -> list[Goal]:
    """What a round costs besides the models, and how much of the ideal is left under load."""
    goals = [
        Goal(f"p50 of a round at zero step time, {one.mode}, ms", 2.0, one.p50_ms, at_most=True)
        for one in rounds
        if one.depth == min(other.depth for other in rounds)
    ]
    own = [f for f in figures if f.mode == SCALE_OUTRIDER and f.rtt_ms == 0]
    most = max((f.clients for f in own), default=0)
    shared = max((f.drafts for f in own if f.clients == most and f.drafts <= 4), default=0)
    busy = next((f for f in own if (f.clients, f.drafts) == (most, shared)), None)
    if busy is not None:
        where = f"{busy.clients} clients, drafts: {busy.drafts}"
        goals.append(Goal(f"{where}: of the bound", 0.85, busy.ratio_to_bound))
        goals.append(Goal(f"{where}: gap of pass", 0.03, busy.gap_share, at_most=True))
    for one in capacities:
        what = f"clients served as fast as {one.clients} co-located, of theory"
        goals.append(Goal(what, 0.85, one.share_of_theory))
        what = f"the same against the bound of {one.clients} co-located"
        goals.append(Goal(what, 0.85, one.share_against_bound))
    return goals
