"""What of a request can never work with this target, found before anything is opened. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.requests import GenerationRequest
from outrider.errors import InvalidArgumentError, NotFoundError
from outrider.types import ModelInfo


def check_target(request: GenerationRequest, target: ModelInfo) -> None:
    """Raises NotFoundError for another model, InvalidArgumentError for ids that it lacks."""
    if request.model not in ("", target.model_name):
        raise NotFoundError(
            f"model {request.model!r} is not served here; this orchestrator serves "
            f"{target.model_name!r}"
        )
    for name, ids in _named_ids(request):
        for token in ids:
            if not 0 <= token < target.vocab_size:
                raise InvalidArgumentError(
                    f"{name} has token id {token}; the model knows 0 to {target.vocab_size - 1}"
                )


def check_room(prompt_ids: Sequence[int], request: GenerationRequest, target: ModelInfo) -> None:
    """Raises InvalidArgumentError where the shortest answer does not fit behind the prompt, or what
    was delivered of it does not.
    """
    length, context, stop = len(prompt_ids), target.context_tokens, request.stop
    if length >= context:
        raise InvalidArgumentError(
            f"the prompt has {length} tokens and the model's context is {context}; "
            "shorten the prompt to leave room for an answer"
        )
    if length + stop.min_tokens > context:
        raise InvalidArgumentError(
            f"the prompt has {length} tokens, min_tokens is {stop.min_tokens} and the model's "
            f"context is {context}; shorten the prompt, or give at most {context - length} "
            "min_tokens"
        )
    if length + len(request.delivered_ids) > context:
        raise InvalidArgumentError(
            f"the prompt has {length} tokens, {len(request.delivered_ids)} are delivered and the "
            f"model's context is {context}; give those of this request"
        )


def _named_ids(request: GenerationRequest) -> Iterator[tuple[str, Iterable[int]]]:
    sampling = request.sampling
    yield "the prompt", (part for part in request.prompt if isinstance(part, int))
    yield "delivered_ids", request.delivered_ids
    yield "logit_bias", (token for token, _ in sampling.logit_bias)
    yield "allowed_token_ids", sorted(sampling.allowed_token_ids or ())
    yield "banned_token_ids", sorted(sampling.banned_token_ids)
    yield "stop_token_ids", sorted(request.stop.stop_token_ids)
