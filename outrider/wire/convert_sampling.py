"""A request's sampling parameters and stop conditions, and why it ended: protos to dataclasses and
back. Light: the client uses it too.
"""

from outrider.errors import InvalidArgumentError
from outrider.types import (
    MAX_GRAMMAR_BYTES,
    AcceptanceMode,
    FinishReason,
    Grammar,
    SamplingParams,
    StopConditions,
)
from outrider.v1 import common_pb2

MAX_STOP_TOKENS = 1024
MAX_END_TOKENS = 2 * MAX_STOP_TOKENS
"""Stop ids of a request, and the end tokens of a model."""

_MODES = {
    common_pb2.ACCEPTANCE_MODE_COUPLED: AcceptanceMode.COUPLED,
    common_pb2.ACCEPTANCE_MODE_REJECTION: AcceptanceMode.REJECTION,
    common_pb2.ACCEPTANCE_MODE_MATCH: AcceptanceMode.MATCH,
    common_pb2.ACCEPTANCE_MODE_BLOCK: AcceptanceMode.BLOCK,
}
_MODE_NUMBERS = {mode: number for number, mode in _MODES.items()}
_FINISHES = {
    common_pb2.FINISH_REASON_UNSPECIFIED: None,
    common_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    common_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
_FINISH_NUMBERS = {reason: number for number, reason in _FINISHES.items()}


def sampling_from(message: common_pb2.SamplingParams) -> SamplingParams:
    """Raises InvalidArgumentError for values that mean nothing."""
    return SamplingParams(
        temperature=message.temperature if message.HasField("temperature") else 1.0,
        top_k=message.top_k,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        min_p=message.min_p,
        seed=message.seed if message.HasField("seed") else None,
        mode=mode_from(message.mode) or AcceptanceMode.COUPLED,
        repetition_penalty=(
            message.repetition_penalty if message.HasField("repetition_penalty") else 1.0
        ),
        frequency_penalty=message.frequency_penalty,
        presence_penalty=message.presence_penalty,
        logit_bias=tuple(sorted((entry.id, entry.bias) for entry in message.logit_bias)),
        allowed_token_ids=(
            frozenset(message.allowed_token_ids.ids)
            if message.HasField("allowed_token_ids")
            else None
        ),
        banned_token_ids=frozenset(message.banned_token_ids),
        grammar=_grammar_from(message.grammar) if message.HasField("grammar") else None,
    )


def sampling_to(sampling: SamplingParams) -> common_pb2.SamplingParams:
    """Every field set, so that nothing depends on a peer's defaults."""
    return common_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        mode=_MODE_NUMBERS[sampling.mode],
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=[common_pb2.LogitBias(id=i, bias=bias) for i, bias in sampling.logit_bias],
        allowed_token_ids=(
            common_pb2.TokenIds(ids=sorted(sampling.allowed_token_ids))
            if sampling.allowed_token_ids is not None
            else None
        ),
        banned_token_ids=sorted(sampling.banned_token_ids),
        grammar=grammar_to(sampling.grammar) if sampling.grammar is not None else None,
    )


def mode_from(number: "common_pb2.AcceptanceMode.ValueType") -> AcceptanceMode | None:
    """None where none is chosen; raises InvalidArgumentError for one that is unknown."""
    if number == common_pb2.ACCEPTANCE_MODE_UNSPECIFIED:
        return None
    if number not in _MODES:
        raise InvalidArgumentError(f"acceptance mode {number} is unknown to this version")
    return _MODES[number]


def mode_to(mode: AcceptanceMode) -> "common_pb2.AcceptanceMode.ValueType":
    """The number of a mode."""
    return _MODE_NUMBERS[mode]


def _grammar_from(message: common_pb2.Grammar) -> Grammar:
    forms = (message.json_schema, message.regex, *message.choice.choices)
    size = sum(len(form.encode()) for form in forms)
    if size > MAX_GRAMMAR_BYTES:
        raise InvalidArgumentError(
            f"the grammar has {size} bytes; give at most {MAX_GRAMMAR_BYTES}"
        )
    kind = message.WhichOneof("kind")
    if kind is not None and not message.choice.choices and not size:
        raise InvalidArgumentError(
            f"the {kind} of the grammar is empty; fill it or send no grammar"
        )
    return Grammar(message.json_schema, message.regex, tuple(message.choice.choices))


def grammar_to(grammar: Grammar) -> common_pb2.Grammar:
    """The form that is set."""
    if grammar.choice:
        return common_pb2.Grammar(choice=common_pb2.GrammarChoice(choices=grammar.choice))
    if grammar.regex:
        return common_pb2.Grammar(regex=grammar.regex)
    return common_pb2.Grammar(json_schema=grammar.json_schema)


def stop_from(message: common_pb2.StopConditions) -> StopConditions:
    """Raises InvalidArgumentError for max_tokens 0, and for more stop ids than anybody means."""
    if len(message.stop_token_ids) > MAX_STOP_TOKENS:
        raise InvalidArgumentError(
            f"{len(message.stop_token_ids)} stop token ids; give at most {MAX_STOP_TOKENS}"
        )
    return StopConditions(
        message.max_tokens,
        frozenset(message.stop_token_ids),
        message.ignore_eos,
        message.min_tokens,
    )


def stop_to(stop: StopConditions) -> common_pb2.StopConditions:
    """The inverse of `stop_from`."""
    return common_pb2.StopConditions(
        max_tokens=stop.max_tokens,
        stop_token_ids=sorted(stop.stop_token_ids),
        ignore_eos=stop.ignore_eos,
        min_tokens=stop.min_tokens,
    )


def finish_from(number: "common_pb2.FinishReason.ValueType") -> FinishReason | None:
    """None where the generation goes on."""
    if number not in _FINISHES:
        raise InvalidArgumentError(f"finish reason {number} is unknown to this version")
    return _FINISHES[number]


def finish_to(reason: FinishReason | None) -> "common_pb2.FinishReason.ValueType":
    """The inverse of `finish_from`."""
    return _FINISH_NUMBERS[reason]
