"""How far two models that share a vocabulary agree, on texts that both read.

Knows models as `CausalModel` only. On texts like these the figures are what one drafted token is
accepted with: greedy agreement at temperature 0, the overlap at temperature 1. Text that the target
writes itself is easier than text that it only reads, so real acceptance is rather higher.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from outrider.models.base import CausalModel, Feed

TEXTS = (
    "Question: Why is the sky blue?\nAnswer: The sky is blue because sunlight is scattered by the "
    "molecules of the air, and blue light, whose waves are short, is scattered much more than red "
    "light. In the evening the light travels a longer way, and what is left of it is red.",
    "Once upon a time a small boat lay in the harbour of a village by the sea. Every morning a "
    "girl came down to the water, untied the rope and rowed out to the island, where her "
    "grandmother kept three goats and a lighthouse.",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"
    "    if not values:\n        raise ValueError('no values')\n    return total / len(values)\n",
    "To make a simple bread you need flour, water, salt and yeast. Mix the flour with the salt, "
    "add the yeast and the warm water, and knead the dough for ten minutes. Let it rise for an "
    "hour, then bake it for forty minutes in a hot oven.",
    "The river rises in the mountains of the south and flows through two lakes. Its valley was "
    "settled early: there are stone tools that are twelve thousand years old, and the remains of a "
    "Roman bridge. Today about two million people live along its banks.",
)
"""Plain prose and a piece of code. Short, so that measuring takes seconds."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `positions` rows: the part with the same likeliest token, and the mean 1 - TV(p, q)."""

    greedy: float
    overlap: float
    positions: int


def agreement(draft: CausalModel, target: CausalModel, texts: Sequence[Sequence[int]]) -> Agreement:
    """Both models' rows over all positions of the texts (token ids), at temperature 1.

    1 - TV(p, q) = sum of min(p, q): the acceptance rate of `rejection` (Leviathan et al. 2023,
    theorem 3.5). Where one vocabulary is wider, its further ids are left out.
    """
    same, shared = [], []
    for token_ids in texts:
        rows = [_rows(model, token_ids) for model in (draft, target)]
        width = min(row.shape[-1] for row in rows)
        q, p = (row[:, :width].double().softmax(dim=-1) for row in rows)
        same.append(q.argmax(dim=-1) == p.argmax(dim=-1))
        shared.append(torch.minimum(p, q).sum(dim=-1))
    greedy, overlaps = torch.cat(same), torch.cat(shared)
    return Agreement(float(greedy.double().mean()), float(overlaps.mean()), len(greedy))


def sample_texts(model: CausalModel) -> list[list[int]]:
    """TEXTS in the model's tokens, each cut to its context; without a tokenizer their bytes."""
    room = model.info.context_tokens
    if model.tokenizer is None:
        width = model.info.vocab_size
        return [[byte % width for byte in text.encode()[:room]] for text in TEXTS]
    return [model.tokenizer.encode(text)[:room] for text in TEXTS]


def _rows(model: CausalModel, token_ids: Sequence[int]) -> torch.Tensor:
    sequence = model.open(())
    (rows,) = model.forward([Feed.chain(sequence, token_ids, range(len(token_ids)))])
    model.close(sequence)
    return rows
