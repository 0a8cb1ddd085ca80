"""How the figures of the scale rig are shown as text: tables and page. Pure: JSON in, text out.

Knows what each figure does not show, and says so next to it.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import goals
from benchmarks.machine import LINE, provenance
from benchmarks.protocol_capacity import Capacity
from benchmarks.protocol_figures import ALONE, OUTRIDER, SYNCHRONOUS, Figure, Memory
from benchmarks.protocol_rounds import Round
from benchmarks.protocol_settings import FULL, QUICK

NAMES = {ALONE: "target alone", SYNCHRONOUS: "draft, then verify", OUTRIDER: "Outrider"}
COMMAND = "python -m benchmarks.protocol"
QUICK_COMMAND = f"{COMMAND} --quick --json docs/benchmarks/protocol.json"
SHOWN_CLIENTS = 3
"""The README shows figures of at most so many numbers of clients."""

Result = Mapping[str, Any]


def figures_of(result: Result) -> list[Figure]:
    """The throughput figures of a JSON."""
    return [Figure(**figure) for figure in result["figures"]]


def rounds_of(result: Result) -> list[Round]:
    """The rounds at zero step time of a JSON."""
    return [Round(**one) for one in result["rounds"]]


def capacities_of(result: Result) -> list[Capacity]:
    """How many clients are served, of a JSON."""
    return [Capacity(**one) for one in result["capacity"]]


def memory_of(result: Result) -> list[Memory]:
    """The memory figures of a JSON."""
    derived = "bytes_per_session"
    return [Memory(**{k: v for k, v in m.items() if k != derived}) for m in result["memory"]]


def throughput_table(figures: Sequence[Figure]) -> str:
    """Tokens a second, against the target alone and the bound."""
    return _table(
        (
            *("mode", "clients", "drafts", "round trip ms", "acceptance", "tokens/s"),
            *("against target alone", "of the bound", "of the run-ahead bound"),
            "tokens per pass",
        ),
        [
            (
                NAMES[f.mode],
                f"{f.clients}",
                f"{f.drafts}",
                "" if f.mode == ALONE else f"{f.rtt_ms:g}",
                "" if f.mode == ALONE else f"{f.acceptance:g}",
                speed(f),
                f"{f.ratio_to_target_alone:.2f}",
                f"{f.ratio_to_bound:.0%}",
                f"{f.ratio_to_run_ahead_bound:.0%}",
                f"{f.acceptance_length:.2f}",
            )
            for f in figures
        ],
    )


def _spread(result: Mapping[str, Any]) -> str:
    count = result["settings"]["repetitions"]
    if count < 2:
        return "Each configuration was measured once, so nothing is known of the spread."
    return f"`±` is the standard deviation over {count} repetitions."


def command(result: Mapping[str, Any]) -> str:
    """What measured it; a quick run asks fewer clients than any other."""
    settings = result["settings"]
    is_quick = list(settings["clients"]) == list(QUICK.clients)
    base = QUICK if is_quick else FULL
    told = QUICK_COMMAND if is_quick else COMMAND
    for name in ("clients", "drafts", "rtt_ms", "acceptance"):
        if list(settings[name]) != list(getattr(base, name)):
            told += f" --{name.replace('_', '-')} {','.join(f'{x:g}' for x in settings[name])}"
    for name in ("tokens", "repetitions", "num_speculative_tokens"):
        if settings[name] != getattr(base, name):
            told += f" --{name.replace('_', '-')} {settings[name]}"
    for name, value in asdict(base.costs).items():
        if settings["costs"][name] != value:
            told += f" --{name.replace('_', '-')} {settings['costs'][name]:g}"
    return told


def speed(figure: Figure) -> str:
    """Tokens a second, with the spread where there is one."""
    told = f"{figure.tokens_per_s:.0f}"
    return told if figure.repetitions < 2 else f"{told} ± {figure.tokens_per_s_spread:.0f}"


def round_table(figures: Sequence[Figure]) -> str:
    """What a round of these figures costs besides the target's pass, and which process works."""
    kinds = sorted({kind for f in figures for kind in f.cpu_cores})
    return _table(
        (
            *("mode", "clients", "drafts", "round trip ms", "acceptance", "pass ms"),
            *("gap p50 ms", "gap p95 ms", "gap of pass"),
            *("overhead p50 ms", "p95 ms", "queue ms", "accept ms", "reconcile ms"),
            *("messages", "bytes", *(f"{kind} cores" for kind in kinds)),
        ),
        [
            (
                *(NAMES[f.mode], f"{f.clients}", f"{f.drafts}", f"{f.rtt_ms:g}"),
                *(f"{f.acceptance:g}", f"{f.forward_p50_ms:.1f}"),
                *(f"{f.gap_p50_ms:.2f}", f"{f.gap_p95_ms:.2f}", f"{f.gap_share:.1%}"),
                *(f"{f.overhead_p50_ms:.2f}", f"{f.overhead_p95_ms:.2f}", f"{f.queue_ms:.2f}"),
                *(f"{f.accept_ms:.2f}", f"{f.reconcile_ms:.2f}"),
                *(f"{f.messages_per_round:.1f}", f"{f.bytes_per_round:.0f}"),
                *(f"{f.cpu_cores.get(kind, 0.0):.2f}" for kind in kinds),
            )
            for f in figures
        ],
    )


