"""What is misconfigured, and how to mend it: a function for each thing that can be wrong. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from outrider.addresses import is_loopback
from outrider.diagnosis import Diagnosis, ServiceDiagnosis
from outrider.host import HostFacts
from outrider.types import ModelInfo

CLOCKS_APART_US = 1_000_000
TOKENS_A_SESSION = 1024
MOST_MEMORY_USED = 0.95
ROW_BYTES = 500
"""Of one drafted token with a proposal row of 64, as the modes rejection and block send it."""

LINE_SHARE = 0.25
"""A row may be on its way for this share of the time that the draft makes a token in."""

FEW_SHARED = 0.5
_WEIGHTLESS = ("ngram", "scripted")


class Severity(Enum):
    """A problem keeps something from working; advice would make it better."""

    PROBLEM = "problem"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `code` names its kind, for programs."""

    severity: Severity
    code: str
    what: str
    remedy: str


def configuration_findings(found: Diagnosis, pace_us: float | None = None) -> list[Finding]:
    """Everything that facts alone tell; `pace_us` is the draft's time from token to token."""
    services = (found.verify, *found.drafts)
    checks = (
        *(finding for service in services for finding in _unreachable(service)),
        *_no_draft(found),
        *(finding for service in services for finding in _versions(found.host, service)),
        *(finding for draft in found.drafts for finding in _tokenizers(found.verify, draft)),
        *(finding for draft in found.drafts for finding in _contexts(found.verify, draft)),
        *(finding for draft in found.drafts for finding in _sessions(found.verify, draft)),
        *(finding for service in services for finding in _clock(service)),
        *(finding for service in services for finding in _kv(service, found.verify)),
        *(finding for service in services for finding in _threads(service)),
        *_pools(services),
        *(finding for service in services for finding in _memory(service)),
        *(finding for draft in found.drafts for finding in _bandwidth(draft, pace_us)),
        *_plain_text(services),
        *_held_back(found),
    )
    return sorted(checks, key=lambda finding: finding.severity is not Severity.PROBLEM)


def _unreachable(service: ServiceDiagnosis) -> Iterator[Finding]:
    if service.problem:
        what, _, remedy = service.problem.partition("; ")
        yield Finding(
            Severity.PROBLEM,
            "unreachable",
            f"{_title(service)} cannot be used: {what}",
            remedy or f"look at the log of the service at {service.address}",
        )


def _no_draft(found: Diagnosis) -> Iterator[Finding]:
    if not found.drafts:
        yield Finding(
            Severity.ADVICE,
            "no draft",
            "no draft is configured: the target answers at its own speed",
            "start one (outrider serve draft) and give its address to the orchestrator (--draft)",
        )


def _versions(ours: HostFacts, service: ServiceDiagnosis) -> Iterator[Finding]:
    theirs = service.host
    if theirs is None:
        return
    if theirs.protocol_version != ours.protocol_version:
        yield Finding(
            Severity.PROBLEM,
            "protocol",
            f"{_title(service)} speaks protocol {theirs.protocol_version}, the orchestrator "
            f"{ours.protocol_version}",
            "install the same version of outrider on every machine",
        )
    elif theirs.version != ours.version:
        yield Finding(
            Severity.ADVICE,
            "version",
            f"{_title(service)} runs outrider {theirs.version}, the orchestrator {ours.version}",
            "install the same version of outrider on every machine",
        )


