"""What an answer is made of: its start, its tokens, its result."""

from dataclasses import dataclass

from outrider.client.stats import Stats
from outrider.types import FinishReason


@dataclass(frozen=True, slots=True)
class Started:
    """What is known before the first token. `seed` replays the answer."""

    request_id: str
    seed: int
    prompt_tokens: int
    drafts: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token.

    `text` is what became complete with it: empty inside a character of several tokens. `draft` is
    the draft that proposed it, empty where the target wrote it.
    """

    id: int
    text: str
    draft: str = ""

    @property
    def is_drafted(self) -> bool:
        """Whether a draft proposed it and the target accepted."""
        return self.draft != ""


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer."""

    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason
    stats: Stats
    notices: tuple[str, ...]
    seed: int
    request_id: str
