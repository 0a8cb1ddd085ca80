"""What every service runs on, and the lines between them, as an orchestrator measured them.

Knows no gRPC; `outrider.wire.convert_host` makes it a message and back.
"""

from dataclasses import dataclass

from outrider.host import HostFacts
from outrider.types import ModelInfo


@dataclass(frozen=True, slots=True)
class ServiceDiagnosis:
    """One service. `problem` says why it could not be measured; `host` and `model` are None then.

    `round_trip_us` is the median of several small calls, `clock_offset_us` how far its clock is
    ahead of the orchestrator's. Bytes a second of the line, to it and from it; 0: not measured.
    `is_encrypted`: the orchestrator calls it by TLS.
    """

    name: str
    address: str
    problem: str = ""
    host: HostFacts | None = None
    model: ModelInfo | None = None
    round_trip_us: int = 0
    sent_bytes_per_s: int = 0
    received_bytes_per_s: int = 0
    clock_offset_us: int = 0
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class DraftingLimits:
    """How requests are drafted for that do not say otherwise. None: planned."""

    num_speculative_tokens: int
    width: int
    run_ahead: bool
    adaptive: bool
    wait_nodes: int | None = None
    max_wait_us: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The orchestrator's own machine, the verifier, the drafts, and how they are used."""

    host: HostFacts
    verify: ServiceDiagnosis
    drafts: tuple[ServiceDiagnosis, ...]
    limits: DraftingLimits
