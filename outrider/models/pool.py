"""The numbered KV cells of one pool: which are free, and which to take. Knows no sequences.

Cells of one sequence are best close together: what lies between them costs attention time. So a
sequence takes the cells after its last one, and a new one begins in the middle of the largest gap,
which leaves room to grow for both neighbours.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from outrider.errors import InvalidArgumentError

NEARBY_CELLS = 32
"""How far from the expected place a sequence looks for free cells."""


class CellPool:
    """Reference counts of `total` cells; a cell is free while nobody refers to it."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise InvalidArgumentError(f"kv_tokens is {total}; give at least 1")
        self.total = total
        self._references = np.zeros(total, dtype=np.int32)

    @property
    def free(self) -> int:
        """Cells that nobody refers to."""
        return self.total - int(np.count_nonzero(self._references))

    def take(self, count: int, recent: Sequence[int]) -> list[int]:
        """`count` free cells in ascending order, referred to once, beside the `recent` ones.

        Without recent cells, or where there is no room, they come from the largest gap. The caller
        makes sure that so many are free.
        """
        is_free = self._references == 0
        start = _beside(recent) if recent else self._roomiest(is_free, count)
        cells = start + np.flatnonzero(is_free[start : start + count + 2 * NEARBY_CELLS])[:count]
        if len(cells) < count and recent:
            start = self._roomiest(is_free, count)
            cells = start + np.flatnonzero(is_free[start : start + count])
        if len(cells) < count:
            cells = np.flatnonzero(is_free)[:count]
        self._references[cells] = 1
        taken: list[int] = cells.tolist()
        return taken

    def is_free(self, cell: int) -> bool:
        """Whether nobody refers to the cell."""
        return not self._references[cell]

    def share(self, cells: Iterable[int]) -> None:
        """Refers to each of the cells once more."""
        self._references[list(cells)] += 1

    def drop(self, cells: Iterable[int]) -> None:
        """Refers to each of the cells once less."""
        self._references[list(cells)] -= 1

    def _roomiest(self, is_free: "np.ndarray[tuple[int], np.dtype[np.bool_]]", count: int) -> int:
        """Where `count` cells fit into the largest gap with room left on both sides."""
        edges = np.flatnonzero(np.diff(is_free, prepend=False, append=False))
        starts, stops = edges[::2], edges[1::2]
        if len(starts) == 0:
            return 0
        largest = int(np.argmax(stops - starts))
        start, length = int(starts[largest]), int(stops[largest] - starts[largest])
        return start + max(length - count, 0) // 2 if start > 0 else 0


def _beside(recent: Sequence[int]) -> int:
    """Where to look first: at the holes among the recent cells, but not far from the last."""
    last = recent[-1]
    return min(cell for cell in recent if last - NEARBY_CELLS < cell <= last)
