"""The KV cells of a transformers model: one pool per layer. Knows no sequences and no tree."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import Cache


@dataclass(slots=True)
class Placement:
    """Where one pass writes, and what it reads: `columns`, or else `limit` cells from `base`."""

    written: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64] | None
    base: int
    limit: int
    _on_device: dict[torch.device, tuple[Tensor, Tensor | None]] = field(default_factory=dict)

    def indices(self, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """The written cells, and the read ones unless they are a slice, as tensors on `device`."""
        found = self._on_device.get(device)
        if found is None:
            read = None if self.columns is None else torch.from_numpy(self.columns).to(device)
            found = (torch.from_numpy(self.written).to(device), read)
            self._on_device[device] = found
        return found


class LayerPool:
    """Keys and values of one layer, [1, heads, cells, dim] each, on the device where it runs.

    Both begin with the shape, dtype and place of the first keys and values [1, heads, N, dim].
    """

    def __init__(self, cells: int, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = _zeros(key_states, cells)
        self.values = _zeros(value_states, cells)

    def update(
        self, key_states: Tensor, value_states: Tensor, placement: Placement
    ) -> tuple[Tensor, Tensor]:
        """Stores keys and values [1, heads, N, dim]; returns what is read [1, heads, C, dim]."""
        written, read = placement.indices(key_states.device)
        self.keys.index_copy_(2, written, key_states)
        self.values.index_copy_(2, written, value_states)
        if read is not None:
            return self.keys.index_select(2, read), self.values.index_select(2, read)
        cells = slice(placement.base, placement.base + placement.limit)
        return self.keys[:, :, cells], self.values[:, :, cells]


class PooledCache(Cache):
    """The layers' pools, as transformers' attention layers see them.

    `placement` says where the next pass writes and what it reads.
    """

    def __init__(self, cells: int) -> None:
        super().__init__(layers=[])
        self.cells = cells
        self.pools: dict[int, LayerPool] = {}
        self.placement = Placement(np.zeros(0, dtype=np.int64), None, 0, 0)

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[Tensor, Tensor]:
        """Called by the attention of each layer; a layer's pool is made when it is first seen."""
        if layer_idx not in self.pools:
            self.pools[layer_idx] = LayerPool(self.cells, key_states, value_states)
        return self.pools[layer_idx].update(key_states, value_states, self.placement)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0, for positions are always given explicitly."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns that the pass reads, and the offset of the first."""
        return self.placement.limit, 0

    def clear(self, cells: Sequence[int]) -> None:
        """Zeroes cells. A masked cell is multiplied by 0, and 0 times NaN is NaN: what one
        sequence overflowed must not reach another one that gets its cells."""
        for pool in self.pools.values():
            index = torch.tensor(cells, dtype=torch.long, device=pool.keys.device)
            pool.keys.index_fill_(2, index, 0)
            pool.values.index_fill_(2, index, 0)

    def resized(self, cells: int) -> "PooledCache":
        """An empty cache of the same layers with `cells` cells, allocated at once."""
        cache = PooledCache(cells)
        for index, pool in self.pools.items():
            cache.pools[index] = LayerPool(cells, pool.keys, pool.values)
        return cache


def _zeros(like: Tensor, cells: int) -> Tensor:
    """Zeros [1, heads, cells, dim]: masked cells are multiplied by 0, so they must not hold NaN.

    On the CPU the memory comes from numpy, which leaves the pages of untouched cells unused.
    """
    shape = (1, like.shape[1], cells, like.shape[3])
    if like.device.type != "cpu":
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    size = math.prod(shape) * like.element_size()
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(like.dtype).view(shape)
