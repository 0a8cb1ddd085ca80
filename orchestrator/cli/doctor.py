"""`outrider doctor`: what to expect of a deployment, what is wrong with it, and how to mend it."""

import asyncio
import json
import time
from collections.abc import Sequence

import typer

from orchestrator.cli.console import (
    FAILED,
    FOR_PROGRAMS,
    misuse_told,
    write,
)
from orchestrator.cli.doctor_probes import probe_deep, probe_deployment
from orchestrator.cli.progress import Progress
from orchestrator.doctor.findings import Finding, Severity, configuration_findings
from orchestrator.doctor.measurements import Probe, draft_pace, limits_of
from orchestrator.doctor.report import Report, as_json, lines
from orchestrator.doctor.samples import SAMPLES, Sample
from orchestrator.doctor.traps import Expectation, expect, no_drafting_finding, speed_findings
from outrider.client import Client
from outrider.diagnosis import Diagnosis
from outrider.errors import OutriderError, UnavailableError
from outrider.identity import Role
from outrider.wire.handshakes import tls_problem
from outrider.wire.reach import Obstacle, explained, obstacle
from outrider.wire.tls import secured_by

QUICK_S = 30.0
"""Where greedy answers took less than this, drawn ones are measured, too."""


def examine(
    address: str,
    *,
    max_tokens: int,
    temperature: float | None,
    is_measured: bool,
    timeout_s: float,
    tls: str,
    show_json: bool,
) -> None:
    """Prints the report on a running deployment; status 1 where it found a problem.

    `temperature` None: greedy, and drawn at 1 where that does not take long.
    """
    with misuse_told():
        client = Client(address, timeout_s=timeout_s, tls=tls)
    with client, Progress() as progress:
        report = _examined(client, tls, max_tokens, temperature, is_measured, progress)
    shown = (
        json.dumps(as_json(report), ensure_ascii=False) + "\n"
        if show_json
        else "".join(f"{line}\n" for line in lines(report))
    )
    write(shown)
    if not report.is_healthy:
        raise typer.Exit(FAILED)


def _examined(
    client: Client,
    tls: str,
    max_tokens: int,
    temperature: float | None,
    is_measured: bool,
    progress: Progress,
) -> Report:
    progress.waits_for("asking every service what it runs on")
    try:
        found = client.diagnose()
    except OutriderError as error:
        return Report(client.address, None, None, (_no_answer(client.address, tls, error),))
    drafts = [draft.name for draft in found.drafts if not draft.problem]
    if not is_measured or found.verify.problem or not drafts:
        return Report(client.address, found, None, tuple(configuration_findings(found)))
    try:
        probes = _measured(client, max_tokens, temperature, progress)
    except OutriderError as error:
        findings = (*configuration_findings(found), _not_measured(error))
        return Report(client.address, found, None, findings)
    progress.waits_for("computing what to expect")
    return _judged(client.address, found, drafts, probes)


def _measured(
    client: Client, max_tokens: int, temperature: float | None, progress: Progress
) -> list[Probe]:
    progress.waits_for("measuring: warming up")
    probes = [probe_deep(client, SAMPLES[0])]
    started = time.monotonic()

    def measure(at: float, samples: Sequence[Sample] = SAMPLES) -> list[Probe]:
        return probe_deployment(
            client, samples, temperature=at, max_tokens=max_tokens, tell=progress.waits_for
        )

    probes += measure(0.0 if temperature is None else temperature)
    if temperature is None and time.monotonic() - started < QUICK_S:
        probes += measure(1.0)
    return probes


def _judged(
    address: str, found: Diagnosis, drafts: Sequence[str], probes: Sequence[Probe]
) -> Report:
    pace = draft_pace(probes)
    findings = configuration_findings(found, pace.step_us if pace is not None else None)
    nearest_us = min(draft.round_trip_us for draft in found.drafts if draft.name in drafts)
    expected: Expectation | None = expect(
        probes,
        limits_of(found.limits),
        verify_wire_us=found.verify.round_trip_us,
        seen_round_trip_us=nearest_us,
    )
    if expected is None:
        findings.append(no_drafting_finding(drafts))
    else:
        findings += speed_findings(expected, probes)
    findings.sort(key=lambda finding: finding.severity is not Severity.PROBLEM)
    return Report(address, found, expected, tuple(findings))


def _no_answer(address: str, tls: str, error: OutriderError) -> Finding:
    """Why the orchestrator cannot be asked."""
    message = error.message.removesuffix(FOR_PROGRAMS)
    if isinstance(error, UnavailableError):
        found = asyncio.run(obstacle(address))
        if found is not Obstacle.NONE:
            message = explained(found, address)
        else:
            message = tls_problem(address, secured_by(tls, Role.ORCHESTRATOR)) or message
    what, _, remedy = message.partition("; ")
    return Finding(
        Severity.PROBLEM,
        "orchestrator",
        f"the orchestrator at {address} cannot be asked: {what}",
        remedy or "look at its log; to start everything on this machine: outrider serve all",
    )


def _not_measured(error: OutriderError) -> Finding:
    return Finding(
        Severity.PROBLEM,
        "not measured",
        f"sample prompts could not be answered: {error.message}",
        "mend that first; a request of your own (outrider generate) tells the same",
    )
