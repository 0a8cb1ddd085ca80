"""What a round costs besides the models: the scripted backend at zero step time, real services.

    python -m benchmarks.protocol [--quick] [--json FILE]

A draft that always agrees runs beside the verifier, and a pass starts once `depth` nodes wait. The
time from a verdict to the start of the next pass holds what is then still missing: the verdict's
way to the orchestrator, the commit's to the draft, the draft's steps (one call of the scripted
model and one proposal each), the chunks' way back. The draft may be up to twice `depth` ahead, so
a part of the nodes has often arrived before the verdict. With rejection a pass waits for the first
one only.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe
from orchestrator.cli.console import Progress
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.stack import Stack
from orchestrator.cli.stack_plan import StackPlan
from outrider import Client

DEPTHS = (1, 7)
MODES = (("greedy", 0.0, "coupled"), ("coupled", 1.0, "coupled"), ("rejection", 1.0, "rejection"))
SKIPPED_ROUNDS = 3
WAIT_FLAGS = ("--no-adaptive", "--max-wait-ms", "1000", "--proposal-top-k", "64")


@dataclass(frozen=True)
class Figure:
    """One configuration. Times in milliseconds, from a verdict to the start of the next pass."""

    mode: str
    depth: int
    rounds: int
    tokens_per_pass: float
    p50_ms: float
    p95_ms: float
    messages_per_round: float
    bytes_per_round: float


def main(arguments: Sequence[str]) -> int:
    """Measures, prints a table, writes the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protocol")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    rounds = 60 if options.quick else 400
    machine = describe()
    figures = [f for depth in DEPTHS for f in measure(depth, rounds)]
    sys.stdout.write(table(figures))
    if options.json is not None:
        result = {"machine": machine, "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(depth: int, rounds: int) -> list[Figure]:
    """All modes at one depth, over one set of services."""
    model = "scripted:vocab=64"
    flags = (
        *WAIT_FLAGS,
        *("--ray", "local", "--wait-nodes", str(depth)),
        *("--num-speculative-tokens", str(depth)),
    )
    plan = StackPlan(model, (model,), orchestrator=flags)
    with Interrupts() as interrupts, Stack(plan, interrupts) as stack:
        stack.start(Progress())
        with Client(stack.address) as client:
            client.get_cluster()
            return [
                measure_mode(client, name, temperature, mode, depth, rounds)
                for name, temperature, mode in MODES
            ]


def measure_mode(
    client: Client, name: str, temperature: float, mode: str, depth: int, rounds: int
) -> Figure:
    """Several answers of one mode, pooled."""
    tokens = min(rounds, 100) * (depth + 1)
    waits: list[float] = []
    messages = wire_bytes = passes = emitted = 0
    seed = 0
    while len(waits) < rounds:
        seed += 1
        answer = client.generate(
            "benchmark", max_tokens=tokens, temperature=temperature, mode=mode, seed=seed
        ).result()
        stats = answer.stats
        waits += [us / 1000 for us in stats.wait_us[SKIPPED_ROUNDS:]]
        messages += stats.messages
        wire_bytes += stats.wire_bytes
        passes += stats.target_passes
        emitted += stats.emitted_tokens
    return Figure(
        mode=name,
        depth=depth,
        rounds=len(waits),
        tokens_per_pass=round(emitted / passes, 2),
        p50_ms=round(statistics.median(waits), 2),
        p95_ms=round(statistics.quantiles(waits, n=20)[-1], 2),
        messages_per_round=round(messages / passes, 1),
        bytes_per_round=round(wire_bytes / passes),
    )


def table(figures: Sequence[Figure]) -> str:
    """Markdown, as the README shows it."""
    lines = [
        "| mode | depth | p50 ms | p95 ms | tokens per pass | messages | bytes |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {f.mode} | {f.depth} | {f.p50_ms:.2f} | {f.p95_ms:.2f} | {f.tokens_per_pass:.2f} "
            f"| {f.messages_per_round:.1f} | {f.bytes_per_round} |"
            for f in figures
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
