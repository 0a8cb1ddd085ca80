"""What the services count is what they did, and whatever is asked of Prometheus is there."""

import importlib.util
import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.local import Local, Running
from support.waiting import until
from telemetry.promql import Exported, exported, problems

from outrider import AsyncClient
from outrider.errors import CapacityError
from outrider.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
TARGET = "scripted:vocab=24,seed=3,order=1"
OTHER = f"{TARGET},shift=8,drift=0.1"
"""Has another tokenizer than the target."""
WAITING: dict[str, Any] = {"wait_nodes": 2, "max_wait_ms": 100, "adaptive": False}
PROMPT = [11, 12, 2, 5, 7]
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "seed": 3, "ignore_eos": True}


def page(service: Running) -> str:
    return generate_latest(service.service.registry).decode()


def value(service: Running, name: str, /, **labels: str) -> float:
    """Of one sample; all the labels that are given have to fit."""
    found = [
        sample.value
        for family in text_string_to_metric_families(page(service))
        for sample in family.samples
        if sample.name == f"outrider_{name}" and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


async def all_counted(verify: Running, draft: Running) -> None:
    """Passes are counted a moment after they were."""
    await until(
        lambda: (
            value(verify, "verify_pass_seconds_count") == verify.model.passes
            and value(draft, "drafter_pass_seconds_count") == draft.model.passes
        ),
        "the last pass's count",
    )


async def test_both_services_count_what_they_did(local: Local) -> None:
    verify, draft = await local.verify(TARGET), await local.draft(OTHER)
    base = await local.gateway(verify, {"a": draft}, **WAITING)
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        usage = (await http.post("/v1/completions", json=BODY)).json()["usage"]
    details = usage["completion_tokens_details"]
    accepted = details["accepted_prediction_tokens"]
    await all_counted(verify, draft)
    assert value(verify, "sessions_total") == value(draft, "sessions_total") == 1
    assert value(verify, "verify_batch_size_sum") == verify.model.passes
    assert value(verify, "verify_pass_rows_sum") == verify.model.tokens
    assert value(verify, "verify_prompt_tokens_total") == len(PROMPT) - 1
    assert value(verify, "verify_accepted_tokens_total") >= accepted > 0
    drafted = accepted + details["rejected_prediction_tokens"]
    assert value(verify, "verify_draft_tokens_total") >= drafted
    assert value(verify, "verify_decided_tokens_total") >= usage["completion_tokens"]
    forward_s = value(verify, "verify_seconds_total", phase="forward")
    assert forward_s == pytest.approx(value(verify, "verify_pass_seconds_sum"))
    assert value(draft, "drafter_pass_rows_sum") == draft.model.tokens
    made = value(draft, "drafter_nodes_total")
    assert made >= value(verify, "verify_dropped_nodes_total")
    assert made == value(draft, "drafter_translated_nodes_total") > 0
    assert value(draft, "drafter_commits_total") > 0
    for service, name in ((verify, "verify"), (draft, "draft")):
        await until(lambda s=service: value(s, "sessions_open") == 0, "the session's end")
        assert value(service, "kv_tokens", service=name, state="used") == 0
        assert value(service, "kv_tokens", service=name, state="limit") == 16384


async def test_an_open_session_shows_and_a_refused_one_is_an_error(local: Local) -> None:
    slow = f"{TARGET},step_ms=20"
    verify, draft = await local.verify(slow, max_sessions=1), await local.draft(TARGET)
    client = await local.orchestrator(verify, {"a": draft})
    async with client.generate(PROMPT, max_tokens=2000, temperature=0) as generation:
        await anext(aiter(generation))
        assert value(verify, "sessions_open", service="verify") == 1
        used = value(verify, "kv_tokens", state="used")
        assert len(PROMPT) <= used <= value(verify, "kv_tokens", state="promised")
        assert value(verify, "kv_tokens", state="promised") >= len(PROMPT) + 2000
        await until(lambda: value(draft, "sessions_open") == 1, "the draft's session")
        async with AsyncClient(client.address, retries=0) as impatient:
            with pytest.raises(CapacityError):
                await impatient.generate(PROMPT, max_tokens=4).result()
    assert value(verify, "errors_total", reason="capacity") == 1
    assert value(verify, "errors_total", reason="internal") == 0
    await until(lambda: value(verify, "sessions_open") == 0, "the session's end")


@pytest.fixture
async def told(local: Local) -> dict[str, Exported]:
    """What a whole deployment exports after one request."""
    verify, draft = await local.verify(TARGET), await local.draft(OTHER)
    base = await local.gateway(verify, {"a": draft}, **WAITING)
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        answer = await http.post("/v1/completions", json=BODY)
        assert answer.status_code == 200
        await all_counted(verify, draft)
        front = (await http.get("/metrics")).text
    return exported([front, page(verify), page(draft)])


async def test_every_query_asks_for_what_is_exported(told: dict[str, Exported]) -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/outrider.json").read_text("utf-8"))
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    assert len(expressions) > 40
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for metrics in described():
        promised = re.findall(r"`([^`]*outrider_[^`]*)`", inspect.getdoc(type(metrics)) or "")
        assert len(promised) >= 4, type(metrics)
        expressions += [" ".join(expression.split()) for expression in promised]
    wrong = {e: found for e in expressions if (found := problems(e, told))}
    assert not wrong, json.dumps(wrong, indent=2)


async def test_every_described_metric_is_exported_as_described(told: dict[str, Exported]) -> None:
    for metrics in described():
        for one in metrics.described:
            name = f"{one.name}_count" if one.kind == "histogram" else one.name
            assert told[name].kind == one.kind, one
            assert set(told[name].labels) == set(one.labels), one
            assert one.text[0].isupper(), one
            assert not one.text.endswith("."), one


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(outrider_nonsense_total[5m])", "outrider_nonsense_total is not exported"),
        ("rate(outrider_sessions_open[5m])", "is a gauge"),
        ("outrider_sessions_total", "is a counter without a window"),
        ('outrider_kv_tokens{state="full"}', "never has state=full"),
        ('outrider_kv_tokens{phase="x"}', "has no label phase"),
        ("sum by (phase) (outrider_kv_tokens)", "nothing of it has the label phase"),
        (
            "histogram_quantile(0.5, sum(rate(outrider_verify_pass_rows_bucket[5m])))",
            "not of buckets by le",
        ),
        ("vector(1)", "asks for nothing of ours"),
    ],
)
async def test_a_wrong_query_would_be_noticed(expression: str, problem: str) -> None:
    pages = [generate_latest(metrics.registry).decode() for metrics in described()]
    assert any(problem in found for found in problems(expression, exported(pages)))


def described() -> list[Metrics]:
    return list(script("generate_metrics_reference").services().values())


def script(name: str) -> Any:
    """A module of the scripts' folder."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_services_have() -> None:
    generated = script("generate_metrics_reference")
    assert generated.PATH.read_text("utf-8") == generated.reference(), (
        "run `python scripts/generate_metrics_reference.py` and commit"
    )


def test_the_dashboard_is_what_its_script_writes_and_nothing_overlaps() -> None:
    generated = script("generate_dashboard")
    assert generated.PATH.read_text("utf-8") == generated.text(), (
        "run `python scripts/generate_dashboard.py` and commit"
    )
    taken: set[tuple[int, int]] = set()
    panels = generated.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_the_example_scrapes_all_services_and_loads_the_rules() -> None:
    folder = ROOT / "deploy/prometheus"
    example = yaml.safe_load((folder / "prometheus.yml").read_text("utf-8"))
    jobs = [job["job_name"] for job in example["scrape_configs"]]
    assert jobs == ["outrider-orchestrator", "outrider-verify", "outrider-draft"]
    assert all((folder / name).exists() for name in example["rule_files"])