def _tokenizers(verify: ServiceDiagnosis, draft: ServiceDiagnosis) -> Iterator[Finding]:
    target, model = verify.model, draft.model
    if target is None or model is None or draft.problem or not _differs(model, target):
        return
    shared = dict(model.known_vocabularies).get(target.tokenizer_hash)
    if shared is None:
        severity = Severity.ADVICE if model.takes_vocabulary else Severity.PROBLEM
        yield Finding(
            severity,
            "tokenizer",
            f"{_title(draft)} has another tokenizer than the target {target.model_name}"
            f"{' and is being told its vocabulary' if model.takes_vocabulary else ''}",
            "wait until it knows the vocabulary, and look again"
            if model.takes_vocabulary
            else "use a draft of the target's family, or the model ngram:",
        )
        return
    share = shared / target.vocab_size if target.vocab_size else 0.0
    few = share < FEW_SHARED
    yield Finding(
        Severity.PROBLEM if few else Severity.ADVICE,
        "tokenizer",
        f"{_title(draft)} has another tokenizer than the target: it drafts the {shared} tokens "
        f"that both have, {share:.0%} of the target's",
        "a draft of the target's family has them all, and more of what it drafts is accepted",
    )


def _contexts(verify: ServiceDiagnosis, draft: ServiceDiagnosis) -> Iterator[Finding]:
    target, model = verify.model, draft.model
    if target is None or model is None or model.backend in _WEIGHTLESS:
        return
    if model.context_tokens < target.context_tokens:
        yield Finding(
            Severity.ADVICE,
            "context",
            f"{_title(draft)} has a context of {model.context_tokens} tokens, the target "
            f"{target.context_tokens}: it stops helping where a text gets longer",
            "use a draft with a longer context where texts are that long, or lower the target's "
            "(--context-tokens)",
        )


def _sessions(verify: ServiceDiagnosis, draft: ServiceDiagnosis) -> Iterator[Finding]:
    if verify.host is None or draft.host is None:
        return
    if draft.host.max_sessions < verify.host.max_sessions:
        yield Finding(
            Severity.ADVICE,
            "sessions",
            f"{_title(draft)} takes {draft.host.max_sessions} sessions, the verifier "
            f"{verify.host.max_sessions}: requests beyond that get no draft",
            f"start it with --max-sessions {verify.host.max_sessions}",
        )


def _clock(service: ServiceDiagnosis) -> Iterator[Finding]:
    if abs(service.clock_offset_us) > CLOCKS_APART_US:
        direction = "ahead of" if service.clock_offset_us > 0 else "behind"
        yield Finding(
            Severity.ADVICE,
            "clock",
            f"the clock of {_title(service)} is {abs(service.clock_offset_us) / 1e6:.1f} s "
            f"{direction} the orchestrator's: their logs do not line up",
            "let both machines set their clocks by NTP (timedatectl set-ntp true)",
        )


def _kv(service: ServiceDiagnosis, verify: ServiceDiagnosis) -> Iterator[Finding]:
    host, model = service.host, service.model
    if host is None or model is None or not host.kv_tokens:
        return
    # No text is longer than the target's context, whatever a draft could read.
    context_tokens = model.context_tokens
    if verify.model is not None:
        context_tokens = min(context_tokens, verify.model.context_tokens)
    if host.kv_tokens < context_tokens:
        yield Finding(
            Severity.ADVICE,
            "kv",
            f"the KV cache of {_title(service)} holds {host.kv_tokens} tokens, less than its "
            f"context of {context_tokens}: longer requests are refused",
            f"start it with --kv-tokens {context_tokens} if the memory allows, or say so "
            f"with --context-tokens {host.kv_tokens}",
        )
    elif host.max_sessions and host.kv_tokens < TOKENS_A_SESSION * host.max_sessions:
        yield Finding(
            Severity.ADVICE,
            "kv",
            f"the KV cache of {_title(service)} has {host.kv_tokens // host.max_sessions} tokens "
            f"for each of {host.max_sessions} sessions: some are refused before all are taken",
            f"start it with --kv-tokens {TOKENS_A_SESSION * host.max_sessions}, or with a lower "
            "--max-sessions",
        )


