"""Backend `hf`: any decoder-only transformers model. Joins checkpoint, tokenizer and KV pool."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models import hf_checkpoint
from outrider.models.base import TIP, Feed
from outrider.models.hf_attention import use_grouped_attention
from outrider.models.hf_cache import PooledCache
from outrider.models.hf_model import HfModel
from outrider.models.hf_source import find
from outrider.models.hf_tokenizer import HfTokenizer
from outrider.models.options import ModelOptions, lowered_context, refuse_options
from outrider.types import ModelInfo

_CHECK_CELLS = 16
_CHECK_TOLERANCE = 0.2
"""Far above what float16 or quantisation do to a row, far below what a wrong mask does."""


def load(argument: str, options: ModelOptions) -> HfModel:
    """Loads a folder, a hub name or a packaged model (`smollm2`, `gemma3`).

    Raises NotFoundError for a model that does not exist, UnavailableError without access to the
    hub, CapacityError where it does not fit, and InvalidArgumentError for options or
    architectures that cannot be honoured.
    """
    refuse_options("hf", options)
    source = find(argument, options)
    config = hf_checkpoint.load_config(source, options)
    windows = hf_checkpoint.layer_windows(config)
    context = lowered_context(
        hf_checkpoint.context_tokens(config, options.kv_tokens), options.context_tokens
    )
    tokenizer = HfTokenizer(hf_checkpoint.load_tokenizer(source, options))
    if options.threads:
        torch.set_num_threads(options.threads)
    weights = hf_checkpoint.load_weights(source, config, options)
    if weights.config._attn_implementation == "sdpa":
        use_grouped_attention(weights)
    info = ModelInfo(
        model_name=argument,
        backend="hf",
        tokenizer_hash=tokenizer.vocabulary.hash,
        vocab_size=0,
        context_tokens=context,
        eos_token_ids=hf_checkpoint.eos_token_ids(weights),
    )
    probe = HfModel(weights, info, tokenizer, windows, PooledCache(_CHECK_CELLS))
    probe.info = replace(info, vocab_size=check_tree_rows(weights, probe))
    try:
        return probe.resized(options.kv_tokens)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise CapacityError(
            f"a KV cache of {options.kv_tokens} tokens does not fit in memory; lower kv_tokens"
        ) from error


@torch.inference_mode()
def check_tree_rows(weights: PreTrainedModel, probe: HfModel) -> int:
    """Compares rows of a small tree with the checkpoint's own rows; returns how wide the rows are.

    An architecture that ignores explicit positions or masks, or orders the cache by itself, would
    give wrong text without any error. Raises InvalidArgumentError for it.
    """
    text = weights.config.get_text_config(decoder=True)
    path = [token % text.vocab_size for token in (3, 5, 7, 9)]
    other = [token % text.vocab_size for token in (11, 13)]
    try:
        ids = torch.tensor([path], device=weights.device)
        expected = weights(input_ids=ids, use_cache=False).logits[0].float().cpu()
        sequence = probe.open(path)
        tree = (other[0], path[0], other[1], path[1], other[0])
        first = probe.forward([Feed(sequence, tree, (TIP, TIP, 0, 1, 1), (1, 3))])
        probe.keep(sequence, [1, 3])
        rest = (other[1], path[2], path[3])
        second = probe.forward([Feed(sequence, rest, (TIP, TIP, 6), (1, 2))])
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, IndexError) as error:
        raise InvalidArgumentError(
            f"{weights.config.model_type} cannot run several branches in one pass "
            f"({type(error).__name__}: {error}); use another architecture"
        ) from error
    spread = expected - expected.mean(dim=-1, keepdim=True)
    difference = torch.cat([*first, *second]) - expected
    ratio = float(difference.square().mean().sqrt() / spread.square().mean().sqrt())
    if not ratio <= _CHECK_TOLERANCE:
        raise InvalidArgumentError(
            f"{weights.config.model_type} does not honour tree attention: its rows differ by "
            f"{ratio:.0%} from those "
            "of the tokens alone; use another architecture"
        )
    return int(expected.shape[-1])
