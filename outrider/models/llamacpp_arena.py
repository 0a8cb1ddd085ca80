"""Which llama.cpp sequence and physical KV cell each token lies in. Knows no tensors and no text.

llama.cpp keeps a cell as long as some sequence id refers to it, and gives new tokens the first free
cells from a head on. Attention on the CPU adds up in cell order, so a row has the bits of a plain
decode only while the cells of every path lie in the order of their positions. So cells are handed
out upwards only: dropped tokens behind which others lie are held by the sequence DROPPED instead of
being freed, and when the end is reached everything that is alive is moved to the front, path by
path.

Each sequence has an id of its own for its committed tokens, and one for each leaf below them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider.errors import CapacityError, InternalError
from outrider.models.base import TIP, Feed
from outrider.models.cells import RETRY_AFTER_S, CellSequence

DROPPED = 0
MOVING = 1
RESERVED_IDS = 2


class Memory(Protocol):
    """The KV cache of a llama.cpp context. Positions run from `start` up to, not including, `stop`;
    a `stop` of -1 is the end."""

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Lets `target` refer to cells of `source`, too."""
        ...

    def remove(self, sequence: int, start: int, stop: int) -> None:
        """Lets `sequence` go of cells; those that nobody refers to are free."""
        ...

    def clear(self) -> None:
        """Frees every cell."""
        ...

    def save(self, sequence: int) -> bytes:
        """What the cells of a sequence hold, in cell order."""
        ...

    def restore(self, sequence: int, state: bytes) -> None:
        """Puts what was saved into the next free cells, under `sequence`."""
        ...


