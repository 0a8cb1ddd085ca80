"""The drafts of a session: which part of the tree each has, and what they tell one another.

Knows the links of drafts, not what is planned or verified.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from orchestrator.attached import Attached
from orchestrator.joining import alive
from orchestrator.placement import Share, shares
from orchestrator.planner import Pace
from outrider.nodes import TreeNode
from outrider.plans import DraftPlan
from outrider.tree import TokenTree
from outrider.types import DRAFT_INDEX_SHIFT
from outrider.wire.convert import chunk_to
from outrider.wire.draft_client import RelayedChunk


class Team:
    """Where drafts draw (`draws`) they know nothing of one another: none may go by what another one
    drew (exactness, trap 2).
    """

    def __init__(self, *, draws: bool) -> None:
        self.members: dict[int, Attached] = {}
        self._draws = draws
        self._shares: dict[int, Share] = {}

    def __iter__(self) -> Iterator[Attached]:
        return iter(self.members.values())

    @property
    def paces(self) -> list[Pace]:
        """How fast and how far away each is."""
        return [draft.pace for draft in self]

    def share_of_next(self, index: int, law: Hashable) -> Share:
        """The part of a draft that is about to join as `index`."""
        return self._divided({**self._laws(), index: law})[index]

    def join(self, draft: Attached, tree: TokenTree) -> None:
        """Tells it what drafts of its model have made, for its part may hang off that."""
        alike = {other.index for other in self if other.peer.law == draft.peer.law}
        self.members[draft.index] = draft
        self._shares = self._divided(self._laws())
        known = None if self._draws else alive(tree, alike)
        if known is not None:
            draft.link.branches(RelayedChunk(known, chunk_to(known)))

    def leave(self, draft: Attached) -> bool:
        """Whether it took part until now; the others divide its part between them."""
        took_part = self.members.pop(draft.index, None) is not None
        self._shares = self._divided(self._laws())
        return took_part

    def plan_of(self, draft: Attached, planned: DraftPlan) -> DraftPlan:
        """What is planned for it, with its part."""
        return self._shares[draft.index].of(planned)

    def divide(self) -> None:
        """Looks again who has which part: one that went silent must not hold up those of its model
        whose parts hang off its own.
        """
        if len(self.members) > 1:
            self._shares = self._divided(self._laws())

    def tell(self, draft: Attached, relayed: RelayedChunk) -> None:
        """What it made goes to the others of its model."""
        if self._draws:
            return
        for other in self:
            if other is not draft and other.peer.law == draft.peer.law:
                other.link.branches(relayed)

    def judge(self, root: TreeNode, tokens: Sequence[int]) -> None:
        """Tells what became of each draft's guesses, before `tokens` are committed at `root`. Which
        drafts a session has must come of nothing that is undecided (exactness, trap 2).
        """
        node: TreeNode | None = root
        for token in tokens:
            if node is None:
                return
            guessed = {i >> DRAFT_INDEX_SHIFT for c in node.children.values() for i in c.ids}
            node = node.children.get(token)
            right = {i >> DRAFT_INDEX_SHIFT for i in node.ids} if node is not None else set()
            for index in guessed & self.members.keys():
                self.members[index].peer.judge(index in right)

    def _laws(self) -> dict[int, Hashable]:
        """Each with its law; in front of those of its model the first that answers, which gets the
        path that the parts of the others hang off. Those have nothing to say now and then.
        """
        in_order = sorted(self, key=lambda draft: draft.index)
        leaders: dict[Hashable, Attached] = {}
        for draft in in_order:
            leader = leaders.setdefault(draft.peer.law, draft)
            if leader.is_silent and not draft.is_silent:
                leaders[draft.peer.law] = draft
        in_order.sort(key=lambda draft: leaders[draft.peer.law] is not draft)
        return {draft.index: draft.peer.law for draft in in_order}

    def _divided(self, laws: Mapping[int, Hashable]) -> dict[int, Share]:
        return shares(laws, draws=self._draws)
