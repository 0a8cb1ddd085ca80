"""Sessions that are decided together are decided as each is by itself, to the last bit."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor

from outrider.errors import InternalError
from outrider.sampling.accepting import accept
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise, Stream, choose_all
from outrider.sampling.rules import Acceptance
from outrider.sampling.together import Question, accept_together
from outrider.sampling.warping import warp
from outrider.tree import Subtree, TokenTree
from outrider.types import AcceptanceMode, Chunk, Node, NodeKind, SamplingParams

TOGETHER = (
    SamplingParams(temperature=0),
    SamplingParams(),
    SamplingParams(temperature=0.6, top_k=3),
    SamplingParams(temperature=1.5, top_p=0.7),
    SamplingParams(min_p=0.1, mode=AcceptanceMode.MATCH),
)
APART = (
    SamplingParams(mode=AcceptanceMode.REJECTION),
    SamplingParams(mode=AcceptanceMode.BLOCK),
    SamplingParams(temperature=0, presence_penalty=1.0),
    SamplingParams(banned_token_ids=frozenset({1})),
)


def subtree(random: Random, vocab: int) -> Subtree:
    """Up to twelve LISTED nodes anywhere below one another."""
    tree = TokenTree()
    parents = [0]
    for counter in range(random.randrange(12)):
        node = Node(
            1 << 24 | counter, random.choice(parents), random.randrange(vocab), 0.5, NodeKind.LISTED
        )
        tree.grow(Chunk((node,), ()))
        parents.append(node.id)
    return tree.select(12)


def question(random: Random, vocab: int, sampling: SamplingParams) -> Question:
    """With sharp rows, so that the same few tokens are drafted and drawn."""
    nodes = subtree(random, min(vocab, 4))
    generator = torch.Generator().manual_seed(random.randrange(2**32))
    logits = torch.randn(1 + len(nodes), vocab, generator=generator)
    logits[:, :4] += 6
    ends = frozenset({2}) if random.random() < 0.5 else frozenset[int]()
    history = History.of(sampling, (), ends=ends)
    noise = PhiloxNoise(random.randrange(2**32))
    return Question(nodes, logits, sampling, noise, random.randrange(100), history)


def alone(one: Question) -> Acceptance:
    return accept(one.subtree, one.logits, one.sampling, one.noise, one.position, one.history)


@pytest.mark.parametrize("vocab", [4, 7, 64, 5000])
@pytest.mark.parametrize("seed", range(8))
def test_together_each_is_decided_as_alone(seed: int, vocab: int) -> None:
    random = Random(seed)
    kinds = [random.choice(TOGETHER) for _ in range(30)]
    questions = [question(random, vocab, sampling) for sampling in kinds]
    decided = accept_together(questions)
    assert decided == [alone(one) for one in questions]
    assert any(acceptance.path for acceptance in decided if acceptance is not None)


def test_what_looks_at_drafts_or_changes_rows_is_left_to_be_decided_alone() -> None:
    random = Random(1)
    questions = [question(random, 7, sampling) for sampling in (*APART, TOGETHER[1], *APART)]
    decided = accept_together(questions)
    assert [index for index, acceptance in enumerate(decided) if acceptance is not None] == [4]
    assert decided[4] == alone(questions[4])


def test_a_shortest_length_that_is_reached_is_decided_together() -> None:
    one = question(Random(3), 7, SamplingParams())
    waiting = replace(one.history, ends=frozenset({2}), min_tokens=2)
    reached = replace(waiting, length=2)
    decided = accept_together([replace(one, history=waiting), replace(one, history=reached)])
    assert decided == [None, alone(replace(one, history=reached))]


@pytest.mark.parametrize("sampling", TOGETHER)
def test_logits_that_are_no_numbers_are_left_to_fail_alone(sampling: SamplingParams) -> None:
    random = Random(5)
    questions = [question(random, 7, sampling) for _ in range(3)]
    questions[1].logits[0, 3] = torch.nan
    decided = accept_together(questions)
    assert decided[1] is None
    with pytest.raises(InternalError):
        alone(questions[1])
    for acceptance, one in zip(decided, questions, strict=True):
        assert acceptance is None or acceptance == alone(one)


def test_nothing_asked_is_nothing_decided() -> None:
    assert accept_together([]) == []


@pytest.mark.parametrize("sampling", [s for s in TOGETHER if not s.is_greedy])
@pytest.mark.parametrize("vocab", [5, 64, 1001])
def test_a_row_is_warped_to_the_same_bits_among_others(
    sampling: SamplingParams, vocab: int
) -> None:
    rows = torch.randn(17, vocab, generator=torch.Generator().manual_seed(1)) * 3
    assert bool((warp(rows, sampling) == torch.stack([warp(r, sampling) for r in rows])).all())


def weights(kind: str, vocab: int) -> Tensor:
    generator = torch.Generator().manual_seed(vocab)
    rows = torch.rand(40, vocab, generator=generator, dtype=torch.float64) ** 6
    if kind == "few":
        rows[torch.rand(40, vocab, generator=generator) < 0.7] = 0.0
        rows[:, 0] = 1.0
    if kind == "tiny":
        rows = rows * 1e-300
        rows[::3] = 0.0
        rows[::3, 1] = 5e-324
    return rows


@pytest.mark.parametrize("kind", ["all", "few", "tiny"])
@pytest.mark.parametrize("vocab", [2, 9, 64, 3000])
def test_races_run_together_have_the_same_winners(kind: str, vocab: int) -> None:
    rows = weights(kind, vocab)
    noises = [PhiloxNoise(seed) for seed in range(40)]
    positions = [7 * seed for seed in range(40)]
    winners = choose_all(rows, noises, positions, Stream.COUPLED)
    assert winners == [
        noise.choose(row, position, Stream.COUPLED)
        for noise, row, position in zip(noises, rows, positions, strict=True)
    ]
    assert winners == [
        noise.rank(row, vocab, position, Stream.COUPLED)[0]
        for noise, row, position in zip(noises, rows, positions, strict=True)
    ]
