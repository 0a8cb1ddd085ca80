"""What three services tell of a request, as processes: traces, logs and metrics, and no text."""

import asyncio
import itertools
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import pytest
from support.processes import Processes, ServiceProcess, free_port
from support.waiting import until
from telemetry.otlp_collector import Collector, Told

from outrider.errors import UnavailableError
from outrider.telemetry import traces
from outrider.v1 import common_pb2, orchestrator_pb2, orchestrator_pb2_grpc
from outrider.wire.channels import CHANNEL_OPTIONS

MODEL = "scripted:vocab=62,seed=3"
MARKER = "quixoticwalrus"
BODY: dict[str, Any] = {
    "prompt": f"of a {MARKER} and its tusks",
    "max_tokens": 24,
    "seed": 5,
    "ignore_eos": True,
    "return_token_ids": True,
}

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Stack:
    """Three services that tell `collector` what they do."""

    collector: Collector
    verify: ServiceProcess
    draft: ServiceProcess
    orchestrator: ServiceProcess
    base: str

    @property
    def services(self) -> tuple[ServiceProcess, ...]:
        return self.verify, self.draft, self.orchestrator


@pytest.fixture(scope="module")
def stack(module_processes: Processes) -> Iterator[Stack]:
    http_file = module_processes.folder / "http"
    with Collector() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        telling = ("--traces-endpoint", collector.endpoint, "--metrics-port", "0")
        verify = module_processes.verify(MODEL, *telling)
        draft = module_processes.draft(f"{MODEL},drift=0.3", *telling)
        http = ("--http-port", "0", "--http-ready-file", str(http_file))
        waiting = ("--wait-nodes", "2", "--max-wait-ms", "5000")
        orchestrator = module_processes.orchestrator(
            verify, {"a": draft}, *http, *waiting, *telling
        )
        assert orchestrator.address
        yield Stack(collector, verify, draft, orchestrator, f"http://{http_file.read_text()}")


