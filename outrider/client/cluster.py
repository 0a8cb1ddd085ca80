"""The verifier and the drafts behind an orchestrator, as `get_cluster` reports them."""

from dataclasses import dataclass

from outrider.errors import ProtocolMismatchError
from outrider.types import PROTOCOL_VERSION, ModelInfo
from outrider.v1 import common_pb2, orchestrator_pb2


@dataclass(frozen=True, slots=True)
class Service:
    """A verifier or a draft; `problem` says why it is not usable, `model` None if it was silent."""

    name: str
    address: str
    usable: bool
    problem: str
    model: ModelInfo | None
    round_trip_us: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """All services that an orchestrator knows."""

    verify: Service
    drafts: tuple[Service, ...]


def cluster_from_proto(message: orchestrator_pb2.GetClusterResponse) -> Cluster:
    """`message` as a `Cluster`."""
    return Cluster(_service(message.verify), tuple(_service(draft) for draft in message.drafts))


def target_from_proto(
    message: orchestrator_pb2.OrchestratorServiceGetModelInfoResponse,
) -> ModelInfo:
    """The target model of `message`, whose protocol version has to be ours."""
    version = message.model.protocol_version
    if version != PROTOCOL_VERSION:
        raise ProtocolMismatchError(
            f"the orchestrator speaks protocol {version}, this client {PROTOCOL_VERSION}; "
            "install the same version of outrider on both"
        )
    return _model(message.model)


def _service(message: orchestrator_pb2.Service) -> Service:
    return Service(
        name=message.name,
        address=message.address,
        usable=message.usable,
        problem=message.problem,
        model=_model(message.model) if message.HasField("model") else None,
        round_trip_us=message.round_trip_us,
    )


def _model(message: common_pb2.ModelInfo) -> ModelInfo:
    return ModelInfo(
        model_name=message.model_name,
        backend=message.backend,
        tokenizer_hash=message.tokenizer_hash,
        vocab_size=message.vocab_size,
        context_tokens=message.context_tokens,
        eos_token_ids=tuple(message.eos_token_ids),
    )
