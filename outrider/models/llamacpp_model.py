"""A GGUF model behind the model protocol: logical cells of the ledger, placed by the arena.

Knows no files and no settings.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from outrider.errors import CapacityError
from outrider.models.base import TIP, Feed, ModelSequence, Tokenizer, check_feeds
from outrider.models.cells import RETRY_AFTER_S, CellLedger
from outrider.models.llamacpp_arena import Arena, Entry
from outrider.models.llamacpp_library import MAX_IDS, Context, LoadedModel
from outrider.models.llamacpp_sizes import PADDING, SPARE_SHARE
from outrider.types import ModelInfo


class LlamaCppModel:
    """A llama.cpp model whose sequences share one context.

    Rows are float32. On the CPU they have the same bits in every pass. For quantised weights these
    are the bits of a plain decode; unquantised ones take other kernels for one row than for
    several, and here always those for several.
    """

    tokenizer: Tokenizer | None

    def __init__(
        self,
        model: LoadedModel,
        info: ModelInfo,
        tokenizer: Tokenizer | None,
        kv_tokens: int,
        threads: int,
        kv_dtype: str = "auto",
        ids: int = MAX_IDS,
        spare: int | None = None,
    ) -> None:
        """`spare` cells more than `kv_tokens` are used; None: a share of them."""
        self.info = info
        self.tokenizer = tokenizer
        self._model = model
        self._threads = threads
        self._kv_dtype = kv_dtype
        wanted = kv_tokens + (kv_tokens // SPARE_SHARE if spare is None else spare)
        cells = -(-wanted // PADDING) * PADDING
        self._context = Context(model, cells, threads, kv_dtype)
        usable = cells if spare is None else wanted
        self._arena = Arena(self._context, kv_tokens, usable, ids, model.window)
        self.cells = CellLedger(kv_tokens, self._arena.forget)

    def resized(
        self, kv_tokens: int, ids: int = MAX_IDS, spare: int | None = None
    ) -> "LlamaCppModel":
        """The same weights with an empty KV cache."""
        return LlamaCppModel(
            self._model,
            self.info,
            self.tokenizer,
            kv_tokens,
            self._threads,
            self._kv_dtype,
            ids,
            spare,
        )

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A new sequence with the longest cached prefix of `token_ids`, less than all.

        Raises CapacityError where llama.cpp has no sequence id left.
        """
        # One for the sequence, and one without which not even a single token could be run.
        while self._arena.free_ids < 2 and self.cells.evict():
            pass
        if self._arena.free_ids < 2:
            raise CapacityError(
                f"all sequences and branches that llama.cpp can hold ({MAX_IDS}) are in use; close "
                "some",
                retry_after_s=RETRY_AFTER_S,
            )
        sequence = self.cells.open(token_ids)
        self._arena.open(sequence)
        return sequence

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        """Float32 logits [len(rows), vocab_size] per feed; see the protocol."""
        if not feeds:
            return []
        check_feeds(feeds, self.info.vocab_size, self.info.context_tokens)
        reserved = self.cells.reserve(feeds)
        entries: list[Entry] = []
        try:
            if not self._arena.has_room(sum(len(feed.tokens) for feed in feeds)):
                self._arena.compact()
            for feed in feeds:
                entries.append(self._enter(feed))
            rows = self._run(feeds, entries)
        except BaseException:
            self._arena.undo(entries)
            self.cells.release(reserved)
            raise
        self._arena.settle(entries, reserved)
        self.cells.record(feeds, reserved)
        return rows

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        """Commits the nodes of `path`, keeps `surviving` below it and drops all other nodes."""
        owned = self.cells.own(sequence)
        surviving = set(surviving)
        cut = self._arena.plan(owned, path, surviving)
        self.cells.keep(owned, path, surviving)
        self._arena.cut(cut)

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence; its committed prefix stays cached until the room is needed."""
        if sequence.is_closed:
            return
        self.keep(sequence, ())
        self.cells.close(sequence)

    def _enter(self, feed: Feed) -> Entry:
        """Where branches are short, what is only cached gives way."""
        while True:
            try:
                return self._arena.enter(feed)
            except CapacityError:
                if not self.cells.evict():
                    raise

    def _run(self, feeds: Sequence[Feed], entries: Sequence[Entry]) -> list[Tensor]:
        tokens: list[int] = []
        positions: list[int] = []
        ids: list[list[int]] = []
        wanted: list[list[int]] = []
        for feed, entry in zip(feeds, entries, strict=True):
            wanted.append([len(tokens) + row for row in feed.rows])
            tokens.extend(feed.tokens)
            positions.extend(_positions(feed))
            ids.extend(entry.ids)
        rows = self._context.run(tokens, positions, ids, [i for some in wanted for i in some])
        empty = torch.empty((0, self.info.vocab_size))
        return [
            torch.stack([torch.from_numpy(rows[i]) for i in some]) if some else empty.clone()
            for some in wanted
        ]


def _positions(feed: Feed) -> list[int]:
    sequence, first = feed.sequence, feed.sequence.next_node
    positions: list[int] = []
    for parent in feed.parents:
        if parent == TIP:
            positions.append(len(sequence.tokens))
        elif parent < first:
            positions.append(sequence.nodes[parent].position + 1)
        else:
            positions.append(positions[parent - first] + 1)
    return positions
