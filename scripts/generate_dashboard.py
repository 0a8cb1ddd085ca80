"""Writes deploy/grafana/outrider.json, Grafana's dashboard, from the panels below. `python
scripts/generate_dashboard.py`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "outrider.json"
SCHEMA_VERSION = 41
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """A graph, or with `is_stat` one number; `queries` by their legends."""

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    is_stat: bool = False
    is_stacked: bool = False


def metric(name: str, **labels: str) -> str:
    """The series of a metric; a label's value is given with its operator."""
    chosen = {"job": '=~"$job"', **labels}
    matchers = ",".join(f"{label}{value}" for label, value in chosen.items())
    return f"outrider_{name}{{{matchers}}}"


def rate(name: str, **labels: str) -> str:
    """How fast a counter grows."""
    return f"rate({metric(name, **labels)}[$__rate_interval])"


def total(name: str, by: str = "", **labels: str) -> str:
    """The sum of a counter's rates, for each value of the labels `by`."""
    return f"sum {f'by ({by}) ' if by else ''}({rate(name, **labels)})"


def mean(name: str, by: str) -> str:
    """What a histogram observed on average."""
    return f"{total(f'{name}_sum', by)} / {total(f'{name}_count', by)}"


def quantiles(name: str, *shares: float) -> dict[str, str]:
    """Quantiles of a histogram over everything."""
    buckets = total(f"{name}_bucket", "le")
    return {f"p{share * 100:g}": f"histogram_quantile({share}, {buckets})" for share in shares}


ACCEPTANCE = f"{total('accepted_tokens_total')} / {total('draft_tokens_total')}"
LENGTH = f"1 + {total('accepted_tokens_total')} / {total('drafts_total')}"
LENGTH_TEXT = (
    "1 + accepted tokens / passes with drafted tokens: the target's own token counts, as in vLLM"
)
AT_POSITION = (
    f"{total('accepted_tokens_per_position_total', 'position')} / ignoring(position) group_left "
    f"{total('drafts_total')}"
)
TOKENS_A_PASS = f"{total('emitted_tokens_total')} / {total('target_passes_total')}"
PHASES = (
    f"{total('round_seconds_total', 'phase')} / ignoring(phase) group_left "
    f"{total('target_passes_total')}"
)
VERIFY, DRAFT = '="verify"', '="draft"'
NOT_VERIFY = '!="verify"'

