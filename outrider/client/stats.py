"""Counts and times of one answer, and the figures derived from them. Knows no gRPC calls."""

from dataclasses import dataclass

from outrider.v1 import orchestrator_pb2


@dataclass(frozen=True, slots=True)
class DraftStats:
    """What one draft contributed. `step_us` adds up the mean forward pass behind each of the
    `steps` chunks that came from it, `wire_us` is the time on the way between it and the
    orchestrator and back, over `wire_rounds` commits. `paced_steps[i]` chunks that go on below
    i + 1 nodes came right behind others, over `paced_us[i]`: its time from one step to the next.
    """

    name: str
    drafted_tokens: int
    accepted_tokens: int
    lost: bool
    steps: int
    step_us: int
    wire_rounds: int
    wire_us: int
    cached_tokens: int = 0
    paced_steps: tuple[int, ...] = ()
    paced_us: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one answer, named as in `GenerateStats` of the protocol.

    `wait_us`, `pass_rows`, `forward_us`, `gap_us` and `batch_rows` have an entry for each target
    pass.
    `accepted_per_position[i]` counts the passes whose accepted path had more than i nodes.
    `guess_outcomes` has four entries for each tenth that the chance of a draft's likeliest guess
    may lie in: at how many places it was the target's token, the second guess was, a later one, or
    none. `guessed_places[i]` counts the same places by the right guesses in a row before them,
    `found_places[i]` those of them where the token was guessed.
    """

    prompt_tokens: int
    cached_tokens: int
    emitted_tokens: int
    target_passes: int
    verified_tokens: int
    accepted_tokens: int
    drafts: tuple[DraftStats, ...]
    first_token_us: int
    total_us: int
    messages: int
    wire_bytes: int
    resumes: int
    wait_us: tuple[int, ...]
    pass_rows: tuple[int, ...]
    forward_us: tuple[int, ...]
    drafted_passes: int
    accepted_per_position: tuple[int, ...]
    queue_us: int
    accept_us: int
    reconcile_us: int
    gap_us: tuple[int, ...] = ()
    batch_rows: tuple[int, ...] = ()
    guess_outcomes: tuple[int, ...] = ()
    guessed_places: tuple[int, ...] = ()
    found_places: tuple[int, ...] = ()

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens per target pass, the target's own token counted; 0 without a pass."""
        return self.emitted_tokens / self.target_passes if self.target_passes else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted nodes per node that the target verified; 0 where none was verified.

        Of siblings in a tree at most one can be accepted, so wide trees have a low rate by
        construction. Nodes that arrived too late to be verified are not counted.
        """
        return self.accepted_tokens / self.verified_tokens if self.verified_tokens else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Emitted tokens per second of the whole request, prefill included; 0 if no time passed."""
        return self.emitted_tokens * 1_000_000 / self.total_us if self.total_us else 0.0


def stats_from_proto(message: orchestrator_pb2.GenerateStats) -> Stats:
    """`message` as a `Stats`."""
    return Stats(
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        emitted_tokens=message.emitted_tokens,
        target_passes=message.target_passes,
        verified_tokens=message.verified_tokens,
        accepted_tokens=message.accepted_tokens,
        drafts=tuple(
            DraftStats(
                name=draft.name,
                drafted_tokens=draft.drafted_tokens,
                accepted_tokens=draft.accepted_tokens,
                lost=draft.lost,
                steps=draft.steps,
                step_us=draft.step_us,
                cached_tokens=draft.cached_tokens,
                paced_steps=tuple(draft.paced_steps),
                paced_us=tuple(draft.paced_us),
                wire_rounds=draft.wire_rounds,
                wire_us=draft.wire_us,
            )
            for draft in message.drafts
        ),
        first_token_us=message.first_token_us,
        total_us=message.total_us,
        messages=message.messages,
        wire_bytes=message.wire_bytes,
        resumes=message.resumes,
        wait_us=tuple(message.wait_us),
        pass_rows=tuple(message.pass_rows),
        forward_us=tuple(message.forward_us),
        drafted_passes=message.drafted_passes,
        accepted_per_position=tuple(message.accepted_per_position),
        queue_us=message.queue_us,
        accept_us=message.accept_us,
        reconcile_us=message.reconcile_us,
        gap_us=tuple(message.gap_us),
        batch_rows=tuple(message.batch_rows),
        guess_outcomes=tuple(message.guess_outcomes),
        guessed_places=tuple(message.guessed_places),
        found_places=tuple(message.found_places),
    )