def capacity_table(capacities: Sequence[Capacity]) -> str:
    """Clients that are served as fast with the draft elsewhere."""
    return _table(
        (
            *("clients", "co-located tokens/s", "its bound", "offloaded tokens/s"),
            *("more clients", "offloaded tokens/s for them", "served as fast", "ratio", "theory"),
            *("of the theory", "against the bound", "tokens per pass", "rows of a pass"),
        ),
        [
            (
                *(f"{c.clients}", f"{c.colocated_tokens_per_s:.0f}"),
                f"{c.colocated_bound_tokens_per_s:.0f}",
                *(f"{c.offloaded_tokens_per_s:.0f}", f"{c.more_clients}"),
                *(f"{c.offloaded_more_tokens_per_s:.0f}", f"{c.clients_served:.1f}"),
                *(f"{c.ratio:.2f}", f"{c.theory:.2f}", f"{c.share_of_theory:.0%}"),
                f"{c.share_against_bound:.0%}",
                f"{c.colocated_tokens_per_pass:.2f}, {c.offloaded_tokens_per_pass:.2f}",
                f"{c.colocated_rows_per_pass:.0f}, {c.offloaded_rows_per_pass:.0f}",
            )
            for c in capacities
        ],
    )


def zero_table(rounds: Sequence[Round]) -> str:
    """Rounds at zero step time."""
    return _table(
        ("mode", "depth", "p50 ms", "p95 ms", "tokens per pass", "messages", "bytes"),
        [
            (
                *(r.mode, f"{r.depth}", f"{r.p50_ms:.2f}", f"{r.p95_ms:.2f}"),
                *(f"{r.tokens_per_pass:.2f}", f"{r.messages_per_round:.1f}"),
                f"{r.bytes_per_round:.0f}",
            )
            for r in rounds
        ],
    )


def memory_table(memory: Sequence[Memory]) -> str:
    """Resident memory of each service."""
    return _table(
        ("service", "sessions", "before MiB", "with sessions MiB", "KiB a session"),
        [
            (
                *(m.service, f"{m.sessions}", f"{m.before_bytes / 2**20:.0f}"),
                *(f"{m.with_sessions_bytes / 2**20:.0f}", f"{m.bytes_per_session / 2**10:.0f}"),
            )
            for m in memory
        ],
    )


def tables(result: Result) -> str:
    """All tables, for the terminal."""
    found = figures_of(result)
    every = (
        throughput_table(found),
        round_table(found),
        capacity_table(capacities_of(result)),
        zero_table(rounds_of(result)),
        memory_table(memory_of(result)),
    )
    return "\n".join(every)


