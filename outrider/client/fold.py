"""The messages of one answer folded into tokens, text and result: a state machine without I/O.

Feed it what happens (`push`, `end`, `fail`, `cancel`), take tokens out (`pop`); both clients do.
"""

from collections import deque
from contextlib import suppress

from outrider.client.answer import Result, Started, Token, TokenLogprob
from outrider.client.stats import stats_from_proto
from outrider.errors import (
    DeadlineError,
    InvalidArgumentError,
    OutriderError,
    ProtocolMismatchError,
    RequestCancelledError,
    UnavailableError,
)
from outrider.types import AcceptanceMode, FinishReason
from outrider.v1 import orchestrator_pb2
from outrider.wire.convert_sampling import finish_from, mode_from


class Fold:
    """The state of one answer while it arrives."""

    def __init__(self, request_id: str) -> None:
        """`request_id` is what this side calls the request; the server may call it otherwise."""
        self._request_id = request_id
        self.started: Started | None = None
        self.result: Result | None = None
        """The whole answer, once its last message has arrived."""
        self.is_over = False
        """Whether nothing more will arrive."""
        self.is_cancelled = False
        """Whether this side gave up before the end."""
        self._is_starting = True
        self._resumed_at: list[int] = []
        self._taken: list[Token] = []
        self._waiting: deque[Token] = deque()
        self._error: OutriderError | None = None

    @property
    def text(self) -> str:
        """Text of the tokens taken; once all are, the whole text."""
        return "".join(token.text for token in self._taken)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens taken so far."""
        return tuple(self._taken)

    @property
    def arrived(self) -> int:
        """How many tokens have arrived, taken or not."""
        return len(self._taken) + len(self._waiting)

    @property
    def ids(self) -> list[int]:
        """Their ids."""
        return [token.id for token in (*self._taken, *self._waiting)]

    def begin_again(self) -> None:
        """The stream broke and another one follows, which goes on behind what has arrived."""
        self._is_starting = True

    def push(self, message: orchestrator_pb2.GenerateResponse) -> None:
        """Takes in the next message."""
        kind = message.WhichOneof("kind")
        if kind is None or self.is_over:
            # Either a kind that a newer server added, which an older client can do without,
            # or a message that was on its way when this side gave up.
            return
        if (kind == "started") is not self._is_starting or self.result is not None:
            self.fail(ProtocolMismatchError(f"the answer has '{kind}' in a wrong place"))
        elif kind == "started":
            self._start(message.started)
        elif kind == "tokens":
            self._waiting.extend(map(_token_from, message.tokens.tokens))
        else:
            self._finish(message.finished)

    def pop(self) -> Token | None:
        """The next token in order; None where more has to arrive first, or nothing will."""
        if not self._waiting:
            self.raise_if_failed()
            return None
        token = self._waiting.popleft()
        self._taken.append(token)
        return token

    def raise_if_failed(self) -> None:
        """Raises what ended the answer early, every time."""
        if self._error is not None:
            raise self._error

    def whole(self) -> Result:
        """The result; raises what ended the answer early."""
        self.raise_if_failed()
        if self.result is None:
            raise UnavailableError("the answer is not complete yet; take its tokens first")
        return self.result

    def end(self) -> None:
        """The peer closed the stream behind the last message."""
        self.is_over = True

    def fail(self, error: OutriderError) -> None:
        """The stream broke: `pop` raises `error` after the tokens that had arrived.

        After the last message nothing is missing, so nothing is raised.
        """
        self.is_over = True
        if self.result is None and self._error is None:
            self._error = self._explained(error)

    def cancel(self) -> None:
        """This side gives up; tokens not taken are dropped. Without effect after the end."""
        if self.is_over or self.result is not None:
            return
        self.is_cancelled = True
        self._waiting.clear()
        self.fail(RequestCancelledError("the request was cancelled by this client"))

    def _start(self, message: orchestrator_pb2.GenerateStarted) -> None:
        if message.delivered_tokens != self.arrived:
            self.fail(
                ProtocolMismatchError(
                    f"the server begins behind {message.delivered_tokens} of the {self.arrived} "
                    "tokens that had arrived before the connection broke; is it an older version?"
                )
            )
            return
        self._is_starting = False
        before = self.started
        known = before.notices if before is not None else ()
        if self.arrived:
            self._resumed_at.append(self.arrived)
        self.started = Started(
            request_id=message.request_id,
            seed=message.seed,
            prompt_tokens=message.prompt_tokens,
            drafts=tuple(message.drafts),
            notices=(*known, *(notice for notice in message.notices if notice not in known)),
            mode=_mode(message),
            model=message.model,
        )
        if before is not None and self.arrived and not _same_answer(before, self.started):
            self.fail(
                ProtocolMismatchError(
                    f"what answers now has other facts than before the connection broke "
                    f"({self.started} instead of {before}); ask again"
                )
            )

    def _finish(self, message: orchestrator_pb2.GenerateFinished) -> None:
        reason = _finish_reason(message)
        if reason is None or self.started is None:
            wrong = f"finish_reason is {message.finish_reason}, which this client does not know"
            self.fail(ProtocolMismatchError(wrong))
            return
        tokens = (*self._taken, *self._waiting)
        self.result = Result(
            text="".join(token.text for token in tokens),
            tokens=tokens,
            finish_reason=reason,
            stats=stats_from_proto(message.stats),
            notices=(*self.started.notices, *message.notices),
            seed=self.started.seed,
            request_id=self.started.request_id,
            mode=self.started.mode,
            stop_string=message.stop_string,
            resumed_at=tuple(self._resumed_at),
        )

    def _explained(self, error: OutriderError) -> OutriderError:
        """`error` with what only this side knows: the request id and how far the answer got."""
        if self.started is None:
            error.request_id = error.request_id or self._request_id
            return error
        error.request_id = error.request_id or self.started.request_id
        if isinstance(error, (DeadlineError, UnavailableError, RequestCancelledError)):
            count = self.arrived
            arrived = "1 token had" if count == 1 else f"{count or 'no'} tokens had"
            error.message += f"; {arrived} arrived" + (", see .text" if count else "")
            error.args = (error.message,)
        return error


def _same_answer(before: Started, after: Started) -> bool:
    """Whether the second stream can go on with the answer of the first."""
    return (before.seed, before.mode, before.model, before.prompt_tokens) == (
        after.seed,
        after.mode,
        after.model,
        after.prompt_tokens,
    )


def _mode(message: orchestrator_pb2.GenerateStarted) -> AcceptanceMode | None:
    """None for one of a newer server: a client can do without."""
    with suppress(InvalidArgumentError):
        return mode_from(message.mode)
    return None


def _finish_reason(message: orchestrator_pb2.GenerateFinished) -> FinishReason | None:
    """None for one of a newer server, and where none is given."""
    with suppress(InvalidArgumentError):
        return finish_from(message.finish_reason)
    return None


def _token_from(message: orchestrator_pb2.EmittedToken) -> Token:
    has_logprob = message.HasField("logprob")
    return Token(
        message.id,
        message.text,
        message.draft,
        message.logprob.logprob if has_logprob else None,
        message.logprob.piece,
        tuple(TokenLogprob(top.id, top.logprob, top.piece) for top in message.top_logprobs),
    )
