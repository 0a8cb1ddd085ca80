"""What the verifier counts, for Prometheus. Knows passes and their outcomes; knows no gRPC."""

from collections.abc import Callable, Sequence

from outrider.errors import OutriderError
from outrider.telemetry.metrics import PASS_SECONDS, SIZES, Occupancy, SessionMetrics
from verify_service.settled import Batch
from verify_service.verifier import Outcome, Work


class VerifyMetrics(SessionMetrics):
    """Passes are counted while the next one runs: between two of them the target stands idle.

    - share of time in which the target computes:
      `rate(outrider_verify_seconds_total{phase="forward"}[5m])`; the rest of a second, less the
      other phases, it had nothing to do
    - share in which it stood idle although a session was ready:
      `rate(outrider_verify_seconds_total{phase="gap"}[5m])`
    - sessions in a pass, on average:
      `rate(outrider_verify_batch_size_sum[5m]) / rate(outrider_verify_batch_size_count[5m])`
    - share of drafted tokens that it rejects, all branches together:
      `1 - rate(outrider_verify_accepted_tokens_total[5m])
      / rate(outrider_verify_draft_tokens_total[5m])`
    - 95 % of passes take at most:
      `histogram_quantile(0.95, sum by (le) (rate(outrider_verify_pass_seconds_bucket[5m])))`
    - how full the KV cache is:
      `outrider_kv_tokens{service="verify",state="promised"} / ignoring(state)
      outrider_kv_tokens{service="verify",state="limit"}`
    """

    def __init__(self, look: Callable[[], Occupancy]) -> None:
        super().__init__("verify", look)
        self._sessions = self.histogram("verify_batch_size", "Sessions of a target pass", SIZES)
        self._rows = self.histogram(
            "verify_pass_rows", "Tokens of a target pass, prompts and drafts together", SIZES
        )
        self._forward = self.histogram(
            "verify_pass_seconds", "Time that the model has a pass", PASS_SECONDS
        )
        seconds = self.counter(
            "verify_seconds",
            "Time of the target: in the model, deciding, and idle although a session was ready",
            "phase",
        )
        self._seconds = {name: seconds.labels(phase=name) for name in ("forward", "accept", "gap")}
        self._prompt = self.counter(
            "verify_prompt_tokens",
            "Tokens of prompts that were read, but for the last one of each",
        )
        self._drafted = self.counter("verify_draft_tokens", "Drafted tokens that passes verified")
        self._accepted = self.counter(
            "verify_accepted_tokens",
            "Of those, tokens that were accepted, also behind an answer's end",
        )
        self._decided = self.counter(
            "verify_decided_tokens", "Accepted tokens, and the target's own after each run of them"
        )
        self._dropped = self.counter(
            "verify_dropped_nodes",
            "Drafted nodes of ended sessions that came when they could no longer be of use",
        )

    def note_pass(
        self, batch: Batch, works: Sequence[Work], outcomes: Sequence[Outcome | OutriderError]
    ) -> None:
        """After a pass."""
        prompt = drafted = accepted = accept_us = 0
        for work, outcome in zip(works, outcomes, strict=True):
            if isinstance(outcome, OutriderError):
                continue
            accept_us += outcome.accept_us
            prompt += len(work.pending)
            if work.subtree is not None and outcome.acceptance is not None:
                prompt -= 1
                drafted += len(work.subtree)
                accepted += len(outcome.acceptance.path)
        self._sessions.observe(batch.sessions)
        self._rows.observe(batch.rows)
        forward_s = batch.ended_at - batch.started_at
        self._forward.observe(forward_s)
        self._seconds["forward"].inc(forward_s)
        self._seconds["accept"].inc(accept_us / 1e6)
        self._seconds["gap"].inc(batch.gap_us / 1e6)
        self._prompt.inc(prompt)
        self._drafted.inc(drafted)
        self._accepted.inc(accepted)
        self._decided.inc(batch.tokens)

    def note_ended(self, dropped_nodes: int) -> None:
        """After a session."""
        self._dropped.inc(dropped_nodes)
