"""The flags of `outrider serve all` and what becomes of them: a plan, together with the settings
that environment and config file hold. Starts nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from draft_service.settings import DraftSettings
from orchestrator.cli.stack_plan import OWN_HOST, StackPlan
from orchestrator.settings import OrchestratorSettings
from outrider.settings_reading import find_settings
from verify_service.settings import VerifySettings

PROGRAM = "outrider serve all"
LOOKUP_DRAFT = "ngram:"
"""The draft where none is named: it needs no model and no memory."""


@dataclass(frozen=True, slots=True)
class StackFlags:
    """What was given; None, or nothing in it, where a flag was not."""

    model: str | None = None
    draft_models: tuple[str, ...] = ()
    host: str | None = None
    port: int | None = None
    http: bool | None = None
    http_port: int | None = None
    api_key_file: Path | None = None
    allow_no_api_key: bool = False
    allow_plaintext: bool = False
    tls: str | None = None
    mode: str | None = None
    ray: str | None = None
    threads: int | None = None
    grace_s: float | None = None
    log_level: str | None = None
    config: str | None = None


def planned(flags: StackFlags) -> StackPlan:
    """The stack that flags, environment and config file ask for.

    Each service reads the latter two for itself; what is passed on to it was given as a flag here,
    or is this stack's own affair: addresses, and how the services share the cores. Raises
    InvalidArgumentError where a value does not fit.
    """
    every = _given(grace_s=flags.grace_s, log_level=flags.log_level, config=flags.config)
    front = _given(ray=flags.ray, mode=flags.mode, api_key_file=flags.api_key_file) + _switched(
        allow_no_api_key=flags.allow_no_api_key, allow_plaintext=flags.allow_plaintext
    )
    listening = _given(host=flags.host, port=flags.port, http_port=flags.http_port, tls=flags.tls)
    if flags.http is not None:
        listening += ("--http" if flags.http else "--no-http",)
    own = (*_given(host=OWN_HOST, tls=""), *every)
    verify = find_settings(VerifySettings, (*_given(model=flags.model), *own), PROGRAM)
    draft = find_settings(DraftSettings, own, PROGRAM)
    orchestrator = find_settings(OrchestratorSettings, (*listening, *front, *every), PROGRAM)
    own_draft = draft.settings.model if draft.is_set("model") else LOOKUP_DRAFT
    settings = orchestrator.settings
    found = (verify, draft)
    return StackPlan(
        verify.settings.model,
        flags.draft_models or (own_draft,),
        settings.host,
        settings.port,
        http_port=settings.http_port if settings.http else None,
        tls=settings.tls,
        threads=flags.threads or 0,
        own_threads=frozenset(
            one.settings.section for one in found if flags.threads is None and one.is_set("threads")
        ),
        grace_s=max(one.settings.grace_s for one in (*found, orchestrator)),
        every_service=every,
        orchestrator=front,
    )


def _given(**values: object) -> tuple[str, ...]:
    """Flags of the values that are not None."""
    return tuple(
        part
        for name, value in values.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    )


def _switched(**values: bool) -> tuple[str, ...]:
    return tuple(f"--{name.replace('_', '-')}" for name, value in values.items() if value)
