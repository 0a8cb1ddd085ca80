"""The classic traps are named when they are seen, each with a remedy, and not when they are not."""

from dataclasses import replace

from deployments import LIMITS, pair, probe

from orchestrator.doctor.findings import Finding, Severity
from orchestrator.doctor.measurements import Probe
from orchestrator.doctor.traps import Expectation, expect, no_drafting_finding, speed_findings
from orchestrator.planner import Limits


def examined(
    probes: list[Probe], limits: Limits = LIMITS
) -> tuple[Expectation, dict[str, Finding]]:
    expected = expect(probes, limits, verify_wire_us=400, seen_round_trip_us=900)
    assert expected is not None
    findings = {finding.code: finding for finding in speed_findings(expected, probes)}
    assert all(finding.remedy for finding in findings.values())
    return expected, findings


def test_a_good_pair_has_no_traps() -> None:
    probes = pair(acceptance=0.85)
    expected, _ = examined(probes)
    expected = replace(expected, achieved=expected.now.ratio)
    assert expected.pays and expected.now.ratio > 2
    codes = {finding.code for finding in speed_findings(expected, probes)}
    assert codes <= {"depth"}


def test_drafts_that_do_not_pay_are_told_plainly_with_what_would() -> None:
    expected, findings = examined(pair(acceptance=0.1, pace_us=30_000))
    assert not expected.pays
    told = findings["drafts do not pay"]
    assert told.severity is Severity.PROBLEM and "do not pay here" in told.what
    assert "accepted" in told.remedy or "ms a token" in told.remedy


def test_a_draft_as_slow_as_the_target_is_named() -> None:
    _, findings = examined(pair(pace_us=36_000))
    slow = findings["draft too slow"]
    assert "36.0 ms" in slow.what and "too big or too slow" in slow.what


def test_a_target_too_small_to_gain_is_named() -> None:
    _, findings = examined(pair(pass_us=2_000, row_us=10, pace_us=1_000))
    assert "too small" in findings["target too small"].what


def test_a_draft_too_far_away_is_named() -> None:
    expected, findings = examined(pair(acceptance=0.5, wire_us=600_000))
    assert expected.break_even_us is not None
    assert "600 ms away" in findings["too far"].what


def test_a_kind_of_text_with_low_acceptance_is_named() -> None:
    probes = [*pair("code", acceptance=0.9), *pair("poetry", acceptance=0.02, pace_us=4_000)]
    expected, findings = examined(probes)
    assert expected.pays
    assert "poetry" in findings["low acceptance"].what


def test_passes_that_get_dear_with_rows_are_named() -> None:
    _, findings = examined(pair(pass_us=20_000, row_us=8_000))
    assert "8 rows takes 3.8 times" in findings["dear rows"].what


def test_a_draft_that_takes_the_targets_cores_is_named() -> None:
    probes = [probe(pass_us=60_000), probe(has_drafts=False, pass_us=40_000)]
    _, findings = examined(probes)
    assert "1.5 times as long while drafts work" in findings["draft disturbs target"].what


def test_an_achievement_far_below_the_forecast_is_told() -> None:
    probes = [probe(acceptance=0.9, cycle_us=110_000), probe(has_drafts=False)]
    _, findings = examined(probes)
    assert findings["falls short"].severity is Severity.ADVICE


def test_a_better_depth_is_told() -> None:
    shallow = replace(LIMITS, num_speculative_tokens=1)
    expected, findings = examined(pair(acceptance=0.95), shallow)
    assert expected.best.num_speculative_tokens > 2
    assert "--num-speculative-tokens" in findings["depth"].remedy


def test_nothing_verified_is_told_with_the_drafts_names() -> None:
    found = no_drafting_finding(["a", "b"])
    assert "a and b" in found.what and found.severity is Severity.PROBLEM
    alone = [probe(has_drafts=False)]
    assert expect(alone, LIMITS, verify_wire_us=0, seen_round_trip_us=0) is None
