"""What goes through a front, counted as it goes. Pure.

`orchestrator.metrics` counts a request once it has ended; this counts each verdict as it comes,
also of requests that are given up, so that whoever watches sees an answer while it is written.
"""

from dataclasses import dataclass, field

from orchestrator.requests import DraftStats, Event, Finished, Tokens

MOST_POSITIONS = 32
"""Deeper ones are counted at the last of these."""


@dataclass(slots=True)
class DraftTraffic:
    """Of one draft: tokens of answers that it wrote; and, of requests that have ended, the nodes
    that it sent, those that were accepted, and its steps with their time.
    """

    written_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    steps: int = 0
    step_us: int = 0

    def note(self, stats: DraftStats) -> None:
        """After a request."""
        self.drafted_tokens += stats.drafted_tokens
        self.accepted_tokens += stats.accepted_tokens
        self.steps += stats.steps
        self.step_us += stats.step_us


@dataclass(slots=True)
class Traffic:
    """Since the front began; names as in `orchestrator.requests.Stats`. A pass counts once for each
    request in it, its time once.
    """

    emitted_tokens: int = 0
    target_passes: int = 0
    drafted_passes: int = 0
    verified_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    forward_us: float = 0.0
    gap_us: float = 0.0
    drafts: dict[str, DraftTraffic] = field(default_factory=dict)

    def of(self, draft: str) -> DraftTraffic:
        """What is counted of a draft."""
        return self.drafts.setdefault(draft, DraftTraffic())

    def note(self, event: Event) -> None:
        """The next event of any request."""
        if isinstance(event, Tokens):
            self._note_tokens(event)
        elif isinstance(event, Finished):
            for stats in event.stats.drafts:
                self.of(stats.name).note(stats)

    def _note_tokens(self, event: Tokens) -> None:
        authors = [token.draft for token in event.tokens if token.draft]
        self.emitted_tokens += len(event.tokens)
        self.target_passes += 1
        self.drafted_passes += 1 if event.verified_tokens else 0
        self.verified_tokens += event.verified_tokens
        self.accepted_tokens += len(authors)
        # Each request of a pass is told of the whole: its share adds up to it.
        sharing = max(1, event.timing.batch_sessions)
        self.forward_us += event.timing.forward_us / sharing
        self.gap_us += event.timing.gap_us / sharing
        for position, author in enumerate(authors):
            self.of(author).written_tokens += 1
            place = min(position, MOST_POSITIONS - 1)
            self.accepted_per_position += [0] * (place + 1 - len(self.accepted_per_position))
            self.accepted_per_position[place] += 1
