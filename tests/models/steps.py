"""Steps that many tests take: prefill, feed a random tree, compare rows."""

import random
from collections.abc import Sequence

import torch

from outrider.models.base import TIP, CausalModel, Feed, ModelSequence

from .tiny import Oracle

PROMPT = [5, 17, 40, 41, 8, 90, 17, 40]
TOLERANCE = 1e-4


def prefill(model: CausalModel, tokens: Sequence[int]) -> tuple[ModelSequence, torch.Tensor]:
    """A sequence that holds all of `tokens`, and the row after them."""
    sequence = model.open(tokens)
    rest = tokens[len(sequence.tokens) :]
    first = sequence.next_node
    (rows,) = model.forward([Feed.chain(sequence, rest, [len(rest) - 1])])
    model.keep(sequence, range(first, first + len(rest)))
    return sequence, rows[0]


def same(row: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.allclose(row, other, atol=TOLERANCE, rtol=0))


def assert_rows(rows: torch.Tensor, oracle: Oracle, paths: Sequence[Sequence[int]]) -> None:
    for row, path in zip(rows, paths, strict=True):
        assert same(row, oracle(path)), path


def path_tokens(sequence: ModelSequence, number: int) -> list[int]:
    return sequence.tokens + [sequence.nodes[step].token for step in sequence.path(number)]


def feed_random_tree(
    model: CausalModel, sequence: ModelSequence, count: int, draw: random.Random
) -> torch.Tensor:
    """Feeds `count` tokens under random parents, among them nodes fed before."""
    first = sequence.next_node
    parents = [
        draw.choice([TIP, *sequence.nodes, *range(first, first + index)]) for index in range(count)
    ]
    tokens = [draw.randrange(2, 60) for _ in parents]
    (rows,) = model.forward([Feed(sequence, tuple(tokens), tuple(parents), tuple(range(count)))])
    return rows
