"""Which KV cell holds which token of which sequence. Bookkeeping: knows no tensors and no model.

All sequences share one pool of numbered cells. A cell may belong to several sequences (a common
prefix), so cells are reference counted, and dropping tokens never moves data. Closed sequences stay
cached; the least recently used goes first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models.base import Feed, ModelSequence
from outrider.models.pool import NEARBY_CELLS, CellPool

MAX_CACHED_SEQUENCES = 256
"""More closed sequences are not kept, so that looking for a common prefix stays cheap."""

RETRY_AFTER_S = 1.0
"""When other sequences may have made room."""


@dataclass(slots=True, eq=False)
class CellSequence(ModelSequence):
    """A sequence and its cells: `cells[i]` holds committed token i, `node_cells[number]` a node."""

    cells: list[int] = field(default_factory=list)
    node_cells: dict[int, int] = field(default_factory=dict)

    @property
    def recent_cells(self) -> list[int]:
        """Cells that were filled last, the last one at the end."""
        return [*self.cells[-NEARBY_CELLS:], *self.node_cells.values()]


class CellLedger:
    """Hands out the cells of one pool to sequences and takes them back."""

    def __init__(
        self, total: int, on_forget: "Callable[[CellSequence, list[int]], None] | None" = None
    ) -> None:
        """`on_forget` is called with each closed sequence that is cached no more, and those of its
        last cells that are free with it.
        """
        self.total = total
        self._pool = CellPool(total)
        self._on_forget = on_forget
        self._live: dict[int, CellSequence] = {}
        self._cached: dict[int, CellSequence] = {}

    @property
    def used(self) -> int:
        """Cells that hold a token of a live or cached sequence."""
        return self.total - self._pool.free

    @property
    def pinned(self) -> int:
        """Cells of live sequences: what is left when everything cached is evicted."""
        return len(_cells_of(self._live.values()))

    def open(self, token_ids: Sequence[int]) -> CellSequence:
        """A live sequence sharing the longest prefix that any holds, at most all but the last."""
        wanted = list(token_ids[:-1])
        best: CellSequence | None = None
        length = 0
        for candidate in (*self._live.values(), *self._cached.values()):
            common = common_prefix(candidate.tokens, wanted)
            if common > length:
                best, length = candidate, common
        sequence = CellSequence()
        if best is not None:
            sequence.tokens = best.tokens[:length]
            sequence.cells = best.cells[:length]
            self._pool.share(sequence.cells)
            if best.is_closed:
                self._cached[id(best)] = self._cached.pop(id(best))
        self._live[id(sequence)] = sequence
        return sequence

    def reserve(self, feeds: Sequence[Feed]) -> list[list[int]]:
        """Cells for the tokens of each feed; evicts cached sequences where that is needed.

        Raises CapacityError before anything is changed. `record` or `release` must follow.
        """
        sequences = [self.own(feed.sequence) for feed in feeds]
        needed = sum(len(feed.tokens) for feed in feeds)
        self._make_room(needed, sequences)
        return [
            self._pool.take(len(feed.tokens), sequence.recent_cells)
            for feed, sequence in zip(feeds, sequences, strict=True)
        ]

    def record(self, feeds: Sequence[Feed], reserved: Sequence[Sequence[int]]) -> None:
        """Makes the fed tokens uncommitted nodes that live in the reserved cells."""
        for feed, cells in zip(feeds, reserved, strict=True):
            sequence = self.own(feed.sequence)
            for token, parent, cell in zip(feed.tokens, feed.parents, cells, strict=True):
                sequence.node_cells[sequence.add(parent, token)] = cell

    def release(self, reserved: Iterable[Iterable[int]]) -> None:
        """Gives reserved cells back after a pass that failed."""
        for cells in reserved:
            self._pool.drop(cells)

    def keep(self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int]) -> None:
        """Commits `path`, keeps `surviving` below it and frees the cells of all other nodes."""
        owned = self.own(sequence)
        dropped = owned.commit(path, surviving)
        owned.cells.extend(owned.node_cells.pop(number) for number in path)
        self._pool.drop([owned.node_cells.pop(number) for number in dropped])

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence: nodes are freed, committed tokens stay cached. Twice is allowed."""
        if sequence.is_closed:
            return
        owned = self.own(sequence)
        self.keep(owned, (), ())
        owned.is_closed = True
        del self._live[id(owned)]
        self._cache(owned)

    def _cache(self, closed: CellSequence) -> None:
        """Keeps a closed sequence unless another covers it, and drops those that it covers."""
        for other in list(self._cached.values()):
            common = common_prefix(closed.tokens, other.tokens)
            if common == len(closed.tokens):
                self._cached[id(other)] = self._cached.pop(id(other))
                self._forget(closed)
                return
            if common == len(other.tokens):
                self._evict(other)
        if closed.tokens:
            self._cached[id(closed)] = closed
        else:
            self._forget(closed)
        while len(self._cached) > MAX_CACHED_SEQUENCES:
            self.evict()

    def own(self, sequence: ModelSequence) -> CellSequence:
        """`sequence` as what it is; raises InvalidArgumentError unless it is live here."""
        if sequence.is_closed:
            raise InvalidArgumentError("the sequence is closed; open a new one")
        owned = self._live.get(id(sequence))
        if owned is None:
            raise InvalidArgumentError(
                "the sequence belongs to another model; open it on the model that runs it"
            )
        return owned

    def _make_room(self, needed: int, sequences: Sequence[CellSequence]) -> None:
        """Evicts until `needed` cells are free. Where others are in the way, they will be gone."""
        if needed <= self._pool.free:
            return
        available = self.total - self.pinned
        if needed > available:
            could_fit = needed <= self.total - len(_cells_of(sequences))
            raise CapacityError(
                f"the pass needs {needed} KV cells for {len(sequences)} sequence(s) and "
                f"{available} of the {self.total} can be had; close sessions, give shorter prompts "
                "or raise kv_tokens",
                retry_after_s=RETRY_AFTER_S if could_fit else None,
                metadata={"needed": str(needed), "available": str(available)},
            )
        while self._pool.free < needed:
            self.evict()

    def evict(self) -> bool:
        """Forgets the cached sequence that was used longest ago; False: there is none."""
        oldest = next(iter(self._cached.values()), None)
        if oldest is not None:
            self._evict(oldest)
        return oldest is not None

    def _evict(self, sequence: CellSequence) -> None:
        del self._cached[id(sequence)]
        self._forget(sequence)

    def _forget(self, sequence: CellSequence) -> None:
        self._pool.drop(sequence.cells)
        if self._on_forget is not None:
            freed = [cell for cell in sequence.cells if self._pool.is_free(cell)]
            self._on_forget(sequence, freed)


def _cells_of(sequences: Iterable[CellSequence]) -> set[int]:
    cells: set[int] = set()
    for sequence in sequences:
        cells.update(sequence.cells, sequence.node_cells.values())
    return cells


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix; compares slices, so that a long match is no slow loop.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
