"""One session of the draft side: what it has proposed, what it does next, what survives a commit.

Knows tokens and node numbers; knows no gRPC and runs no model.
"""

from dataclasses import dataclass, field

from draft_service.translation import Translation
from outrider.errors import InvalidArgumentError, StateMismatchError
from outrider.models.base import ModelSequence
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise
from outrider.sampling.proposing import Proposal
from outrider.tree import TokenTree
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    Chunk,
    DraftCommit,
    DraftOpening,
    DraftPlan,
    Node,
    NodeKind,
    ProposalRow,
)

TIP_NODE = 0

MAX_NODES = 256 * 32
"""As many as the deepest and widest plan has: a node is never refused to its own draft."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the next pass runs for a session: committed tokens without KV, or one drafted node.

    `tokens` are the model's ids, `parent` is the model's number of the node's parent; `wants_row`
    is False for a chunk of a prompt.
    """

    tokens: tuple[int, ...]
    parent: int | None
    wants_row: bool


@dataclass(slots=True, eq=False)
class DraftSession:
    """A chain that runs ahead, with LISTED alternatives beside it.

    `leaf` is the id of the node to go on below: TIP_NODE for the committed tip, None where nothing
    is to be done before the next commit. `numbers` maps node ids to the model's numbers of fed
    nodes. `history` is the one at the leaf, first the tip: every proposal is conditioned on what it
    hangs below (exactness, trap 5). Where it has no grammar the request's is not followed, which
    costs acceptance only: the target follows it.

    Tokens, tree, positions and histories are the target's; `model_ids` are the committed tokens as
    the draft's model reads them, and its context is counted in those.
    """

    opening: DraftOpening
    sequence: ModelSequence
    translation: Translation
    model_ids: list[int]
    vocab_size: int
    context_tokens: int
    history: History
    plan: DraftPlan = field(init=False)
    tree: TokenTree = field(init=False)
    noise: PhiloxNoise = field(init=False)
    leaf: int | None = TIP_NODE
    numbers: dict[int, int] = field(default_factory=dict)
    next_counter: int = 0
    _opened_with: int = field(init=False)
    _at_tip: History = field(init=False)

    def __post_init__(self) -> None:
        opening = self.opening
        self.plan = opening.plan
        self.tree = TokenTree(opening.emitted_ids, capacity=MAX_NODES)
        self.noise = PhiloxNoise(opening.sampling.seed or 0)
        self._opened_with = len(self.model_ids)
        self._at_tip = self.history

    @property
    def length(self) -> int:
        """The target's tokens of prompt and answer so far."""
        return len(self.opening.prompt_ids) + len(self.tree.committed)

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

    def task(self, budget: int) -> Task | None:
        """What the next pass should run, at most `budget` tokens; None: nothing."""
        if self.leaf is None or self.leaf_depth() >= self.plan.depth:
            return None
        if len(self.model_ids) + self.leaf_depth() >= self.context_tokens:
            return None
        if self.leaf != TIP_NODE:
            node = self.tree.node(self.leaf)
            if node is None or node.parent is None:
                return None
            parent = None
            if node.parent is not self.tree.root:
                parent = self.numbers[self._own(node.parent.ids)]
            return Task(self.translation.token(node.token), parent, wants_row=True)
        pending = tuple(self.model_ids[len(self.sequence.tokens) :])
        if not pending:
            # The draft cannot write the last token; the next one gives it something to read.
            return None
        return Task(pending[:budget], None, wants_row=len(pending) <= budget)

    def leaf_depth(self) -> int:
        """Tokens between the committed tip and the leaf, the leaf included."""
        node = self.tree.node(self.leaf) if self.leaf else None
        return 0 if node is None else node.position - self.tree.root.position

    def fed(self, number: int) -> None:
        """The leaf, a drafted node, has KV under the model's `number` now."""
        if self.leaf:
            self.numbers[self.leaf] = number

    def grow(self, proposal: Proposal, step_us: int) -> Chunk | None:
        """Adds a proposal below the leaf and goes on below its most promising child."""
        position = self.tree.root.position
        parent_id = self.leaf or position
        if not proposal.candidates:
            self.leaf = None
            return None
        nodes = []
        for candidate in proposal.candidates:
            node_id = self.next_id()
            self.next_counter += 1
            nodes.append(Node(node_id, parent_id, candidate.token, candidate.q, candidate.kind))
        rows: tuple[ProposalRow, ...] = ()
        if any(node.kind is NodeKind.SAMPLED for node in nodes):
            rows = (ProposalRow(parent_id, proposal.row_ids, proposal.row_probs),)
        chunk = Chunk(tuple(nodes), rows, step_us)
        self.tree.grow(chunk)
        going_on = nodes[proposal.going_on]
        is_end = going_on.token in self.opening.end_token_ids
        self.leaf = None if is_end else going_on.id
        self.history = self.history.after((going_on.token,))
        return chunk

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
        self._at_tip = self._at_tip.after(commit.tokens)
        for token in commit.tokens:
            self.model_ids += self.translation.token(token)
        path: list[int] = []
        is_fed = self.leaf != TIP_NODE
        for ids in self.tree.commit(commit.tokens, fresh=commit.fresh):
            number = self.numbers.get(self._own(ids)) if ids else None
            is_fed = is_fed and number is not None
            if is_fed and number is not None:
                path.append(number)
        if commit.fresh and commit.tokens:
            # The tip's own token is run again: its row is what a new proposal is made of.
            self._start_again()
            return path[: len(commit.tokens) - 1], []
        self.numbers = {i: n for i, n in self.numbers.items() if self.tree.node(i) is not None}
        if len(path) < len(commit.tokens):
            self._start_again()
        return path, list(self.numbers.values())

    def _start_again(self) -> None:
        """Goes on from the tip, which has nothing below it."""
        self.numbers.clear()
        self.leaf = TIP_NODE
        self.history = self._at_tip

    @staticmethod
    def _own(ids: "list[int] | tuple[int, ...]") -> int:
        return ids[0]
