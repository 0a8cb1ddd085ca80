"""One session of the draft side: what it has proposed, what it does next, what survives a commit.

Knows tokens and node numbers; knows no gRPC and runs no model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from draft_service.chances import Cell, Chances, cell_of
from draft_service.frontier import Frontier
from draft_service.growth import least_sent, room
from draft_service.translation import Translation
from outrider.errors import InvalidArgumentError, StateMismatchError
from outrider.models.base import TIP, Feed, ModelSequence
from outrider.nodes import TreeNode
from outrider.plans import MAX_DRAFTED_NODES, DraftPart, DraftPlan
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise
from outrider.sampling.processing import changes_rows
from outrider.sampling.proposing import Proposal
from outrider.tree import TokenTree
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    Chunk,
    DraftCommit,
    DraftOpening,
    Node,
    ProposalRow,
    SamplingParams,
)


@dataclass(frozen=True, slots=True)
class Task:
    """What the next pass runs for a session: `committed` tokens without KV, in the model's ids,
    then the nodes of `path`, each behind its parent.

    `targets` are the nodes whose rows are wanted, the tip among them or not; none: this is a chunk
    of a prompt.
    """

    feed: Feed
    committed: int
    path: tuple[TreeNode, ...]
    targets: tuple[TreeNode, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """What the pass runs, in the model's ids."""
        return self.feed.tokens


