"""What a draft counts, for Prometheus. Knows passes and nodes; knows no gRPC."""

from collections.abc import Callable, Sequence

from outrider.telemetry.metrics import PASS_SECONDS, SIZES, Occupancy, SessionMetrics


class DraftMetrics(SessionMetrics):
    """The draft's side; what became of its nodes the orchestrator knows. In PromQL:

    - share of time in which it drafts: `rate(outrider_drafter_pass_seconds_sum[5m])`
    - nodes a second: `rate(outrider_drafter_nodes_total[5m])`
    - tokens in a pass, on average:
      `rate(outrider_drafter_pass_rows_sum[5m]) / rate(outrider_drafter_pass_rows_count[5m])`
    - 95 % of passes take at most:
      `histogram_quantile(0.95, sum by (le) (rate(outrider_drafter_pass_seconds_bucket[5m])))`
    - share of sessions that it is told to leave alone, because drafting does not pay there:
      `outrider_drafter_resting_sessions / ignoring(service)
      outrider_sessions_open{service="draft"}`
    """

    def __init__(self, look: Callable[[], Occupancy], resting: Callable[[], int]) -> None:
        """Both are asked in the thread that serves the metrics."""
        super().__init__("draft", look)
        self._rows = self.histogram(
            "drafter_pass_rows", "Tokens of a draft pass, prompts and nodes together", SIZES
        )
        self._seconds = self.histogram(
            "drafter_pass_seconds", "Time of a draft pass, its proposals included", PASS_SECONDS
        )
        self._nodes = self.counter("drafter_nodes", "Nodes that were made")
        self._translated = self.counter(
            "drafter_translated_nodes", "Of those, nodes for a target with another tokenizer"
        )
        self._commits = self.counter(
            "drafter_commits", "Verdicts that were heard of, one for each round of a session"
        )
        sessions = self.gauge(
            "drafter_resting_sessions", "Open sessions that are not to be drafted for at present"
        )
        sessions.set_function(resting)

    def note_passes(self, passes: Sequence[tuple[int, int]]) -> None:
        """After passes: their rows and microseconds."""
        for rows, step_us in passes:
            self._rows.observe(rows)
            self._seconds.observe(step_us / 1e6)

    def note_nodes(self, count: int, *, are_translated: bool) -> None:
        """After nodes were made for a session."""
        self._nodes.inc(count)
        if are_translated:
            self._translated.inc(count)

    def note_commit(self) -> None:
        """After a session was told a verdict."""
        self._commits.inc()
