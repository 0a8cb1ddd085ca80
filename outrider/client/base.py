"""What the two clients share: everything but waiting.

Knows how a request is made; opens no channel and reads no stream.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc

from outrider.client.arguments import checked_whole
from outrider.client.call import Call
from outrider.client.channel import (
    CHANNEL_OPTIONS,
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    checked_address,
    checked_metadata,
    checked_timeout,
    checked_tls,
)
from outrider.client.prompt import Messages, Prompt, messages_request, prompt_request
from outrider.client.request import (
    DEFAULT_MAX_TOKENS,
    GenerateOptions,
    complete_request,
    draft_request,
    sampling_request,
    stop_request,
)
from outrider.client.retrying import DEFAULT_RETRIES, MOST_RETRIES
from outrider.errors import InvalidArgumentError
from outrider.seeds import MAX_CHOICE
from outrider.types import AcceptanceMode
from outrider.v1 import orchestrator_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

GenerationT_co = TypeVar("GenerationT_co", covariant=True)

CHOICES_AT_ONCE = 8
"""Answers of `generate_choices` that are asked for at once: half of what a verifier takes unless it
is told otherwise."""


class BaseClient(Generic[GenerationT_co]):
    """Requests to an orchestrator. Subclasses say how they are sent.

    `tls` is a folder with certificate, key and CA, as `outrider certs issue` writes it: whoever
    answers has to be an orchestrator of that CA. `credentials` are for other kinds of TLS, such as
    that of a proxy. Without either it is plain text.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        metadata: Mapping[str, str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        retries: int = DEFAULT_RETRIES,
        tls: str | os.PathLike[str] = "",
    ) -> None:
        """`retries`: how many times in a row a call that failed is made again, where that may help:
        nobody answered, the connection broke, the server was full. An answer whose stream broke
        goes on behind the tokens that had arrived, so none is lost or repeated. The whole still has
        to end within `timeout_s`.
        """
        self.address = checked_address(address)
        self.timeout_s = checked_timeout(timeout_s)
        self._metadata = checked_metadata(metadata)
        if credentials is not None and not isinstance(credentials, grpc.ChannelCredentials):
            raise InvalidArgumentError(
                f"credentials is a {type(credentials).__name__}; give grpc.ChannelCredentials, "
                "as from grpc.ssl_channel_credentials(), or None for plain text"
            )
        secured = checked_tls(tls, credentials)
        self._credentials = credentials if secured is None else secured.credentials
        self._channel_options = (*CHANNEL_OPTIONS, *(secured.options if secured else ()))
        self._retries = checked_whole("retries", retries, at_most=MOST_RETRIES)
        self.is_closed = False
        self._pauses: set[Any] = set()
        """What wakes those that wait between two attempts."""

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        min_tokens: int = 0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        allowed_token_ids: Iterable[int] | None = None,
        banned_token_ids: Iterable[int] = (),
        json_schema: Mapping[str, object] | str | None = None,
        regex: str | None = None,
        choice: Sequence[str] | None = None,
        seed: int | None = None,
        choice_index: int = 0,
        mode: AcceptanceMode | str | None = None,
        stop: str | Sequence[str] = (),
        include_stop: bool = False,
        stop_token_ids: Iterable[int] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        max_drafts: int | None = None,
        num_speculative_tokens: int | None = None,
        width: int | None = None,
        model: str = "",
        timeout_s: float | None = None,
    ) -> GenerationT_co:
        """Starts an answer to `prompt`: text, token ids, or messages with `role` and `content`.

        None leaves a value to the server. `max_drafts`, `num_speculative_tokens` and `width` change
        the speed, never the law of the text; `max_drafts=0` turns drafting off. The whole answer
        has to arrive within `timeout_s`, by default the client's.

        The answer ends before the first text of `stop` that is completed, or behind it with
        `include_stop`. The text matches `json_schema`, `regex` or one text of `choice`, if one of
        them is given. `min_tokens` holds for every way to stop, but a text that its grammar has
        complete before ends all the same. `logprobs` reports the target's log-probability of each
        token and of so many most likely ones. `choice_index` tells which of several independent
        answers to one `seed` this is; see `generate_choices`. `mode` "auto" is "coupled"; None is
        what the deployment chose. The seed replays an answer exactly under "coupled" and "match".
        """
        request = prompt_request(prompt)
        request.sampling.CopyFrom(
            sampling_request(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                frequency_penalty=frequency_penalty,
                presence_penalty=presence_penalty,
                logit_bias=logit_bias,
                allowed_token_ids=allowed_token_ids,
                banned_token_ids=banned_token_ids,
                json_schema=json_schema,
                regex=regex,
                choice=choice,
                seed=seed,
                mode=mode,
            )
        )
        request.stop.CopyFrom(
            stop_request(
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                stop_token_ids=stop_token_ids,
                ignore_eos=ignore_eos,
            )
        )
        request.draft.CopyFrom(
            draft_request(
                max_drafts=max_drafts, num_speculative_tokens=num_speculative_tokens, width=width
            )
        )
        complete_request(
            request,
            stop=stop,
            include_stop=include_stop,
            logprobs=logprobs,
            choice_index=choice_index,
            model=model,
        )
        return self._send(self._call(timeout_s), request)

    def chat(self, messages: Messages, **options: Unpack[GenerateOptions]) -> GenerationT_co:
        """Starts the next turn of a conversation; `options` are those of `generate`."""
        messages_request(messages)
        return self.generate(messages, **options)

    def _choices(
        self, prompt: Prompt, n: int, options: GenerateOptions
    ) -> list[Callable[[], GenerationT_co]]:
        """What starts choices 0 to `n` - 1, all with one seed, drawn here where the options have
        none.
        """
        if "choice_index" in options:
            raise InvalidArgumentError(
                "choice_index is given; leave it out, generate_choices numbers its answers itself"
            )
        count = checked_whole("n", n, at_least=1, at_most=MAX_CHOICE + 1)
        # An iterator of ids would be empty from the second answer on.
        shared: dict[str, Any] = {
            name: tuple(value) if isinstance(value, Iterator) else value
            for name, value in options.items()
        }
        if shared.get("seed") is None:
            shared["seed"] = secrets.randbits(63)
        return [
            partial(self.generate, prompt, **shared, choice_index=index) for index in range(count)
        ]

    def _send(self, call: Call, request: orchestrator_pb2.GenerateRequest) -> GenerationT_co:
        raise NotImplementedError

    def _call(self, timeout_s: float | None) -> Call:
        limit_s = self.timeout_s if timeout_s is None else checked_timeout(timeout_s)
        return Call(self.address, self._metadata, self._retries, limit_s)

    def require_open(self) -> None:
        """Raises InvalidArgumentError where the client is closed."""
        if self.is_closed:
            raise InvalidArgumentError("this client is closed; make a new one")
