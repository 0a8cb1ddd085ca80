"""From what clients saw and services counted to the figures of the scale rig. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.protocol_gap import gap_of, passes_of
from benchmarks.protocol_ideal import Costs, ideal, run_ahead_ideal
from orchestrator.cli.bench_rows import mean, percentile, spread
from outrider.client import Stats
from outrider.errors import InvalidArgumentError

ALONE = "target_alone"
SYNCHRONOUS = "synchronous"
OUTRIDER = "outrider"
SKIPPED_ROUNDS = 2
"""At the start of an answer, where the pipeline fills."""


@dataclass(frozen=True, slots=True)
class Load:
    """One configuration: who asks, and of what. `drafts` stand behind the orchestrator that all
    ask, `acceptance` is the law's, `speculative_tokens` the longest path of a pass.
    """

    mode: str
    clients: int
    drafts: int
    rtt_ms: float
    acceptance: float
    speculative_tokens: int

    @property
    def alone(self) -> "Load":
        """The target alone for as many clients, who have no draft to be far from."""
        return Load(ALONE, self.clients, 0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One configuration once: the times of each client's tokens (one clock, seconds), its counts,
    and processor seconds used a second by each kind of process.
    """

    load: Load
    token_s: tuple[tuple[float, ...], ...]
    stats: tuple[Stats, ...]
    cpu_cores: dict[str, float]

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all clients per second while all of them were being answered."""
        begin, end = window(self.token_s)
        count = sum(1 for times in self.token_s for time in times if begin < time <= end)
        return count / (end - begin)


@dataclass(frozen=True, slots=True)
class Figure:
    """One configuration over its repetitions.

    The bounds are those of `protocol_ideal`: drafts that are never late, and drafts that begin
    again after a miss. `overhead` is the time from a verdict to the start of the session's next
    pass: what a round costs besides the target's forward pass, waiting for drafts and for the pass
    of others included. `queue_ms` is the mean part of it in which the session was ready and the
    model busy; `accept_ms` and `reconcile_ms` are the verifier's and the orchestrator's own work a
    round. `gap` is the time in which the target stood idle before a pass although a session of it
    was ready, over all passes, and `gap_share` its sum against that of the passes' own times.
    `cpu_cores` says how many cores each kind of process kept busy.
    `memory_bytes_per_session` adds up the services that take part.
    """

    mode: str
    clients: int
    drafts: int
    rtt_ms: float
    acceptance: float
    speculative_tokens: int
    repetitions: int
    tokens_per_s: float
    tokens_per_s_spread: float
    ratio_to_target_alone: float
    bound_tokens_per_s: float
    ratio_to_bound: float
    run_ahead_bound_tokens_per_s: float
    ratio_to_run_ahead_bound: float
    acceptance_length: float
    overhead_p50_ms: float
    overhead_p95_ms: float
    queue_ms: float
    accept_ms: float
    reconcile_ms: float
    forward_p50_ms: float
    gap_p50_ms: float
    gap_p95_ms: float
    gap_share: float
    messages_per_round: float
    bytes_per_round: float
    memory_bytes_per_session: int
    cpu_cores: dict[str, float]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of a service before and with so many sessions open."""

    service: str
    sessions: int
    tokens_per_session: int
    before_bytes: int
    with_sessions_bytes: int

    @property
    def bytes_per_session(self) -> int:
        """Growth a session."""
        return (self.with_sessions_bytes - self.before_bytes) // self.sessions


