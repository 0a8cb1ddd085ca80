"""Which drafts help a session, and which part of its tree each has. Pure.

The best draft for a session is the one that gets the most tokens accepted in the time of a target
pass, given how many sessions share it. Where there are more drafts than sessions, several help one:
drafts of one model divide the tree between them, one grows the path of first children and the
others the branches that leave it; a draft of another model grows a tree of its own from the same
root, and where the two agree the verifier has one node. Drafts that cost nothing beside a pass, as
prompt lookup, help everyone.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.plans import DraftPart, DraftPlan

FREE_SHARE = 0.02
"""A draft whose step takes less than this share of a pass is no load to anyone."""

STAYS = 1.05
"""A draft that takes part is left only for one that is better by more than so much."""

STILL_FREE = 2.0
"""One that takes part already may take so much more: to leave and to come back costs a prefill."""

MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft as the placement sees it: `law` tells models apart, `sessions` share it without this
    one, `acceptance` is the chance that the target takes its first guess. `helps`: it takes part in
    this session already. `is_lookup`: it looks tokens up and runs no model.
    """

    name: str
    law: Hashable
    sessions: int = 0
    step_us: float = 0.0
    acceptance: float = 0.75
    helps: bool = False
    is_lookup: bool = False

    def is_free(self, pass_us: float) -> bool:
        """Whether it costs nothing beside a target pass of `pass_us` microseconds. A lookup does
        not, however slow the machine makes it: it must take the place of no model.
        """
        if self.is_lookup:
            return True
        most_us = FREE_SHARE * pass_us * (STILL_FREE if self.helps else 1.0)
        return 0 < self.step_us < most_us


@dataclass(frozen=True, slots=True)
class Share:
    """What a draft goes on below; see `DraftPlan`."""

    part: DraftPart = DraftPart.TREE
    share: int = 0
    shares: int = 1

    def of(self, planned: DraftPlan) -> DraftPlan:
        """What is planned for all drafts, for the one that has this part."""
        return replace(planned, part=self.part, share=self.share, shares=self.shares)


def place(
    drafts: Sequence[Candidate],
    sessions: int,
    pass_us: float,
    most: int,
    each: int | None = None,
    *,
    divide: bool = True,
) -> list[str]:
    """The names of the drafts that help one of `sessions` sessions, the best first, at most `most`.

    `pass_us` is the time of a target pass; 0: not known yet. `each` is a number of drafts that is
    wished for instead of the one that comes of dividing them. Where drafts of one law would all say
    the same (`divide` False), one of each law helps.

    >>> two = [Candidate("a", "smol", sessions=3), Candidate("b", "smol")]
    >>> place(two, sessions=4, pass_us=1e5, most=8), place(two, sessions=1, pass_us=1e5, most=8)
    (['b'], ['b', 'a'])
    """
    ranked = sorted(drafts, key=lambda d: -_worth(d, pass_us))
    free = [d for d in ranked if d.is_free(pass_us)]
    paid = [d for d in ranked if d not in free]
    allowed = max(1, len(paid) // max(1, sessions)) if each is None else each
    if not divide:
        firsts = {d.law: d for d in reversed(ranked)}
        free, paid = ([d for d in some if firsts[d.law] is d] for some in (free, paid))
    chosen = {d.name for d in (*paid[:allowed], *free)}
    return [d.name for d in ranked if d.name in chosen][:most]


def _worth(draft: Candidate, pass_us: float) -> float:
    return accepted_per_pass(draft, pass_us) * (STAYS if draft.helps else 1.0)


def accepted_per_pass(draft: Candidate, pass_us: float) -> float:
    """Tokens of a chain of the draft that are accepted in a pass, when its steps are shared."""
    steps = float(MOST_STEPS)
    if draft.step_us and pass_us:
        steps = min(steps, pass_us / (draft.step_us * (1 + draft.sessions)))
    elif draft.sessions:
        steps /= 1 + draft.sessions
    a = min(draft.acceptance, 0.999)
    return float(a * (1 - a**steps) / (1 - a))


def shares(laws: Mapping[int, Hashable], *, draws: bool = False) -> dict[int, Share]:
    """The part of each draft of a session, by its index; `laws` in the order of preference.

    Drafts that draw (`draws`) go down one path each: where else a tree grows would tell what was
    drawn (docs/exactness.md).

    >>> [share.part.value for share in shares({1: "smol", 2: "ngram", 3: "smol"}).values()]
    ['chain', 'tree', 'branches']
    """
    if draws:
        return dict.fromkeys(laws, Share(DraftPart.CHAIN))
    found: dict[int, Share] = {}
    for index, law in laws.items():
        alike = [other for other in laws if laws[other] == law]
        if len(alike) == 1:
            found[index] = Share()
        elif index == alike[0]:
            found[index] = Share(DraftPart.CHAIN)
        else:
            found[index] = Share(DraftPart.BRANCHES, alike.index(index) - 1, len(alike) - 1)
    return found
