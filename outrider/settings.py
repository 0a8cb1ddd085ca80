"""Settings that every service has, and the one way they are read: flags, then the environment, then
the config file, then defaults.

A field is the same word everywhere: `--kv-tokens`, `OUTRIDER_VERIFY_KV_TOKENS`, `kv_tokens`.
"""

import ipaddress
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from outrider.errors import InvalidArgumentError
from outrider.models.options import ModelOptions
from outrider.settings_reading import find_settings
from outrider.telemetry.logs import LogFormat, LogLevel

S = TypeVar("S", bound="ServerSettings")

_ENDPOINT = re.compile(r"https?://[^\s/]+:\d{1,5}", re.ASCII)


class ModelSettings(BaseModel):
    """Which model a service runs, and how it is loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: str = Field(
        "smollm2",
        min_length=1,
        description="Hub name (org/name), folder, GGUF file (model.gguf, org/name/file.gguf), "
        "smollm2, gemma3 or smollm2.gguf (small packaged models), or backend:argument such as "
        "ngram: or scripted:vocab=32",
    )
    revision: str = Field("", description="Branch, tag or commit of a hub model")
    trust_remote_code: bool = Field(False, description="Run code that comes with a hub model")
    dtype: str = Field("auto", description="auto, float32, bfloat16, float16 or float64")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    device_map: str = Field("", description="Spread over several GPUs: auto, balanced, sequential")
    quantization: str = Field("", description="Quantisation config: JSON, or a path to a JSON file")
    threads: int = Field(0, ge=0, le=1024, description="CPU threads of the model; 0: all cores")
    n_gpu_layers: int = Field(
        -1,
        ge=-1,
        le=9999,
        description="GGUF: layers on the GPU; -1: all, 0: none. Without a GPU it means nothing",
    )
    kv_dtype: str = Field("auto", description="GGUF: KV cache in f16, f32 or q8_0; auto: 16 bits")
    kv_tokens: int = Field(
        16384, ge=64, le=2**26, description="Tokens that the KV cache holds, all sessions together"
    )
    context_tokens: int = Field(
        0, ge=0, le=2**24, description="Largest prompt plus answer; 0: what the model allows"
    )

    skip_memory_check: bool = Field(
        False, description="Load the model even where it is found not to fit the memory"
    )

    def model_options(self) -> ModelOptions:
        """What the model registry needs."""
        return ModelOptions(**self.model_dump(include={f.name for f in fields(ModelOptions)}))


class ServerSettings(BaseSettings):
    """Where a service listens, how it ends, what it logs and tells of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())  # type: ignore[assignment]

    section: ClassVar[str]
    """Of the config file; the name of the service."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on")
    port: int = Field(0, ge=0, le=65535, description="Port to listen on; 0: any free one")
    tls: str = Field(
        "",
        description="Folder with this service's certificate, its key and the CA that it trusts "
        "(cert.pem, key.pem, ca.pem, or tls.crt, tls.key, ca.crt), as outrider certs issue writes "
        "it; empty: plain text. Callers need a certificate of that CA, too, and a role",
    )
    allow_plaintext: bool = Field(
        False, description="Listen beyond loopback without TLS; only on a network you trust"
    )
    ready_file: Path | None = Field(
        None, description="File that gets the service's address once it serves"
    )
    exit_with_stdin: bool = Field(
        False, description="Stop when standard input closes: a parent that dies takes it along"
    )
    grace_s: float = Field(
        10.0, gt=0, le=3600, description="Seconds that open sessions get to end after SIGTERM"
    )
    log_level: LogLevel = Field("info", description="debug, info, warning or error")
    log_format: LogFormat = Field("auto", description="auto, json or text")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port, at --host, that serves metrics to Prometheus, over HTTPS with --tls; 0: "
        "any free one; unset: none",
    )
    traces_endpoint: str = Field(
        "",
        description="Collector that gets traces (OTLP over gRPC), such as http://127.0.0.1:4317; "
        "unset: none are made",
    )
    traces_sample_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of requests that are traced, where whoever asks has not decided it",
    )

    @field_validator("host")
    @classmethod
    def _known_host(cls, host: str) -> str:
        if host == "localhost":
            return "127.0.0.1"
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            raise ValueError("give an IP address, or localhost") from error
        return host

    @field_validator("traces_endpoint")
    @classmethod
    def _known_endpoint(cls, endpoint: str) -> str:
        if endpoint and not _ENDPOINT.fullmatch(endpoint):
            raise ValueError("give http://host:port, or https://host:port for TLS")
        return endpoint

    @model_validator(mode="after")
    def _plaintext_is_meant(self) -> "ServerSettings":
        is_near = ipaddress.ip_address(self.host).is_loopback
        if not (is_near or self.tls or self.allow_plaintext):
            raise ValueError(
                f"host {self.host} is reachable from other machines and would speak plain text; "
                "give a certificate (--tls, made by outrider certs), or add --allow-plaintext if "
                "the network is trusted"
            )
        return self


def read_settings(kind: type[S], arguments: Sequence[str], program: str) -> S:
    """The settings of a service, as `find_settings` finds them.

    Prints what was got, what was wanted and exits with status 2 where they do not fit.
    """
    try:
        return find_settings(kind, arguments, program).settings
    except InvalidArgumentError as error:
        sys.stderr.write(f"{program}: {error.message}\n")
        raise SystemExit(2) from error
