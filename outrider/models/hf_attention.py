"""Attention over the pool, without repeating keys and values and without what no row can see.

transformers' own `sdpa` copies every key and value once per group of query heads as soon as a mask
is given, and computes the score of each row with the cells of all other sequences in the pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from outrider.models.visibility import Block

NAME = "outrider_grouped"

_BLOCKS: ContextVar[tuple[Block, ...]] = ContextVar("blocks", default=())


@contextmanager
def attention_blocks(blocks: tuple[Block, ...]) -> Iterator[None]:
    """While it is entered, the rows of each block attend to the columns of that block only."""
    token = _BLOCKS.set(blocks)
    try:
        yield
    finally:
        _BLOCKS.reset(token)


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention output [1, N, heads, dim], block by block.

    `query` is [1, heads, N, dim], `key` and `value` [1, key heads, C, dim], the mask [1, 1, N, C].
    """
    has_extras = any(kwargs.get(name) is not None for name in ("position_bias", "softcap", "s_aux"))
    if attention_mask is None or attention_mask.shape[:2] != (1, 1) or has_extras:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    whole = Block(0, query.shape[2], 0, key.shape[2])
    outputs = [
        _attend(
            query[:, :, block.start : block.stop],
            key[:, :, block.low : block.high],
            value[:, :, block.low : block.high],
            attention_mask[:, :, block.start : block.stop, block.low : block.high],
            scaling,
        )
        for block in _BLOCKS.get() or (whole,)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """[1, heads, N, dim]: the query heads of a group become rows of their one key head."""
    _, heads, rows, dim = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    packed = query.reshape(1, key_heads, groups * rows, dim)
    output = scaled_dot_product_attention(
        packed, key, value, attn_mask=mask.repeat(1, 1, groups, 1), scale=scaling
    )
    return output.reshape(1, heads, rows, value.shape[-1])


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Makes a model that runs on `sdpa` use `grouped_attention`."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def uses_grouped_attention(model: PreTrainedModel) -> bool:
    """Whether `use_grouped_attention` was called for the model."""
    return bool(model.config._attn_implementation == NAME)
