"""Where tokens lie, against a model of llama.cpp's own bookkeeping: whatever sequences do."""

import random
from collections.abc import Sequence

import pytest

from outrider.errors import CapacityError, InternalError
from outrider.models.base import TIP, Feed
from outrider.models.cells import CellLedger, CellSequence
from outrider.models.llamacpp_arena import RESERVED_IDS, Arena

from .fake_memory import FakeMemory


class Placed:
    """A ledger, an arena and the memory behind it, driven as `LlamaCppModel` drives them."""

    def __init__(self, logical: int, cells: int, ids: int = 64, window: int = 0) -> None:
        self.memory = FakeMemory(cells, window)
        self.arena = Arena(self.memory, logical, cells, ids, window)
        self.ledger = CellLedger(logical, self.arena.forget)
        self.compactions = 0

    def open(self, tokens: Sequence[int]) -> CellSequence:
        while not self.arena.free_ids and self.ledger.evict():
            pass
        if not self.arena.free_ids:
            raise CapacityError("no id is left")
        sequence = self.ledger.open(tokens)
        self.arena.open(sequence)
        return sequence

    def forward(self, feeds: Sequence[Feed], *, fails_after: int | None = None) -> None:
        reserved = self.ledger.reserve(feeds)
        entries = []
        try:
            if not self.arena.has_room(sum(len(feed.tokens) for feed in feeds)):
                self.arena.compact()
                self.compactions += 1
            for feed in feeds:
                entries.append(self.arena.enter(feed))
            contents, positions, ids = [], [], []
            for feed, entry in zip(feeds, entries, strict=True):
                for index in range(len(feed.tokens)):
                    path = self._path(feed, index)
                    contents.append(repr(path))
                    positions.append(len(path) - 1)
                    ids.append(entry.ids[index])
            if fails_after is not None:
                some = slice(min(fails_after, len(contents)))
                self.memory.run(contents[some], positions[some], ids[some])
                raise RuntimeError("a pass that fails")
            self.memory.run(contents, positions, ids)
        except BaseException:
            self.arena.undo(entries)
            self.ledger.release(reserved)
            raise
        self.arena.settle(entries, reserved)
        self.ledger.record(feeds, reserved)

    def keep(self, sequence: CellSequence, path: Sequence[int], surviving: set[int]) -> None:
        cut = self.arena.plan(sequence, path, surviving)
        self.ledger.keep(sequence, path, surviving)
        self.arena.cut(cut)

    def close(self, sequence: CellSequence) -> None:
        self.keep(sequence, (), set())
        self.ledger.close(sequence)

    def check(self) -> None:
        """Every path is whole, of its own tokens, in the order of its cells, and where the arena
        says; nothing is free below what is taken."""
        arena, memory = self.arena, self.memory
        for sequence, trunk in arena._trunks.values():
            paths = [(trunk, sequence.tokens, sequence.cells)]
            covered: set[int] = set()
            for leaf, owner in arena._leaves[id(sequence)].items():
                way = sequence.path(leaf)
                covered.update(way)
                tokens = [*sequence.tokens, *(sequence.nodes[n].token for n in way)]
                cells = [*sequence.cells, *(sequence.node_cells[n] for n in way)]
                paths.append((owner, tokens, cells))
            assert covered == set(sequence.nodes)
            for owner, tokens, cells in paths:
                found = memory.path(owner)
                assert [entry[2] for entry in found] == [
                    repr(tokens[: i + 1]) for i in range(len(tokens))
                ]
                assert [entry[0] for entry in found] == [int(arena._place[c]) for c in cells]
                assert [entry[0] for entry in found] == sorted(entry[0] for entry in found)
        taken = [place for place, cell in enumerate(memory.cells) if cell is not None]
        assert taken == list(range(arena._top))
        assert memory.head == arena._top
        held = sum(len(leaves) for leaves in arena._leaves.values()) + len(arena._trunks)
        assert arena.free_ids == arena._ids - RESERVED_IDS - held

    def _path(self, feed: Feed, index: int) -> list[int]:
        tokens: list[int] = []
        while index >= 0:
            tokens.append(feed.tokens[index])
            parent = feed.parents[index]
            if parent < feed.sequence.next_node:
                return feed.sequence.context(parent, 10_000) + tokens[::-1]
            index = parent - feed.sequence.next_node
        raise AssertionError("a feed begins below a node or the tip")


def random_feed(sequence: CellSequence, draw: random.Random) -> Feed:
    first = sequence.next_node
    parents: list[int] = []
    for index in range(draw.randrange(1, 6)):
        parents.append(draw.choice([TIP, *sequence.nodes, *range(first, first + index)]))
    tokens = tuple(draw.randrange(4) for _ in parents)
    return Feed(sequence, tokens, tuple(parents), ())


