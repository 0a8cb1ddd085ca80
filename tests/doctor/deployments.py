"""A deployment in which nothing is wrong, and answers as one of known speed would give them."""

import random
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.doctor.measurements import PassRecord, Probe
from orchestrator.guesses import Guesses
from orchestrator.planner import Limits
from outrider.client import DraftStats, Stats
from outrider.diagnosis import Diagnosis, DraftingLimits, ServiceDiagnosis
from outrider.host import HostFacts
from outrider.nodes import TreeNode
from outrider.types import ModelInfo

GB = 10**9
LIMITS = Limits(num_speculative_tokens=7, width=1, proposal_top_k=64)
HOST = HostFacts(
    system="Linux",
    cpu="a CPU",
    cores=8,
    memory_total_bytes=64 * GB,
    memory_available_bytes=30 * GB,
    kv_tokens=16384,
    threads=4,
    max_sessions=16,
    weights_bytes=4 * GB,
    kv_bytes_per_token=100_000,
)
TARGET = ModelInfo("org/Target", "hf", "hash-a", 32_000, 8192)
VERIFY = ServiceDiagnosis(
    "verify", "127.0.0.1:7071", "", HOST, TARGET, 400, 300_000_000, 300_000_000, 10
)
DRAFT = replace(
    VERIFY,
    name="laptop",
    address="127.0.0.1:7072",
    model=ModelInfo("org/Draft", "hf", "hash-a", 32_000, 8192),
)
HEALTHY = Diagnosis(HOST, VERIFY, (DRAFT,), DraftingLimits(7, 1, True, True))


def with_draft(**changes: object) -> Diagnosis:
    """The healthy deployment with something changed about its draft."""
    return replace(HEALTHY, drafts=(replace(DRAFT, **changes),))


def probe(
    kind: str = "story",
    *,
    has_drafts: bool = True,
    acceptance: float = 0.8,
    pass_us: int = 40_000,
    row_us: int = 200,
    pace_us: int = 4_000,
    wire_us: int = 1_000,
    cycle_us: int | None = None,
    passes: int = 40,
    temperature: float = 0.0,
) -> Probe:
    """An answer as a deployment of this speed would give it: every length from 1 row to 8 occurs.

    `cycle_us` is from pass to pass; None: a pass and 300 microseconds.
    """
    luck = random.Random(kind)
    records, accepted, guesses = [], [], []
    for number in range(passes):
        drafted = number % 8 if has_drafts else 0
        taken = next((n for n in range(drafted) if luck.random() >= acceptance), drafted)
        accepted.append(taken)
        guesses += [True] * taken + [False] * (drafted > taken)
        records.append(PassRecord(1 + drafted, pass_us + row_us * drafted))
    tokens = sum(accepted) + passes
    decode_us = sum(cycle_us or record.forward_us + 300 for record in records)
    drafts = ()
    if has_drafts:
        drafts = (
            DraftStats(
                name="laptop",
                drafted_tokens=200,
                accepted_tokens=tokens - passes,
                lost=False,
                steps=200,
                step_us=200 * pace_us,
                wire_rounds=passes,
                wire_us=passes * wire_us,
                paced_steps=(150,),
                paced_us=(150 * pace_us,),
            ),
        )
    stats = Stats(
        prompt_tokens=10,
        cached_tokens=0,
        emitted_tokens=tokens + 1,
        target_passes=passes + 1,
        verified_tokens=sum(record.rows - 1 for record in records),
        accepted_tokens=tokens - passes,
        drafts=drafts,
        first_token_us=50_000,
        total_us=50_000 + decode_us,
        messages=0,
        wire_bytes=0,
        resumes=0,
        wait_us=(),
        pass_rows=(),
        forward_us=(),
        drafted_passes=passes if has_drafts else 0,
        accepted_per_position=(),
        queue_us=0,
        accept_us=0,
        reconcile_us=0,
        **told(guesses),
    )
    return Probe(kind, temperature, has_drafts, stats, 1, tuple(records))


def told(guesses: Sequence[bool]) -> dict[str, tuple[int, ...]]:
    """What stats say of places where the first guess, always as sure, was right or was not."""
    counts = Guesses()
    for is_right in guesses:
        place = TreeNode(-1, 0)
        place.children[1] = TreeNode(1, 1, place, chance=0.75)
        counts.note(place, [1 if is_right else 2])
    return {
        "guess_outcomes": tuple(counts.outcomes),
        "guessed_places": tuple(counts.guessed),
        "found_places": tuple(counts.found),
    }


def pair(kind: str = "story", **speed: object) -> list[Probe]:
    """The same text with drafts and without."""
    alone = {name: speed[name] for name in ("pass_us", "row_us") if name in speed}
    return [probe(kind, **speed), probe(kind, has_drafts=False, **alone)]
