"""A draft session and a target's model, run round by round without services."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_service.drafter import Drafter
from outrider.models.base import CausalModel, Feed, ModelSequence
from outrider.plans import DraftPlan
from outrider.sampling.accepting import accept
from outrider.sampling.noise import PhiloxNoise
from outrider.tree import Subtree, TokenTree
from outrider.types import Chunk, DraftCommit, DraftOpening, SamplingParams


@dataclass
class Answer:
    """What was emitted; of how many nodes that were verified how many stood, in how many passes."""

    tokens: list[int] = field(default_factory=list)
    passes: int = 0
    verified: int = 0
    accepted: int = 0


def tell(drafter: Drafter, target: CausalModel) -> int:
    """Tells the draft the target's vocabulary; returns how many tokens both have."""
    assert target.tokenizer is not None
    vocabulary = target.tokenizer.vocabulary
    known = drafter.vocabularies.read(vocabulary.hash, vocabulary)
    return drafter.vocabularies.keep(vocabulary.hash, known)


def answer(
    target: CausalModel,
    prompt: Sequence[int],
    count: int,
    sampling: SamplingParams,
    drafter: Drafter | None = None,
    plan: DraftPlan | None = None,
) -> Answer:
    """`count` tokens, with a draft or by the target alone."""
    result = Answer()
    tree = TokenTree()
    sequence = target.open(prompt)
    noise = PhiloxNoise(sampling.seed or 0)
    plan = plan or DraftPlan(4, 1)
    if drafter is not None:
        session = drafter.open(
            DraftOpening(
                "s",
                1,
                tuple(prompt),
                (),
                sampling,
                plan,
                target.info.tokenizer_hash,
                target.info.vocab_size,
            )
        )
    while len(result.tokens) < count:
        while drafter is not None and (task := session.task(512)) is not None:
            [chunk] = drafter.step([(session, task)])
            assert chunk is None or isinstance(chunk, Chunk), chunk
            if chunk is not None:
                assert tree.grow(chunk).added == len(chunk.nodes)
        subtree = tree.select(16)
        pending = [*prompt, *result.tokens][len(sequence.tokens) :]
        first = sequence.next_node
        (rows,) = target.forward([_feed(sequence, pending, subtree)])
        position = len(prompt) + len(result.tokens)
        verdict = accept(subtree, rows, sampling, noise, position)
        tokens = [*(subtree.nodes[row - 1].token for row in verdict.path), verdict.token]
        fed = range(first, first + len(pending))
        target.keep(sequence, [*fed, *(fed[-1] + row for row in verdict.path)])
        base = len(tree.committed)
        tree.commit(tokens, fresh=verdict.fresh)
        if drafter is not None:
            drafter.commit(session, DraftCommit(base, tuple(tokens), fresh=verdict.fresh))
        result.tokens += tokens
        result.passes += 1
        result.verified += len(subtree)
        result.accepted += len(verdict.path)
    target.close(sequence)
    if drafter is not None:
        drafter.close(session)
    return result


def _feed(sequence: ModelSequence, pending: Sequence[int], subtree: Subtree) -> Feed:
    """The committed tokens without KV as a chain, the nodes below its end."""
    feed = Feed.chain(sequence, pending, ())
    tip = feed.sequence.next_node + len(pending) - 1
    return Feed(
        feed.sequence,
        (*pending, *(node.token for node in subtree.nodes)),
        (*feed.parents, *(tip + parent for parent in subtree.parents)),
        tuple(len(pending) - 1 + row for row in range(1 + len(subtree))),
    )
