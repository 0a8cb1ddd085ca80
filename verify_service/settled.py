"""What became of a session in a pass, and its verdict: all that the next pass does not need.

Knows no gRPC, no model and no queues.
"""

from dataclasses import dataclass

from outrider.types import FinishReason, StepTiming, Verdict
from verify_service.verifier import Outcome


@dataclass(frozen=True, slots=True)
class Batch:
    """A pass as a whole: its sessions, rows and decided tokens, and when the model had it.

    For `gap_us` the model stood idle before it although a session of it was ready, and for
    `untold_gap_us` before the passes that ran since the last verdict, of anyone: they only read
    prompts, and had none to tell it.
    """

    sessions: int
    rows: int
    tokens: int
    started_at: float
    ended_at: float
    gap_us: int
    untold_gap_us: int = 0

    def queued_us(self, ready_since: float) -> int:
        """For how long a session waited for the model while that was busy with others."""
        return max(0, int((self.started_at - ready_since) * 1e6) - self.gap_us)


@dataclass(frozen=True, slots=True)
class Settled:
    """The verdict `round_index`, not yet written: the target stands idle while passes are settled,
    and runs while verdicts are read.

    `tokens` were committed after the first `base`, each with the `ids` of the nodes that had
    drafted it, of which `accepted` were verified; `drafted` nodes were among its `rows`; with
    `missed` see Verdict. Times in microseconds; `at` by the monotonic clock.
    """

    at: float
    round_index: int
    base: int
    tokens: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]
    accepted: int
    finish_reason: FinishReason | None
    drafted: int
    missed: bool
    rows: int
    outcome: Outcome
    batch: Batch
    wait_us: int
    queue_us: int

    @property
    def verdict(self) -> Verdict:
        """For the caller; to be read in one thread, whichever."""
        outcome, batch, count = self.outcome, self.batch, len(self.tokens)
        return Verdict(
            round_index=self.round_index,
            base=self.base,
            tokens=self.tokens,
            node_ids=tuple(
                ids[0] if i < self.accepted and ids else 0 for i, ids in enumerate(self.ids)
            ),
            drafted=self.drafted,
            finish_reason=self.finish_reason,
            timing=StepTiming(
                wait_us=self.wait_us,
                forward_us=outcome.forward_us,
                accept_us=outcome.accept_us,
                rows=self.rows,
                batch_sessions=batch.sessions,
                queue_us=self.queue_us,
                batch_rows=batch.rows,
                batch_tokens=batch.tokens,
                gap_us=batch.gap_us + batch.untold_gap_us,
            ),
            logprobs=outcome.logprobs.of(count) if outcome.logprobs is not None else (),
            fresh=outcome.acceptance is not None and outcome.acceptance.fresh,
            missed=self.missed,
        )
