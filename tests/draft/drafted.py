"""Openings, and draft sessions run by hand: pass after pass, commit after commit."""

from collections.abc import Iterable
from random import Random

from draft_service.chances import Cell, Chances
from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.plans import DraftPlan
from outrider.tree import TreeNode
from outrider.types import Chunk, DraftCommit, DraftOpening, Node, SamplingParams

VOCAB = 8
GREEDY = SamplingParams(temperature=0, seed=1)
Path = tuple[int, ...]


class FirstGuesses(Chances):
    """Learns nothing: what is proposed is a function of the context again."""

    def learn(self, cell: Cell, is_taken: bool) -> None:
        """Forgets it."""


def opening(
    prompt: Path = (1, 2, 3),
    emitted: Path = (),
    *,
    plan: DraftPlan | None = None,
    sampling: SamplingParams = GREEDY,
    tokenizer_hash: str = "",
    vocab_size: int = VOCAB,
    ends: Iterable[int] = (),
    min_tokens: int = 0,
) -> DraftOpening:
    """An opening of draft 1."""
    return DraftOpening(
        "s",
        1,
        prompt,
        emitted,
        sampling,
        plan or DraftPlan(4),
        tokenizer_hash,
        vocab_size,
        frozenset(ends),
        min_tokens,
    )


def step(drafter: Drafter, session: DraftSession, budget: int = 100) -> tuple[Node, ...] | None:
    """One pass; None where there was nothing to do."""
    task = session.task(budget)
    if task is None:
        return None
    assert 0 < len(task.tokens) <= budget
    (result,) = drafter.step([(session, task)])
    assert result is None or isinstance(result, Chunk)
    return result.nodes if result is not None else ()


def run(drafter: Drafter, session: DraftSession) -> list[Node]:
    """Passes until there is nothing left to do."""
    nodes: list[Node] = []
    while (more := step(drafter, session)) is not None:
        nodes += more
    return nodes


def path_of(node: TreeNode) -> Path:
    """Tokens from the tip down to a node."""
    tokens: list[int] = []
    at: TreeNode | None = node
    while at is not None and at.parent is not None:
        tokens.append(at.token)
        at = at.parent
    return tuple(reversed(tokens))


def drafted(session: DraftSession) -> dict[Path, float]:
    """All paths below the tip, and the chance of their last tokens."""
    return {path_of(n): n.chance for n in session.tree.root.descendants()}


def random_verdict(session: DraftSession, random: Random) -> list[int]:
    """Some of the drafted tokens, then a token that may or may not be drafted too."""
    tokens: list[int] = []
    node = session.tree.root
    while node.children and random.random() < 0.6:
        node = random.choice(list(node.children.values()))
        tokens.append(node.token)
    return [*tokens, random.randrange(VOCAB)]


def commit(
    drafter: Drafter,
    session: DraftSession,
    *tokens: int,
    plan: DraftPlan | None = None,
    fresh: bool = False,
) -> None:
    """A verdict, at the right place."""
    drafter.commit(session, DraftCommit(len(session.tree.committed), tokens, plan, fresh))
