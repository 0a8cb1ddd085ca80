"""Writes docs/reference/metrics.md from the services' metrics themselves. `python
scripts/generate_metrics_reference.py`.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path

from draft_service.metrics import DraftMetrics
from orchestrator.metrics import FrontMetrics
from outrider.telemetry.metrics import Described, Metrics, Occupancy
from verify_service.metrics import VerifyMetrics

PATH = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"

HEAD = """\
# Metrics

Written by `python scripts/generate_metrics_reference.py` from the services' own metrics.

Every service tells Prometheus what it counts at `/metrics` of the port that `--metrics-port`
names: at `--host`, so on loopback unless told otherwise, over HTTPS where the service has a
certificate, else in plain HTTP, and without a key. Without the flag nothing listens. The
orchestrator has the same at `/metrics` of its HTTP endpoint, where a key is needed if any is set;
with `--no-http` its `--metrics-port` is the only place. `deploy/prometheus` has a configuration
that scrapes all three and rules that alert, `deploy/grafana/outrider.json` a dashboard.

No label holds anything that a caller chooses: `draft` and a peer's `service` are names of the
orchestrator's settings, `position` ends at 31, `reason` and `outcome` are few words. A histogram's
samples have `_bucket`, `_sum` and `_count` behind its name. What several services have is told
apart by `service`.

With `--vllm-metric-names` the orchestrator tells the counters of speculative decoding by vLLM's
names, too: `vllm:spec_decode_num_drafts_total`, `vllm:spec_decode_num_draft_tokens_total`,
`vllm:spec_decode_num_accepted_tokens_total`, and
`vllm:spec_decode_num_accepted_tokens_per_pos_total` with `position`.
"""

TITLES = {
    "orchestrator": "Orchestrator",
    "verify": "Verify service",
    "draft": "Draft service",
}


def services() -> Mapping[str, Metrics]:
    """The metrics of each service, of one that does nothing."""

    def look() -> Occupancy:
        return Occupancy(0, 0, {"used": 0, "limit": 0})

    return {
        "orchestrator": FrontMetrics(),
        "verify": VerifyMetrics(look),
        "draft": DraftMetrics(look, lambda: 0),
    }


def reference() -> str:
    """The page."""
    parts = [HEAD]
    for name, metrics in services().items():
        rows = "".join(map(_row, metrics.described))
        parts.append(
            f"\n## {TITLES[name]}\n\n{inspect.getdoc(type(metrics))}\n\n"
            f"| Metric | Type | Labels | What it is |\n|---|---|---|---|\n{rows}"
        )
    return "".join(parts)


def _row(metric: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(reference(), encoding="utf-8")
