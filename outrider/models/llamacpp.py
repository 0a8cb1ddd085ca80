"""Backend `llamacpp`: GGUF files through llama.cpp. Joins file, tokenizer, context and checks."""

from dataclasses import replace

from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.host import usable_cores
from outrider.models.options import ModelOptions, lowered_context, refuse_options
from outrider.types import ModelInfo

try:
    from outrider.models import llamacpp_library as library
    from outrider.models import llamacpp_source, llamacpp_tokenizer
    from outrider.models.llamacpp_checks import CHECK_CELLS, check
    from outrider.models.llamacpp_model import LlamaCppModel
except (ImportError, OSError, RuntimeError) as error:
    raise UnavailableError(
        f"GGUF models need llama-cpp-python, and it cannot be used here ({error}); run "
        "`pip install 'outrider[gguf]'`, which compiles it: that takes a C++ compiler and some "
        "minutes"
    ) from error


def load(argument: str, options: ModelOptions) -> LlamaCppModel:
    """Loads a GGUF file: a path, a file on the hub, or a packaged one.

    Raises NotFoundError for a file that does not exist, UnavailableError without access to the hub,
    CapacityError where it does not fit, and InvalidArgumentError for a damaged file, a kind of
    model or an option that cannot be honoured.
    """
    refuse_options("llamacpp", options)
    path = llamacpp_source.find(argument, options)
    weights = library.LoadedModel(path, options)
    unfitting = weights.unfitting()
    if unfitting:
        raise InvalidArgumentError(
            f"{path.name} cannot be used: its model {unfitting}; use a decoder-only transformer"
        )
    if weights.context_tokens < 1:
        raise InvalidArgumentError(
            f"{path.name} is damaged: it gives a context of "
            f"{weights.context_tokens} tokens; fetch it again"
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
    threads = options.threads or usable_cores()
    # The check needs more tokens than a context that was lowered may have.
    probed = replace(info, context_tokens=CHECK_CELLS)
    check(
        weights, LlamaCppModel(weights, probed, tokenizer, CHECK_CELLS, threads, options.kv_dtype)
    )
    return LlamaCppModel(weights, info, tokenizer, options.kv_tokens, threads, options.kv_dtype)
