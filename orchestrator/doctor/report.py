"""What the doctor says: machines, measurements, what to expect, findings. Pure: facts in, lines or
plain values out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from orchestrator.doctor.findings import Finding, Severity
from orchestrator.doctor.traps import Expectation
from orchestrator.forecast import MOST_ROUND_TRIP_US, Forecast
from outrider.addresses import is_loopback
from outrider.diagnosis import Diagnosis, ServiceDiagnosis
from outrider.host import HostFacts


@dataclass(frozen=True, slots=True)
class Report:
    """A deployment, examined. `expected` None: nothing could be measured, or was asked for."""

    address: str
    found: Diagnosis | None
    expected: Expectation | None
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing keeps it from working, and drafts pay."""
        return all(finding.severity is not Severity.PROBLEM for finding in self.findings)


def lines(report: Report) -> Iterator[str]:
    """The report for people, what matters most first."""
    if report.expected is not None:
        yield headline(report.expected, _is_remote(report.found))
        yield from _expectations(report.expected)
        yield ""
    if report.found is not None:
        yield "machines"
        yield f"  orchestrator: {machine_line(report.found.host)}"
        for service in (report.found.verify, *report.found.drafts):
            yield from _service(service)
        yield ""
    if report.expected is not None:
        yield "measured"
        yield from (f"  {line}" for line in _measurements(report.expected))
        yield ""
    yield from finding_lines(report.findings)


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Each finding and its remedy; one line where there is none."""
    if not findings:
        yield "nothing is wrong"
    for finding in findings:
        yield f"{finding.severity.value}: {finding.what}"
        yield f"    {finding.remedy}"


def headline(expected: Expectation, is_remote: bool) -> str:
    """The one sentence that most people want."""
    what = "remote drafting" if is_remote else "drafting"
    best = expected.best
    if not expected.pays:
        return (
            f"{what} does not pay here: at best {best.forecast.ratio:.2f}x is expected, at depth "
            f"{best.num_speculative_tokens}"
        )
    if expected.achieved is not None and expected.achieved < 1:
        return (
            f"{what}: {best.forecast.ratio:.2f}x expected at depth {best.num_speculative_tokens}, "
            f"but {expected.achieved:.2f}x came of it in this measurement"
        )
    return (
        f"{what}: {best.forecast.ratio:.1f}x expected at depth {best.num_speculative_tokens}; "
        f"{_distance(expected)}"
    )


def as_json(report: Report) -> dict[str, object]:
    """The same as plain values; times in microseconds, as the protocol has them."""
    return {
        "address": report.address,
        "healthy": report.is_healthy,
        "findings": findings_as_json(report.findings),
        "expected": _expected_as_json(report.expected) if report.expected else None,
        "diagnosis": asdict(report.found) if report.found else None,
    }


def findings_as_json(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Findings as plain values."""
    return [{**asdict(finding), "severity": finding.severity.value} for finding in findings]


def _expectations(expected: Expectation) -> Iterator[str]:
    depth = expected.met.limits.num_speculative_tokens
    now = expected.now
    yield (
        f"  as it is set (depth {depth}): {now.tokens_per_s:.0f} tokens/s expected, "
        f"{now.ratio:.2f}x the target's own {now.alone_tokens_per_s:.0f}, "
        f"{now.tokens_per_pass:.1f} tokens a pass; free drafts would give {now.bound_ratio:.2f}x"
    )
    if expected.achieved is not None:
        yield f"  came of it in this measurement: {expected.achieved:.2f}x"
    for kind, outcome in expected.by_kind.items():
        share = expected.shares.get(kind)
        told = f"{share:.0%} accepted, " if share is not None else ""
        yield f"  {kind}: {told}{outcome.ratio:.2f}x expected"


def _distance(expected: Expectation) -> str:
    have = f"you have {_ms(expected.met.draft_wire_us)}"
    limit = expected.break_even_us
    if limit is None or limit < expected.met.draft_wire_us / 2:
        return f"it hardly pays at any round trip, {have}"
    if limit >= MOST_ROUND_TRIP_US:
        return f"it pays at any round trip up to {_ms(MOST_ROUND_TRIP_US)}, {have}"
    return f"break-even round trip {_ms(limit)}, {have}"


def _service(service: ServiceDiagnosis) -> Iterator[str]:
    title = "verify" if service.name == "verify" else f"draft {service.name}"
    if service.host is None:
        yield f"  {title} ({service.address}): {service.problem}"
        return
    way = ", by TLS" if service.is_encrypted else ""
    yield f"  {title} ({service.address}{way}): {machine_line(service.host)}"
    yield f"      {_model(service)}"
    rates = (service.sent_bytes_per_s, service.received_bytes_per_s)
    bandwidth = f", {_rate(rates[0])} to it, {_rate(rates[1])} from it" if all(rates) else ""
    yield f"      round trip {_ms(service.round_trip_us)}{bandwidth}"