def random_keep(placed: Placed, sequence: CellSequence, draw: random.Random) -> None:
    if not sequence.nodes:
        return
    path = sequence.path(draw.choice(list(sequence.nodes)))[: draw.randrange(0, 4)]
    tip = path[-1] if path else TIP
    surviving: set[int] = set()
    for number, node in sequence.nodes.items():
        if node.parent in surviving | {tip} and number not in path and draw.random() < 0.6:
            surviving.add(number)
    placed.keep(sequence, path, surviving)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_path_lies_in_order_where_the_arena_says(seed: int) -> None:
    draw = random.Random(seed)
    placed = Placed(
        logical=60,
        cells=60 + draw.choice([0, 3, 20]),
        ids=draw.choice([12, 64]),
        window=draw.choice([0, 2, 3]),
    )
    live: list[CellSequence] = []
    for _ in range(120):
        step = draw.random()
        try:
            if step < 0.15 or not live:
                live.append(placed.open([draw.randrange(2) for _ in range(draw.randrange(1, 9))]))
            elif step < 0.6:
                chosen = draw.sample(live, draw.randrange(1, min(3, len(live)) + 1))
                feeds = [random_feed(sequence, draw) for sequence in chosen]
                fails = draw.randrange(1, 4) if draw.random() < 0.15 else None
                placed.forward(feeds, fails_after=fails)
            elif step < 0.9:
                random_keep(placed, draw.choice(live), draw)
            else:
                placed.close(live.pop(draw.randrange(len(live))))
        except CapacityError:
            if live:
                placed.close(live.pop(0))
        except RuntimeError as error:
            assert "a pass that fails" in str(error)
        placed.check()


def test_a_chain_of_drafts_frees_its_cells_and_never_has_to_move() -> None:
    placed = Placed(logical=64, cells=64)
    sequence = placed.open([1])
    for length in range(1, 40):
        first = sequence.next_node
        placed.forward([Feed.chain(sequence, [1] * 8, ())])
        placed.keep(sequence, [first], set())
        assert placed.arena._top == length
    assert placed.compactions == 0


def test_moving_keeps_what_sequences_share() -> None:
    placed = Placed(logical=40, cells=40)
    first = placed.open([1, 2, 3])
    placed.forward([Feed.chain(first, [1, 2, 3], ())])
    placed.keep(first, [0, 1, 2], set())
    second = placed.open([1, 2, 3, 4])
    placed.forward([Feed(second, (7, 8), (TIP, TIP), ())])
    placed.arena.compact()
    placed.check()
    assert placed.arena._top == 5
    assert second.cells == first.cells


def test_moving_keeps_what_a_window_hides_from_the_end_but_not_from_a_shorter_prefix() -> None:
    placed = Placed(logical=40, cells=40, window=4)
    first = placed.open([1])
    placed.forward([Feed.chain(first, [1, 2, 3, 4, 5, 6, 7, 8, 9], ())])
    placed.keep(first, range(9), set())
    placed.arena.compact()
    placed.open([1, 2, 3, 4])
    placed.check()


def test_a_cache_that_was_lost_while_it_was_moved_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed = Placed(logical=40, cells=40)
    sequence = placed.open([1])
    placed.forward([Feed.chain(sequence, [1, 2], ())])

    def fail(*_: object) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(placed.memory, "save", fail)
        with pytest.raises(MemoryError):
            placed.arena.compact()
    placed.check()
    with monkeypatch.context() as patch:
        patch.setattr(placed.memory, "restore", fail)
        with pytest.raises(MemoryError):
            placed.arena.compact()
    with pytest.raises(InternalError, match="lost when it was moved"):
        placed.forward([Feed(sequence, (3,), (TIP,), ())])


def test_branches_are_refused_before_anything_changes_where_ids_are_short() -> None:
    placed = Placed(logical=40, cells=40, ids=RESERVED_IDS + 3)
    sequence = placed.open([1])
    with pytest.raises(CapacityError, match="3 more branches are wanted and 2 of 3 are free"):
        placed.forward([Feed(sequence, (1, 2, 3), (TIP,) * 3, ())])
    placed.check()
    placed.forward([Feed(sequence, (1, 2), (TIP,) * 2, ())])
    placed.check()


def test_when_nothing_is_alive_every_cell_is_free() -> None:
    placed = Placed(logical=40, cells=40)
    first, second = placed.open([1]), placed.open([2])
    for _ in range(3):
        placed.forward([Feed(first, (1, 2), (TIP, TIP), ()), Feed(second, (3,), (TIP,), ())])
        placed.keep(first, [first.next_node - 1], set())
        placed.keep(second, [second.next_node - 1], set())
    assert placed.arena._top > 6, "dropped tokens lie between those that are alive"
    placed.close(first)
    placed.close(second)
    while placed.ledger.evict():
        pass
    assert placed.arena._top == 0
    assert not any(placed.memory.cells)
