"""Attention over the pool for models whose query heads share key heads, without repeating the
keys and values.

transformers' own `sdpa` copies every visible key and value once per group as soon as a mask is
given.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "outrider_grouped"


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention output [1, N, heads, dim]: the query heads of a group become rows of one key head.

    `query` is [1, heads, N, dim], `key` and `value` [1, key heads, C, dim], the mask [1, 1, N, C].
    """
    _, heads, rows, _ = query.shape
    key_heads = key.shape[1]
    has_extras = any(kwargs.get(name) is not None for name in ("position_bias", "softcap", "s_aux"))
    if attention_mask is None or attention_mask.shape[1] != 1 or heads == key_heads or has_extras:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    groups = heads // key_heads
    packed = query.reshape(1, key_heads, groups * rows, query.shape[-1])
    mask = attention_mask.repeat(1, 1, groups, 1)
    result = scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return result.reshape(1, heads, rows, value.shape[-1]).transpose(1, 2).contiguous(), None


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Makes a model that runs on `sdpa` use `grouped_attention`."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