def a_caller(*, is_sampled: bool = True) -> tuple[str, str, str]:
    """A trace, a span in it, and what names both."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, f"00-{trace}-{span}-{'01' if is_sampled else '00'}"


async def post(stack: Stack, traceparent: str, **more: Any) -> Any:
    async with httpx.AsyncClient(base_url=stack.base, timeout=60) as http:
        headers = {"traceparent": traceparent, "x-request-id": f"r-{secrets.token_hex(4)}"}
        return await http.post("/v1/completions", json=BODY | more, headers=headers)


async def whole(stack: Stack, trace: str, *names: str) -> dict[str, list[Told]]:
    """The spans of a trace by their names, once all of these are there."""

    def found() -> dict[str, list[Told]]:
        by_name: dict[str, list[Told]] = {}
        for told in stack.collector.trace(trace):
            by_name.setdefault(told.name, []).append(told)
        return by_name

    await until(lambda: set(names) <= set(found()), f"spans {names}")
    return found()


async def test_one_trace_goes_through_all_services_with_a_span_a_round(stack: Stack) -> None:
    trace, caller, traceparent = a_caller()
    answer = (await post(stack, traceparent)).json()
    names = ("POST /v1/completions", "generate", "round", "verify", "draft")
    found = await whole(stack, trace, *names)
    assert set(found) == set(names)
    (http,), (request,) = found["POST /v1/completions"], found["generate"]
    (verify,), (draft,) = found["verify"], found["draft"]
    assert (http.parent, request.parent) == (caller, http.span)
    assert (verify.parent, draft.parent) == (request.span, request.span)
    assert [http.service, request.service] == ["outrider-orchestrator"] * 2
    assert (verify.service, draft.service) == ("outrider-verify", "outrider-draft")

    rounds = sorted(found["round"], key=lambda told: told.started_ns)
    assert {told.parent for told in rounds} == {request.span}
    assert [told.attributes["outrider.round_index"] for told in rounds] == [*range(len(rounds))]
    assert len(rounds) == request.attributes["outrider.target_passes"]
    usage = answer["usage"]
    accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
    assert sum(told.attributes["outrider.emitted"] for told in rounds) == 24
    assert sum(told.attributes["outrider.accepted"] for told in rounds) == accepted > 0
    for before, after in itertools.pairwise(rounds):
        assert before.started_ns <= before.ended_ns <= after.started_ns
    assert http.attributes["outrider.status"] == 200
    assert verify.attributes["outrider.rounds"] == len(rounds)
    assert not any(told.has_failed for told in stack.collector.trace(trace))


async def test_a_grpc_call_names_its_parent_in_its_metadata(stack: Stack) -> None:
    trace, caller, traceparent = a_caller()
    request = orchestrator_pb2.GenerateRequest(
        text=MARKER, stop=common_pb2.StopConditions(max_tokens=4, ignore_eos=True)
    )
    async with grpc.aio.insecure_channel(
        stack.orchestrator.address, options=list(CHANNEL_OPTIONS)
    ) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
        call = stub.Generate(request, metadata=(("traceparent", traceparent),), timeout=60)
        assert [event.WhichOneof("kind") async for event in call][-1] == "finished"
    found = await whole(stack, trace, "generate", "round", "verify")
    assert [told.parent for told in found["generate"]] == [caller]


async def test_whoever_does_not_sample_is_not_traced_and_a_broken_parent_is_none(
    stack: Stack,
) -> None:
    before = {told.trace for told in stack.collector.all}
    unsampled, _, traceparent = a_caller(is_sampled=False)
    assert (await post(stack, traceparent)).status_code == 200
    assert (await post(stack, "00-nonsense")).status_code == 200

    def new() -> list[Told]:
        return [told for told in stack.collector.all if told.trace not in before]

    await until(lambda: "verify" in {told.name for told in new()}, "the trace of its own")
    await until(lambda: "generate" in {told.name for told in new()}, "its request")
    assert not stack.collector.trace(unsampled)


async def test_what_went_wrong_is_told_by_its_kind_only(stack: Stack) -> None:
    trace, _, traceparent = a_caller()
    refused = await post(stack, traceparent, prompt=MARKER * 2000)
    assert refused.status_code == 400
    (request,) = (await whole(stack, trace, "generate"))["generate"]
    assert request.has_failed
    assert request.attributes["error.type"] == "invalid_argument"
    assert request.message == ""


async def test_no_span_no_metric_and_no_line_has_prompt_or_answer(stack: Stack) -> None:
    trace, _, traceparent = a_caller()
    answer = await post(stack, traceparent)
    choice = answer.json()["choices"][0]
    text, ids = choice["text"], choice["token_ids"]
    assert len(text) == 24
    await whole(stack, trace, "generate", "verify", "draft")
    name = answer.headers["x-request-id"]
    for service in stack.services:
        service.wait_for_log(name)
    spans = json.dumps([told.attributes for told in stack.collector.all])
    pages = [await metrics_of(metrics_address(service)) for service in stack.services]
    logs = [service.log for service in stack.services]
    for told in (spans, *pages, *logs):
        for secret in (MARKER, MARKER[:8], text, text[:8], ", ".join(map(str, ids[:6]))):
            assert secret not in told
    for told_of in stack.collector.all:
        values = told_of.attributes.items()
        assert all(key.startswith("outrider.") or key == "error.type" for key, _ in values)
        assert all(isinstance(value, (int, str, bool, float)) for _, value in values)


async def test_every_line_is_json_that_names_its_service_and_what_it_is_about(
    stack: Stack,
) -> None:
    answer = await post(stack, a_caller()[2])
    name = answer.headers["x-request-id"]
    keys = {"verify": "session_id", "draft": "session_id", "orchestrator": "request_id"}
    for service, (role, key) in zip(stack.services, keys.items(), strict=True):
        service.wait_for_log(name)
        lines = [json.loads(line) for line in service.log.splitlines()]
        assert {line["service"] for line in lines} == {role}
        assert all(line["event"] and line["level"] and line["timestamp"] for line in lines)
        about = [line for line in lines if name in line.get(key, "")]
        assert [line["event"] for line in about] == [
            "generated" if role == "orchestrator" else "session_ended"
        ]


def metrics_address(service: ServiceProcess) -> str:
    service.wait_for_log("serving_metrics")
    lines = map(json.loads, service.log.splitlines())
    return next(str(line["address"]) for line in lines if line["event"] == "serving_metrics")


async def metrics_of(address: str) -> str:
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.get(f"http://{address}/metrics")).text


async def test_every_service_serves_its_metrics_on_a_port_of_its_own(stack: Stack) -> None:
    for service, role in zip(stack.services, ("verify", "draft", "orchestrator"), strict=True):
        address = metrics_address(service)
        assert address.startswith("127.0.0.1:")
        page = await metrics_of(address)
        assert f'outrider_build_info{{service="{role}"' in page
    assert 'outrider_service_usable{service="a"} 1.0' in page, "the drafts were asked just now"


async def test_a_collector_that_is_away_costs_nothing_and_metrics_need_no_http(
    stack: Stack, processes: Processes
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    alone = processes.orchestrator(
        stack.verify, {"a": stack.draft}, "--traces-endpoint", nobody, "--metrics-port", "0"
    )
    async with grpc.aio.insecure_channel(alone.address) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
        request = orchestrator_pb2.GenerateRequest(
            text="hi", stop=common_pb2.StopConditions(max_tokens=4, ignore_eos=True)
        )
        events = [event.WhichOneof("kind") async for event in stub.Generate(request, timeout=60)]
    assert events[-1] == "finished"
    address = metrics_address(alone)
    page = await metrics_of(address)
    assert "outrider_emitted_tokens_total 4.0" in page
    assert 'outrider_service_usable{service="verify"} 1.0' in page
    assert await asyncio.to_thread(alone.terminate) == 0
    assert all(json.loads(line)["service"] == "orchestrator" for line in alone.log.splitlines())
    with pytest.raises(httpx.ConnectError):
        await metrics_of(address)


async def test_the_engine_in_an_actor_belongs_to_the_same_trace(
    stack: Stack, processes: Processes
) -> None:
    http_file = processes.folder / "actor-http"
    http = ("--http-port", "0", "--http-ready-file", str(http_file))
    orchestrator = processes.orchestrator(
        stack.verify,
        {"a": stack.draft},
        *http,
        *("--traces-endpoint", stack.collector.endpoint),
        ray="embedded",
    )
    assert orchestrator.address
    trace, _, traceparent = a_caller()
    async with httpx.AsyncClient(base_url=f"http://{http_file.read_text()}", timeout=60) as client:
        answer = await client.post(
            "/v1/completions", json=BODY, headers={"traceparent": traceparent}
        )
        assert answer.status_code == 200
    found = await whole(stack, trace, "generate", "round", "verify")
    (request,) = found["generate"]
    assert request.service == "outrider-orchestrator"
    assert {told.service for told in found["round"]} == {"outrider-engine"}
    assert {told.parent for told in found["round"]} == {request.span}
    assert [told.parent for told in found["verify"]] == [request.span]


async def test_a_metrics_port_in_use_is_said_and_ends_the_process(
    stack: Stack, processes: Processes
) -> None:
    taken = metrics_address(stack.verify).rpartition(":")[2]
    service = processes.orchestrator(stack.verify, {}, "--metrics-port", taken)
    assert service.wait() == 1
    assert "port is in use" in service.log
    assert "--metrics-port" in service.log


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    """But for what FastAPI imports of it, which makes no spans."""
    code = """
