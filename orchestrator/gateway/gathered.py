"""What has come of a choice so far. Pure."""

from dataclasses import dataclass, field

from orchestrator.requests import EmittedToken, Event, Finished, Started, Stats, Tokens
from outrider.errors import InternalError


@dataclass(slots=True)
class Answer:
    """One choice as it arrives."""

    started: Started | None = None
    tokens: list[EmittedToken] = field(default_factory=list)
    finished: Finished | None = None

    def take(self, event: Event) -> None:
        """The next of its events."""
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, Tokens):
            self.tokens.extend(event.tokens)
        else:
            self.finished = event

    @property
    def text(self) -> str:
        """What is certain of it so far."""
        return "".join(token.text for token in self.tokens)

    @property
    def end(self) -> Finished:
        """How it ended; raises InternalError where its last event never came."""
        if self.finished is None:
            raise InternalError("the engine ended an answer without its last event")
        return self.finished

    @property
    def stats(self) -> Stats:
        """Counts and times, once it has ended."""
        return self.end.stats
