"""What a round costs besides the models: the scripted backend at zero step time.

A draft that always agrees runs beside the verifier, and a pass starts once `depth` nodes wait. The
time from a verdict to the start of the next pass holds what is then still missing: the verdict's
way to the orchestrator, the commit's to the draft, the draft's steps (one call of the scripted
model and one proposal each), the chunks' way back. The draft may be up to twice `depth` ahead, so
a part of the nodes has often arrived before the verdict. With rejection a pass waits for the first
one only.
"""

from dataclasses import dataclass

from benchmarks.protocol_services import Services
from orchestrator.cli.bench_rows import percentile
from orchestrator.cli.interrupts import Interrupts
from outrider import Client

DEPTHS = (1, 7)
MODES = (("greedy", 0.0, "coupled"), ("coupled", 1.0, "coupled"), ("rejection", 1.0, "rejection"))
SKIPPED_ROUNDS = 3
WAIT_FLAGS = (
    *("--no-adaptive", "--max-wait-ms", "1000"),
    *("--width", "1", "--proposal-top-k", "64"),
)
"""A path and no alternatives: as deep as a pass waits for."""
MODEL = "scripted:vocab=64"


@dataclass(frozen=True, slots=True)
class Round:
    """One configuration. Times in milliseconds, from a verdict to the start of the next pass."""

    mode: str
    depth: int
    rounds: int
    tokens_per_pass: float
    p50_ms: float
    p95_ms: float
    messages_per_round: float
    bytes_per_round: float


def measure(rounds: int) -> list[Round]:
    """All modes at all depths, over one pair of services."""
    with Interrupts() as interrupts, Services(interrupts) as services:
        services.start("verify", "verify_service", "--model", MODEL)
        services.start("draft", "draft_service", "--model", MODEL)
        verify, draft = services.address("verify"), services.address("draft")
        for depth in DEPTHS:
            flags = ("--wait-nodes", str(depth), "--num-speculative-tokens", str(depth))
            name = f"orchestrator-{depth}"
            services.orchestrator(name, verify, {"draft": draft}, (*WAIT_FLAGS, *flags))
        found: list[Round] = []
        for depth in DEPTHS:
            with Client(services.address(f"orchestrator-{depth}")) as client:
                client.get_cluster()
                found += [measure_mode(client, *mode, depth, rounds) for mode in MODES]
        return found


def measure_mode(
    client: Client, name: str, temperature: float, mode: str, depth: int, rounds: int
) -> Round:
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
    return Round(
        mode=name,
        depth=depth,
        rounds=len(waits),
        tokens_per_pass=round(emitted / passes, 2),
        p50_ms=round(percentile(waits, 50), 2),
        p95_ms=round(percentile(waits, 95), 2),
        messages_per_round=round(messages / passes, 1),
        bytes_per_round=round(wire_bytes / passes),
    )
