"""Which KV cells each token of a pass may look at. Arrays only: knows no device and no model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.models.base import TIP, Feed
from outrider.models.cells import CellSequence

SLICE_WASTE = 1.5
"""The pool is read in place where at most so many times what is needed has to be read."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Block:
    """Rows `start` to `stop` of a pass, one sequence's, see only columns `low` to `high`."""

    start: int
    stop: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PassView:
    """One pass over all feeds: N tokens in feeding order, which read C columns of the pool.

    `columns` are the cells behind the columns, or None where column c is cell `base + c`. Row i
    needs only the first `limits[i]` columns, which never fall from row to row, so that a pass can
    be run in pieces.
    """

    tokens: Integers  # [N]
    positions: Integers  # [N]
    written: Integers  # [N], the cell of each token
    columns: Integers | None  # [C]
    base: int
    limits: Integers  # [N]
    blocks: tuple[Block, ...]
    visible: Booleans  # [N, C]
    key_positions: Integers  # [C]

    def seen(self, start: int, stop: int, window: int) -> Booleans:
        """What rows `start` to `stop` see of the columns that they need, [rows, columns].

        `window` tokens, the row's own included, are how far back a layer looks; 0 means all.
        """
        limit = self.limits[stop - 1]
        visible = self.visible[start:stop, :limit]
        if window == 0:
            return visible
        distance = self.positions[start:stop, None] - self.key_positions[None, :limit]
        return visible & (distance < window)

    def blocks_within(self, start: int, stop: int) -> tuple[Block, ...]:
        """The blocks of rows `start` to `stop`, counted from `start`."""
        limit = int(self.limits[stop - 1])
        return tuple(
            Block(
                max(block.start, start) - start,
                min(block.stop, stop) - start,
                block.low,
                min(block.high, limit),
            )
            for block in self.blocks
            if block.start < stop and start < block.stop
        )


def view_pass(
    feeds: Sequence[Feed],
    reserved: Sequence[Sequence[int]],
    cell_positions: Integers,
    has_blocks: bool,
) -> PassView:
    """Lays out one pass; notes in `cell_positions` where the `reserved` cells' tokens stand.

    `has_blocks` tells whether the attention skips what lies outside of the blocks.
    """
    sequences = [_cell_sequence(feed) for feed in feeds]
    earlier = [
        np.array([*sequence.cells, *sequence.node_cells.values()], dtype=np.int64)
        for sequence in sequences
    ]
    own = [np.array(cells, dtype=np.int64) for cells in reserved]
    written = np.concatenate(own)
    used = [np.concatenate(pair) for pair in zip(earlier, own, strict=True)]
    base = min(int(cells.min()) for cells in used)
    high = max(int(cells.max()) for cells in used) + 1
    count = sum(len(cells) for cells in used)
    spans = [int(cells.max() - cells.min()) + 1 for cells in used]
    is_gathered = (sum(spans) if has_blocks else high - base) > SLICE_WASTE * count
    width = count if is_gathered else high - base
    column_of = np.arange(len(cell_positions)) - base
    visible = np.zeros((len(written), width), dtype=np.bool_)
    limits = np.zeros(len(written), dtype=np.int64)
    blocks: list[Block] = []
    start = offset = 0
    for index, feed in enumerate(feeds):
        stop = start + len(feed.tokens)
        if is_gathered:  # a cell that sequences share has a column in each of their blocks
            column_of[used[index]] = np.arange(offset, offset + len(used[index]))
            offset += len(used[index])
        columns = column_of[used[index]]
        blocks.append(Block(start, stop, int(columns.min()), int(columns.max()) + 1))
        needed = int(column_of[earlier[index]].max(initial=-1)) + 1
        limits[start:stop] = np.maximum(column_of[own[index]] + 1, needed)
        cell_positions[own[index]] = _fill_rows(
            visible[start:stop], feed, sequences[index], reserved[index], column_of
        )
        start = stop
    read = np.concatenate(used) if is_gathered else np.arange(base, high)
    return PassView(
        tokens=np.array([token for feed in feeds for token in feed.tokens], dtype=np.int64),
        positions=cell_positions[written],
        written=written,
        columns=read if is_gathered else None,
        base=base,
        limits=np.maximum.accumulate(limits),
        blocks=tuple(blocks),
        visible=visible,
        key_positions=cell_positions[read],
    )


def _fill_rows(
    rows: Booleans,
    feed: Feed,
    sequence: CellSequence,
    own: Sequence[int],
    column_of: Integers,
) -> list[int]:
    """Marks what each token sees: what its parent sees, and itself. Returns their positions."""
    tip_row = np.zeros(rows.shape[1], dtype=np.bool_)
    tip_row[column_of[np.array(sequence.cells, dtype=np.int64)]] = True
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
