"""How long the target stands idle between two passes. Pure: counts of answers in, figures out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.cli.bench_rows import percentile
from outrider.client import Stats


@dataclass(frozen=True, slots=True)
class Pass:
    """A target pass with all its sessions. For `gap_us` before it the target stood idle although a
    session of the pass was ready.
    """

    gap_us: int
    forward_us: int
    rows: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The idle time before passes, and its sum against that of the passes."""

    p50_ms: float
    p95_ms: float
    share: float


def passes_of(stats: Iterable[Stats], skipped: int = 0) -> frozenset[Pass]:
    """The passes that answers of one measurement came from, each counted once however many sessions
    it had; the first `skipped` of each answer are left out.

    The services give passes no number that users see: those whose rows and times are equal to the
    microsecond are taken for one.
    """
    return frozenset(
        Pass(*counts)
        for one in stats
        for counts in list(zip(one.gap_us, one.forward_us, one.batch_rows, strict=True))[skipped:]
    )


def gap_of(passes: Sequence[Pass]) -> Gap:
    """Percentiles and share over `passes`, at least one, which took some time.

    >>> gap_of([Pass(1000, 40_000, 8), Pass(3000, 60_000, 64)])
    Gap(p50_ms=2.0, p95_ms=2.9, share=0.04)
    """
    gaps_ms = [one.gap_us / 1000 for one in passes]
    idle_us, busy_us = sum(p.gap_us for p in passes), sum(p.forward_us for p in passes)
    return Gap(percentile(gaps_ms, 50), percentile(gaps_ms, 95), idle_us / busy_us)
