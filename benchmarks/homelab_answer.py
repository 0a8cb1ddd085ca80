"""One measured answer of the home-lab rig: tokens, when they came, what each pass did.

Pure: knows what a client gets, not how it was asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.homelab_plan import Configuration
from outrider.client import Stats, Token
from outrider.errors import InternalError


@dataclass(frozen=True, slots=True)
class Round:
    """One target pass: the rows it ran (1 + drafted nodes), the accepted ones among them, its time,
    and the time from the verdict before it to its start. Times in microseconds."""

    rows: int
    accepted: int
    forward_us: int
    wait_us: int


@dataclass(frozen=True, slots=True)
class Phases:
    """Where the time of an answer went besides passes and waits: totals in microseconds.

    `draft_us` is the draft's own work, most of it at the same time as everything else; `wire_us`
    the pure way there and back, over `wire_rounds` commits.
    """

    draft_us: int = 0
    queue_us: int = 0
    wire_us: int = 0
    wire_rounds: int = 0
    accept_us: int = 0
    reconcile_us: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one configuration answered to one prompt.

    Args:
        at_ms: for each token when the client had it, from when it asked.
        passes: target passes that emitted tokens.
        rounds: the passes one by one, where they are known; empty for peers.
        accepted_tokens: drafted tokens among the emitted ones.
        accepted_per_position: at index i the passes whose accepted path had more than i nodes.
        wire_bytes: between orchestrator and services.
    """

    prompt: int
    configuration: Configuration
    ids: tuple[int, ...]
    at_ms: tuple[float, ...]
    passes: int
    accepted_tokens: int
    drafted_passes: int = 0
    accepted_per_position: tuple[int, ...] = ()
    rounds: tuple[Round, ...] = ()
    phases: Phases = Phases()
    wire_bytes: int = 0

    @property
    def ttft_ms(self) -> float:
        """Time to the first token."""
        return self.at_ms[0]

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding speed: the tokens that came after the first ones, by the time that they took.

        The prompt's time is not in it, nor are the tokens that arrive with the first one. None
        where all came at once.
        """
        first_ms = self.at_ms[0]
        later = sum(1 for at_ms in self.at_ms if at_ms > first_ms + BURST_MS)
        took_ms = self.at_ms[-1] - first_ms
        return 1000 * later / took_ms if later else None

    @property
    def gaps_ms(self) -> tuple[float, ...]:
        """From each token to the next, as the client saw them."""
        return tuple(b - a for a, b in zip(self.at_ms, self.at_ms[1:], strict=False))


BURST_MS = 1.0
"""Tokens of one message come apart by less than this; passes of any target take longer."""


def accepted_runs(tokens: Sequence[Token]) -> list[int]:
    """Accepted tokens of each pass: a pass emits what it accepted, then one token of the target's.

    Only the last pass may lack that one, where the answer ended before it.
    """
    runs = []
    run = 0
    for token in tokens:
        if token.is_drafted:
            run += 1
        else:
            runs.append(run)
            run = 0
    return [*runs, run] if run else runs


def answer_of(
    prompt: int,
    configuration: Configuration,
    tokens: Sequence[Token],
    at_ms: Sequence[float],
    stats: Stats,
) -> Answer:
    """What our own client got.

    Raises:
        InternalError: the counts of the answer do not fit its tokens.
    """
    runs = accepted_runs(tokens)
    per_pass = (stats.pass_rows, stats.forward_us, stats.wait_us)
    if any(len(values) != len(runs) for values in per_pass):
        raise InternalError(
            f"{len(runs)} passes are told by the tokens, {', '.join(str(len(v)) for v in per_pass)}"
            " by pass_rows, forward_us and wait_us; the figures would be wrong"
        )
    return Answer(
        prompt=prompt,
        configuration=configuration,
        ids=tuple(token.id for token in tokens),
        at_ms=tuple(at_ms),
        passes=stats.target_passes,
        accepted_tokens=stats.accepted_tokens,
        drafted_passes=stats.drafted_passes,
        accepted_per_position=stats.accepted_per_position,
        rounds=tuple(
            Round(rows, accepted, forward_us, wait_us)
            for rows, accepted, forward_us, wait_us in zip(
                stats.pass_rows, runs, stats.forward_us, stats.wait_us, strict=True
            )
        ),
        phases=Phases(
            draft_us=sum(draft.step_us for draft in stats.drafts),
            queue_us=stats.queue_us,
            wire_us=sum(draft.wire_us for draft in stats.drafts),
            wire_rounds=sum(draft.wire_rounds for draft in stats.drafts),
            accept_us=stats.accept_us,
            reconcile_us=stats.reconcile_us,
        ),
        wire_bytes=stats.wire_bytes,
    )
