"""One target pass over many sessions decides for each what a pass over it alone decides."""

from collections.abc import Sequence
from random import Random

import pytest
from draft.gated import scripted

from outrider.models.base import ModelSequence
from outrider.models.scripted import ScriptedModel
from outrider.sampling.noise import PhiloxNoise
from outrider.tree import TokenTree
from outrider.types import AcceptanceMode, Chunk, Node, NodeKind, ProposalRow, SamplingParams
from verify_service.verifier import Outcome, Verifier, Work

VOCAB = 6
MODES = (
    SamplingParams(temperature=0, seed=0),
    SamplingParams(seed=3),
    SamplingParams(seed=3, mode=AcceptanceMode.REJECTION),
    SamplingParams(seed=3, mode=AcceptanceMode.MATCH),
)
ROW = (tuple(range(VOCAB)), (1 / VOCAB,) * VOCAB)


def random_tree(random: Random, is_drawn: bool) -> TokenTree:
    """Up to twelve nodes, LISTED or each drawn from a uniform row."""
    tree = TokenTree(capacity=64)
    parents = [0]
    children: dict[int, set[int]] = {}
    for counter in range(random.randrange(12)):
        parent = random.choice(parents)
        free = [t for t in range(VOCAB) if t not in children.setdefault(parent, set())]
        if not free:
            continue
        token = random.choice(free)
        children[parent].add(token)
        node = Node(
            1 << 24 | counter,
            parent,
            token,
            1 / VOCAB,
            NodeKind.SAMPLED if is_drawn else NodeKind.LISTED,
        )
        tree.grow(Chunk((node,), (ProposalRow(parent, *ROW),) if is_drawn else ()))
        parents.append(node.id)
    return tree


def work(model: ScriptedModel, random: Random) -> Work:
    """Some of a prompt is cached; a chunk of it, or the rest with a subtree below, is to be run."""
    sampling = random.choice(MODES)
    prompt = tuple(random.randrange(VOCAB) for _ in range(random.randrange(1, 6)))
    sequence = model.open(prompt)
    if len(prompt) > 2 and random.random() < 0.3:
        return Work(sequence, prompt[:1], None, sampling, PhiloxNoise(3), len(prompt))
    tree = random_tree(random, sampling.mode is AcceptanceMode.REJECTION)
    subtree = tree.select(random.randrange(10))
    return Work(sequence, prompt, subtree, sampling, PhiloxNoise(3), len(prompt))


def works(seed: int, count: int) -> tuple[ScriptedModel, list[Work]]:
    model = scripted(f"vocab={VOCAB}")
    random = Random(seed)
    return model, [work(model, random) for _ in range(count)]


def told(outcomes: Sequence[object], sequences: Sequence[ModelSequence]) -> list[object]:
    assert all(isinstance(outcome, Outcome) for outcome in outcomes)
    decided = [outcome.acceptance for outcome in outcomes if isinstance(outcome, Outcome)]
    return [
        (acceptance, list(sequence.tokens), dict(sequence.nodes))
        for acceptance, sequence in zip(decided, sequences, strict=True)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_a_batched_pass_decides_as_a_pass_over_each_alone(seed: int) -> None:
    model, together = works(seed, 5)
    batched = told(Verifier(model).step(together), [w.sequence for w in together])
    other, apart = works(seed, 5)
    verifier = Verifier(other)
    alone = told([verifier.step([w])[0] for w in apart], [w.sequence for w in apart])
    assert batched == alone


@pytest.mark.parametrize("seed", range(10))
def test_after_a_pass_the_cache_holds_what_stands_and_nothing_else(seed: int) -> None:
    model, batch = works(seed, 4)
    for one, outcome in zip(batch, Verifier(model).step(batch), strict=True):
        assert isinstance(outcome, Outcome)
        path: list[int] = []
        if outcome.acceptance is not None and one.subtree is not None:
            path = [one.subtree.nodes[row - 1].token for row in outcome.acceptance.path]
        assert one.sequence.tokens == [*one.pending, *path]
        assert not one.sequence.nodes


def test_a_chunk_of_a_prompt_fills_the_cache_and_decides_nothing() -> None:
    model = scripted(f"vocab={VOCAB}")
    sequence = model.open((1, 2, 3, 4))
    piece = Work(sequence, (1, 2), None, MODES[0], PhiloxNoise(0), 4)
    [outcome] = Verifier(model).step([piece])
    assert isinstance(outcome, Outcome)
    assert outcome.acceptance is None
    assert sequence.tokens == [1, 2]
