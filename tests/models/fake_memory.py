"""A KV cache as llama.cpp keeps it: which cell a token gets, who refers to it, what is refused."""

import json
from collections.abc import Sequence


class FakeMemory:
    """Follows llama_kv_cache (`find_slot`, `seq_rm`, `seq_cp`) and the checks of a batch.

    With a `window`, what lies that far behind the end of a sequence is not saved.
    """

    def __init__(self, cells: int, window: int = 0) -> None:
        self.window = window
        self.cells: list[tuple[int, str] | None] = [None] * cells  # position, content
        self.owners: list[set[int]] = [set() for _ in range(cells)]
        self.head = 0

    def run(
        self, contents: Sequence[str], positions: Sequence[int], ids: Sequence[Sequence[int]]
    ) -> list[int]:
        """Where the tokens of a pass come to lie; AssertionError where llama.cpp would refuse."""
        for sequence in {owner for owners in ids for owner in owners}:
            own = [p for p, owners in zip(positions, ids, strict=True) if sequence in owners]
            start = self.length(sequence)
            assert own == list(range(start, start + len(own))), "positions go on, one by one"
        for owners in ids:
            assert len({self.length(owner) for owner in owners}) == 1, "coupled, and diverged"
        used = sum(cell is not None for cell in self.cells)
        at = 0 if self.head > used + 2 * len(contents) else self.head
        places: list[int] = []
        for _ in range(2 * len(self.cells)):
            if len(places) == len(contents):
                break
            at = at if at < len(self.cells) else 0
            if self.cells[at] is None and at not in places:
                places.append(at)
            at += 1
        assert len(places) == len(contents), "no slot"
        for place, content, position, owners in zip(places, contents, positions, ids, strict=True):
            self.cells[place] = (position, content)
            self.owners[place] = set(owners)
        self.head = places[-1] + 1
        return places

    def length(self, sequence: int) -> int:
        """One more than the last position of a sequence."""
        found = (
            cell[0]
            for cell, owners in zip(self.cells, self.owners, strict=True)
            if cell is not None and sequence in owners
        )
        return max(found, default=-1) + 1

    def path(self, sequence: int) -> list[tuple[int, int, str]]:
        """Place, position and content of the cells of a sequence, by position."""
        return sorted(
            (
                (place, cell[0], cell[1])
                for place, cell in enumerate(self.cells)
                if cell is not None and sequence in self.owners[place]
            ),
            key=lambda entry: entry[1],
        )

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        for place in self._places(source, start, stop):
            self.owners[place].add(target)

    def remove(self, sequence: int, start: int, stop: int) -> None:
        freed = []
        for place in self._places(sequence, start, stop):
            self.owners[place].discard(sequence)
            if not self.owners[place]:
                self.cells[place] = None
                freed.append(place)
        if freed:
            self.head = min(self.head, freed[0])

    def clear(self) -> None:
        self.__init__(len(self.cells), self.window)  # type: ignore[misc]

    def save(self, sequence: int) -> bytes:
        seen = max(0, self.length(sequence) - self.window) if self.window else 0
        cells = [self.cells[place] for place in self._places(sequence, seen, -1)]
        return json.dumps(cells).encode()

    def restore(self, sequence: int, state: bytes) -> None:
        self.remove(sequence, 0, -1)
        for position, content in json.loads(state):
            place = next(i for i in range(self.head, len(self.cells)) if self.cells[i] is None)
            self.cells[place] = (position, content)
            self.owners[place] = {sequence}
            self.head = place + 1

    def _places(self, sequence: int, start: int, stop: int) -> list[int]:
        return [
            place
            for place, cell in enumerate(self.cells)
            if cell is not None
            and sequence in self.owners[place]
            and start <= cell[0]
            and (stop < 0 or cell[0] < stop)
        ]
