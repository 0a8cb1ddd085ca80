"""Which services the scale rig runs, and which orchestrator answers which configuration.

One verifier and one set of drafts serve all; an orchestrator for each number of drafts, round-trip
time, acceptance and way of drafting. It shares its drafts out between the requests of the moment:
to each as many as there are for one, and at least one.
"""

from dataclasses import replace

from benchmarks.protocol_figures import ALONE, SYNCHRONOUS, Load
from benchmarks.protocol_services import Services
from benchmarks.protocol_settings import Settings
from outrider.models.scripted import ScriptedLaw

LAW = ScriptedLaw(vocab=64, seed=1, order=3, sharpness=2.0)
VERIFY = "verify"
SYNCHRONOUS_FLAGS = (
    "--no-run-ahead",
    "--no-adaptive",
    *("--width", "1"),
    *("--wait-nodes", "128", "--max-wait-ms", "5000"),
)
"""Every pass waits for the whole path that a request wants: draft, then verify."""

SPARE_SESSIONS = 8
TOKENS_A_SESSION = 1024
PASS_TOKENS = 65536


def start(services: Services, settings: Settings, drifts: dict[float, float]) -> None:
    """A verifier, the drafts of each acceptance, an orchestrator for each way to ask them."""
    costs, room = settings.costs, room_for(max(settings.clients))
    target = model(LAW, costs.target_step_ms, costs.target_row_ms)
    services.start(VERIFY, "verify_service", "--model", target, *room)
    for acceptance, drift in drifts.items():
        at_once = [load.drafts for load in settings.loads() if load.acceptance == acceptance]
        for number in range(1, max(at_once) + 1):
            spec = model(replace(LAW, drift=drift, drift_seed=number), costs.draft_step_ms)
            name = draft_name(acceptance, number)
            services.start(name, "draft_service", "--model", spec, *room)
    for load in (settings.base, *settings.loads()):
        name = orchestrator_of(load, settings)
        if name not in services:
            services.orchestrator(
                name,
                services.address(VERIFY),
                {draft: services.behind(draft, load.rtt_ms) for draft in drafts_of(load)},
                SYNCHRONOUS_FLAGS if load.mode == SYNCHRONOUS else (),
            )


def room_for(clients: int) -> tuple[str, ...]:
    """Flags of a service that so many clients at once do not fill."""
    sessions = clients + SPARE_SESSIONS
    return (
        *("--max-sessions", str(sessions), "--kv-tokens", str(TOKENS_A_SESSION * sessions)),
        *("--max-pass-tokens", str(PASS_TOKENS)),
    )


def orchestrator_of(load: Load, settings: Settings) -> str:
    """The name of the one that answers a configuration; the base's answers for the target alone."""
    if load.mode == ALONE:
        load = settings.base
    kind = "-synchronous" if load.mode == SYNCHRONOUS else ""
    return f"orchestrator-{load.acceptance:g}-{load.rtt_ms:g}-{load.drafts}{kind}"


def drafts_of(load: Load) -> list[str]:
    """The drafts behind the orchestrator of a configuration."""
    return [draft_name(load.acceptance, number) for number in range(1, load.drafts + 1)]


def draft_name(acceptance: float, number: int) -> str:
    """A draft's name in all orchestrators."""
    return f"draft-{acceptance:g}-{number}"


def model(law: ScriptedLaw, step_ms: float, row_ms: float = 0.0) -> str:
    """The law as `--model` takes it."""
    return (
        f"scripted:vocab={law.vocab},seed={law.seed},order={law.order},"
        f"sharpness={law.sharpness:g},drift={law.drift:.6f},drift_seed={law.drift_seed},"
        f"step_ms={step_ms:g},row_ms={row_ms:g}"
    )