ROWS: dict[str, list[Panel]] = {
    "Now": [
        Panel("Tokens a second", "Of answers", {"": total("emitted_tokens_total")}, is_stat=True),
        Panel(
            "Requests",
            "Being answered",
            {"": f"sum ({metric('requests_running')})"},
            is_stat=True,
        ),
        Panel(
            "Acceptance rate", "Of drafted tokens", {"": ACCEPTANCE}, "percentunit", is_stat=True
        ),
        Panel("Mean acceptance length", LENGTH_TEXT, {"": LENGTH}, is_stat=True),
        Panel("Tokens a pass", "With and without drafts", {"": TOKENS_A_PASS}, is_stat=True),
        Panel(
            "Drafts up",
            "That the orchestrators can use",
            {"": f"sum ({metric('service_usable', service=NOT_VERIFY)})"},
            is_stat=True,
        ),
    ],
    "Answers": [
        Panel(
            "Throughput",
            "Counted when a request ends",
            {
                "tokens of answers": total("emitted_tokens_total"),
                "tokens of prompts": total("prompt_tokens_total"),
                "of those, cached": total("cached_prompt_tokens_total"),
            },
        ),
        Panel(
            "Requests by outcome",
            "",
            {"{{outcome}}": total("requests_total", "outcome")},
            "reqps",
        ),
        Panel(
            "Time to first token",
            "From a request to its first token, the prompt's reading included",
            quantiles("time_to_first_token_seconds", 0.5, 0.95, 0.99),
            "s",
        ),
        Panel(
            "Time from token to token",
            "Mean of each request",
            quantiles("time_per_token_seconds", 0.5, 0.95, 0.99),
            "s",
        ),
        Panel(
            "Where a round's time goes",
            "queue is part of wait; gap is the target's idle time before the pass",
            {"{{phase}}": PHASES},
            "s",
        ),
        Panel(
            "Errors",
            "Requests and sessions by why they failed",
            {
                "{{service}} {{reason}}": f"{total('errors_total', 'service, reason')} > 0",
                "lost draft {{draft}}": f"{total('drafts_lost_total', 'draft')} > 0",
                "resumed": f"{total('resumes_total')} > 0",
            },
            "reqps",
        ),
    ],
    "Drafting": [
        Panel("Acceptance rate", "Accepted of verified", {"all": ACCEPTANCE}, "percentunit"),
        Panel(
            "Mean acceptance length",
            LENGTH_TEXT,
            {"mean acceptance length": LENGTH, "tokens a pass": TOKENS_A_PASS},
        ),
        Panel(
            "Acceptance by position",
            "Share of passes with drafted tokens whose accepted path is longer than the position",
            {"{{position}}": AT_POSITION},
            "percentunit",
        ),
        Panel(
            "Accepted tokens by draft",
            "",
            {
                "{{draft}} accepted": total("draft_accepted_tokens_total", "draft"),
                "{{draft}} made": total("draft_nodes_total", "draft"),
            },
        ),
        Panel(
            "Services",
            "1: an orchestrator can use it",
            {"{{service}}": f"min by (service) ({metric('service_usable')})"},
        ),
        Panel(
            "Round trip",
            "Of a small call from the orchestrator",
            {"{{service}}": f"max by (service) ({metric('round_trip_seconds')})"},
            "s",
        ),
    ],
    "Verifier": [
        Panel(
            "What the target does",
            "gap: idle although a session was ready; no work: nothing to verify",
            {
                "{{instance}} {{phase}}": total("verify_seconds_total", "instance, phase"),
                "{{instance}} no work": f"1 - {total('verify_seconds_total', 'instance')}",
            },
            "percentunit",
            is_stacked=True,
        ),
        Panel("Pass time", "In the model", quantiles("verify_pass_seconds", 0.5, 0.95, 0.99), "s"),
        Panel(
            "Batch",
            "Means of a pass",
            {
                "{{instance}} sessions": mean("verify_batch_size", "instance"),
                "{{instance}} tokens": mean("verify_pass_rows", "instance"),
            },
        ),
        Panel(
            "KV cache",
            "Tokens; a request is refused where what is promised would pass the limit",
            {"{{instance}} {{state}}": metric("kv_tokens", service=VERIFY)},
        ),
        Panel(
            "Sessions and queue",
            "",
            {
                "{{instance}} open": metric("sessions_open", service=VERIFY),
                "{{instance}} waiting": metric("queue_depth", service=VERIFY),
            },
        ),
        Panel(
            "Drafted tokens at the verifier",
            "Dropped: came too late, counted when a session ends",
            {
                "verified": total("verify_draft_tokens_total"),
                "accepted": total("verify_accepted_tokens_total"),
                "dropped": total("verify_dropped_nodes_total"),
            },
        ),
    ],
    "Drafts": [
        Panel(
            "Share of time in passes",
            "",
            {"{{instance}}": total("drafter_pass_seconds_sum", "instance")},
            "percentunit",
        ),
        Panel(
            "Pass time",
            "Its proposals included",
            quantiles("drafter_pass_seconds", 0.5, 0.95, 0.99),
            "s",
        ),
        Panel(
            "Nodes a second",
            "Translated: for a target with another tokenizer",
            {
                "{{instance}}": total("drafter_nodes_total", "instance"),
                "{{instance}} translated": total("drafter_translated_nodes_total", "instance"),
            },
        ),
        Panel(
            "Sessions",
            "Resting: drafting does not pay there at present",
            {
                "{{instance}} open": metric("sessions_open", service=DRAFT),
                "{{instance}} resting": metric("drafter_resting_sessions"),
                "{{instance}} waiting": metric("queue_depth", service=DRAFT),
            },
        ),
        Panel("KV cache", "Tokens", {"{{instance}} {{state}}": metric("kv_tokens", service=DRAFT)}),
        Panel(
            "Versions",
            "Instances by what they run",
            {"{{service}} {{version}}": f"count by (service, version) ({metric('build_info')})"},
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        at = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append(
            {"type": "row", "title": title, "gridPos": at, "collapsed": False, "panels": []}
        )
        y += 1
        across, height = (6, 4) if row[0].is_stat else (2, 8)
        width = COLUMNS // across
        for number, panel in enumerate(row):
            line, place = divmod(number, across)
            at = {"x": place * width, "y": y + line * height, "w": width, "h": height}
            panels.append(_panel(panel, at))
        y += -(-len(row) // across) * height
    return {
        "uid": "outrider",
        "title": "Outrider",
        "tags": ["outrider", "llm"],
        "description": "Speculative decoding across machines: answers, drafting, verifier, drafts",
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": _variables()},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, start=1)],
    }


def _panel(panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 10, "stacking": {"mode": "normal" if panel.is_stacked else "none"}}
    return {
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "gridPos": at,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **({} if panel.is_stat else {"custom": custom})},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def _variables() -> list[dict[str, Any]]:
    jobs = "label_values(outrider_build_info, job)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "job",
            "type": "query",
            "label": "Job",
            "datasource": DATASOURCE,
            "definition": jobs,
            "query": {"query": jobs, "refId": "jobs"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")