import sys

def imported(*names):
    return [name for name in sys.modules if name.startswith(names)]

import draft_service.server, verify_service.server, orchestrator.server, orchestrator.engine
from outrider.telemetry.traces import configure_traces, start_span
configure_traces("verify", "", 1.0)
with start_span("generate", request_id="r") as span:
    span.note(rounds=1)
assert span.traceparent == ""
print(imported("opentelemetry"))
import orchestrator.gateway.serving
print(imported("opentelemetry.sdk", "opentelemetry.exporter"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.splitlines(), ran.returncode) == (["[]", "[]"], 0), ran.stderr


def test_traces_without_the_extra_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UnavailableError, match=r"extra 'traces'.*--traces-endpoint"):
        traces.configure_traces("verify", "http://127.0.0.1:4317", 1.0)
    assert not traces.is_tracing()


def is_sampled(traceparent: str) -> bool:
    """By the lowest bit of its flags; another one says that its id is random."""
    return bool(int(traceparent.rpartition("-")[2], 16) & 1)


def test_a_ratio_decides_where_the_caller_has_not_and_the_end_sends_what_is_left() -> None:
    with Collector() as collector:
        traces.configure_traces("verify", collector.endpoint, 0.0)
        try:
            trace, _, sampled = a_caller()
            assert not is_sampled(traces.start_span("generate").traceparent)
            with traces.start_span("verify", sampled) as span:
                assert is_sampled(span.traceparent)
            traces.start_span("generate").end()
        finally:
            traces.stop_traces()
        assert [told.trace for told in collector.all] == [trace]
    assert traces.start_span("generate") is traces.NO_SPAN
