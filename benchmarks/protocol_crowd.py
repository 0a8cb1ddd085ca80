"""The services and requests behind `protocol_capacity`: a target and a draft that share a device,
and the same two apart.
"""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.protocol_capacity import COLOCATED, OFFLOADED, Crowd, Turn
from benchmarks.protocol_deployment import LAW, SYNCHRONOUS_FLAGS, model, room_for
from benchmarks.protocol_figures import OUTRIDER, SKIPPED_ROUNDS, SYNCHRONOUS, Load
from benchmarks.protocol_gap import passes_of
from benchmarks.protocol_load import sample
from benchmarks.protocol_services import Services
from orchestrator.cli.bench_plan import rounds
from orchestrator.cli.bench_rows import mean
from orchestrator.cli.console import say
from orchestrator.cli.interrupts import Interrupts


def measure(
    crowd: Crowd, acceptance: float, drift: float, tokens: int, repetitions: int
) -> list[Turn]:
    """All places and numbers of clients, all repetitions, in turns."""
    with (
        Interrupts() as interrupts,
        tempfile.TemporaryDirectory() as folder,
        Services(interrupts) as services,
    ):
        say("starting the services that show how many clients a target serves")
        _start(services, crowd, drift, Path(folder) / "device")
        return asyncio.run(_measure(services, crowd, acceptance, tokens, repetitions))


def _start(services: Services, crowd: Crowd, drift: float, device: Path) -> None:
    """Where they share a device a round is draft, then verify: nothing could run ahead."""
    costs, most = crowd.costs, max(crowd.more(clients) for clients in crowd.clients)
    draft = model(replace(LAW, drift=drift, drift_seed=1), costs.draft_step_ms)
    target = model(LAW, costs.target_step_ms, costs.target_row_ms)
    for place, shared in ((COLOCATED, f",device={device}"), (OFFLOADED, "")):
        for name, spec in (("verify", target), ("draft", draft)):
            room = room_for(most)
            services.start(_name(name, place), f"{name}_service", "--model", spec + shared, *room)
    for place, flags in ((COLOCATED, SYNCHRONOUS_FLAGS), (OFFLOADED, ())):
        services.orchestrator(
            _name("orchestrator", place),
            services.address(_name("verify", place)),
            {"draft": services.address(_name("draft", place))},
            ("--max-requests", str(most), *flags),
        )


async def _measure(
    services: Services, crowd: Crowd, acceptance: float, tokens: int, repetitions: int
) -> list[Turn]:
    points = [
        point
        for clients in crowd.clients
        for point in (
            (COLOCATED, clients),
            (OFFLOADED, clients),
            (OFFLOADED, crowd.more(clients)),
        )
    ]
    turns: list[Turn] = []
    for repetition, (place, clients) in rounds(tuple(dict.fromkeys(points)), repetitions):
        mode = SYNCHRONOUS if place == COLOCATED else OUTRIDER
        load = Load(mode, clients, 1, 0.0, acceptance, crowd.nodes)
        address = services.address(_name("orchestrator", place))
        seen = await sample(services, address, load, tokens, 1000 * (1 + repetition))
        passes = sum(one.target_passes for one in seen.stats)
        turns.append(
            Turn(
                place,
                clients,
                seen.tokens_per_s,
                sum(one.emitted_tokens for one in seen.stats) / passes,
                mean([one.rows for one in passes_of(seen.stats, SKIPPED_ROUNDS)]),
            )
        )
        say(f"draft {place}, clients {clients}: {turns[-1].tokens_per_s:.0f} tokens/s")
    return turns


def _name(service: str, place: str) -> str:
    return f"{service}-{place}"
