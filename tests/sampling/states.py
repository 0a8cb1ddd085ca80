"""What can happen in a generation, and the moments that it goes through."""

from dataclasses import dataclass, replace

from outrider.plans import DraftPart
from outrider.sampling.proposing import Proposal
from outrider.tree import Subtree
from outrider.types import Chunk, Node, NodeKind, ProposalRow

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft runs ahead until it is `depth` tokens below the tip and delivers what it made."""

    number: int
    depth: int


@dataclass(frozen=True, slots=True)
class MakeOnly:
    """As Draft, but what is made stays under way until Deliver."""

    number: int
    depth: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """What is under way from a draft arrives."""

    number: int


@dataclass(frozen=True, slots=True)
class Spread:
    """A draft goes on where its plan says, `count` times, one proposal after the other; each is
    delivered at once. It knows the nodes of the other drafts, or (`is_alone`) its own only.
    """

    number: int
    count: int
    part: DraftPart = DraftPart.TREE
    min_chance: float = 0.0
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Reopen:
    """A draft is opened again at the tip under a new index; what is under way stays under way."""

    number: int


@dataclass(frozen=True, slots=True)
class Verify:
    """One round: the best `budget` nodes are verified, the outcome is committed."""

    budget: int


Action = Draft | MakeOnly | Spread | Deliver | Reopen | Verify


@dataclass(frozen=True, slots=True)
class Head:
    """Where a draft goes on: the node (or anchor) that it last made, and the tokens up to there."""

    node_id: int
    prefix: Prefix


@dataclass(frozen=True, slots=True)
class Commit:
    """The outcome of a round."""

    tokens: Prefix
    fresh: bool


@dataclass(frozen=True, slots=True)
class State:
    """A moment of a generation. `log` is everything that ever happened to the tree."""

    emitted: Prefix
    log: tuple[Chunk | Commit, ...]
    heads: tuple[Head, ...]
    indices: tuple[int, ...]
    under_way: tuple[tuple[int, Chunk], ...] = ()


def chunk_of(proposal: Proposal, parent_id: int, first_id: int) -> Chunk:
    """The chunk that a proposal goes out in."""
    nodes = tuple(
        Node(first_id + i, parent_id, c.token, c.q, c.kind, c.chance)
        for i, c in enumerate(proposal.candidates)
    )
    is_drawn = any(node.kind is NodeKind.SAMPLED for node in nodes)
    row = ProposalRow(parent_id, proposal.row_ids, proposal.row_probs)
    return Chunk(nodes, (row,) if is_drawn else ())


def delivered(state: State, number: int) -> State:
    """After what is under way from a draft has arrived."""
    arrived = tuple(chunk for sender, chunk in state.under_way if sender == number)
    rest = tuple(pair for pair in state.under_way if pair[0] != number)
    return replace(state, log=(*state.log, *arrived), under_way=rest)


def reopened(state: State, number: int) -> State:
    """After a draft was opened again at the tip, under a new index."""
    index = max(state.indices) + 1
    anchor = Head(len(state.emitted), state.emitted)
    return replace(
        state,
        heads=(*state.heads[:number], anchor, *state.heads[number + 1 :]),
        indices=(*state.indices[:number], index, *state.indices[number + 1 :]),
    )


def prefixes(subtree: Subtree, emitted: Prefix) -> list[Prefix]:
    """The tokens before each row of a subtree."""
    before = [emitted]
    for node, parent in zip(subtree.nodes, subtree.parents, strict=True):
        before.append((*before[parent], node.token))
    return before
