"""Settings of the draft service; every one is a flag, an environment variable and a key."""

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from outrider.settings import ModelSettings, ServerSettings


class DraftSettings(ServerSettings, ModelSettings):
    """The draft model, its limits, and where the service listens."""

    section: ClassVar[str] = "draft"
    model_config = SettingsConfigDict(
        env_prefix="OUTRIDER_DRAFT_", frozen=True, extra="forbid", protected_namespaces=()
    )

    port: int = Field(7072, ge=0, le=65535, description="Port to listen on; 0: any free one")
    max_sessions: int = Field(16, ge=1, le=4096, description="Sessions open at once")
    idle_timeout_s: float = Field(
        600.0, gt=0, le=86400, description="Seconds without a commit after which a session closes"
    )
    max_pass_tokens: int = Field(
        512, ge=1, le=65536, description="Tokens of one draft pass, all sessions together"
    )
