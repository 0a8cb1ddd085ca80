"""What an answer is made of: its start, its tokens, its result."""

from dataclasses import dataclass

from outrider.client.stats import Stats
from outrider.types import AcceptanceMode, FinishReason


@dataclass(frozen=True, slots=True)
class Started:
    """What is known before the first token.

    `seed`, with the `choice_index` that was asked for, replays the answer exactly in the modes
    coupled and match; in rejection and block the text also depends on what the drafts draw. `mode`
    is None where the server uses one that this client does not know. After the stream broke and
    went on, it has what the server said then.
    """

    request_id: str
    seed: int
    prompt_tokens: int
    drafts: tuple[str, ...]
    notices: tuple[str, ...]
    mode: AcceptanceMode | None
    model: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural log-probability under the target's plain logits, and its bytes."""

    id: int
    logprob: float
    piece: bytes


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token.

    `text` is what became certain with it: empty inside a character of several tokens, or what may
    become a stop string. The texts of all tokens add up to the whole text. `draft` is the draft
    that proposed it, empty where the target wrote it. Where `logprobs` were asked for, `logprob` is
    its own, `piece` are its bytes, and `top_logprobs` the most likely tokens in its place,
    likeliest first.
    """

    id: int
    text: str
    draft: str = ""
    logprob: float | None = None
    piece: bytes = b""
    top_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def is_drafted(self) -> bool:
        """Whether a draft proposed it and the target accepted."""
        return self.draft != ""


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer. `stop_string` is the one that ended it, empty where none did; `mode` as in
    `Started`. `resumed_at` has how many tokens had arrived, at least one, each time that the stream
    broke and went on; what was counted before is lost then, so `stats` tell of the tokens behind
    the last of them.
    """

    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason
    stats: Stats
    notices: tuple[str, ...]
    seed: int
    request_id: str
    mode: AcceptanceMode | None = None
    stop_string: str = ""
    resumed_at: tuple[int, ...] = ()
