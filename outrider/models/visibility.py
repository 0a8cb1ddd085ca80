"""Which KV cells each token of a pass may look at. Arrays only: knows no device and no model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.models.base import TIP, Feed
from outrider.models.cells import CellSequence

SLICE_WASTE = 1.5
"""The pool is read as a slice where that is at most so many times as long as what is needed."""


@dataclass(frozen=True, slots=True)
class PassView:
    """One pass over all feeds: N tokens in feeding order, which read C columns of the pool.

    `columns` are the cells behind the columns, or None where column c is cell c. Row i needs only
    the first `limits[i]` columns, which never fall from row to row, so a pass can be run in
    pieces.
    """

    tokens: npt.NDArray[np.int64]  # [N]
    positions: npt.NDArray[np.int64]  # [N]
    written: npt.NDArray[np.int64]  # [N], the cell of each token
    columns: npt.NDArray[np.int64] | None  # [C]
    limits: npt.NDArray[np.int64]  # [N]
    visible: npt.NDArray[np.bool_]  # [N, C]
    key_positions: npt.NDArray[np.int64]  # [C]

    def seen(self, start: int, stop: int, limit: int, window: int) -> npt.NDArray[np.bool_]:
        """What rows `start` to `stop` see of the first `limit` columns, as bools [stop - start,
        limit].

        `window` tokens, the row's own included, are how far back the layer looks; 0 means all the
        way.
        """
        visible = self.visible[start:stop, :limit]
        if window == 0:
            return visible
        distance = self.positions[start:stop, None] - self.key_positions[None, :limit]
        return visible & (distance < window)


def view_pass(
    feeds: Sequence[Feed],
    reserved: Sequence[Sequence[int]],
    cell_positions: npt.NDArray[np.int64],
) -> PassView:
    """Lays out one pass; notes in `cell_positions` where the `reserved` cells' tokens stand."""
    sequences = [_cell_sequence(feed) for feed in feeds]
    is_needed = np.zeros(len(cell_positions), dtype=np.bool_)
    committed = [np.array(sequence.cells, dtype=np.int64) for sequence in sequences]
    for sequence, cells in zip(sequences, committed, strict=True):
        is_needed[cells] = True
        is_needed[list(sequence.node_cells.values())] = True
    earlier = is_needed.nonzero()[0]
    written = np.array([cell for cells in reserved for cell in cells], dtype=np.int64)
    count = len(earlier) + len(written)
    high = int(max(earlier.max(initial=-1), written.max(initial=-1))) + 1
    columns: npt.NDArray[np.int64] | None = None
    column_of = np.arange(len(cell_positions))
    if high > SLICE_WASTE * count:
        columns = np.concatenate([earlier, written])
        column_of[columns] = np.arange(count)
        high = count
    limits = np.maximum.accumulate(column_of[written]) + 1
    limits = np.maximum(limits, int(column_of[earlier].max(initial=-1)) + 1)
    visible = np.zeros((len(written), high), dtype=np.bool_)
    start = 0
    for feed, sequence, cells, own in zip(feeds, sequences, committed, reserved, strict=True):
        depths = _fill_rows(
            visible[start : start + len(own)], feed, sequence, cells, own, column_of
        )
        cell_positions[own] = depths
        start += len(own)
    return PassView(
        tokens=np.array([token for feed in feeds for token in feed.tokens], dtype=np.int64),
        positions=cell_positions[written],
        written=written,
        columns=columns,
        limits=limits,
        visible=visible,
        key_positions=cell_positions[:high] if columns is None else cell_positions[columns],
    )


def _fill_rows(
    rows: npt.NDArray[np.bool_],
    feed: Feed,
    sequence: CellSequence,
    committed: npt.NDArray[np.int64],
    own: Sequence[int],
    column_of: npt.NDArray[np.int64],
) -> list[int]:
    """Marks what each token sees: what its parent sees, and itself. Returns their positions."""
    tip_row = np.zeros(rows.shape[1], dtype=np.bool_)
    tip_row[column_of[committed]] = True
    first = sequence.next_node
    depths: list[int] = []
    for index, parent in enumerate(feed.parents):
        if parent == TIP:
            rows[index] = tip_row
            depths.append(len(sequence.tokens))
        elif parent >= first:
            rows[index] = rows[parent - first]
            depths.append(depths[parent - first] + 1)
        else:
            ancestors = [sequence.node_cells[number] for number in sequence.path(parent)]
            rows[index] = tip_row
            rows[index, column_of[ancestors]] = True
            depths.append(sequence.nodes[parent].position + 1)
        rows[index, column_of[own[index]]] = True
    return depths


def _cell_sequence(feed: Feed) -> CellSequence:
    if not isinstance(feed.sequence, CellSequence):
        raise TypeError("the ledger hands out CellSequence only")
    return feed.sequence
