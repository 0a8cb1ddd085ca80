"""Backend `llamacpp`: GGUF files through llama.cpp. Joins file, tokenizer, context and checks."""

import os

import torch

from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.models.base import TIP, Feed
from outrider.models.options import ModelOptions, lowered_context, refuse_options
from outrider.types import ModelInfo

try:
    from outrider.models import llamacpp_library as library
    from outrider.models import llamacpp_source, llamacpp_tokenizer
    from outrider.models.llamacpp_model import LlamaCppModel
except (ImportError, OSError, RuntimeError) as error:
    raise UnavailableError(
        f"GGUF models need llama-cpp-python, and it cannot be used here ({error}); run "
        "`pip install 'outrider[gguf]'`, which compiles it: that takes a C++ compiler and some "
        "minutes"
    ) from error

HONOURED = ("threads", "n_gpu_layers", "kv_dtype", "kv_tokens", "context_tokens", "revision")

_CHECK_CELLS = 32
_CHECK_TOLERANCE = 0.2
"""Far above what quantisation does to a row, far below what a wrong mask does."""


def load(argument: str, options: ModelOptions) -> LlamaCppModel:
    """Loads a GGUF file: a path, a file on the hub, or a packaged one.

    Raises NotFoundError for a file that does not exist, UnavailableError without access to the hub,
    CapacityError where it does not fit, and InvalidArgumentError for a damaged file, a kind of
    model or an option that cannot be honoured.
    """
    refuse_options("llamacpp", options, honoured=HONOURED)
    library.kv_types(options.kv_dtype, on_cpu=True)
    path = llamacpp_source.find(argument, options)
    weights = library.LoadedModel(path, options)
    unfitting = weights.unfitting()
    if unfitting:
        raise InvalidArgumentError(
            f"{path.name} cannot be used: its model {unfitting}; use a decoder-only transformer"
        )
    tokenizer = llamacpp_tokenizer.LlamaCppTokenizer(weights)
    info = ModelInfo(
        model_name=argument,
        backend="llamacpp",
        tokenizer_hash=tokenizer.vocabulary.hash,
        vocab_size=weights.vocab_size,
        context_tokens=lowered_context(
            min(weights.context_tokens, options.kv_tokens), options.context_tokens
        ),
        eos_token_ids=llamacpp_tokenizer.eos_token_ids(weights),
    )
    threads = options.threads or len(os.sched_getaffinity(0))
    check_tree_rows(LlamaCppModel(weights, info, tokenizer, _CHECK_CELLS, threads))
    return LlamaCppModel(weights, info, tokenizer, options.kv_tokens, threads, options.kv_dtype)


def check_tree_rows(probe: LlamaCppModel) -> None:
    """Compares rows of a small tree with those of the same tokens in a row of their own.

    Raises InvalidArgumentError for a model that mixes branches up: it would give wrong text without
    any error.
    """
    vocab_size = probe.info.vocab_size
    path = [token % vocab_size for token in (3, 5, 7, 9)]
    other = [token % vocab_size for token in (11, 13)]
    (expected,) = probe.forward([Feed.chain(probe.open(()), path, range(4))])
    sequence = probe.open(())
    tree = (other[0], path[0], other[1], path[1], other[0])
    (first,) = probe.forward([Feed(sequence, tree, (TIP, TIP, 0, 1, 1), (1, 3))])
    probe.keep(sequence, [1, 3])
    rest = (other[1], path[2], path[3])
    (second,) = probe.forward([Feed(sequence, rest, (TIP, TIP, 6), (1, 2))])
    spread = expected - expected.mean(dim=-1, keepdim=True)
    difference = torch.cat([first, second]) - expected
    ratio = float(difference.square().mean().sqrt() / spread.square().mean().sqrt())
    if not ratio <= _CHECK_TOLERANCE:
        raise InvalidArgumentError(
            f"the model does not keep branches apart: its rows differ by {ratio:.0%} from those of "
            "the tokens alone; use another model"
        )