class Arena:
    """Places the logical cells of a `CellLedger` in `cells` physical ones, under `ids` ids.

    `window`: layers of the model look back no further than so many tokens; 0: all look at all.
    """

    def __init__(self, memory: Memory, logical: int, cells: int, ids: int, window: int = 0) -> None:
        self._memory = memory
        self._window = window or cells
        self._is_lost = False
        self._place = np.zeros(logical, dtype=np.int64)
        self._alive = np.zeros(cells, dtype=np.bool_)
        self._dropped = np.zeros(cells, dtype=np.bool_)
        self._top = 0
        self._free_ids = list(range(ids - 1, RESERVED_IDS - 1, -1))
        self._ids = ids
        self._trunks: dict[int, tuple[CellSequence, int]] = {}
        self._leaves: dict[int, dict[int, int]] = {}

    @property
    def free_ids(self) -> int:
        """Sequence ids that nobody has."""
        return len(self._free_ids)

    def open(self, sequence: CellSequence) -> None:
        """Gives a new sequence its id, over the prefix that it shares."""
        trunk = self._take_ids(1)[0]
        length = len(sequence.cells)
        if length:
            source = next(
                other_trunk
                for other, other_trunk in self._trunks.values()
                if other.cells[length - 1 : length] == sequence.cells[-1:]
            )
            self._memory.copy(source, trunk, 0, length)
        self._trunks[id(sequence)] = (sequence, trunk)
        self._leaves[id(sequence)] = {}

    def has_room(self, count: int) -> bool:
        """Whether `count` more tokens fit behind the last one."""
        return self._top + count <= len(self._alive)

    def enter(self, feed: Feed) -> "Entry":
        """Ids for each token of a feed: those of all leaves that it leads to.

        Raises CapacityError before anything is changed where too few ids are free. `settle` or
        `undo` must follow.
        """
        self._refuse_lost()
        sequence = self._trunks[id(feed.sequence)][0]
        leaves = self._leaves[id(sequence)]
        first = sequence.next_node
        inner = {parent - first for parent in feed.parents if parent >= first}
        attached: dict[int, list[list[int]]] = {}
        for leaf in range(len(feed.tokens)):
            if leaf in inner:
                continue
            path = [leaf]
            while feed.parents[path[-1]] >= first:
                path.append(feed.parents[path[-1]] - first)
            attached.setdefault(feed.parents[path[-1]], []).append(path)
        continued = {parent: leaves[parent] for parent in attached if parent in leaves}
        wanted = sum(len(paths) for paths in attached.values()) - len(continued)
        entry = Entry(sequence, continued, self._take_ids(wanted), [[] for _ in feed.tokens])
        unused = iter(entry.fresh)
        for parent, paths in attached.items():
            for index, path in enumerate(paths):
                if index == 0 and parent in continued:
                    owner = continued[parent]
                else:
                    owner = next(unused)
                    source = self._through(sequence, parent)
                    self._memory.copy(source, owner, 0, _length(sequence, parent))
                entry.leaves[first + path[0]] = owner
                for step in path:
                    entry.ids[step].append(owner)
        return entry

    def settle(self, entries: Sequence["Entry"], reserved: Sequence[Sequence[int]]) -> None:
        """The entered tokens were run, in their order: they lie behind all others."""
        for entry, cells in zip(entries, reserved, strict=True):
            leaves = self._leaves[id(entry.sequence)]
            for parent in entry.continued:
                del leaves[parent]
            leaves.update(entry.leaves)
            stop = self._top + len(cells)
            self._place[list(cells)] = np.arange(self._top, stop)
            self._alive[self._top : stop] = True
            self._top = stop

    def undo(self, entries: Sequence["Entry"]) -> None:
        """The entered tokens were not run, or not all of them."""
        for entry in entries:
            for parent, owner in entry.continued.items():
                self._memory.remove(owner, _length(entry.sequence, parent), -1)
            for owner in entry.fresh:
                self._memory.remove(owner, 0, -1)
            self._free_ids.extend(entry.fresh)

    def plan(
        self, sequence: CellSequence, path: Sequence[int], surviving: Collection[int]
    ) -> "Cut":
        """What a `keep` of the ledger is about to drop; `cut` then drops it. Changes nothing."""
        leaves = self._leaves[id(sequence)]
        ways = {owner: sequence.path(leaf) for leaf, owner in leaves.items()}
        staying = {*path, *surviving}
        parents = {node.parent for number, node in sequence.nodes.items() if number in staying}
        cut = Cut(sequence, len(path))
        for owner, way in ways.items():
            alive = 0
            while alive < len(way) and way[alive] in staying:
                alive += 1
            end = way[alive - 1] if alive else TIP
            stays = end != TIP and end not in path and end not in parents and end not in cut.kept
            if stays:
                cut.kept[end] = owner
            if path and path[-1] in way:
                cut.committer = owner
            cells = [sequence.node_cells[number] for number in way[alive:]]
            cut.drops.append(Drop(owner, len(sequence.tokens) + alive, cells, is_last=not stays))
        return cut

    def cut(self, cut: "Cut") -> None:
        """Commits and drops what the ledger has committed and dropped."""
        if cut.committed:
            trunk = self._trunks[id(cut.sequence)][1]
            length = len(cut.sequence.tokens)
            self._memory.copy(cut.committer, trunk, length - cut.committed, length)
        self._leaves[id(cut.sequence)] = cut.kept
        self._drop(cut.drops)

    def forget(self, sequence: CellSequence, freed: Sequence[int]) -> None:
        """The ledger has let go of a closed sequence; `freed` are its last cells, nobody's now."""
        _, trunk = self._trunks.pop(id(sequence))
        del self._leaves[id(sequence)]
        start = len(sequence.cells) - len(freed)
        self._drop([Drop(trunk, start, list(freed), is_last=True)])

    def compact(self) -> None:
        """Moves everything that is alive to the front; shared prefixes stay shared.

        Raises InternalError, then and ever after, where what was taken out could not be put back.
        """
        self._refuse_lost()
        paths: list[tuple[int, list[int]]] = []
        for sequence, trunk in self._trunks.values():
            paths.append((trunk, sequence.cells))
            for leaf, owner in self._leaves[id(sequence)].items():
                nodes = [sequence.node_cells[number] for number in sequence.path(leaf)]
                paths.append((owner, [*sequence.cells, *nodes]))
        home: dict[int, int] = {}
        moves: list[tuple[int, int, int, list[int], list[bytes]]] = []
        for owner, cells in paths:
            shared = 0
            while shared < len(cells) and cells[shared] in home:
                shared += 1
            source = home[cells[shared - 1]] if shared else owner
            states = self._saved(owner, shared, len(cells))
            moves.append((owner, source, shared, cells[shared:], states))
            home.update((cell, owner) for cell in cells[shared:])
        self._is_lost = True
        self._memory.clear()
        self._alive[:] = self._dropped[:] = False
        self._top = 0
        for owner, source, shared, cells, states in moves:
            if shared:
                self._memory.copy(source, owner, 0, shared)
            for state in states:
                self._memory.restore(MOVING, state)
                self._memory.copy(MOVING, owner, 0, -1)
                self._memory.remove(MOVING, 0, -1)
            stop = self._top + len(cells)
            self._place[cells] = np.arange(self._top, stop)
            self._alive[self._top : stop] = True
            self._top = stop
        self._is_lost = False

    def _saved(self, owner: int, start: int, stop: int) -> list[bytes]:
        """Tokens of a path. llama.cpp leaves out those that the last one of what it saves does not
        see, and a shorter prefix may be wanted: so no piece crosses a multiple of the window.
        """
        states: list[bytes] = []
        while start < stop:
            end = min((start // self._window + 1) * self._window, stop)
            self._memory.copy(owner, MOVING, start, end)
            try:
                states.append(self._memory.save(MOVING))
            finally:
                self._memory.remove(MOVING, 0, -1)
            start = end
        return states

    def _refuse_lost(self) -> None:
        if self._is_lost:
            raise InternalError("the KV cache was lost when it was moved; restart the service")

    def _drop(self, drops: Sequence["Drop"]) -> None:
        """Frees what lies behind everything that is alive or dropped; DROPPED takes the rest of it,
        and lets all go where nothing alive lies behind any of it.
        """
        places = {cell: int(self._place[cell]) for drop in drops for cell in drop.cells}
        self._alive[list(places.values())] = False
        top = _end(self._alive | self._dropped)
        for drop in drops:
            below = sum(1 for cell in drop.cells if places[cell] < top)
            if below:
                self._memory.copy(drop.owner, DROPPED, drop.start, drop.start + below)
            self._memory.remove(drop.owner, 0 if drop.is_last else drop.start, -1)
            if drop.is_last:
                self._free_ids.append(drop.owner)
        self._dropped[[place for place in places.values() if place < top]] = True
        alive = _end(self._alive)
        if alive < top and not self._dropped[:alive].any():
            self._memory.remove(DROPPED, 0, -1)
            self._dropped[:] = False
            top = alive
        self._top = top

    def _through(self, sequence: CellSequence, number: int) -> int:
        """An id whose path has the node `number`, or the sequence's own for the TIP."""
        if number == TIP:
            return self._trunks[id(sequence)][1]
        leaves = self._leaves[id(sequence)]
        return next(
            owner
            for leaf, owner in leaves.items()
            if leaf == number or number in sequence.path(leaf)
        )

    def _take_ids(self, count: int) -> list[int]:
        if count > len(self._free_ids):
            raise CapacityError(
                f"{count} more branches are wanted and {len(self._free_ids)} of "
                f"{self._ids - RESERVED_IDS} are free; run fewer sessions, or narrower trees",
                retry_after_s=RETRY_AFTER_S,
                metadata={"needed": str(count), "available": str(len(self._free_ids))},
            )
        return [self._free_ids.pop() for _ in range(count)]


@dataclass(slots=True)
class Entry:
    """Tokens about to be run: the ids of each, and leaves by node number with their ids: those that
    are continued, and those that are made."""

    sequence: CellSequence
    continued: dict[int, int]
    fresh: list[int]
    ids: list[list[int]]
    leaves: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop:
    """The cells at the end of `owner`'s path, from position `start` on; `is_last` ends the id."""

    owner: int
    start: int
    cells: list[int]
    is_last: bool


@dataclass(slots=True)
class Cut:
    """The leaves that a sequence keeps, what it drops, and how many tokens of `committer`'s path it
    commits."""

    sequence: CellSequence
    committed: int
    committer: int = DROPPED
    kept: dict[int, int] = field(default_factory=dict)
    drops: list[Drop] = field(default_factory=list)


def _length(sequence: CellSequence, number: int) -> int:
    """Tokens up to and including node `number`, or the TIP."""
    return len(sequence.tokens) if number == TIP else sequence.nodes[number].position + 1


def _end(cells: npt.NDArray[np.bool_]) -> int:
    """One more than the last of the cells that are set."""
    found = np.flatnonzero(cells)
    return int(found[-1]) + 1 if len(found) else 0
