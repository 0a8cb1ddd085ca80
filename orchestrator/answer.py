"""What the user gets of a verdict: tokens with text and log-probabilities, cut where a stop string
ends the text.

Knows no links and no plans.
"""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.requests import EmittedToken, GenerationRequest, TokenLogprob
from outrider.errors import InternalError, InvalidArgumentError
from outrider.text import TextStream
from outrider.types import FinishReason, Verdict
from outrider.vocabulary import Vocabulary


class Answer:
    """One answer as it grows; `author_of` names the draft behind a node id (empty: the target)."""

    def __init__(
        self,
        request: GenerationRequest,
        vocabulary: Vocabulary,
        author_of: Callable[[int], str],
    ) -> None:
        self._wants_logprobs = request.logprobs is not None
        self._vocabulary = vocabulary
        self._author_of = author_of
        self._text = TextStream(
            vocabulary,
            request.stop_strings,
            include_stop_string=request.include_stop_string,
            min_tokens=request.stop.min_tokens,
        )
        if not self._text.skip(request.delivered_ids):
            raise InvalidArgumentError(
                f"a stop string ends the answer before the last of {len(request.delivered_ids)} "
                "delivered tokens; give those of this request"
            )

    @property
    def is_complete(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._text.stop_string is not None

    @property
    def stop_string(self) -> str:
        """The stop string that ended the text; empty where none did."""
        return self._text.stop_string or ""

    def take(self, verdict: Verdict) -> tuple[Verdict, tuple[EmittedToken, ...]]:
        """The verdict as far as it is part of the answer, and its tokens.

        A stop string ends both with the token that completes it. Where the verifier ended the run
        earlier, that end stands. The last token of the answer also has the text that was held back.
        """
        if self._wants_logprobs and len(verdict.logprobs) != len(verdict.tokens):
            raise InternalError(
                f"the verifier sent {len(verdict.logprobs)} log-probabilities for "
                f"{len(verdict.tokens)} tokens; one for each was asked for"
            )
        texts: list[str] = []
        for token in verdict.tokens:
            texts.append(self._text.push(token))
            if self.is_complete:
                verdict = _cut(verdict, len(texts))
                break
        if verdict.finish_reason is not None:
            texts[-1] += self._text.finish()
        tokens = tuple(self._token(verdict, index, text) for index, text in enumerate(texts))
        return verdict, tokens

    def _token(self, verdict: Verdict, index: int, text: str) -> EmittedToken:
        token = verdict.tokens[index]
        author = self._author_of(verdict.node_ids[index])
        if not self._wants_logprobs:
            return EmittedToken(token, text, author)
        entry = verdict.logprobs[index]
        return EmittedToken(
            token,
            text,
            author,
            self._logprob(token, entry.logprob),
            tuple(self._logprob(other, logprob) for other, logprob in entry.top),
        )

    def _logprob(self, token: int, logprob: float) -> TokenLogprob:
        pieces = self._vocabulary.pieces
        return TokenLogprob(token, logprob, pieces[token] if token < len(pieces) else b"")


def _cut(verdict: Verdict, count: int) -> Verdict:
    """The verdict with its first `count` tokens, which end the text."""
    return replace(
        verdict,
        tokens=verdict.tokens[:count],
        node_ids=verdict.node_ids[:count],
        logprobs=verdict.logprobs[:count],
        finish_reason=FinishReason.STOP,
    )
