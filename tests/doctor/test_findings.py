"""Each thing that can be misconfigured is found by itself, with a remedy, and nothing else is."""

from dataclasses import replace

import pytest
from deployments import DRAFT, HEALTHY, HOST, TARGET, VERIFY, with_draft

from orchestrator.doctor.findings import Finding, Severity, configuration_findings
from outrider.addresses import is_loopback
from outrider.diagnosis import Diagnosis
from outrider.host import GpuFacts

PACE_US = 4_000.0


def only(found: Diagnosis, code: str) -> Finding:
    """The one finding about this deployment."""
    findings = configuration_findings(found, PACE_US)
    assert [finding.code for finding in findings] == [code]
    assert findings[0].remedy
    return findings[0]


def test_a_healthy_deployment_has_no_findings() -> None:
    assert configuration_findings(HEALTHY, PACE_US) == []


def test_a_service_that_cannot_be_reached_is_a_problem_with_its_own_remedy() -> None:
    down = with_draft(problem="10.0.0.9 refuses port 7072: no service; start it", host=None)
    found = only(down, "unreachable")
    assert found.severity is Severity.PROBLEM
    assert "refuses port 7072" in found.what and found.remedy == "start it"


def test_a_deployment_without_drafts_is_told() -> None:
    assert only(replace(HEALTHY, drafts=()), "no draft").severity is Severity.ADVICE


def test_another_protocol_is_a_problem_and_another_version_is_not() -> None:
    protocol = with_draft(host=replace(HOST, protocol_version=HOST.protocol_version + 1))
    assert only(protocol, "protocol").severity is Severity.PROBLEM
    version = with_draft(host=replace(HOST, version="9.9"))
    assert "9.9" in only(version, "version").what


def test_another_tokenizer_without_translation_is_a_problem() -> None:
    other = replace(TARGET, tokenizer_hash="hash-b")
    found = only(with_draft(model=other), "tokenizer")
    assert found.severity is Severity.PROBLEM and "ngram:" in found.remedy


@pytest.mark.parametrize(
    ("shared", "severity"), [(30_000, Severity.ADVICE), (5_000, Severity.PROBLEM)]
)
def test_the_tokens_that_two_tokenizers_share_are_counted(shared: int, severity: Severity) -> None:
    other = replace(TARGET, tokenizer_hash="hash-b", known_vocabularies=(("hash-a", shared),))
    found = only(with_draft(model=other), "tokenizer")
    assert found.severity is severity
    assert f"the {shared} tokens that both have, {shared / 32_000:.0%}" in found.what


def test_a_draft_for_any_tokenizer_fits() -> None:
    anything = replace(TARGET, backend="ngram", tokenizer_hash="")
    assert configuration_findings(with_draft(model=anything), PACE_US) == []


def test_a_draft_with_a_shorter_context_is_told() -> None:
    short = only(with_draft(model=replace(TARGET, context_tokens=2048)), "context")
    assert "2048" in short.what and "8192" in short.what


def test_a_draft_that_takes_fewer_sessions_is_told() -> None:
    found = only(with_draft(host=replace(HOST, max_sessions=4)), "sessions")
    assert found.remedy == "start it with --max-sessions 16"


@pytest.mark.parametrize(("offset_us", "word"), [(90_000_000, "ahead"), (-2_000_000, "behind")])
def test_clocks_that_are_apart_are_told(offset_us: int, word: str) -> None:
    found = only(with_draft(clock_offset_us=offset_us), "clock")
    assert word in found.what and "NTP" in found.remedy


def test_a_kv_cache_smaller_than_the_context_is_told() -> None:
    small = replace(HEALTHY, verify=replace(VERIFY, host=replace(HOST, kv_tokens=4096)))
    assert "--kv-tokens 8192" in only(small, "kv").remedy


def test_a_kv_cache_too_small_for_its_sessions_is_told() -> None:
    many = replace(HOST, max_sessions=64)
    found = only(
        replace(
            HEALTHY,
            verify=replace(VERIFY, host=many),
            drafts=(replace(DRAFT, host=replace(HOST, max_sessions=64, kv_tokens=65_536)),),
        ),
        "kv",
    )
    assert "256 tokens for each of 64 sessions" in found.what
    assert "--kv-tokens 65536" in found.remedy


def test_more_threads_than_cores_are_a_problem() -> None:
    greedy = with_draft(host=replace(HOST, threads=12), address="10.0.0.9:7072")
    codes = {finding.code: finding for finding in configuration_findings(greedy, PACE_US)}
    assert codes["threads"].severity is Severity.PROBLEM
    assert codes["threads"].remedy == "start it with --threads 8"


def test_thread_pools_that_share_one_machine_are_a_problem() -> None:
    found = only(with_draft(host=replace(HOST, threads=0)), "thread pools")
    assert "8 cores and use 12 threads" in found.what
    apart = with_draft(host=replace(HOST, threads=0), address="10.0.0.9:7072")
    codes = [finding.code for finding in configuration_findings(apart, PACE_US)]
    assert codes == ["plain text"]


def test_services_on_gpus_do_not_fight_for_cores() -> None:
    gpus = (GpuFacts("a", 1, 1),)
    on_gpus = replace(
        HEALTHY,
        verify=replace(VERIFY, host=replace(HOST, threads=0, gpus=gpus)),
        drafts=(replace(DRAFT, host=replace(HOST, threads=0, gpus=gpus)),),
    )
    assert configuration_findings(on_gpus, PACE_US) == []


def test_a_machine_without_memory_left_is_a_problem() -> None:
    full = with_draft(host=replace(HOST, memory_available_bytes=10**9))
    assert only(full, "memory").severity is Severity.PROBLEM


def test_a_line_too_narrow_for_proposal_rows_is_a_problem() -> None:
    found = only(with_draft(received_bytes_per_s=100_000), "bandwidth")
    assert "100 kB/s" in found.what and "--mode coupled" in found.remedy
    assert configuration_findings(with_draft(received_bytes_per_s=1_000_000), PACE_US) == []


def test_plain_text_beyond_this_machine_is_told() -> None:
    assert only(with_draft(address="192.168.1.7:7072"), "plain text").severity is Severity.ADVICE


def test_drafts_that_are_held_back_are_told() -> None:
    held = replace(HEALTHY, limits=replace(HEALTHY.limits, run_ahead=False))
    assert "--no-run-ahead" in only(held, "run ahead").what


def test_problems_come_first() -> None:
    both = with_draft(address="192.168.1.7:7072", host=replace(HOST, threads=12))
    severities = [finding.severity for finding in configuration_findings(both, PACE_US)]
    assert severities == [Severity.PROBLEM, Severity.ADVICE]


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_loopback_is_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1:1", "box:1", "[fe80::1]:1"])
def test_what_leaves_the_machine_is_no_loopback(address: str) -> None:
    assert not is_loopback(address)
