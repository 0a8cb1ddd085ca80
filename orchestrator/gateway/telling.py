"""Answers as OpenAI's clients know them. Pure.

Only the fields that are set are sent: an optional one that nobody asked for is not there at all.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from orchestrator.gateway.extras import ExtraFields, Extras
from orchestrator.gateway.gathered import Answer
from orchestrator.gateway.outcomes import (
    AnswerMessage,
    Author,
    Chat,
    ChatChoice,
    ChatChunk,
    ChatDeltaChoice,
    ChatLogprob,
    ChatLogprobs,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Delta,
    FinishReason,
    Likely,
)
from orchestrator.requests import EmittedToken, Finished, TokenLogprob
from outrider.version import __version__

FINGERPRINT = f"outrider-{__version__}"

LEAST_LOGPROB = -9999.0
"""As OpenAI tells of what is as good as impossible."""


class HeadFields(TypedDict):
    """Of an outcome, as keyword arguments; so are the others."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class EndFields(TypedDict, total=False):
    """Of a choice."""

    finish_reason: FinishReason | None
    stop_reason: int | str | None


class TokenFields(TypedDict, total=False):
    """Of a choice."""

    token_ids: list[int]
    token_authors: list[Author]


class PromptFields(TypedDict, total=False):
    """Of an outcome or a choice."""

    prompt_token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is told of each token besides its text, because it was asked for."""

    has_ids: bool = False
    has_authors: bool = False

    def fields(self, tokens: Sequence[EmittedToken]) -> TokenFields:
        """As keyword arguments of a choice."""
        fields = TokenFields()
        if self.has_ids:
            fields["token_ids"] = [token.id for token in tokens]
        if self.has_authors:
            fields["token_authors"] = [
                Author(text=token.text, draft=token.draft or None) for token in tokens
            ]
        return fields


@dataclass(frozen=True, slots=True)
class Head:
    """What all answers and chunks of a request begin with."""

    id: str
    created: int
    model: str

    @property
    def fields(self) -> HeadFields:
        """As keyword arguments of an outcome."""
        return HeadFields(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=FINGERPRINT,
        )


class ChatTelling:
    """Of /v1/chat/completions."""

    def __init__(
        self, head: Head, wanted: Wanted, *, prompt_ids: Sequence[int] | None = None
    ) -> None:
        self._head = head
        self._wanted = wanted
        self._prompt_ids = prompt_ids

    def whole(self, answers: Sequence[Answer], extras: Extras) -> Chat:
        """All choices at once."""
        choices = [
            ChatChoice(
                index=index,
                message=AnswerMessage(role="assistant", content=answer.text, refusal=None),
                **_ending(answer.end),
                logprobs=_chat_logprobs(answer.tokens),
                **self._wanted.fields(answer.tokens),
            )
            for index, answer in enumerate(answers)
        ]
        return Chat(
            **self._head.fields,
            object="chat.completion",
            choices=choices,
            **extras.fields,
            **self._prompt(),
        )

    def first(self, index: int) -> ChatChunk:
        """Says who speaks."""
        return self._chunk(index, Delta(role="assistant", content=""), prompt=self._prompt())

    def part(self, index: int, tokens: Sequence[EmittedToken]) -> ChatChunk:
        """More of a choice."""
        text = "".join(token.text for token in tokens)
        return self._chunk(index, Delta(content=text), tokens)

    def last(self, index: int, end: Finished) -> ChatChunk:
        """How a choice ended."""
        return self._chunk(index, Delta(), end=end)

    def closing(self, extras: Extras) -> ChatChunk:
        """Behind all choices."""
        return ChatChunk(
            **self._head.fields, object="chat.completion.chunk", choices=[], **extras.fields
        )

    def _chunk(
        self,
        index: int,
        delta: Delta,
        tokens: Sequence[EmittedToken] = (),
        end: Finished | None = None,
        prompt: PromptFields | None = None,
    ) -> ChatChunk:
        choice = ChatDeltaChoice(
            index=index,
            delta=delta,
            logprobs=_chat_logprobs(tokens),
            **_ending(end),
            **(self._wanted.fields(tokens) if tokens else TokenFields()),
        )
        return ChatChunk(
            **self._head.fields,
            object="chat.completion.chunk",
            choices=[choice],
            **(prompt or PromptFields()),
        )

    def _prompt(self) -> PromptFields:
        return {} if self._prompt_ids is None else {"prompt_token_ids": list(self._prompt_ids)}


class Offsets:
    """Where the text of each token begins, by its own bytes: when it was told does not count.

    >>> offsets = Offsets(2)
    >>> [offsets.push(piece) for piece in (b"ab", b"\\xc3", b"\\xa9", b"c")]
    [2, 4, 4, 5]
    """

    def __init__(self, start: int) -> None:
        self._next = start
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, piece: bytes) -> int:
        """Of the next token."""
        offset = self._next
        self._next += len(self._decoder.decode(piece))
        return offset


@dataclass(slots=True)
class CompletionTelling:
    """Of /v1/completions. `echoes` and `prompt_ids` have an entry for each prompt, `n` is the
    number of choices to each.
    """

    head: Head
    n: int
    wanted: Wanted
    echoes: Sequence[str] = ()
    prompt_ids: Sequence[Sequence[int]] = ()
    _offsets: dict[int, Offsets] = field(default_factory=dict)

    def whole(self, answers: Sequence[Answer], extras: Extras) -> Completion:
        """All choices at once."""
        choices = [
            CompletionChoice(
                index=index,
                text=self._echo(index) + answer.text,
                **_ending(answer.end),
                logprobs=_completion_logprobs(answer.tokens, Offsets(len(self._echo(index)))),
                **self.wanted.fields(answer.tokens),
                **self._prompt(index),
            )
            for index, answer in enumerate(answers)
        ]
        return self._outcome(choices, extras)

    def first(self, index: int) -> Completion | None:
        """The prompt, where it is wanted."""
        text, prompt = self._echo(index), self._prompt(index)
        self._offsets[index] = Offsets(len(text))
        if not text and not prompt:
            return None
        choice = CompletionChoice(index=index, text=text, **_ending(None), logprobs=None, **prompt)
        return self._outcome([choice])

    def part(self, index: int, tokens: Sequence[EmittedToken]) -> Completion:
        """More of a choice."""
        text = "".join(token.text for token in tokens)
        offsets = self._offsets.setdefault(index, Offsets(0))
        choice = CompletionChoice(
            index=index,
            text=text,
            **_ending(None),
            logprobs=_completion_logprobs(tokens, offsets),
            **self.wanted.fields(tokens),
        )
        return self._outcome([choice])

    def last(self, index: int, end: Finished) -> Completion:
        """How a choice ended."""
        choice = CompletionChoice(index=index, text="", **_ending(end), logprobs=None)
        return self._outcome([choice])

    def closing(self, extras: Extras) -> Completion:
        """Behind all choices."""
        return self._outcome([], extras)

    def _outcome(
        self, choices: Sequence[CompletionChoice], extras: Extras | None = None
    ) -> Completion:
        return Completion(
            **self.head.fields,
            object="text_completion",
            choices=list(choices),
            **(ExtraFields() if extras is None else extras.fields),
        )

    def _echo(self, index: int) -> str:
        return self.echoes[index // self.n] if self.echoes else ""

    def _prompt(self, index: int) -> PromptFields:
        if not self.prompt_ids:
            return {}
        return {"prompt_token_ids": list(self.prompt_ids[index // self.n])}


def _ending(end: Finished | None) -> EndFields:
    if end is None:
        return {"finish_reason": None}
    reason = end.stop_string or end.stop_token
    return {"finish_reason": end.finish_reason.value, "stop_reason": reason}


def _chat_logprobs(tokens: Sequence[EmittedToken]) -> ChatLogprobs | None:
    entries = [
        ChatLogprob(
            token=_name(token.logprob),
            logprob=_finite(token.logprob.logprob),
            bytes=list(token.logprob.piece),
            top_logprobs=[_likely(top) for top in token.top_logprobs],
        )
        for token in tokens
        if token.logprob is not None
    ]
    return ChatLogprobs(content=entries) if entries else None


def _likely(found: TokenLogprob) -> Likely:
    return Likely(token=_name(found), logprob=_finite(found.logprob), bytes=list(found.piece))


def _completion_logprobs(
    tokens: Sequence[EmittedToken], offsets: Offsets
) -> CompletionLogprobs | None:
    found = [token.logprob for token in tokens if token.logprob is not None]
    if not found:
        return None
    return CompletionLogprobs(
        tokens=[_name(own) for own in found],
        token_logprobs=[_finite(own.logprob) for own in found],
        # Two tokens can have one name: the likelier one, which comes first, stays.
        top_logprobs=[
            {_name(top): _finite(top.logprob) for top in reversed(token.top_logprobs)}
            for token in tokens
        ],
        text_offset=[offsets.push(own.piece) for own in found],
    )


def _finite(logprob: float) -> float:
    """JSON has no infinity."""
    return max(logprob, LEAST_LOGPROB)


def _name(found: TokenLogprob) -> str:
    return found.piece.decode("utf-8", errors="replace")
