"""What draft and verify ask of a model. Knows ids and logits; knows no text, sampling or gRPC.

A sequence has committed tokens in its KV cache and, below their tip, *uncommitted nodes*: a tree of
tokens whose KV is there too. Nodes are numbered by the model in feeding order, so a caller can name
the parents of what it is about to feed. `keep` turns a path of nodes into committed tokens and
drops the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

TIP = -1
"""Parent number of nodes that hang off the committed tip."""


@dataclass(slots=True)
class CachedNode:
    """An uncommitted node: its parent's number or TIP, its token, how many come before it."""

    parent: int
    token: int
    position: int


@dataclass(slots=True, eq=False)
class ModelSequence:
    """One sequence as the model holds it. Only the model writes to it."""

    tokens: list[int] = field(default_factory=list)
    nodes: dict[int, CachedNode] = field(default_factory=dict)
    next_node: int = 0
    is_closed: bool = False

    @property
    def held(self) -> int:
        """Tokens and nodes that have KV."""
        return len(self.tokens) + len(self.nodes)

    def add(self, parent: int, token: int) -> int:
        """Records a fed node and returns its number."""
        position = len(self.tokens) if parent == TIP else self.nodes[parent].position + 1
        number = self.next_node
        self.nodes[number] = CachedNode(parent, token, position)
        self.next_node += 1
        return number

    def path(self, number: int) -> list[int]:
        """Numbers of the uncommitted nodes from the tip down to `number`, itself included."""
        path: list[int] = []
        while number != TIP:
            path.append(number)
            number = self.nodes[number].parent
        return path[::-1]

    def context(self, number: int, length: int) -> list[int]:
        """The last `length` tokens up to and including node `number`, or up to the TIP."""
        tokens: list[int] = []
        while number != TIP and len(tokens) < length:
            node = self.nodes[number]
            tokens.append(node.token)
            number = node.parent
        missing = length - len(tokens)
        committed = self.tokens[-missing:] if missing > 0 else []
        return committed + tokens[::-1]

    def commit(self, path: Sequence[int], surviving: Iterable[int]) -> list[int]:
        """Makes `path` committed, keeps `surviving` below it; returns the numbers it dropped."""
        expected = TIP
        for number in path:
            if number not in self.nodes or self.nodes[number].parent != expected:
                raise InvalidArgumentError(
                    f"node {number} does not continue the path at node {expected}; "
                    "give the numbers of a path that starts at the committed tip"
                )
            expected = number
        tip = path[-1] if path else TIP
        kept = set(surviving)
        for number in kept:
            if number not in self.nodes or self.nodes[number].parent not in kept | {tip}:
                raise InvalidArgumentError(
                    f"node {number} cannot survive: its parent neither survives nor is the new tip"
                )
        self.tokens.extend(self.nodes[number].token for number in path)
        staying = kept.union(path)
        dropped = [n for n in self.nodes if n not in staying]
        self.nodes = {n: self.nodes[n] for n in self.nodes if n in kept}
        for node in self.nodes.values():
            if node.parent == tip:
                node.parent = TIP
        return dropped


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to run for one sequence, parents first.

    `parents[i]` is the number of an uncommitted node, or TIP; token i itself gets the number
    `sequence.next_node + i`. `rows` are the indices of the tokens whose logits are wanted.
    """

    sequence: ModelSequence
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def chain(cls, sequence: ModelSequence, tokens: Sequence[int], rows: Sequence[int]) -> "Feed":
        """Tokens that follow one another from the committed tip."""
        first = sequence.next_node
        parents = tuple(TIP if i == 0 else first + i - 1 for i in range(len(tokens)))
        return cls(sequence, tuple(tokens), parents, tuple(rows))


class Tokenizer(Protocol):
    """Text to ids, as the model's own tokenizer does it."""

    vocabulary: Vocabulary
    bos_token_id: int | None
    """The begin-of-sequence token that `encode` puts first; None where it puts none."""

    def encode(self, text: str) -> list[int]:
        """Ids of raw text, with one begin-of-sequence token where the tokenizer adds one."""
        ...

    def encode_within(self, text: str) -> list[int]:
        """Ids of a part of a text: nothing is added around it."""
        ...

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of (role, content) messages under the chat template, with a generation prompt."""
        ...


@runtime_checkable
class CausalModel(Protocol):
    """A decoder-only language model with a KV cache for many sequences. One thread drives it."""

    info: ModelInfo
    tokenizer: Tokenizer | None

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A new sequence with the longest cached prefix of `token_ids`, at most all but the last.

        `len(sequence.tokens)` is how much was cached; the caller feeds the rest.
        """
        ...

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        """Runs all feeds in one pass and returns, per feed, logits [len(rows), vocab_size].

        Rows are float32, or float64 where the model computes in it. A row that is -inf everywhere
        proposes nothing; only draft-only models (`ngram`) make one.
        Where `info.vocab_size` is 0 a row is as wide as the model likes, and missing ids are -inf.

        Raises CapacityError before anything is changed where the KV cache has no room, and
        InvalidArgumentError for an unknown parent, a token outside the vocabulary or a sequence
        longer than `info.context_tokens`.
        """
        ...

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        """Commits the nodes of `path`, from the tip down, keeps `surviving`, drops the others."""
        ...

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence; its committed prefix stays cached until the room is needed."""
        ...


def check_feeds(feeds: Sequence[Feed], vocab_size: int, context_tokens: int = 0) -> None:
    """Refuses feeds that no model could run: closed sequences, unknown parents, impossible ids.

    `vocab_size` 0 and `context_tokens` 0 mean no limit. Raises InvalidArgumentError; changes
    nothing.
    """
    if len({id(feed.sequence) for feed in feeds}) != len(feeds):
        raise InvalidArgumentError(
            "a sequence occurs twice in one pass; give each at most one feed"
        )
    for feed in feeds:
        if feed.sequence.is_closed:
            raise InvalidArgumentError("the sequence is closed; open a new one")
        if not feed.tokens or len(feed.tokens) != len(feed.parents):
            raise InvalidArgumentError(
                f"{len(feed.tokens)} tokens came with {len(feed.parents)} parents; give one parent "
                "for each, and at least one token"
            )
        first = feed.sequence.next_node
        positions: list[int] = []
        for index, (token, parent) in enumerate(zip(feed.tokens, feed.parents, strict=True)):
            if not 0 <= token < (vocab_size or 2**31):
                raise InvalidArgumentError(
                    f"token id {token} is outside the vocabulary of {vocab_size or 2**31} ids"
                )
            if parent == TIP:
                positions.append(len(feed.sequence.tokens))
            elif parent in feed.sequence.nodes:
                positions.append(feed.sequence.nodes[parent].position + 1)
            elif first <= parent < first + index:
                positions.append(positions[parent - first] + 1)
            else:
                raise InvalidArgumentError(
                    f"parent {parent} is unknown; feed parents before their children"
                )
        if context_tokens and max(positions) >= context_tokens:
            raise InvalidArgumentError(
                f"the sequence would be {max(positions) + 1} tokens long and the model's context "
                f"is {context_tokens}; give a shorter prompt or fewer tokens"
            )
        for row in feed.rows:
            if not 0 <= row < len(feed.tokens):
                raise InvalidArgumentError(
                    f"row {row} was asked for; the feed has {len(feed.tokens)} tokens"
                )
