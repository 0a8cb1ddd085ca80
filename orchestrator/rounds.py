"""The spans of a request's rounds. Knows verdicts; knows no order of things."""

import time

from outrider.telemetry.traces import start_span
from outrider.types import Verdict


class RoundSpans:
    """A span for each round, below the request's: from the verdict before it, or the beginning."""

    def __init__(self, traceparent: str) -> None:
        self._parent = traceparent
        self._since_ns = time.time_ns() if traceparent else 0

    def note(self, verdict: Verdict, emitted: int) -> None:
        """After a verdict of which `emitted` tokens count."""
        if not self._parent:
            return
        timing = verdict.timing
        start_span(
            "round",
            self._parent,
            started_ns=self._since_ns,
            round_index=verdict.round_index,
            rows=timing.rows,
            drafted=verdict.drafted,
            accepted=sum(1 for node_id in verdict.node_ids[:emitted] if node_id),
            emitted=emitted,
            wait_us=timing.wait_us,
            queue_us=timing.queue_us,
            forward_us=timing.forward_us,
            accept_us=timing.accept_us,
            gap_us=timing.gap_us,
            batch_sessions=timing.batch_sessions,
        ).end()
        self._since_ns = time.time_ns()
