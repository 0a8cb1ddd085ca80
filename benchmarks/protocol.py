"""The scale rig: the scripted backend behind real services and real gRPC, on one machine.

    python -m benchmarks.protocol [--quick] [--json FILE]

Four things are measured, with models whose step times and acceptance are parameters:
- throughput of 1 to 64 concurrent clients, over drafts, round-trip times and acceptances, against
  the target alone and against what a perfect scheduler would get (protocol_ideal);
- how many clients a target serves with the draft elsewhere, against a draft on its own device
  (protocol_capacity);
- what a round costs besides the models, at zero step time (protocol_rounds);
- memory a session in each service.

Models sleep for their step time, so they take no cores from each other; what Python and gRPC take
is real, and `cpu_cores` shows it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks import protocol_crowd, protocol_report, protocol_rounds, report
from benchmarks.machine import describe
from benchmarks.protocol_capacity import Turn, capacities
from benchmarks.protocol_deployment import LAW, VERIFY, draft_name, orchestrator_of, start
from benchmarks.protocol_figures import Memory, Sample, figures
from benchmarks.protocol_ideal import drift_for
from benchmarks.protocol_load import memory, sample
from benchmarks.protocol_services import Services
from benchmarks.protocol_settings import Settings, read
from orchestrator.cli.bench_plan import rounds
from orchestrator.cli.console import say
from orchestrator.cli.interrupts import Interrupts
from outrider.errors import InvalidArgumentError, OutriderError


def main(arguments: Sequence[str]) -> int:
    """Measures, prints the tables, writes the JSON and draws what is shown of it."""
    # gRPC's own lines about connections that end; what they mean is told as an error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        settings, path = read(arguments)
        result = run(settings)
    except OutriderError as error:
        sys.stderr.write(f"python -m benchmarks.protocol: {error.message}\n")
        return 2 if isinstance(error, InvalidArgumentError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("python -m benchmarks.protocol: stopped; no process is left\n")
        return 130
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(protocol_report.tables(result))
    return report.redraw("protocol", path)


def run(settings: Settings) -> dict[str, object]:
    """The whole rig, as plain values."""
    machine = describe()
    drifts = {wanted: drift_for(wanted, LAW) for wanted in settings.acceptance}
    say("measuring what a round costs besides the models")
    each_round = protocol_rounds.measure(settings.rounds)
    with Interrupts() as interrupts, Services(interrupts) as services:
        say("starting the services of the scale rig")
        start(services, settings, drifts)
        say(f"measuring memory with {settings.base.clients} sessions")
        grown = asyncio.run(measure_memory(services, settings))
        samples = asyncio.run(measure_loads(services, settings))
    base = settings.base.acceptance
    turns = protocol_crowd.measure(
        settings.crowd, base, drifts[base], settings.tokens, settings.repetitions
    )
    return as_result(machine, settings, drifts, each_round, grown, samples, turns)


async def measure_memory(services: Services, settings: Settings) -> list[Memory]:
    """Before anything else has made the services grow."""
    orchestrator = orchestrator_of(settings.base, settings)
    kinds = {
        VERIFY: "verify",
        draft_name(settings.base.acceptance, 1): "draft",
        orchestrator: "orchestrator",
    }
    return await memory(services, services.address(orchestrator), settings.base, kinds)


async def measure_loads(services: Services, settings: Settings) -> list[Sample]:
    """All configurations, all repetitions, in turns."""
    loads = settings.loads()
    samples: list[Sample] = []
    for repetition, load in rounds(loads, settings.repetitions):
        address = services.address(orchestrator_of(load, settings))
        # The seeds of a repetition are the same in every configuration, so the texts are, too.
        seed = 1000 * (1 + repetition)
        samples.append(await sample(services, address, load, settings.tokens_of(load), seed))
        say(
            f"{len(samples)} of {len(loads) * settings.repetitions}: {load.mode}, clients "
            f"{load.clients}, drafts {load.drafts}, round trip {load.rtt_ms:g} ms, acceptance "
            f"{load.acceptance:g}: {samples[-1].tokens_per_s:.0f} tokens/s"
        )
    return samples


def as_result(
    machine: Mapping[str, object],
    settings: Settings,
    drifts: Mapping[float, float],
    each_round: Sequence[protocol_rounds.Round],
    grown: Sequence[Memory],
    samples: Sequence[Sample],
    turns: Sequence[Turn],
) -> dict[str, object]:
    """What goes into the JSON."""
    base = settings.base.acceptance
    found = figures(samples, settings.costs, settings.num_speculative_tokens, grown)
    return {
        "machine": dict(machine),
        "settings": {
            **asdict(settings),
            "law": asdict(LAW),
            "drift": {f"{wanted:g}": round(drift, 5) for wanted, drift in drifts.items()},
        },
        "figures": [asdict(figure) for figure in found],
        "capacity": [asdict(one) for one in capacities(turns, settings.crowd, base)],
        "rounds": [asdict(one) for one in each_round],
        "memory": [{**asdict(one), "bytes_per_session": one.bytes_per_session} for one in grown],
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
