"""Settings of the HTTP endpoint; flags and environment variables of the orchestrator."""

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode
from typing_extensions import Self

from outrider.settings import ServerSettings


class GatewaySettings(ServerSettings):
    """Where the HTTP endpoint listens, who may ask, and how much."""

    http: bool = Field(True, description="Serve the OpenAI-compatible HTTP endpoint")
    http_port: int = Field(8000, ge=0, le=65535, description="Its port; 0: any free one")
    http_tls: str = Field(
        "",
        description="Folder with certificate and key of HTTPS where they are not those of --tls, "
        "such as certbot's (fullchain.pem, privkey.pem); 'none': plain HTTP in spite of --tls, "
        "which beyond loopback needs --allow-plaintext. HTTP asks for keys, not for certificates",
    )
    http_ready_file: Path | None = Field(
        None, description="File that gets the HTTP endpoint's address once it serves"
    )
    served_model_name: Annotated[list[str], NoDecode] = Field(
        [],
        description="Names that HTTP requests may ask the model by, the first one is shown; "
        "repeat the flag, or separate by commas; none: the model's own",
    )
    api_key: Annotated[list[SecretStr], NoDecode] = Field(
        [],
        description="Keys that HTTP requests must have one of; better in OUTRIDER_API_KEY or in "
        "the file than as a flag, which other users of the machine see",
    )
    api_key_file: Path | None = Field(
        None, description="File with a key in each line, read again when it changes"
    )
    allow_no_api_key: bool = Field(
        False, description="Serve HTTP beyond loopback without keys: whoever reaches it may ask"
    )
    default_max_tokens: int = Field(
        2048,
        ge=1,
        le=2**24,
        description="Longest answer of a chat over HTTP that does not say; room for it is kept",
    )
    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, le=2**30, description="Largest body of an HTTP request"
    )
    vllm_metric_names: bool = Field(
        False, description="Tell /metrics' counters of speculative decoding by vLLM's names, too"
    )
    cors_origin: Annotated[list[str], NoDecode] = Field(
        [], description="Web pages' origins that may ask over HTTP; '*': all of them"
    )

    @field_validator("served_model_name", "api_key", "cors_origin", mode="before")
    @classmethod
    def _parts(cls, value: object) -> object:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            parts = [part.strip() for item in value for part in item.split(",")]
            if value and not all(parts):
                raise ValueError("an entry is empty; leave it out, or the setting as a whole")
            return parts
        return value

    @property
    def https(self) -> str:
        """The folder with the certificate of HTTPS; empty: plain HTTP."""
        return "" if self.http_tls == "none" else self.http_tls or self.tls

    def without_secrets(self) -> Self:
        """For whoever serves nobody over HTTP."""
        return self.model_copy(update={"api_key": [], "api_key_file": None})

    @model_validator(mode="after")
    def _is_guarded(self) -> "GatewaySettings":
        has_keys = bool(self.api_key) or self.api_key_file is not None
        is_near = ipaddress.ip_address(self.host).is_loopback
        if self.http and not (is_near or self.https or self.allow_plaintext):
            raise ValueError(
                f"host {self.host} is reachable from other machines and HTTP would be plain text; "
                "leave --http-tls none out, or add --allow-plaintext if the network is trusted (or "
                "--no-http)"
            )
        if self.http and not (is_near or has_keys or self.allow_no_api_key):
            raise ValueError(
                f"host {self.host} is reachable from other machines and HTTP requests need no key; "
                "give keys in OUTRIDER_API_KEY or --api-key-file, or add --allow-no-api-key (or "
                "--no-http)"
            )
        return self
