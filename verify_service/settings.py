"""Settings of the verify service; every one is a flag, an environment variable and a key."""

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from outrider.settings import ModelSettings, ServerSettings


class VerifySettings(ServerSettings, ModelSettings):
    """The target model, its limits, and where the service listens."""

    section: ClassVar[str] = "verify"
    model_config = SettingsConfigDict(
        env_prefix="OUTRIDER_VERIFY_", frozen=True, extra="forbid", protected_namespaces=()
    )

    port: int = Field(7071, ge=0, le=65535, description="Port to listen on; 0: any free one")
    max_sessions: int = Field(16, ge=1, le=4096, description="Sessions open at once")
    idle_timeout_s: float = Field(
        60.0, gt=0, le=86400, description="Seconds after which unread verdicts close a session"
    )
    max_tree_nodes: int = Field(
        1024, ge=1, le=65536, description="Drafted nodes that wait in one session's tree"
    )
    max_pass_tokens: int = Field(
        512, ge=1, le=65536, description="Tokens of one target pass, prompts and drafts together"
    )