def readme(result: Result) -> str:
    """What the README shows: the base point, and rounds at zero step time."""
    found = figures_of(result)
    clients = spread_out(sorted({f.clients for f in found}), SHOWN_CLIENTS)
    base = result["settings"]["acceptance"][0]
    shown = [
        f for f in found if f.clients in clients and f.drafts <= 1 and f.acceptance in (0.0, base)
    ]
    return f"""{provenance(result["machine"], command(result))}

{throughput_table(shown)}
![throughput over concurrent clients](docs/benchmarks/protocol.png)

{_about_bounds(result)}
[docs/benchmarks/protocol.md](docs/benchmarks/protocol.md) has several drafts, where the time goes,
and memory a session.

From a verdict to the start of the next target pass, with models that take no time, a draft that
always agrees, and passes that wait until `depth` nodes are there:

{zero_table(rounds_of(result))}
The time holds what is still missing when a verdict falls: the verdict's way to the orchestrator,
the commit's to the draft, the draft's steps, the chunks' way back. The draft may be up to twice
the depth ahead, so part of the nodes has often arrived before. It shows neither a real network
nor real models. With `rejection` a pass waits for the first candidate only, so that its start
never depends on a sampled token; at zero step time that costs depth, hence the fewer tokens per
pass.
"""


def _about_bounds(result: Result) -> str:
    about = (
        f"{models(result)} The bound is that of a perfect scheduler with free communication and "
        "drafts that are never late; the run-ahead bound lets a draft of this speed begin again "
        "after each miss. All processes share the machine's cores, so at many clients the figures "
        "show the cores as much as the protocol. They show no real network and no real models."
    )
    return textwrap.fill(about, LINE, break_on_hyphens=False)


def page(result: Result) -> str:
    """The whole page of the rig."""
    found = figures_of(result)
    return f"""# The scale rig

{provenance(result["machine"], command(result))}
Verifier, drafts, orchestrators, delay proxies and clients are processes of this one machine, with
gRPC between them; the clients are one process.

{textwrap.fill(models(result), LINE)}

## Throughput

![throughput over concurrent clients](protocol.png)

Every client asks for one answer, all at once; tokens are counted while all of them are being
answered, so neither the start nor the end of an answer counts. {_spread(result)}
*Draft, then verify* is the classic round: the draft makes a fixed number of tokens (the best for
these step times, this round trip and so many clients) and waits for the verdict.
*Acceptance* is the probability that a drafted token is the target's, by the laws of both models.
*Tokens per pass* counts the target's own token. *The bound* is what a perfect scheduler would get
if messages and the services' own work took no time: every pass has all sessions and follows the
last one at once, drafts are never late, the length of the path is the best one, and of several
drafts of a session the right one is known beforehand. *The run-ahead bound* lets the drafts take
their step time and begin again after a miss, and only communication is free. Both are about paths
of the drafts' first choices: alternatives may bring more (`benchmarks/protocol_ideal.py`).
*Drafts* stand behind the orchestrator; a session has as many of them as there are for each, and at
least one, so with fewer drafts than clients a session has one, which it shares.

{throughput_table(found)}
What it does not show: real models, whose rows cost differently and whose drafts take cores or a
GPU; a real network, with jitter and loss; prompts of any length; clients that come and go. The
drafts' round trip is delayed, the verifier's is not: it stands beside the orchestrator. All
processes share {result["machine"]["cores"]} cores: where the cores in the next table add up to as
many, the machine is what limits. Independent drafts err together where the target itself is
undecided, so with several drafts the bound is loose.

## Where the time of a round goes

*Gap* is the time before a pass in which the target stood idle although a session of the pass was
ready; *gap of pass* is its sum over that of the passes' own times, each pass counted once.
*Overhead* is the time from a verdict to the start of the session's next pass: everything but the
target's pass, waiting for drafted tokens and for the pass of other sessions included. *Queue* is
the part in which the session was ready and the model busy with others (mean). *Accept* and
*reconcile* are the verifier's and the orchestrator's own work for one session (mean); the verifier
decides the sessions of a pass together, and *accept* is one session's share of that, so with n of
them a pass is followed by n times as much. *Cores* are processor seconds a second of all processes
of a kind, over the whole measurement.

{round_table(found)}
What it does not show: which part of the overhead is the network's, the draft's or Python's; under
load each of them waits for the cores, too.

## What it was to show

{goals.table(goals.scale(found, rounds_of(result), capacities_of(result)))}
Where clients are many, what falls short goes to the cores: the table above has what each kind of
process takes of the {result["machine"]["cores"]} that there are, and the *gap* in which the target
waits for its own service. A round under rejection is decided session by session, the others'
together. What it does not show: how near a machine with a core for each process would come.

More drafts for one client: at commit d7bfdf3 one, two and four drafts brought 4.1, 4.3 and 4.4
tokens a pass (`--clients 1 --drafts 1,2,4 --target-step-ms 160 --target-row-ms 0.8
--draft-step-ms 16 --tokens 512`), where simulated trees bring 3.8, 4.4 and 4.8. A node that several
drafts name has the highest of their chances, which is too high by then: where four say 0.75 it was
right in 53% of the places. A logarithmic pool of what they say, its weights learned from committed
tokens, brought 4 to 5% more in the simulation; it is not built.

## Clients that a target serves

{capacity_table(capacities_of(result))}
{textwrap.fill(_about_capacity(result), LINE, break_on_hyphens=False)}

## A round at zero step time

{zero_table(rounds_of(result))}
From a verdict to the start of the next pass, one client, a draft that always agrees, passes that
wait for `depth` nodes. What it does not show: a real network, real models, other sessions. With
`rejection` a pass waits for the first candidate only, hence the fewer tokens per pass.

## Memory a session

{memory_table(memory_of(result))}
Resident memory of each service process with one session gone before, and with so many open, each
with at least {memory_of(result)[0].tokens_per_session} tokens of answer. What it does not show:
KV cache of real models, which is set aside when a service starts (`--kv-tokens`); long texts;
grammars; what fragments over days. A process that has freed memory keeps it, so a second wave of
sessions needs less.
"""


