"""Answers as the home-lab rig would have measured them, made by hand."""

from collections.abc import Sequence
from typing import Any

from benchmarks.homelab_answer import Answer, Phases, Round
from benchmarks.homelab_plan import ALONE, Configuration
from outrider.client import Stats, Token
from outrider.client.stats import DraftStats

NO_PHASES = Phases()
PASS_US = {1: 100_000, 3: 120_000, 5: 150_000}
"""Time of a pass by its rows."""


def passes(accepted: Sequence[int], nodes: int, wait_us: int = 1000) -> tuple[Round, ...]:
    """Passes over chains of `nodes`, with so many accepted in each."""
    rows = nodes + 1
    return tuple(Round(rows, count, PASS_US[rows], wait_us) for count in accepted)


def answer(
    mode: str = ALONE,
    *,
    prompt: int = 0,
    rtt_ms: float = 0.0,
    temperature: float = 0.0,
    ids: Sequence[int] = (1, 2, 3),
    every_ms: float = 100.0,
    first_ms: float = 200.0,
    rounds: Sequence[Round] = (),
    accepted_per_position: tuple[int, ...] = (),
    phases: Phases = NO_PHASES,
    wire_bytes: int = 0,
) -> Answer:
    """One token every `every_ms`."""
    accepted = sum(r.accepted for r in rounds)
    return Answer(
        prompt=prompt,
        configuration=Configuration(mode, rtt_ms, temperature),
        ids=tuple(ids),
        at_ms=tuple(first_ms + i * every_ms for i in range(len(ids))),
        passes=len(rounds) or len(ids),
        accepted_tokens=accepted,
        drafted_passes=sum(r.rows > 1 for r in rounds),
        accepted_per_position=accepted_per_position,
        rounds=tuple(rounds),
        phases=phases,
        wire_bytes=wire_bytes,
    )


def tokens(pattern: str) -> list[Token]:
    """`d` is a drafted token, `t` one of the target's own."""
    return [
        Token(id=10 + i, text="", draft="rider" if letter == "d" else "")
        for i, letter in enumerate(pattern)
    ]


def stats(**changed: Any) -> Stats:
    """Counts of an answer of four tokens in two passes."""
    values: dict[str, Any] = {
        "prompt_tokens": 5,
        "cached_tokens": 4,
        "emitted_tokens": 4,
        "target_passes": 2,
        "verified_tokens": 3,
        "accepted_tokens": 2,
        "drafts": (DraftStats("rider", 4, 2, False, 4, 8000, 2, 900),),
        "first_token_us": 1,
        "total_us": 2,
        "messages": 3,
        "wire_bytes": 700,
        "resumes": 0,
        "wait_us": (0, 1500),
        "pass_rows": (2, 4),
        "forward_us": (9000, 11000),
        "drafted_passes": 1,
        "accepted_per_position": (1, 1),
        "queue_us": 20,
        "accept_us": 300,
        "reconcile_us": 40,
    }
    return Stats(**{**values, **changed})
