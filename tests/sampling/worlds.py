"""Targets and drafts for the enumeration: tables of distributions, and strategies for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from .enumeration import (
    Action,
    Deliver,
    Draft,
    MakeOnly,
    Prefix,
    Propose,
    Reopen,
    Verify,
    drawing_draft,
    listing_draft,
    production_draft,
)

WEIGHTS = (0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 0.01)


def examples(count: int) -> settings:
    """The same examples on every run."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Table:
    """Rows of unnormalised weights; the whole prefix decides which row comes next."""

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, prefix: Prefix) -> Tensor:
        """The distribution after a prefix, float64 [vocab]."""
        slot = sum((token + 1) * 7**place for place, token in enumerate(prefix))
        row = torch.tensor(self.rows[slot % len(self.rows)], dtype=torch.float64)
        return row / row.sum()


@dataclass(frozen=True)
class ByPrefix:
    """Rows of unnormalised weights for some prefixes, and one for all others."""

    rows: Mapping[Prefix, tuple[float, ...]]
    rest: tuple[float, ...] = (1, 1, 1)

    def __call__(self, prefix: Prefix) -> Tensor:
        """The distribution after a prefix, float64 [vocab]."""
        row = torch.tensor(self.rows.get(prefix, self.rest), dtype=torch.float64)
        return row / row.sum()


@dataclass(frozen=True)
class Sender:
    """A draft by its kind, so that a failing example can be read."""

    kind: str
    table: Table
    count: int = 1
    top_k: int = 64

    def build(self) -> Propose:
        """The draft itself."""
        if self.kind == "production":
            return production_draft(self.table, width=self.count, top_k=self.top_k)
        if self.kind == "drawing":
            return drawing_draft(self.table, count=self.count)
        return listing_draft(lambda prefix: self.table(prefix).topk(self.count).indices.tolist())


def rows(vocab: int) -> SearchStrategy[tuple[float, ...]]:
    """Weights with zeros, ties, one-hot rows and tiny values among them."""
    row = st.lists(st.sampled_from(WEIGHTS), min_size=vocab, max_size=vocab)
    return row.filter(any).map(tuple)


@st.composite
def tables(draw: DrawFn, vocab: int, count: int) -> tuple[Table, ...]:
    """`count` tables whose rows come from one small pool, so that p = q happens often."""
    pool = draw(st.lists(rows(vocab), min_size=2, max_size=5))
    picks = st.lists(st.sampled_from(pool), min_size=1, max_size=5)
    return tuple(Table(tuple(draw(picks))) for _ in range(count))


@st.composite
def senders(draw: DrawFn, table: Table, vocab: int) -> Sender:
    """Any kind of draft."""
    kind = draw(st.sampled_from(("production", "production", "drawing", "listing")))
    top_k = draw(st.sampled_from((64, 1, vocab - 1)))
    return Sender(kind, table, draw(st.integers(1, min(vocab, 3))), top_k)


@st.composite
def schedules(draw: DrawFn, num_drafts: int, depth: int) -> tuple[Action, ...]:
    """A cycle of actions that knows no tokens and verifies at least once."""
    number = st.integers(0, num_drafts - 1)
    levels = st.integers(1, depth)
    drafting = st.one_of(
        st.builds(Draft, number, levels),
        st.builds(Draft, number, levels),
        st.builds(MakeOnly, number, levels),
        st.builds(Deliver, number),
        st.builds(Reopen, number),
    )
    budget = st.builds(Verify, st.integers(0, 4))
    actions = [
        *draw(st.lists(drafting, min_size=1, max_size=4)),
        draw(budget),
        *draw(st.lists(drafting, max_size=2)),
    ]
    return (*actions, draw(budget))


def random_table(random: Random, vocab: int) -> Table:
    """Up to three rows, each with a zero now and then."""
    return Table(
        tuple(
            (*random.choices((0.0, 1.0, 1.0, 2.0, 4.0), k=vocab - 1), 1.0)
            for _ in range(random.randint(1, 3))
        )
    )


def random_sender(random: Random, vocab: int) -> Sender:
    """Any kind of draft, over a table of its own."""
    kind = random.choice(("production", "production", "drawing", "listing"))
    top_k = random.choice((64, vocab - 1))
    return Sender(kind, random_table(random, vocab), random.randint(1, 2), top_k)


def random_schedule(random: Random, num_drafts: int, depth: int) -> tuple[Action, ...]:
    """Every draft takes part, in any order and perhaps late; up to two rounds a cycle."""
    actions: list[Action] = []
    for number in random.sample(range(num_drafts), num_drafts):
        make = random.choice((Draft, Draft, MakeOnly))
        actions.append(make(number, random.randint(1, depth)))
    if random.random() < 0.5:
        actions.append(Verify(random.randint(0, 2)))
        number = random.randrange(num_drafts)
        actions += random.choice(([], [Deliver(number)], [Reopen(number)]))
    return (*actions, Deliver(0), Verify(random.randint(1, 4)))
