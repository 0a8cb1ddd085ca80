"""What the doctor says, in sentences and as plain values."""

import json
from dataclasses import replace

import pytest
from deployments import HEALTHY, LIMITS, pair, with_draft

from orchestrator.doctor.findings import Finding, Severity
from orchestrator.doctor.report import Report, as_json, headline, lines
from orchestrator.doctor.traps import Expectation, expect
from orchestrator.forecast import MOST_ROUND_TRIP_US, BestDepth
from outrider.host import GpuFacts

PROBLEM = Finding(Severity.PROBLEM, "kv", "it is too small", "make it larger")
ADVICE = replace(PROBLEM, severity=Severity.ADVICE)


@pytest.fixture(scope="module")
def expected() -> Expectation:
    found = expect(
        pair(acceptance=0.85, wire_us=412), LIMITS, verify_wire_us=400, seen_round_trip_us=500
    )
    assert found is not None
    return found


def at(expected: Expectation, ratio: float, depth: int) -> Expectation:
    forecast = replace(expected.now, tokens_per_s=ratio * expected.now.alone_tokens_per_s)
    return replace(expected, best=BestDepth(depth, forecast), break_even_us=148_000.0)


def test_the_headline_has_gain_depth_and_break_even(expected: Expectation) -> None:
    assert headline(at(expected, 2.4, 8), is_remote=True) == (
        "remote drafting: 2.4x expected at depth 8; break-even round trip 148 ms, you have 0.4 ms"
    )


def test_the_headline_says_plainly_where_drafts_do_not_pay(expected: Expectation) -> None:
    assert headline(at(expected, 0.98, 2), is_remote=False) == (
        "drafting does not pay here: at best 0.98x is expected, at depth 2"
    )


def test_the_headline_knows_drafts_that_pay_from_everywhere(expected: Expectation) -> None:
    everywhere = replace(at(expected, 3.0, 8), break_even_us=MOST_ROUND_TRIP_US)
    assert "it pays at any round trip up to 1000 ms" in headline(everywhere, is_remote=True)


def test_only_problems_make_it_unhealthy() -> None:
    assert Report("a", HEALTHY, None, ()).is_healthy
    assert Report("a", HEALTHY, None, (ADVICE,)).is_healthy
    assert not Report("a", HEALTHY, None, (ADVICE, PROBLEM)).is_healthy


def test_the_report_names_every_machine_its_model_and_its_line(expected: Expectation) -> None:
    told = "\n".join(lines(Report("localhost:7070", HEALTHY, expected, ())))
    assert "verify (127.0.0.1:7071): 8 cores (a CPU), 64.0 GB of memory (30.0 free)" in told
    assert "org/Draft: weights 4.00 GB, KV cache 1.64 GB (16384 tokens); 5.64 GB together" in told
    assert "round trip 0.4 ms, 300 MB/s to it, 300 MB/s from it" in told
    assert "1 row 40.0 ms" in told and "8 rows 41.4 ms" in told
    assert told.endswith("nothing is wrong")


def test_a_silent_machine_and_a_gpu_are_shown() -> None:
    gpus = (GpuFacts("H200", 140 * 10**9, 100 * 10**9),)
    host = replace(HEALTHY.host, gpus=gpus)
    told = list(
        lines(Report("a", replace(with_draft(host=None, problem="off"), host=host), None, ()))
    )
    assert any("H200 with 140 GB (100.0 free)" in line for line in told)
    assert "  draft laptop (127.0.0.1:7072): off" in told


def test_a_finding_is_shown_with_its_remedy() -> None:
    told = list(lines(Report("a", None, None, (PROBLEM,))))
    assert told == ["problem: it is too small", "    make it larger"]


def test_the_values_for_programs_are_the_same(expected: Expectation) -> None:
    report = Report("localhost:7070", HEALTHY, expected, (PROBLEM,))
    values = json.loads(json.dumps(as_json(report)))
    assert values["healthy"] is False
    assert values["findings"][0] == {
        "severity": "problem",
        "code": "kv",
        "what": "it is too small",
        "remedy": "make it larger",
    }
    assert values["expected"]["as_set"]["ratio"] == pytest.approx(expected.now.ratio)
    assert values["diagnosis"]["drafts"][0]["name"] == "laptop"
    assert as_json(Report("a", None, None, ()))["expected"] is None
