"""The ledger never loses a cell, and a pass reads only the cells that it needs."""

import numpy as np
import pytest

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models import cells
from outrider.models.base import TIP, Feed, ModelSequence
from outrider.models.cells import CellLedger, CellSequence, common_prefix
from outrider.models.visibility import view_pass


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


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4], 2), ([2], [1], 0)],
)
def test_common_prefix(left: list[int], right: list[int], length: int) -> None:
    assert common_prefix(left, right) == length


def test_a_pass_shows_each_token_its_path_only() -> None:
    ledger = CellLedger(10)
    sequence = fill(ledger, [1, 2])
    feed = Feed(sequence, (3, 4, 5), (TIP, TIP, 3), ())
    view = view_pass([feed], ledger.reserve([feed]), np.zeros(10, dtype=np.int64))
    assert view.columns is None
    assert view.positions.tolist() == [2, 2, 3]
    assert view.limits.tolist() == [3, 4, 5]
    seen = [np.flatnonzero(row).tolist() for row in view.visible]
    assert seen == [[0, 1, 2], [0, 1, 3], [0, 1, 3, 4]]


def test_a_pass_beside_a_long_idle_sequence_reads_its_own_cells() -> None:
    ledger = CellLedger(60)
    positions = np.zeros(60, dtype=np.int64)
    fill(ledger, [9] * 50)
    sequence = ledger.open([1, 2])
    feed = Feed.chain(sequence, [1, 2], [])
    view = view_pass([feed], ledger.reserve([feed]), positions)
    assert view.columns is not None
    assert view.columns.tolist() == [50, 51]
    assert view.visible.tolist() == [[True, False], [True, True]]


def test_a_window_hides_what_is_too_far_back() -> None:
    ledger = CellLedger(8)
    sequence = ledger.open([1])
    feed = Feed.chain(sequence, [1, 2, 3, 4], [])
    view = view_pass([feed], ledger.reserve([feed]), np.zeros(8, dtype=np.int64))
    seen = view.seen(0, 4, 4, 2)
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0], [0, 1], [1, 2], [2, 3]]
