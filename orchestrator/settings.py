"""Settings of the orchestrator; every one is a flag, an environment variable and a key."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from orchestrator.gateway.settings import GatewaySettings
from orchestrator.planner import Limits
from outrider.addresses import is_loopback
from outrider.types import AcceptanceMode

_ADDRESS = re.compile(
    r"(?:[^=]*[^=\s]=)?(?P<address>(?:[^][:/=\s]+|\[[^][/=\s]+\]):(?P<port>\d{1,5}))", re.ASCII
)


class OrchestratorSettings(GatewaySettings):
    """Which verifier and drafts to use, how far to run ahead, and where the service listens."""

    section: ClassVar[str] = "orchestrator"
    model_config = SettingsConfigDict(
        env_prefix="OUTRIDER_", frozen=True, extra="forbid", protected_namespaces=()
    )

    port: int = Field(7070, ge=0, le=65535, description="Port to listen on; 0: any free one")
    verify: str = Field("127.0.0.1:7071", description="Address of the verify service")
    draft: Annotated[list[str], NoDecode] = Field(
        ["127.0.0.1:7072"],
        description="Addresses of draft services, host:port or name=host:port; repeat the flag, "
        "or separate by commas; 'none' for none",
    )
    ray: str = Field(
        "embedded",
        description="embedded: start Ray here; local: no Ray, one engine in this process; "
        "or the address of a Ray cluster",
    )
    plaintext_loopback: bool = Field(
        False,
        description="With --tls: call services at loopback addresses in plain text all the same",
    )
    engines: int = Field(
        1,
        ge=1,
        le=64,
        description="EngineActor replicas when Ray is used; each gives its requests drafts as if "
        "it had all drafts to itself",
    )
    max_requests: int = Field(
        64, ge=1, le=65536, description="Requests that an engine answers at once"
    )
    mode: Literal["auto", "coupled", "rejection", "block", "match"] = Field(
        "auto",
        description="How drafted tokens are accepted where a request does not say: coupled, "
        "rejection, block or match; auto is coupled. All are lossless",
    )
    num_speculative_tokens: int = Field(
        16,
        ge=1,
        le=128,
        description="Most drafted tokens of a request that one target pass verifies, on all "
        "branches together; with --no-run-ahead also the depth of a draft",
    )
    width: int = Field(3, ge=1, le=32, description="Children that a draft proposes at each node")
    run_ahead: bool = Field(
        True,
        description="Draft deeper than the next target pass can verify; with --no-run-ahead "
        "drafts go no deeper than num-speculative-tokens until the verdict is known (branches may "
        "still grow while the target verifies), for comparison",
    )
    drafts_per_session: int | None = Field(
        None,
        ge=1,
        le=255,
        description="Drafts that help one request, beside those that cost nothing, like prompt "
        "lookup; unset: as many as there are for each of those answered at once",
    )
    proposal_top_k: int = Field(
        64, ge=1, le=1024, description="Support of a proposal row (rejection and block)"
    )
    adaptive: bool = Field(
        True,
        description="Draft and verify fewer tokens where more would not pay, and let drafts rest "
        "where none pays; --no-adaptive turns off both",
    )
    wait_nodes: int | None = Field(
        None,
        ge=0,
        le=128,
        description="How deep a drafted tree every target pass waits for, num-speculative-tokens "
        "at most (with rejection and block: a first token); 0: no wait; unset: planned",
    )
    max_wait_ms: float | None = Field(
        None, ge=0, le=60_000, description="Longest wait of a pass for it; unset: planned"
    )
    verdict_timeout_s: float = Field(
        120.0, gt=0, le=86400, description="Silence of the verifier that ends a request"
    )
    max_resumes: int = Field(
        3,
        ge=0,
        le=100,
        description="Times a request reopens a broken verify stream, a few seconds apart",
    )

    @field_validator("draft", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, list):
            parts = [part.strip() for item in value for part in str(item).split(",")]
            named = [part for part in parts if part]
            if "none" in named and len(named) > 1:
                raise ValueError("'none' stands alone, without addresses; leave it out")
            return [part for part in named if part != "none"]
        return value

    @field_validator("draft")
    @classmethod
    def _known_addresses(cls, values: list[str]) -> list[str]:
        for value in values:
            address_of(value)
        if len({name_of(value) for value in values}) != len(values):
            raise ValueError("two drafts have the same name; give name=host:port")
        return values

    @field_validator("verify")
    @classmethod
    def _known_address(cls, value: str) -> str:
        return address_of(value)

    @property
    def acceptance_mode(self) -> AcceptanceMode:
        """The mode of a request that does not say."""
        return AcceptanceMode.COUPLED if self.mode == "auto" else AcceptanceMode(self.mode)

    def tls_to(self, address: str) -> str:
        """The folder with the certificate for calls to an address; empty: plain text."""
        return "" if self.plaintext_loopback and is_loopback(address) else self.tls

    def limits(self) -> Limits:
        """What the planner may do by default."""
        return Limits(
            num_speculative_tokens=self.num_speculative_tokens,
            width=self.width,
            run_ahead=self.run_ahead,
            proposal_top_k=self.proposal_top_k,
            wait_nodes=self.wait_nodes,
            max_wait_us=None if self.max_wait_ms is None else int(self.max_wait_ms * 1000),
            adaptive=self.adaptive,
        )


def address_of(value: str) -> str:
    """host:port of `host:port` or `name=host:port`."""
    match = _ADDRESS.fullmatch(value)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(f"{value!r} is not an address; give host:port or name=host:port")
    return match["address"]


def name_of(value: str) -> str:
    """The name in `name=host:port`, else the address."""
    name, separator, address = value.rpartition("=")
    return name if separator else address
