"""Which processes a stack on this machine has, and how they share its cores. Starts none."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cli.child import ChildSpec
from outrider.host import usable_cores

NO_DRAFT = "none"
OWN_HOST = "127.0.0.1"
"""Where the models of a stack listen: only its orchestrator asks them."""
_WEIGHTLESS = ("ngram", "scripted")


@dataclass(frozen=True, slots=True)
class StackPlan:
    """A target, its drafts, and one orchestrator in front of them, all on this machine."""

    model: str
    draft_models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    http_port: int | None = None
    """Of the OpenAI-compatible endpoint; None: there is none."""
    threads: int = 0
    """CPU threads of all models together; 0: all cores."""
    own_threads: frozenset[str] = frozenset()
    """The services, verify or draft, whose threads environment or config file set."""
    grace_s: float = 10.0
    """Seconds that the most patient service gives what runs."""
    tls: str = ""
    """Folder with the orchestrator's certificate, for users; the others are on loopback only."""
    every_service: tuple[str, ...] = ()
    orchestrator: tuple[str, ...] = ()
    """Further flags."""

    @property
    def drafts(self) -> tuple[str, ...]:
        """The draft models, without the word for none."""
        return tuple(model for model in self.draft_models if model != NO_DRAFT)

    def model_threads(self) -> tuple[int, int]:
        """CPU threads of the target and of each draft; 0 for models without weights."""
        heavy = sum(1 for model in self.drafts if not is_weightless(model))
        verify, draft = split_threads(self.threads or usable_cores(), heavy)
        return (0 if is_weightless(self.model) else verify), draft


def split_threads(cores: int, drafts: int) -> tuple[int, int]:
    """CPU threads of the target and of each draft: drafts together get a third, at least one each.

    >>> split_threads(2, 1), split_threads(8, 1), split_threads(16, 2), split_threads(4, 0)
    ((1, 1), (6, 2), (12, 2), (4, 0))
    """
    if not drafts:
        return cores, 0
    each = max(1, cores // 3 // drafts)
    return max(1, cores - each * drafts), each


def specs_of(
    plan: StackPlan, ports: Sequence[int]
) -> tuple[ChildSpec, tuple[ChildSpec, ...], ChildSpec]:
    """The verifier, the drafts, the orchestrator. `ports` are for the verifier, then the drafts."""
    verify_threads, draft_threads = plan.model_threads()
    common = plan.every_service
    names = draft_names(plan.drafts)
    verify = ChildSpec(
        "verify",
        f"verify ({plan.model})",
        "verify_service",
        (*_model(plan, "verify", plan.model, verify_threads), *_own_port(ports[0]), *common),
        _environment(plan.model),
    )
    drafts = tuple(
        ChildSpec(
            f"draft-{name}",
            f"draft {name} ({model})",
            "draft_service",
            (*_model(plan, "draft", model, draft_threads), *_own_port(port), *common),
            _environment(model),
        )
        for name, model, port in zip(names, plan.drafts, ports[1:], strict=True)
    )
    addresses = [f"{name}={OWN_HOST}:{port}" for name, port in zip(names, ports[1:], strict=True)]
    orchestrator = ChildSpec(
        "orchestrator",
        "orchestrator",
        "orchestrator",
        (
            *("--host", plan.host, "--port", str(plan.port)),
            *(("--no-http",) if plan.http_port is None else ("--http-port", str(plan.http_port))),
            *("--tls", plan.tls, "--plaintext-loopback"),
            *("--verify", f"{OWN_HOST}:{ports[0]}", "--draft", ",".join(addresses) or NO_DRAFT),
            *(*common, *plan.orchestrator),
        ),
    )
    return verify, drafts, orchestrator


def draft_names(models: Sequence[str]) -> list[str]:
    """A short name for each draft, none twice.

    >>> draft_names(["ngram:", "scripted:vocab=8", "org/Tiny-1B", "ngram:n=2"])
    ['ngram', 'scripted', 'Tiny-1B', 'ngram-2']
    """
    names: list[str] = []
    for model in models:
        backend, _, argument = model.partition(":")
        base = argument if backend in ("hf", "llamacpp") and argument else backend
        base = re.sub(r"[^\w.-]+", "-", base.rstrip("/").rpartition("/")[2]) or "draft"
        candidates = (base, *(f"{base}-{number}" for number in range(2, len(models) + 1)))
        names.append(next(name for name in candidates if name not in names))
    return names


def is_weightless(model: str) -> bool:
    """Whether a model has no weights, and so needs no cores worth speaking of."""
    return model.partition(":")[0] in _WEIGHTLESS


def _model(plan: StackPlan, service: str, model: str, threads: int) -> tuple[str, ...]:
    flags = ("--model", model)
    is_left = is_weightless(model) or service in plan.own_threads
    return flags if is_left else (*flags, "--threads", str(threads))


def _own_port(port: int) -> tuple[str, ...]:
    return ("--host", OWN_HOST, "--port", str(port), "--tls", "")


def _environment(model: str) -> dict[str, str]:
    # Thread pools that spin while they wait take the cores away from the other services.
    environment = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    if is_weightless(model):
        environment["OMP_NUM_THREADS"] = "1"
    return environment