def _threads(service: ServiceDiagnosis) -> Iterator[Finding]:
    host = service.host
    if host is not None and host.cores and host.threads > host.cores:
        yield Finding(
            Severity.PROBLEM,
            "threads",
            f"{_title(service)} runs its model with {host.threads} threads on "
            f"{_cores(host.cores)}: they take turns and wait for each other",
            f"start it with --threads {host.cores}",
        )


def _pools(services: Sequence[ServiceDiagnosis]) -> Iterator[Finding]:
    """Services on one machine whose threads together are more than its cores."""
    machines: dict[str, list[ServiceDiagnosis]] = {}
    for service in services:
        if service.host is None or service.model is None or service.host.gpus:
            continue
        if service.model.backend not in _WEIGHTLESS:
            machines.setdefault(_machine(service), []).append(service)
    for residents in machines.values():
        facts = [service.host for service in residents if service.host is not None]
        threads, cores = sum(f.threads or f.cores for f in facts), max(f.cores for f in facts)
        if len(residents) > 1 and threads > cores:
            names = " and ".join(_title(service) for service in residents)
            yield Finding(
                Severity.PROBLEM,
                "thread pools",
                f"{names} share {_cores(cores)} and use {threads} threads: they take the cores "
                "from each other, and the target waits for the draft's threads",
                f"give each its share with --threads (together at most {cores}), and set "
                "OMP_WAIT_POLICY=PASSIVE",
            )


def _memory(service: ServiceDiagnosis) -> Iterator[Finding]:
    host = service.host
    if host is None or not host.memory_total_bytes:
        return
    used = 1 - host.memory_available_bytes / host.memory_total_bytes
    if used > MOST_MEMORY_USED:
        yield Finding(
            Severity.PROBLEM,
            "memory",
            f"the machine of {_title(service)} has {host.memory_available_bytes / 1e9:.1f} of "
            f"{host.memory_total_bytes / 1e9:.1f} GB of memory left: it swaps, or ends a process",
            "lower --kv-tokens, use a smaller or more quantised model, or end what else runs there",
        )


def _bandwidth(draft: ServiceDiagnosis, pace_us: float | None) -> Iterator[Finding]:
    rate = draft.received_bytes_per_s
    if not rate or not pace_us:
        return
    row_us = 1e6 * ROW_BYTES / rate
    if row_us > LINE_SHARE * pace_us:
        yield Finding(
            Severity.PROBLEM,
            "bandwidth",
            f"{rate / 1e3:.0f} kB/s come from {_title(draft)}: a token with its proposal row is "
            f"{row_us / 1000:.1f} ms on its way, and the draft makes one in {pace_us / 1000:.1f}",
            "stay with --mode coupled, which sends no proposal rows, or use a better line",
        )


def _plain_text(services: Sequence[ServiceDiagnosis]) -> Iterator[Finding]:
    far = [s for s in services if not s.is_encrypted and not is_loopback(s.address)]
    if far:
        names = " and ".join(_title(service) for service in far)
        yield Finding(
            Severity.ADVICE,
            "plain text",
            f"what is sent to {names} leaves this machine, unencrypted",
            "give all services certificates (outrider certs) and --tls, or use a network that you "
            "trust, such as a VPN or an SSH tunnel",
        )


def _held_back(found: Diagnosis) -> Iterator[Finding]:
    if found.drafts and not found.limits.run_ahead:
        yield Finding(
            Severity.ADVICE,
            "run ahead",
            "drafts go no deeper than one pass until its verdict is known (--no-run-ahead)",
            "leave --no-run-ahead out: drafting then overlaps with verifying",
        )


def _differs(model: ModelInfo, target: ModelInfo) -> bool:
    return model.tokenizer_hash not in ("", target.tokenizer_hash)


def _machine(service: ServiceDiagnosis) -> str:
    host = service.address.rpartition(":")[0].strip("[]")
    return "this machine" if is_loopback(service.address) else host


def _title(service: ServiceDiagnosis) -> str:
    return "the verifier" if service.name == "verify" else f"draft {service.name}"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"