def _model(service: ServiceDiagnosis) -> str:
    host, name = service.host, service.model.model_name if service.model else "no model"
    if host is None or not host.weights_bytes:
        return f"{name}: {'no weights' if _is_weightless(service) else 'weights of unknown size'}"
    kv_bytes = host.kv_bytes_per_token * host.kv_tokens
    kv = f"KV cache {kv_bytes / 1e9:.2f} GB ({host.kv_tokens} tokens)" if kv_bytes else "KV unknown"
    need = (host.weights_bytes + kv_bytes) / 1e9
    return f"{name}: weights {host.weights_bytes / 1e9:.2f} GB, {kv}; {need:.2f} GB together"


def _is_weightless(service: ServiceDiagnosis) -> bool:
    return service.model is not None and service.model.backend in ("ngram", "scripted")


def machine_line(host: HostFacts) -> str:
    """Cores, memory and graphics processors of a machine."""
    gpus = "".join(
        f", {gpu.name} with {gpu.total_bytes / 1e9:.0f} GB ({gpu.free_bytes / 1e9:.1f} free)"
        for gpu in host.gpus
    )
    memory = (
        f"{host.memory_total_bytes / 1e9:.1f} GB of memory "
        f"({host.memory_available_bytes / 1e9:.1f} free)"
        if host.memory_total_bytes
        else "memory unknown"
    )
    cores = "1 core" if host.cores == 1 else f"{host.cores} cores"
    return f"{cores} ({host.cpu}), {memory}{gpus}, outrider {host.version}"


def _measurements(expected: Expectation) -> Iterator[str]:
    met = expected.met
    passes = ", ".join(
        f"{rows} {'row' if rows == 1 else 'rows'} {us / 1000:.1f} ms"
        for rows, us in _spread(met.costs.rows, met.costs.us)
    )
    yield f"target pass: {passes}; {_ms(met.pass_overhead_us)} besides the model"
    more = f", {_ms(met.draft_row_us)} more for each further place" if met.draft_row_us else ""
    yield f"draft: {_ms(met.draft_step_us)} a step{more}, {_ms(met.draft_wire_us)} there and back"
    yield f"target alone: {_ms(met.token_alone_us)} a token"


def _spread(rows: Sequence[int], us: Sequence[float]) -> list[tuple[int, float]]:
    """At most six of the measured lengths, the first and the last among them."""
    points = list(zip(rows, us, strict=True))
    if len(points) <= 6:
        return points
    step = (len(points) - 1) / 5
    return [points[round(index * step)] for index in range(6)]


def _expected_as_json(expected: Expectation) -> dict[str, object]:
    met = expected.met
    return {
        "pays": expected.pays,
        "best_num_speculative_tokens": expected.best.num_speculative_tokens,
        "best": _forecast_as_json(expected.best.forecast),
        "as_set": _forecast_as_json(expected.now),
        "num_speculative_tokens": met.limits.num_speculative_tokens,
        "break_even_round_trip_us": expected.break_even_us,
        "achieved_ratio": expected.achieved,
        "by_kind": {kind: _forecast_as_json(f) for kind, f in expected.by_kind.items()},
        "acceptance_by_kind": dict(expected.shares),
        "acceptance": list(met.acceptance),
        "pass_rows": list(met.costs.rows),
        "pass_us": list(met.costs.us),
        "pass_overhead_us": met.pass_overhead_us,
        "token_alone_us": met.token_alone_us,
        "draft_step_us": met.draft_step_us,
        "draft_row_us": met.draft_row_us,
        "width": met.limits.width,
        "draft_wire_us": met.draft_wire_us,
    }


def _forecast_as_json(forecast: Forecast) -> dict[str, float]:
    return {**asdict(forecast), "ratio": forecast.ratio}


def _is_remote(found: Diagnosis | None) -> bool:
    return found is not None and any(not is_loopback(draft.address) for draft in found.drafts)


def _ms(us: float) -> str:
    """Microseconds as milliseconds, with the digits that mean something.

    >>> _ms(412.0), _ms(148_200.0)
    ('0.4 ms', '148 ms')
    """
    return f"{us / 1000:.1f} ms" if us < 100_000 else f"{us / 1000:.0f} ms"


def _rate(bytes_per_s: float) -> str:
    """Bytes a second for people.

    >>> _rate(313_474_135), _rate(12_000)
    ('313 MB/s', '12 kB/s')
    """
    return (
        f"{bytes_per_s / 1e6:.0f} MB/s" if bytes_per_s >= 1e6 else f"{bytes_per_s / 1e3:.0f} kB/s"
    )
