"""Facts of hosts and diagnoses: protos to dataclasses and back. Needs protobuf only."""

from outrider.diagnosis import Diagnosis, DraftingLimits, ServiceDiagnosis
from outrider.errors import ProtocolMismatchError
from outrider.host import GpuFacts, HostFacts
from outrider.types import ModelInfo
from outrider.v1 import common_pb2, draft_pb2, orchestrator_pb2, verify_pb2

_MOST_UINT32 = 2**32 - 1
_MOST_CHARACTERS = 200
_MOST_LISTED = 64
_LAST_CLOCK_US = 2**62
"""In the year 148,000; its difference from any other clock fits a message."""


def host_to(facts: HostFacts) -> common_pb2.HostFacts:
    """The message of `facts`."""
    return common_pb2.HostFacts(
        version=facts.version,
        protocol_version=facts.protocol_version,
        versions=[common_pb2.LibraryVersion(name=n, version=v) for n, v in facts.versions],
        system=facts.system,
        cpu=facts.cpu,
        cores=facts.cores,
        memory_total_bytes=facts.memory_total_bytes,
        memory_available_bytes=facts.memory_available_bytes,
        gpus=[
            common_pb2.GpuFacts(name=g.name, total_bytes=g.total_bytes, free_bytes=g.free_bytes)
            for g in facts.gpus
        ],
        clock_us=facts.clock_us,
        weights_bytes=facts.weights_bytes,
        kv_bytes_per_token=facts.kv_bytes_per_token,
        kv_tokens=facts.kv_tokens,
        threads=facts.threads,
        max_sessions=facts.max_sessions,
    )


def host_from(message: common_pb2.HostFacts) -> HostFacts:
    """The facts in a message of another machine; its texts are cut to what can be shown."""
    return HostFacts(
        version=_shown(message.version),
        protocol_version=message.protocol_version,
        versions=tuple(
            (_shown(v.name), _shown(v.version)) for v in message.versions[:_MOST_LISTED]
        ),
        system=_shown(message.system),
        cpu=_shown(message.cpu),
        cores=message.cores,
        memory_total_bytes=message.memory_total_bytes,
        memory_available_bytes=message.memory_available_bytes,
        gpus=tuple(
            GpuFacts(_shown(g.name), g.total_bytes, g.free_bytes)
            for g in message.gpus[:_MOST_LISTED]
        ),
        clock_us=min(message.clock_us, _LAST_CLOCK_US),
        weights_bytes=message.weights_bytes,
        kv_bytes_per_token=message.kv_bytes_per_token,
        kv_tokens=message.kv_tokens,
        threads=message.threads,
        max_sessions=message.max_sessions,
    )


def told_from(
    message: draft_pb2.DraftServiceDiagnoseResponse | verify_pb2.VerifyServiceDiagnoseResponse,
    reply_bytes: int,
    address: str,
) -> HostFacts:
    """The facts in a service's answer; raises ProtocolMismatchError where it sent other bytes than
    were wanted: the line would be mismeasured.
    """
    if len(message.payload) != reply_bytes:
        raise ProtocolMismatchError(
            f"{address} sent {len(message.payload)} bytes where {reply_bytes} were wanted; is it "
            "an Outrider service of the same version?"
        )
    return host_from(message.host)


def diagnosis_to(diagnosis: Diagnosis) -> orchestrator_pb2.DiagnoseResponse:
    """The message of a diagnosis."""
    return orchestrator_pb2.DiagnoseResponse(
        host=host_to(diagnosis.host),
        verify=_service_to(diagnosis.verify),
        drafts=map(_service_to, diagnosis.drafts),
        limits=_limits_to(diagnosis.limits),
    )


def diagnosis_from(message: orchestrator_pb2.DiagnoseResponse) -> Diagnosis:
    """The diagnosis in a message."""
    return Diagnosis(
        host_from(message.host),
        _service_from(message.verify),
        tuple(_service_from(draft) for draft in message.drafts),
        _limits_from(message.limits),
    )


def _limits_to(limits: DraftingLimits) -> orchestrator_pb2.DraftingLimits:
    return orchestrator_pb2.DraftingLimits(
        num_speculative_tokens=limits.num_speculative_tokens,
        width=limits.width,
        run_ahead=limits.run_ahead,
        adaptive=limits.adaptive,
        wait_nodes=limits.wait_nodes,
        max_wait_us=limits.max_wait_us,
    )


def _limits_from(message: orchestrator_pb2.DraftingLimits) -> DraftingLimits:
    return DraftingLimits(
        num_speculative_tokens=message.num_speculative_tokens,
        width=message.width,
        run_ahead=message.run_ahead,
        adaptive=message.adaptive,
        wait_nodes=message.wait_nodes if message.HasField("wait_nodes") else None,
        max_wait_us=message.max_wait_us if message.HasField("max_wait_us") else None,
    )


def _service_to(service: ServiceDiagnosis) -> orchestrator_pb2.ServiceDiagnosis:
    return orchestrator_pb2.ServiceDiagnosis(
        name=service.name,
        address=service.address,
        problem=service.problem,
        host=host_to(service.host) if service.host is not None else None,
        model=_model_to(service.model) if service.model is not None else None,
        round_trip_us=min(service.round_trip_us, _MOST_UINT32),
        sent_bytes_per_s=service.sent_bytes_per_s,
        received_bytes_per_s=service.received_bytes_per_s,
        clock_offset_us=service.clock_offset_us,
        is_encrypted=service.is_encrypted,
    )


def _service_from(message: orchestrator_pb2.ServiceDiagnosis) -> ServiceDiagnosis:
    return ServiceDiagnosis(
        name=message.name,
        address=message.address,
        problem=message.problem,
        host=host_from(message.host) if message.HasField("host") else None,
        model=_model_from(message.model) if message.HasField("model") else None,
        round_trip_us=message.round_trip_us,
        sent_bytes_per_s=message.sent_bytes_per_s,
        received_bytes_per_s=message.received_bytes_per_s,
        clock_offset_us=message.clock_offset_us,
        is_encrypted=message.is_encrypted,
    )


def _model_to(model: ModelInfo) -> common_pb2.ModelInfo:
    return common_pb2.ModelInfo(
        model_name=model.model_name,
        backend=model.backend,
        tokenizer_hash=model.tokenizer_hash,
        vocab_size=model.vocab_size,
        context_tokens=model.context_tokens,
        eos_token_ids=model.eos_token_ids,
        takes_vocabulary=model.takes_vocabulary,
        known_vocabularies=[
            common_pb2.KnownVocabulary(tokenizer_hash=name, shared_tokens=shared)
            for name, shared in model.known_vocabularies
        ],
    )


def _model_from(message: common_pb2.ModelInfo) -> ModelInfo:
    return ModelInfo(
        message.model_name,
        message.backend,
        message.tokenizer_hash,
        message.vocab_size,
        message.context_tokens,
        tuple(message.eos_token_ids),
        message.takes_vocabulary,
        tuple((v.tokenizer_hash, v.shared_tokens) for v in message.known_vocabularies),
    )


def _shown(text: str) -> str:
    """Without control characters, and not endless: it came from another machine."""
    return "".join(c for c in text[:_MOST_CHARACTERS] if c.isprintable())