@dataclass(slots=True, eq=False)
class DraftSession:
    """A tree that runs ahead: its own nodes, and those of other drafts that it was told.

    `numbers` maps live nodes to the model's numbers of what has KV. Every proposal is conditioned
    on the history at its node (exactness, trap 5); where that has no grammar the request's is not
    followed, which costs acceptance only: the target follows it. `law` is what the request asks
    for, but for its seed; it `is_plain` where the target decides and no row depends on a history.

    Tokens, tree, positions and histories are the target's; `model_ids` are the committed tokens as
    the draft's model reads them, and its context is counted in those; `cached_tokens` of those it
    was opened with had KV before any pass.
    """

    opening: DraftOpening
    sequence: ModelSequence
    translation: Translation
    model_ids: list[int]
    vocab_size: int
    context_tokens: int
    history: History
    chances: Chances = field(default_factory=Chances)
    plan: DraftPlan = field(init=False)
    tree: TokenTree = field(init=False)
    noise: PhiloxNoise = field(init=False)
    law: SamplingParams = field(init=False)
    is_plain: bool = field(init=False)
    numbers: dict[TreeNode, int] = field(default_factory=dict)
    next_counter: int = 0
    cached_tokens: int = field(init=False)
    _opened_with: int = field(init=False)
    _expanded: set[TreeNode] = field(default_factory=set)
    _histories: dict[TreeNode, History] = field(default_factory=dict)
    _cells: dict[int, Cell] = field(default_factory=dict)
    _unsent: dict[TreeNode, list[tuple[int, Cell]]] = field(default_factory=dict)
    _sent_bytes: int = 0
    _frontier: Frontier = field(init=False)

    def __post_init__(self) -> None:
        opening = self.opening
        self.plan = opening.plan
        # Room for its own nodes beside as many of other drafts.
        capacity = MAX_DRAFTED_NODES * 2
        self.tree = TokenTree(opening.emitted_ids, capacity=capacity)
        self.noise = PhiloxNoise(opening.sampling.seed or 0)
        self.law = replace(opening.sampling, seed=None)
        self.is_plain = self._asks_only_for_the_likely()
        self.cached_tokens = len(self.sequence.tokens)
        self._opened_with = len(self.model_ids)
        self._histories[self.tree.root] = self.history
        self._frontier = Frontier(self._is_open)
        self._frontier.restart(self.tree.root, self._growth())

    @property
    def length(self) -> int:
        """The target's tokens of prompt and answer so far."""
        return len(self.opening.prompt_ids) + len(self.tree.committed)

    @property
    def missing(self) -> int:
        """How many committed tokens, as the model reads them, still need KV."""
        return len(self.model_ids) - len(self.sequence.tokens)

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the last token of what it was opened with still needs KV."""
        return self._opened_with - len(self.sequence.tokens) > 1

    @property
    def done_reason(self) -> str:
        """Why nothing can follow in this session, whatever is committed; empty: something can."""
        if len(self.model_ids) < self.context_tokens:
            return ""
        return (
            f"the text has {len(self.model_ids)} of the draft's tokens and its context is "
            f"{self.context_tokens}"
        )

    @property
    def may_grow(self) -> bool:
        """Whether more nodes may follow before the next commit.

        Where it draws, the answer must not depend on a token, as whether one is open does.
        """
        return self.opening.sampling.draws_proposals or bool(self.wishes(1))

    def wishes(self, most: int) -> list[float]:
        """What the nodes, at most `most`, that it would go on below are worth, in its order."""
        return [spot.worth for spot in self._frontier.best(min(most, self._room()))]

    def task(self, budget: int, count: int = 1) -> Task | None:
        """What the next pass should run, at most `budget` tokens, to go on below the `count` most
        promising nodes; None: nothing.
        """
        if self.done_reason:
            return None
        start = len(self.sequence.tokens)
        pending = self.model_ids[start : start + budget]
        if self.missing > budget:
            return Task(Feed.chain(self.sequence, pending, ()), budget, (), ())
        first = self.sequence.next_node
        tip = first + len(pending) - 1 if pending else TIP
        tokens = list(pending)
        parents = list(Feed.chain(self.sequence, pending, ()).parents)
        numbers = {self.tree.root: tip}
        path: list[TreeNode] = []
        targets: list[TreeNode] = []
        for spot in self._frontier.best(min(count, self._room())):
            missing = self._without_kv(spot.node, numbers)
            if len(tokens) + len(missing) > budget or (not tokens and not missing):
                continue  # no room; or the draft cannot write the last token, and waits for more
            targets.append(spot.node)
            for node in missing:
                above = node.parent or self.tree.root
                parents.append(numbers[above] if above in numbers else self.numbers[above])
                numbers[node] = first + len(tokens)
                tokens += self.translation.token(node.token)
                path.append(node)
        if not targets:
            return None
        rows = tuple(numbers[node] - first for node in targets)
        feed = Feed(self.sequence, tuple(tokens), tuple(parents), rows)
        return Task(feed, len(pending), tuple(path), tuple(targets))

    def fed(self, task: Task) -> None:
        """The nodes of the task's path have KV now."""
        first = self.sequence.next_node - len(task.path)
        self.numbers.update({node: first + i for i, node in enumerate(task.path)})

    def history_at(self, node: TreeNode) -> History:
        """The history after the tokens down to a live node."""
        tokens: list[int] = []
        at = node
        while at not in self._histories and at.parent is not None:
            tokens.append(at.token)
            at = at.parent
        self._histories[node] = self._histories[at].after(tokens[::-1])
        return self._histories[node]

    def grow(self, proposals: Sequence[tuple[TreeNode, Proposal]], step_us: int) -> Chunk | None:
        """Adds what one pass proposed below some nodes; None: nothing was."""
        nodes: list[Node] = []
        rows: list[ProposalRow] = []
        for parent, proposal in proposals:
            self._expanded.add(parent)
            parent_id = self._id_of(parent)
            if proposal.row_ids:
                rows.append(ProposalRow(parent_id, proposal.row_ids, proposal.row_probs))
            nodes += self._worth_sending(parent, parent_id, proposal)
        if not nodes:
            return None
        chunk = Chunk(tuple(nodes), tuple(rows), step_us)
        self._sent_bytes += chunk.most_bytes
        self.tree.grow(chunk)
        for parent, _ in proposals:
            self._frontier.extend(parent)
        return chunk

    def adopt(self, chunk: Chunk) -> None:
        """Learns of nodes that other drafts of the session made.

        Raises InvalidArgumentError where it draws: it may not go by what others drew (exactness).
        """
        if self.opening.sampling.draws_proposals:
            raise InvalidArgumentError(
                "a draft that draws its tokens was sent branches of others; send it none"
            )
        self.tree.grow(chunk)
        made = [node for n in chunk.nodes if (node := self.tree.node(n.id)) is not None]
        if not self._frontier.append(made):
            self._frontier.restart(self.tree.root, self._growth())

    def next_id(self) -> int:
        """Id of the next node; no other node of the session has it."""
        return self.opening.draft_index << DRAFT_INDEX_SHIFT | self.next_counter

    def commit(self, commit: DraftCommit) -> tuple[list[int], list[int]]:
        """Follows the verdict; returns the model's numbers to keep: the committed path, survivors.

        Raises StateMismatchError where the commit does not continue what this session knows, and
        InvalidArgumentError for a token that the draft cannot run.
        """
        if commit.base != len(self.tree.committed):
            raise StateMismatchError(
                f"the commit starts after {commit.base} tokens, this draft knows "
                f"{len(self.tree.committed)}; open the session again with what was emitted",
                metadata={"position": str(len(self.tree.committed))},
            )
        if any(token >= self.vocab_size for token in commit.tokens):
            raise InvalidArgumentError(
                f"a token of {commit.tokens} is outside the draft's vocabulary of "
                f"{self.vocab_size} ids"
            )
        self.plan = commit.plan or self.plan
        self._sent_bytes = 0
        path = self._follow(commit)
        root = self.tree.root
        if self._is_open(root) or commit.fresh:
            # The tip's own token is run again: its row is what a new proposal is made of.
            self._expanded.discard(root)
            path = path[: max(0, len(commit.tokens) - 1)]
        live = {root, *root.descendants()}
        self._expanded &= live
        self._histories = {n: h for n, h in self._histories.items() if n in live}
        self.numbers = {n: i for n, i in self.numbers.items() if n in live and n is not root}
        self._unsent = {n: unsent for n, unsent in self._unsent.items() if n in live}
        self._cells = {i: cell for i, cell in self._cells.items() if self.tree.node(i) is not None}
        self._frontier.follow(root, self._growth(), live)
        return path, list(self.numbers.values())

    def _follow(self, commit: DraftCommit) -> list[int]:
        """Commits the tokens and learns from them; returns the numbers of those that have KV."""
        path: list[int] = []
        at_tip = self.history_at(self.tree.root).after(commit.tokens)
        for token in commit.tokens:
            self.model_ids += self.translation.token(token)
            for unsent, cell in self._unsent.pop(self.tree.root, ()):
                self.chances.learn(cell, unsent == token)
            for child in self.tree.root.children.values():
                for cell in filter(None, map(self._cells.get, child.ids)):
                    self.chances.learn(cell, child.token == token)
            node = self.tree.root.children.get(token)
            if node is not None and node in self.numbers:
                path.append(self.numbers[node])
            self.tree.commit((token,))
        if commit.fresh:
            self.tree.commit((), fresh=True)
        self._histories[self.tree.root] = at_tip
        self.history = at_tip
        self.is_plain = self.is_plain or self._asks_only_for_the_likely()
        return path

    def _asks_only_for_the_likely(self) -> bool:
        """Once true, true for good: what is not asked of a row is asked of none further down."""
        sampling = self.opening.sampling
        return not sampling.draws_proposals and not changes_rows(sampling, self.history)

    def _worth_sending(
        self, parent: TreeNode, parent_id: int, proposal: Proposal
    ) -> Iterator[Node]:
        """The nodes of a proposal. Where the target decides, alternatives are left out that no pass
        would verify. What becomes of them is learned all the same, or a chance could never rise
        again.
        """
        sampling = self.opening.sampling
        cells = [cell_of(c, rank, sampling) for rank, c in enumerate(proposal.candidates)]
        chances = [
            self.chances.of(c, cell) for c, cell in zip(proposal.candidates, cells, strict=True)
        ]
        least = 0.0 if sampling.draws_proposals else least_sent(chances, self.plan)
        for candidate, cell, chance in zip(proposal.candidates, cells, chances, strict=True):
            if chance < least:
                self._unsent.setdefault(parent, []).append((candidate.token, cell))
                continue
            node_id = self.next_id()
            self.next_counter += 1
            self._cells[node_id] = cell
            yield Node(node_id, parent_id, candidate.token, candidate.q, candidate.kind, chance)

    def _is_open(self, node: TreeNode) -> bool:
        """Whether one could go on below it, and nobody has."""
        if node.children or node in self._expanded:
            return False
        root = self.tree.root
        is_end = node is not root and node.token in self.opening.end_token_ids
        depth = node.position - root.position
        return not is_end and len(self.model_ids) + depth < self.context_tokens

    def _growth(self) -> DraftPlan:
        """The plan as its tree grows by it. Where drafts draw, one path is all: what grew elsewhere
        because a drawn token was no good place to go on would overtake that draw (exactness).
        """
        is_drawn = self.opening.sampling.draws_proposals
        return replace(self.plan, part=DraftPart.CHAIN) if is_drawn else self.plan

    @property
    def is_awaited(self) -> bool:
        """Whether the verifier may be waiting for its nodes."""
        if self.opening.sampling.draws_proposals:
            return self.plan.min_depth > 0
        return self._frontier.missing > 0

    def _room(self) -> int:
        """Below how many nodes one pass may go on.

        Where it draws, below one: how long a pass takes must not tell what follows a drawn token.
        """
        if self.next_counter + self.plan.width > 1 << DRAFT_INDEX_SHIFT:
            return 0  # an id more would be another draft's, and so would the number of a draw
        # A cell for each own node that was alive at the last commit or was made since.
        left = room(self.plan, len(self._cells), self._sent_bytes, self._frontier.missing)
        return min(left, 1) if self.opening.sampling.draws_proposals else left

    def _without_kv(self, node: TreeNode, known: dict[TreeNode, int]) -> list[TreeNode]:
        """The nodes down to `node` that no pass has run, parents first."""
        missing: list[TreeNode] = []
        at: TreeNode | None = node
        while at is not None and at not in known and at not in self.numbers:
            missing.append(at)
            at = at.parent
        return missing[::-1]

    def _id_of(self, node: TreeNode) -> int:
        """What to call a parent: its own name for it, another draft's, or the place of the tip."""
        if node is self.tree.root:
            return node.position
        index = self.opening.draft_index
        return next((i for i in node.ids if i >> DRAFT_INDEX_SHIFT == index), node.ids[0])
