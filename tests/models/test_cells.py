"""The ledger never loses a cell, and a pass reads only the cells that it needs."""

import numpy as np
import pytest

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models import cells
from outrider.models.base import TIP, Feed, ModelSequence
from outrider.models.cells import CellLedger, CellSequence, common_prefix
from outrider.models.pool import CellPool
from outrider.models.visibility import PassView, view_pass


def fill(ledger: CellLedger, tokens: list[int]) -> CellSequence:
    sequence = ledger.open(tokens)
    rest = tokens[len(sequence.tokens) :]
    feed = Feed.chain(sequence, rest, [])
    first = sequence.next_node
    ledger.record([feed], ledger.reserve([feed]))
    ledger.keep(sequence, range(first, first + len(rest)), ())
    return sequence


def test_shared_cells_are_freed_with_their_last_owner() -> None:
    ledger = CellLedger(20)
    first = fill(ledger, [1, 2, 3, 4])
    second = fill(ledger, [1, 2, 3, 9, 9])
    assert second.cells[:3] == first.cells[:3]
    assert (ledger.used, ledger.pinned) == (6, 6)
    ledger.close(first)
    assert (ledger.used, ledger.pinned) == (6, 5)
    ledger.close(second)
    assert (ledger.used, ledger.pinned) == (6, 0)
    fill(ledger, [7] * 20)
    assert (ledger.used, ledger.pinned) == (20, 20)


def test_released_cells_can_be_reserved_again() -> None:
    ledger = CellLedger(4)
    sequence = ledger.open([1])
    feed = Feed.chain(sequence, [1, 2, 3, 4], [])
    for _ in range(3):
        ledger.release(ledger.reserve([feed]))
    assert ledger.used == 0


def test_what_another_cached_sequence_covers_is_not_kept_twice() -> None:
    ledger = CellLedger(20)
    for tokens in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2]):
        ledger.close(fill(ledger, tokens))
    assert (len(ledger._cached), ledger.used) == (1, 5)
    assert len(ledger.open([1, 2, 3, 4, 5, 6]).tokens) == 5


def test_the_number_of_cached_sequences_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MAX_CACHED_SEQUENCES", 3)
    ledger = CellLedger(100)
    for start in range(10):
        ledger.close(fill(ledger, [start, start]))
    assert (len(ledger._cached), ledger.used) == (3, 6)


def test_an_empty_sequence_leaves_nothing_behind() -> None:
    ledger = CellLedger(4)
    ledger.close(ledger.open([1, 2]))
    assert (ledger.used, len(ledger._cached)) == (0, 0)


def test_a_sequence_from_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="another model"):
        CellLedger(4).close(ModelSequence())


def test_a_refusal_says_how_many_cells_there_are() -> None:
    ledger = CellLedger(4)
    fill(ledger, [1, 2, 3])
    other = ledger.open([7, 8])
    with pytest.raises(
        CapacityError, match=r"needs 2 KV cells .* 1 of the 4 .* kv_tokens"
    ) as caught:
        ledger.reserve([Feed.chain(other, [7, 8], [])])
    assert caught.value.metadata == {"needed": "2", "available": "1"}
    assert caught.value.retry_after_s == 1.0, "the other sequence will be closed"


def test_what_can_never_fit_is_not_told_to_come_back() -> None:
    ledger = CellLedger(4)
    sequence = fill(ledger, [1, 2, 3])
    fill(ledger, [9])
    with pytest.raises(CapacityError) as caught:
        ledger.reserve([Feed.chain(sequence, [4, 5], [])])
    assert caught.value.retry_after_s is None
    with pytest.raises(CapacityError) as caught:
        ledger.reserve([Feed.chain(sequence, [4], [])])
    assert caught.value.retry_after_s == 1.0


def test_what_is_only_cached_gives_way_before_anybody_is_refused() -> None:
    """The least recently used first; what a live sequence shares with it stays."""
    ledger = CellLedger(8)
    for prompt in ([1, 2, 3], [4, 5, 6]):
        ledger.close(fill(ledger, prompt))
    live = fill(ledger, [1, 2, 7])
    assert (live.tokens, ledger.used) == ([1, 2, 7], 7)
    big = ledger.open([8] * 6)
    feed = Feed.chain(big, [8] * 5, [])
    ledger.record([feed], ledger.reserve([feed]))
    assert (ledger.used, len(ledger._cached)) == (8, 0)
    assert live.tokens == [1, 2, 7]
    with pytest.raises(CapacityError):
        ledger.reserve([Feed.chain(big, [8], [])])


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4], 2), ([2], [1], 0)],
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == length


