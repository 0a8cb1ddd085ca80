"""How far one draft pass goes, and what of its outcome is sent: the rules of a draft session and of
the simulated one. Pure.
"""

from collections.abc import Sequence

from outrider.plans import DraftPlan

MOST_SPOTS = 16
"""Nodes of one session that one pass goes on below, at most."""


def room(plan: DraftPlan, nodes: int, sent_bytes: int, missing: int) -> int:
    """Below how many nodes a pass may go on: each gets `plan.width` children.

    `nodes` of the draft are alive already, or were made since the last commit, with `sent_bytes`.
    The path that the verifier waits for has to become `missing` nodes longer: branches are not
    given its place.

    >>> room(DraftPlan(8, 2, max_nodes=16), 4, 0, 0), room(DraftPlan(8, 2, max_nodes=16), 4, 0, 5)
    (6, 2)
    """
    if sent_bytes >= plan.max_bytes:
        return 0
    left = max(0, plan.max_nodes - nodes) // plan.width
    reserved = min(missing, left)
    return left - (reserved - 1) if reserved else left


def least_sent(chances: Sequence[float], plan: DraftPlan) -> float:
    """A child of less chance is not sent, where the target decides: the plan has the least that a
    pass would verify, were its parent the tip. The best one is.

    >>> least_sent([0.5, 0.1], DraftPlan(least_sent=0.2)), least_sent([], DraftPlan())
    (0.2, 0.0)
    """
    return min(plan.least_sent, max(chances, default=0.0))