def _about_capacity(result: Result) -> str:
    crowd = result["settings"]["crowd"]
    costs = crowd["costs"]
    return (
        f"A target pass takes {costs['target_step_ms']:g} ms and {costs['target_row_ms']:g} ms a "
        f"token, a draft pass {costs['draft_step_ms']:g} ms, and a pass has at most "
        f"{crowd['nodes']} drafted tokens of a session. Co-located, both compute on one device "
        "that has one pass at a time, so a round is draft, then verify; offloaded, one draft "
        "computes elsewhere and runs ahead. The theory is 1 + gamma t_d / t_v, with t_v the pass "
        "of all co-located clients with gamma drafted tokens each. *Served as fast* is the number "
        "of clients of which each gets as many tokens a second as one of the co-located; it lies "
        "between the two numbers measured, on a straight line of the time for a token, and is at "
        "most the larger. Co-located sessions that do not keep step have smaller and more passes: "
        "*its bound* is that of one device whose drafting and passes always have all of them, and "
        "*against the bound* what more clients get offloaded over theory times that. The last two "
        "columns have co-located, then offloaded with more clients. "
        "What it does not show: real accelerators, where two models on one device also take its "
        "memory, or run at once more slowly; and the machine's cores, which all processes share."
    )


def models(result: Result) -> str:
    """The scripted pair, in a sentence."""
    settings = result["settings"]
    costs = settings["costs"]
    return (
        f"Scripted models: a target pass takes {costs['target_step_ms']:g} ms and "
        f"{costs['target_row_ms']:g} ms more for each token it runs, a draft pass "
        f"{costs['draft_step_ms']:g} ms; at most {settings['num_speculative_tokens']} drafted "
        "tokens are verified in a pass of a session; temperature 1, rule `coupled`."
    )


def spread_out(values: Sequence[int], count: int) -> list[int]:
    """At most `count` of the values, the first and the last among them.

    >>> spread_out([1, 2, 4, 8, 16, 32, 64], 4), spread_out([1, 8], 4)
    ([1, 4, 16, 64], [1, 8])
    """
    if len(values) <= count:
        return list(values)
    step = (len(values) - 1) / (count - 1)
    return [values[round(i * step)] for i in range(count)]


def _table(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *cells]
    rule = f"|{'---|' * len(headers)}"
    return "\n".join(rule if i == 1 else f"| {' | '.join(c)} |" for i, c in enumerate(lines)) + "\n"