def seen(view: PassView, window: int = 0) -> list[list[int]]:
    """The cells that each row of a pass sees."""
    cells = np.arange(100) + view.base if view.columns is None else view.columns
    rows = view.seen(0, len(view.tokens), window)
    return [sorted(cells[: len(row)][row].tolist()) for row in rows]


def view_of(ledger: CellLedger, *feeds: Feed, has_blocks: bool = True) -> PassView:
    positions = np.zeros(ledger.total, dtype=np.int64)
    return view_pass(feeds, ledger.reserve(feeds), positions, has_blocks)


def test_a_pass_shows_each_token_its_path_only() -> None:
    ledger = CellLedger(10)
    sequence = fill(ledger, [1, 2])
    view = view_of(ledger, Feed(sequence, (3, 4, 5), (TIP, TIP, 3), ()))
    assert view.columns is None
    assert view.positions.tolist() == [2, 2, 3]
    assert view.limits.tolist() == [3, 4, 5]
    assert seen(view) == [[0, 1, 2], [0, 1, 3], [0, 1, 3, 4]]


def test_a_window_hides_what_is_too_far_back() -> None:
    ledger = CellLedger(8)
    sequence = ledger.open([1])
    view = view_of(ledger, Feed.chain(sequence, [1, 2, 3, 4], []))
    assert seen(view, window=2) == [[0], [0, 1], [1, 2], [2, 3]]


def test_a_pass_beside_a_long_idle_sequence_reads_its_own_cells() -> None:
    ledger = CellLedger(60)
    fill(ledger, [9] * 50)
    view = view_of(ledger, Feed.chain(ledger.open([1, 2]), [1, 2], []))
    assert (view.columns, view.visible.shape) == (None, (2, 2))
    first, second = view.written.tolist()
    assert seen(view) == [[first], [first, second]]


@pytest.mark.parametrize("has_blocks", [True, False])
def test_what_lies_between_shared_and_own_cells_is_not_read(has_blocks: bool) -> None:
    ledger = CellLedger(60)
    first = fill(ledger, list(range(30)))
    second = fill(ledger, [0, 1, 99])
    feeds = [Feed(second, (5,), (TIP,), ())]
    view = view_of(ledger, *feeds, has_blocks=has_blocks)
    assert view.columns is not None
    assert view.visible.shape == (1, 4)
    assert seen(view) == [sorted([*first.cells[:2], second.cells[2], *view.written.tolist()])]


def test_blocks_hold_all_that_their_rows_see_in_any_piece() -> None:
    ledger = CellLedger(200)
    sequences = [fill(ledger, [k, *range(12)]) for k in range(3)]
    sequences.append(fill(ledger, [0, *range(12), 50, 51]))
    feeds = [Feed(s, (3, 4, 5), (TIP, TIP, s.next_node), ()) for s in sequences]
    view = view_of(ledger, *feeds)
    rows = len(view.tokens)
    for start in range(rows):
        for stop in range(start + 1, rows + 1):
            covered = np.zeros_like(view.seen(start, stop, 0))
            for block in view.blocks_within(start, stop):
                covered[block.start : block.stop, block.low : block.high] = True
            assert not (view.seen(start, stop, 0) & ~covered).any()
            assert view.seen(start, stop, 0).sum() == view.visible[start:stop].sum()


def test_sequences_that_grow_side_by_side_stay_in_one_piece() -> None:
    ledger = CellLedger(400)
    sequences = [fill(ledger, [k] * 20) for k in range(4)]
    for _ in range(30):
        for sequence in sequences:
            feed = Feed(sequence, (7, 8, 9), (TIP, TIP, TIP), ())
            ledger.record([feed], ledger.reserve([feed]))
            ledger.keep(sequence, [sequence.next_node - 1], ())
    for sequence in sequences:
        assert max(sequence.cells) - min(sequence.cells) < 55


def test_a_crowded_pool_gives_every_free_cell() -> None:
    pool = CellPool(10)
    assert pool.take(4, []) == [0, 1, 2, 3]
    assert pool.take(2, []) == [6, 7]
    pool.drop([1])
    assert pool.take(1, [0, 1, 2, 3]) == [1]
    pool.drop([1])
    assert pool.take(5, [6, 7]) == [1, 4, 5, 8, 9]
    assert pool.free == 0