def window(token_s: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The time in which all clients were being answered: from the last first token to the first
    last one. Raises InvalidArgumentError where there is none.

    >>> window([[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]])
    (0.5, 2.0)
    """
    begin = max(times[0] for times in token_s)
    end = min(times[-1] for times in token_s)
    if begin >= end:
        raise InvalidArgumentError(
            f"the answers of {len(token_s)} clients do not overlap; ask for more --tokens"
        )
    return begin, end


def figures(
    samples: Sequence[Sample], costs: Costs, most_nodes: int, memory: Sequence[Memory]
) -> list[Figure]:
    """A figure for each configuration, in the order in which they were first measured."""
    by_load: dict[Load, list[Sample]] = {}
    for sample in samples:
        by_load.setdefault(sample.load, []).append(sample)
    return [
        figure(load, own, by_load[load.alone], costs, most_nodes, memory)
        for load, own in by_load.items()
    ]


def figure(
    load: Load,
    own: Sequence[Sample],
    alone: Sequence[Sample],
    costs: Costs,
    most_nodes: int,
    memory: Sequence[Memory],
) -> Figure:
    """All repetitions of one configuration, each set against the target alone in the same one."""
    speeds = [sample.tokens_per_s for sample in own]
    stats = [one for sample in own for one in sample.stats]
    passes = sum(one.target_passes for one in stats)
    waits = [us / 1000 for one in stats for us in one.wait_us[SKIPPED_ROUNDS:]]
    forwards = [us / 1000 for one in stats for us in one.forward_us[SKIPPED_ROUNDS:]]
    gap = gap_of([one for sample in own for one in passes_of(sample.stats, SKIPPED_ROUNDS)])
    point = (costs, load.acceptance, load.clients, load.drafts, most_nodes)
    bound, run_ahead_bound = ideal(*point).tokens_per_s, run_ahead_ideal(*point)
    names = sorted({name for sample in own for name in sample.cpu_cores})
    return Figure(
        mode=load.mode,
        clients=load.clients,
        drafts=load.drafts,
        rtt_ms=load.rtt_ms,
        acceptance=load.acceptance,
        speculative_tokens=load.speculative_tokens,
        repetitions=len(own),
        tokens_per_s=round(mean(speeds), 1),
        tokens_per_s_spread=round(spread(speeds), 1),
        ratio_to_target_alone=round(
            mean([a.tokens_per_s / b.tokens_per_s for a, b in zip(own, alone, strict=True)]), 3
        ),
        bound_tokens_per_s=round(bound, 1),
        ratio_to_bound=round(mean(speeds) / bound, 3),
        run_ahead_bound_tokens_per_s=round(run_ahead_bound, 1),
        ratio_to_run_ahead_bound=round(mean(speeds) / run_ahead_bound, 3),
        acceptance_length=round(sum(one.emitted_tokens for one in stats) / passes, 3),
        overhead_p50_ms=round(percentile(waits, 50), 2),
        overhead_p95_ms=round(percentile(waits, 95), 2),
        queue_ms=round(sum(one.queue_us for one in stats) / passes / 1000, 2),
        accept_ms=round(sum(one.accept_us for one in stats) / passes / 1000, 3),
        reconcile_ms=round(sum(one.reconcile_us for one in stats) / passes / 1000, 3),
        forward_p50_ms=round(percentile(forwards, 50), 1),
        gap_p50_ms=round(gap.p50_ms, 3),
        gap_p95_ms=round(gap.p95_ms, 3),
        gap_share=round(gap.share, 4),
        messages_per_round=round(sum(one.messages for one in stats) / passes, 1),
        bytes_per_round=round(sum(one.wire_bytes for one in stats) / passes),
        memory_bytes_per_session=sum(
            m.bytes_per_session * (load.drafts if m.service == "draft" else 1) for m in memory
        ),
        cpu_cores={
            name: round(mean([sample.cpu_cores.get(name, 0.0) for sample in own]), 2)
            for name in names
        },
    )


def kind_of(name: str) -> str:
    """The kind of process that a name like `draft-3` stands for.

    >>> kind_of("draft-3"), kind_of("proxy of draft-1 at 20 ms"), kind_of("orchestrator-20-sync")
    ('draft', 'proxy', 'orchestrator')
    """
    return name.partition("-")[0].partition(" ")[0]
