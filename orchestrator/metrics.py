"""What is counted of the requests that a front answers, for Prometheus. Knows no HTTP."""

from collections.abc import Iterator

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from orchestrator.requests import ClusterView, Stats
from outrider.telemetry.metrics import Metrics

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)
MOST_POSITIONS = 32
"""Deeper ones are counted at the last of these: each is a time series of its own."""


class FrontMetrics(Metrics):
    """Everything comes of the events of the engines, so it is the same wherever those run. A
    request is counted when it has ended. In PromQL:

    - acceptance rate:
      `rate(outrider_accepted_tokens_total[5m]) / rate(outrider_draft_tokens_total[5m])`
    - mean acceptance length, the target's own token counted:
      `1 + rate(outrider_accepted_tokens_total[5m]) / rate(outrider_drafts_total[5m])`
    - acceptance at a position:
      `rate(outrider_accepted_tokens_per_position_total[5m]) / ignoring(position) group_left
      rate(outrider_drafts_total[5m])`
    - tokens a pass:
      `rate(outrider_emitted_tokens_total[5m]) / rate(outrider_target_passes_total[5m])`
    - where a round's time goes:
      `rate(outrider_round_seconds_total[5m]) / ignoring(phase) group_left
      rate(outrider_target_passes_total[5m])`
    - half of the requests have their first token after:
      `histogram_quantile(0.5, sum by (le) (rate(outrider_time_to_first_token_seconds_bucket[5m])))`
    """

    def __init__(self, *, has_vllm_names: bool = False) -> None:
        super().__init__("orchestrator")
        self.running = self.gauge("requests_running", "Requests that are being answered")
        self._requests = self.counter("requests", "Requests that ended, by how", "outcome")
        self._prompt = self.counter("prompt_tokens", "Tokens of prompts")
        self._cached = self.counter(
            "cached_prompt_tokens", "Of those, tokens whose KV the target had"
        )
        self._emitted = self.counter("emitted_tokens", "Tokens of answers")
        self._passes = self.counter("target_passes", "Target passes that decided tokens")
        self._drafts = self.counter("drafts", "Of those, passes with drafted tokens")
        self._verified = self.counter("draft_tokens", "Drafted tokens that the target verified")
        self._accepted = self.counter("accepted_tokens", "Of those, tokens that it accepted")
        self._positions = self.counter(
            "accepted_tokens_per_position",
            "Passes whose accepted path is longer than the position",
            "position",
        )
        self._rounds = self.counter(
            "round_seconds",
            "Time of rounds: waiting for drafts, of that queueing for a busy target, the target's "
            "pass, acceptance, the orchestrator's own work, and the target's idle time before it",
            "phase",
        )
        self._made = self.counter("draft_nodes", "Nodes that came from a draft", "draft")
        self._used = self.counter("draft_accepted_tokens", "Accepted tokens of a draft", "draft")
        self._lost = self.counter("drafts_lost", "Requests that lost a draft", "draft")
        self._resumes = self.counter("resumes", "Broken verify streams that were resumed")
        self._messages = self.counter("wire_messages", "Messages to and from the services")
        self._bytes = self.counter("wire_bytes", "Their bytes")
        self._first = self.histogram(
            "time_to_first_token_seconds", "From a request to its first token", SECONDS
        )
        self._whole = self.histogram("request_seconds", "From a request to its end", SECONDS)
        self._each = self.histogram(
            "time_per_token_seconds", "Mean time from token to token in a request", TOKEN_SECONDS
        )
        self._usable = self.gauge("service_usable", "Whether a service can be used", "service")
        self._away = self.gauge("round_trip_seconds", "Of a small call to a service", "service")
        if has_vllm_names:
            self.registry.register(_VllmNames(self))

    def note_finished(self, outcome: str, stats: Stats) -> None:
        """After an answer."""
        self._requests.labels(outcome=outcome).inc()
        self._prompt.inc(stats.prompt_tokens)
        self._cached.inc(stats.cached_tokens)
        self._emitted.inc(stats.emitted_tokens)
        self._passes.inc(stats.target_passes)
        self._drafts.inc(stats.drafted_passes)
        self._verified.inc(stats.verified_tokens)
        self._accepted.inc(stats.accepted_tokens)
        for position, count in enumerate(stats.accepted_per_position):
            self._positions.labels(position=min(position, MOST_POSITIONS - 1)).inc(count)
        for phase, spent_us in (
            ("wait", sum(stats.wait_us)),
            ("queue", stats.queue_us),
            ("forward", sum(stats.forward_us)),
            ("accept", stats.accept_us),
            ("reconcile", stats.reconcile_us),
            ("gap", sum(stats.gap_us)),
        ):
            self._rounds.labels(phase=phase).inc(spent_us / 1e6)
        for draft in stats.drafts:
            self._made.labels(draft=draft.name).inc(draft.drafted_tokens)
            self._used.labels(draft=draft.name).inc(draft.accepted_tokens)
            self._lost.labels(draft=draft.name).inc(1 if draft.lost else 0)
        self._resumes.inc(stats.resumes)
        self._messages.inc(stats.messages)
        self._bytes.inc(stats.wire_bytes)
        if stats.emitted_tokens:
            self._first.observe(stats.first_token_us / 1e6)
        self._whole.observe(stats.total_us / 1e6)
        if stats.emitted_tokens > 1:
            spent_us = stats.total_us - stats.first_token_us
            self._each.observe(spent_us / 1e6 / (stats.emitted_tokens - 1))

    def note_ended(self, outcome: str) -> None:
        """After a request that has no whole answer."""
        self._requests.labels(outcome=outcome).inc()

    def note_cluster(self, view: ClusterView) -> None:
        """How the services are, as they were just asked."""
        for service in (view.verify, *view.drafts):
            self._usable.labels(service=service.name).set(1 if service.usable else 0)
            self._away.labels(service=service.name).set(service.round_trip_us / 1e6)

    @property
    def spec_decode(self) -> dict[str, Counter]:
        """By vLLM's names for them, without its prefix."""
        return {
            "num_drafts": self._drafts,
            "num_draft_tokens": self._verified,
            "num_accepted_tokens": self._accepted,
            "num_accepted_tokens_per_pos": self._positions,
        }


class _VllmNames(Collector):
    """The counters of speculative decoding once more, by the names that dashboards for vLLM ask
    for.
    """

    def __init__(self, metrics: FrontMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As Prometheus' library asks for it."""
        for name, counter in self._metrics.spec_decode.items():
            for family in counter.collect():
                labels = ["position"] if name.endswith("per_pos") else []
                alias = CounterMetricFamily(
                    f"vllm:spec_decode_{name}", family.documentation, labels=labels
                )
                for sample in family.samples:
                    if sample.name.endswith("_total"):
                        alias.add_metric(list(sample.labels.values()), sample.value)
                yield alias

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Nothing to compare: the names are not ours."""
        yield from ()
