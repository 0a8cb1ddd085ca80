"""A request built out of the arguments of `generate`, checked before anything is sent."""

from collections.abc import Iterable
from typing import TypedDict

from outrider.client.arguments import (
    MAX_SPECULATIVE_TOKENS,
    MAX_TOKENS,
    MAX_WIDTH,
    checked_flag,
    checked_ids,
    checked_mode,
    checked_number,
    checked_text,
    checked_whole,
)
from outrider.client.channel import MAX_MESSAGE_BYTES
from outrider.errors import InvalidArgumentError
from outrider.types import AcceptanceMode, SamplingParams
from outrider.v1 import common_pb2, orchestrator_pb2

DEFAULT_MAX_TOKENS = 256

_MODES = {
    AcceptanceMode.COUPLED: common_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: common_pb2.ACCEPTANCE_MODE_REJECTION,
    AcceptanceMode.MATCH: common_pb2.ACCEPTANCE_MODE_MATCH,
}


class GenerateOptions(TypedDict, total=False):
    """The keyword arguments of `generate`, which `chat` passes on to it."""

    max_tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    mode: AcceptanceMode | str | None
    stop_token_ids: Iterable[int]
    ignore_eos: bool
    max_drafts: int | None
    num_speculative_tokens: int | None
    width: int | None
    model: str
    timeout_s: float | None


def complete_request(
    request: orchestrator_pb2.GenerateRequest,
    *,
    max_tokens: int,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    mode: AcceptanceMode | str | None,
    stop_token_ids: Iterable[int],
    ignore_eos: bool,
    max_drafts: int | None,
    num_speculative_tokens: int | None,
    width: int | None,
    model: str,
) -> orchestrator_pb2.GenerateRequest:
    """`request`, which has its prompt, with everything else; None leaves a field to the server."""
    # `SamplingParams` knows the bounds; what it fills in for None is not sent.
    known = SamplingParams(
        temperature=1.0 if temperature is None else checked_number("temperature", temperature),
        top_k=0 if top_k is None else checked_whole("top_k", top_k),
        top_p=1.0 if top_p is None else checked_number("top_p", top_p),
        min_p=0.0 if min_p is None else checked_number("min_p", min_p),
        seed=None if seed is None else checked_whole("seed", seed, at_most=2**64 - 1),
    )
    request.sampling.CopyFrom(
        common_pb2.SamplingParams(
            temperature=None if temperature is None else known.temperature,
            top_k=None if top_k is None else known.top_k,
            top_p=None if top_p is None else known.top_p,
            min_p=None if min_p is None else known.min_p,
            seed=known.seed,
            mode=(
                common_pb2.ACCEPTANCE_MODE_UNSPECIFIED
                if mode is None
                else _MODES[checked_mode(mode)]
            ),
        )
    )
    request.stop.CopyFrom(
        common_pb2.StopConditions(
            max_tokens=checked_whole("max_tokens", max_tokens, at_least=1, at_most=MAX_TOKENS),
            stop_token_ids=checked_ids("stop_token_ids", stop_token_ids),
            ignore_eos=checked_flag("ignore_eos", ignore_eos),
        )
    )
    request.draft.CopyFrom(
        orchestrator_pb2.DraftOptions(
            max_drafts=None if max_drafts is None else checked_whole("max_drafts", max_drafts),
            num_speculative_tokens=_optional_extent(
                "num_speculative_tokens", num_speculative_tokens, MAX_SPECULATIVE_TOKENS
            ),
            width=_optional_extent("width", width, MAX_WIDTH),
        )
    )
    request.model = checked_text("model", model)
    size = request.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"the request has {size} bytes; give a shorter prompt, for at most {MAX_MESSAGE_BYTES}"
        )
    return request


def _optional_extent(name: str, value: int | None, most: int) -> int | None:
    if value is None:
        return None
    try:
        return checked_whole(name, value, at_least=1, at_most=most)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error} (max_drafts 0 turns drafting off)") from None
