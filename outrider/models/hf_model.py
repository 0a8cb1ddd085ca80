"""A transformers model behind the model protocol. Knows no files and no settings.

All sequences share one pool of KV cells. A pass packs all feeds as one row of tokens with
explicit positions and a mask that lets each token see its own path only, so trees of many
sequences run in one forward call.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import CapacityError
from outrider.models.base import Feed, ModelSequence, Tokenizer, check_feeds
from outrider.models.cells import RETRY_AFTER_S, CellLedger
from outrider.models.hf_attention import attention_blocks, uses_grouped_attention
from outrider.models.hf_cache import Placement, PooledCache
from outrider.models.visibility import PassView, view_pass
from outrider.types import ModelInfo

PASS_TOKENS = 1024
"""A longer pass is run in pieces, so that its mask stays small beside the weights."""


class HfModel:
    """A transformers model with pooled KV cells.

    Rows are float32 on the CPU, float64 where the weights are. On the CPU they equal those of any
    other batching within 1e-4 in float32.
    """

    tokenizer: Tokenizer | None

    def __init__(
        self,
        model: PreTrainedModel,
        info: ModelInfo,
        tokenizer: Tokenizer | None,
        layer_windows: dict[str, int],
        cache: PooledCache,
    ) -> None:
        """`layer_windows` maps each type of layer to its sliding window, 0 for none."""
        self.info = info
        self.tokenizer = tokenizer
        self.cells = CellLedger(cache.cells)
        self.cache = cache
        self._model = model
        self._layer_windows = layer_windows
        self._cell_positions = np.zeros(cache.cells, dtype=np.int64)
        self._device: torch.device = model.device
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._keeps_rows = "logits_to_keep" in parameters
        self._has_blocks = uses_grouped_attention(model)

    def resized(self, kv_tokens: int) -> "HfModel":
        """The same weights with an empty KV cache of `kv_tokens` cells, allocated at once."""
        cache = self.cache.resized(kv_tokens)
        return HfModel(self._model, self.info, self.tokenizer, self._layer_windows, cache)

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A new sequence with the longest cached prefix of `token_ids`, less than all."""
        return self.cells.open(token_ids)

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        """Logits [len(rows), vocab_size] per feed, on the CPU; see the protocol."""
        if not feeds:
            return []
        check_feeds(feeds, self.info.vocab_size, self.info.context_tokens)
        reserved = self.cells.reserve(feeds)
        try:
            view = view_pass(feeds, reserved, self._cell_positions, self._has_blocks)
            logits = self._run(view, _wanted(feeds))
        except torch.OutOfMemoryError as error:
            self.cells.release(reserved)
            tokens = sum(len(cells) for cells in reserved)
            raise CapacityError(
                f"the device ran out of memory in a pass of {tokens} tokens; lower kv_tokens or "
                "run fewer sessions",
                retry_after_s=RETRY_AFTER_S,
            ) from error
        except BaseException:
            self.cells.release(reserved)
            raise
        if bool(torch.isnan(logits).any()):
            self.cache.clear([cell for cells in reserved for cell in cells])
        self.cells.record(feeds, reserved)
        counts = [len(feed.rows) for feed in feeds]
        return list(torch.split(logits, counts))

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        """Commits the nodes of `path`, keeps `surviving`, drops the others; moves no data."""
        self.cells.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence; its committed prefix stays cached until the room is needed."""
        self.cells.close(sequence)

    def _run(self, view: PassView, wanted: Sequence[int]) -> Tensor:
        """Logits [len(wanted), vocab] of the rows `wanted`, which may come in any order."""
        parts: list[Tensor] = []
        order: list[int] = []
        for start in range(0, len(view.tokens), PASS_TOKENS):
            stop = min(start + PASS_TOKENS, len(view.tokens))
            rows = [row for row in sorted(set(wanted)) if start <= row < stop]
            parts.append(self._run_piece(view, start, stop, [row - start for row in rows]))
            order.extend(rows)
        place = {row: index for index, row in enumerate(order)}
        # Outside of inference mode, so that the caller may write to the rows.
        return torch.cat(parts)[[place[row] for row in wanted]]

    @torch.inference_mode()
    def _run_piece(self, view: PassView, start: int, stop: int, rows: Sequence[int]) -> Tensor:
        limit = int(view.limits[stop - 1])
        columns = None if view.columns is None else view.columns[:limit]
        self.cache.placement = Placement(view.written[start:stop], columns, view.base, limit)
        arguments: dict[str, Any] = {
            "input_ids": torch.from_numpy(view.tokens[None, start:stop]).to(self._device),
            "position_ids": torch.from_numpy(view.positions[None, start:stop]).to(self._device),
            "attention_mask": self._masks(view, start, stop),
            self._cache_name: self.cache,
            "use_cache": True,
        }
        index = torch.tensor(rows, dtype=torch.long, device=self._device)
        if self._keeps_rows:
            arguments["logits_to_keep"] = index
        with attention_blocks(view.blocks_within(start, stop)):
            logits = self._model(**arguments).logits[0]
        if not self._keeps_rows:
            logits = logits[index.to(logits.device)]
        kept: Tensor = logits.cpu() if logits.dtype == torch.float64 else logits.float().cpu()
        return kept

    def _masks(self, view: PassView, start: int, stop: int) -> Tensor | dict[str, Tensor]:
        masks = {
            name: self._additive(view.seen(start, stop, window))
            for name, window in self._layer_windows.items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, visible: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        """[1, 1, N, C] to be added to the attention scores."""
        dtype: torch.dtype = self._model.dtype
        hidden = torch.from_numpy(~visible).to(self._device)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[None, None]


def _wanted(feeds: Sequence[Feed]) -> list[int]:
    """Rows of the pass whose logits are wanted, feed by feed."""
    wanted: list[int] = []
    start = 0
    for feed in feeds:
        wanted.extend(start + row for row in feed.rows)
        start += len(feed.tokens)
    return wanted
