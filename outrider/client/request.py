"""The parts of a request, built out of the arguments of `generate` and checked before anything is
sent; None leaves a field to the server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from outrider.client.arguments import (
    MAX_SPECULATIVE_TOKENS,
    MAX_TOKENS,
    MAX_WIDTH,
    checked_bias,
    checked_flag,
    checked_ids,
    checked_mode,
    checked_number,
    checked_text,
    checked_whole,
)
from outrider.client.channel import MAX_MESSAGE_BYTES
from outrider.client.grammar import checked_grammar
from outrider.errors import InvalidArgumentError
from outrider.seeds import MAX_CHOICE
from outrider.text import check_stop_strings
from outrider.types import (
    MAX_LOGPROBS,
    AcceptanceMode,
    SamplingParams,
    StopConditions,
)
from outrider.v1 import common_pb2, orchestrator_pb2
from outrider.wire.convert_sampling import grammar_to, mode_to

DEFAULT_MAX_TOKENS = 256


class GenerateOptions(TypedDict, total=False):
    """The keyword arguments of `generate`, which `chat` and `generate_choices` pass on to it."""

    max_tokens: int
    min_tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | None
    allowed_token_ids: Iterable[int] | None
    banned_token_ids: Iterable[int]
    json_schema: Mapping[str, object] | str | None
    regex: str | None
    choice: Sequence[str] | None
    seed: int | None
    choice_index: int
    mode: AcceptanceMode | str | None
    stop: str | Sequence[str]
    include_stop: bool
    stop_token_ids: Iterable[int]
    ignore_eos: bool
    logprobs: int | None
    max_drafts: int | None
    num_speculative_tokens: int | None
    width: int | None
    model: str
    timeout_s: float | None


def sampling_request(
    *,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float | None,
    frequency_penalty: float | None,
    presence_penalty: float | None,
    logit_bias: Mapping[int, float] | None,
    allowed_token_ids: Iterable[int] | None,
    banned_token_ids: Iterable[int],
    json_schema: Mapping[str, object] | str | None,
    regex: str | None,
    choice: Sequence[str] | None,
    seed: int | None,
    mode: AcceptanceMode | str | None,
) -> common_pb2.SamplingParams:
    """How tokens are chosen."""
    allowed = None
    if allowed_token_ids is not None:
        allowed = checked_ids("allowed_token_ids", allowed_token_ids)
    grammar = checked_grammar(json_schema, regex, choice)
    # `SamplingParams` knows the bounds; what it fills in for None is not sent.
    known = SamplingParams(
        temperature=_number("temperature", temperature, 1.0),
        top_k=0 if top_k is None else checked_whole("top_k", top_k),
        top_p=_number("top_p", top_p, 1.0),
        min_p=_number("min_p", min_p, 0.0),
        repetition_penalty=_number("repetition_penalty", repetition_penalty, 1.0),
        frequency_penalty=_number("frequency_penalty", frequency_penalty, 0.0),
        presence_penalty=_number("presence_penalty", presence_penalty, 0.0),
        logit_bias=() if logit_bias is None else checked_bias(logit_bias),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        banned_token_ids=frozenset(checked_ids("banned_token_ids", banned_token_ids)),
        grammar=grammar,
        seed=None if seed is None else checked_whole("seed", seed, at_most=2**64 - 1),
    )
    chosen = None if mode is None else checked_mode(mode)
    return common_pb2.SamplingParams(
        temperature=None if temperature is None else known.temperature,
        top_k=None if top_k is None else known.top_k,
        top_p=None if top_p is None else known.top_p,
        min_p=None if min_p is None else known.min_p,
        repetition_penalty=None if repetition_penalty is None else known.repetition_penalty,
        frequency_penalty=known.frequency_penalty,
        presence_penalty=known.presence_penalty,
        logit_bias=[common_pb2.LogitBias(id=i, bias=bias) for i, bias in known.logit_bias],
        allowed_token_ids=None if allowed is None else common_pb2.TokenIds(ids=allowed),
        banned_token_ids=sorted(known.banned_token_ids),
        grammar=None if grammar is None else grammar_to(grammar),
        seed=known.seed,
        mode=common_pb2.ACCEPTANCE_MODE_UNSPECIFIED if chosen is None else mode_to(chosen),
    )


def stop_request(
    *,
    max_tokens: int,
    min_tokens: int,
    stop_token_ids: Iterable[int],
    ignore_eos: bool,
) -> common_pb2.StopConditions:
    """Where the answer ends, stop strings aside."""
    known = StopConditions(
        checked_whole("max_tokens", max_tokens, at_least=1, at_most=MAX_TOKENS),
        frozenset(checked_ids("stop_token_ids", stop_token_ids)),
        checked_flag("ignore_eos", ignore_eos),
        checked_whole("min_tokens", min_tokens),
    )
    return common_pb2.StopConditions(
        max_tokens=known.max_tokens,
        stop_token_ids=sorted(known.stop_token_ids),
        ignore_eos=known.ignore_eos,
        min_tokens=known.min_tokens,
    )


def draft_request(
    *, max_drafts: int | None, num_speculative_tokens: int | None, width: int | None
) -> orchestrator_pb2.DraftOptions:
    """What the drafts do."""
    return orchestrator_pb2.DraftOptions(
        max_drafts=None if max_drafts is None else checked_whole("max_drafts", max_drafts),
        num_speculative_tokens=_optional_extent(
            "num_speculative_tokens", num_speculative_tokens, MAX_SPECULATIVE_TOKENS
        ),
        width=_optional_extent("width", width, MAX_WIDTH),
    )


def complete_request(
    request: orchestrator_pb2.GenerateRequest,
    *,
    stop: str | Sequence[str],
    include_stop: bool,
    logprobs: int | None,
    choice_index: int,
    model: str,
) -> orchestrator_pb2.GenerateRequest:
    """`request`, which has its prompt and the parts above, with everything else."""
    request.stop_strings.extend(_stop_strings(stop))
    request.include_stop_string = checked_flag("include_stop", include_stop)
    if include_stop and not request.stop_strings:
        raise InvalidArgumentError("include_stop is True without a text in stop; give one")
    if logprobs is not None:
        request.logprobs = checked_whole("logprobs", logprobs, at_most=MAX_LOGPROBS)
    request.choice_index = checked_whole("choice_index", choice_index, at_most=MAX_CHOICE)
    request.model = checked_text("model", model)
    size = request.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"the request has {size} bytes; give a shorter prompt, for at most {MAX_MESSAGE_BYTES}"
        )
    return request


def _number(name: str, value: float | None, default: float) -> float:
    return default if value is None else checked_number(name, value)


def _stop_strings(stop: object) -> list[str]:
    if isinstance(stop, str):
        stop = [stop]
    if isinstance(stop, (bytes, bytearray)) or not isinstance(stop, Sequence):
        raise InvalidArgumentError(f"stop is a {type(stop).__name__}; give a str or a list of str")
    texts = [checked_text(f"stop[{index}]", text) for index, text in enumerate(stop)]
    check_stop_strings(texts)
    return texts


def _optional_extent(name: str, value: int | None, most: int) -> int | None:
    if value is None:
        return None
    try:
        return checked_whole(name, value, at_least=1, at_most=most)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error} (max_drafts 0 turns drafting off)") from None
