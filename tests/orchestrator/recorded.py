"""What a real pair said, replayed: SmolLM2 135M in Q4_1 for its deepened copy, on the costs of two
CPU cores.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from draft_service.chances import Chances
from orchestrator.planner import Limits
from orchestrator.simulation import PassCosts, Situation, run
from orchestrator.texts import Guess, Recorded
from outrider.types import SamplingParams

TRACES = Path(__file__).parent / "traces" / "home_lab.json"

DEFAULTS = Limits(num_speculative_tokens=16, width=3, proposal_top_k=64)
"""As requests are drafted for that do not say otherwise."""

NEAR = Situation(
    costs=PassCosts(
        (1, 2, 3, 4, 5, 6, 7, 8, 16),
        (178e3, 205e3, 215e3, 225e3, 235e3, 255e3, 272e3, 285e3, 400e3),
    ),
    acceptance=(0.8,),  # the texts are recorded: nobody asks
    draft_step_us=27e3,
    draft_row_us=13e3,
    draft_wire_us=200,
    verify_wire_us=300,
    pass_overhead_us=1500,
    limits=DEFAULTS,
)
FAR = replace(NEAR, draft_wire_us=100e3)


def texts(temperature: float) -> list[Recorded]:
    """The recorded answers at this temperature (0: greedy, 1: coupled)."""
    entries = json.loads(TRACES.read_text(encoding="utf-8"))["texts"]
    return [_text(e) for e in entries if e["temperature"] == temperature]


def _text(entry: dict[str, object]) -> Recorded:
    positions, temperature = entry["positions"], entry["temperature"]
    if not isinstance(positions, list) or not isinstance(temperature, float):
        raise TypeError(f"{TRACES} has an entry that is no text")
    guesses = [
        Guess(_first_guesses(evidence, temperature), tuple(evidence), rank)
        for *evidence, rank in positions
    ]
    return Recorded(SamplingParams(temperature=temperature), guesses)


def _first_guesses(evidence: Sequence[float], temperature: float) -> tuple[float, ...]:
    """What outrider.sampling.proposing makes of the evidence before it has learned anything."""
    if temperature == 0:
        return tuple(q * (2 - q) if rank == 0 else q for rank, q in enumerate(evidence))
    weights = [math.exp(-1.8 * lag) for lag in (0.0, *evidence[1:])]
    return tuple(weight / sum(weights) for weight in weights)


def gain(met: Situation, answers: Sequence[Recorded], tokens: int = 128) -> float:
    """Times as fast as the target alone, over all answers, one after the other by one draft."""
    learned = Chances()
    runs = [run(met, tokens, 1, answer, learned) for answer in answers]
    emitted, us = sum(r.tokens for r in runs), sum(r.us for r in runs)
    return emitted / us * met.token_alone_us


def limited(met: Situation, **changes: object) -> Situation:
    """The same with other limits."""
    return replace(met, limits=replace(met.limits, **changes))
