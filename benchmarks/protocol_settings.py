"""What the scale rig measures: its parameters and the configurations they make. Pure but for
reading the command line.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.protocol_capacity import Crowd
from benchmarks.protocol_figures import ALONE, OUTRIDER, SYNCHRONOUS, Load
from benchmarks.protocol_ideal import Costs, synchronous_nodes
from orchestrator.cli.bench_plan import numbers, whole_numbers
from outrider.errors import InvalidArgumentError

ALONE_SHARE = 2
"""The target alone takes at least this many times the passes for a token; its answers are
shorter."""

CROWDED = 128
"""Where more sessions of drafts than this are open, one answer takes a minute or more; they are
half as long then."""

COSTS = Costs()
DOCUMENTED = ROOT / "docs/benchmarks/protocol.json"
UNDOCUMENTED = ROOT / "build/benchmarks/protocol.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured. The first of `rtt_ms` and of `acceptance` are the base point, around which
    one parameter is varied at a time. `tokens` is the length of an answer with drafts, `rounds` the
    number of rounds at zero step time, `crowd` where the draft's place is compared.
    """

    clients: tuple[int, ...]
    drafts: tuple[int, ...]
    rtt_ms: tuple[float, ...]
    acceptance: tuple[float, ...]
    tokens: int
    repetitions: int
    rounds: int
    crowd: Crowd
    num_speculative_tokens: int = 7
    costs: Costs = COSTS

    @property
    def base(self) -> Load:
        """The base point, with as many clients as ever ask at once."""
        most = self.num_speculative_tokens
        return Load(OUTRIDER, max(self.clients), 1, self.rtt_ms[0], self.acceptance[0], most)

    def loads(self) -> tuple[Load, ...]:
        """Each configuration once, the target alone before what is compared with it."""
        found: list[Load] = []
        for clients in self.clients:
            base = replace(self.base, clients=clients)
            found.append(base.alone)
            for rtt_ms in self.rtt_ms:
                nodes = synchronous_nodes(
                    self.costs, base.acceptance, clients, rtt_ms, self.num_speculative_tokens
                )
                there = replace(base, rtt_ms=rtt_ms)
                found += [replace(there, mode=SYNCHRONOUS, speculative_tokens=nodes), there]
            found += [replace(base, drafts=drafts) for drafts in self.drafts]
            found += [replace(base, acceptance=acceptance) for acceptance in self.acceptance]
        return tuple(dict.fromkeys(found))

    def tokens_of(self, load: Load) -> int:
        """Length of an answer."""
        if load.mode == ALONE:
            return max(8, self.tokens // ALONE_SHARE)
        is_crowded = load.clients * load.drafts > CROWDED
        return max(16, self.tokens // 2) if is_crowded else self.tokens


QUICK = Settings(
    clients=(1, 16),
    drafts=(1, 4),
    rtt_ms=(0.0, 20.0),
    acceptance=(0.8,),
    tokens=96,
    repetitions=1,
    rounds=60,
    crowd=Crowd(clients=(16,)),
)
FULL = Settings(
    clients=(1, 2, 4, 8, 16, 32, 64),
    drafts=(1, 2, 4, 8),
    rtt_ms=(0.0, 20.0, 100.0),
    acceptance=(0.8, 0.6, 0.9),
    tokens=128,
    repetitions=3,
    rounds=400,
    crowd=Crowd(clients=(16, 32)),
)


def read(arguments: Sequence[str]) -> tuple[Settings, Path]:
    """The settings, and where the JSON goes. Raises InvalidArgumentError for values out of range.

    A quick run does not replace the documented figures unless it is told to.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.protocol",
        description="The scale rig: scripted models behind real services. Lists: 1,4,16.",
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, under 3 minutes")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--clients", help="concurrent clients, 1 to 64")
    parser.add_argument("--drafts", help="drafts, 1 to 8")
    parser.add_argument("--rtt-ms", help="round trips between drafts and orchestrator; 0: no proxy")
    parser.add_argument("--acceptance", help="probability that a drafted token is the target's")
    parser.add_argument("--tokens", type=int, help="length of an answer with drafts")
    parser.add_argument("--repetitions", type=int, help="for the spread")
    parser.add_argument("--num-speculative-tokens", type=int, help="longest path of a pass")
    parser.add_argument("--target-step-ms", type=float, help="of a target pass")
    parser.add_argument("--target-row-ms", type=float, help="more for each token of a pass")
    parser.add_argument("--draft-step-ms", type=float, help="of a draft pass")
    options = parser.parse_args(arguments)
    chosen = QUICK if options.quick else FULL
    if options.clients is not None:
        chosen = replace(chosen, clients=whole_numbers("--clients", options.clients, 1, 64))
    if options.drafts is not None:
        chosen = replace(chosen, drafts=whole_numbers("--drafts", options.drafts, 1, 8))
    if options.rtt_ms is not None:
        chosen = replace(chosen, rtt_ms=numbers("--rtt-ms", options.rtt_ms, 0, 2000))
    if options.acceptance is not None:
        chosen = replace(chosen, acceptance=numbers("--acceptance", options.acceptance, 0, 1))
    costs = Costs(
        _within(options, "target_step_ms", chosen.costs.target_step_ms, 0, 10_000),
        _within(options, "target_row_ms", chosen.costs.target_row_ms, 0, 1_000),
        _within(options, "draft_step_ms", chosen.costs.draft_step_ms, 0, 10_000),
    )
    chosen = replace(
        chosen,
        tokens=int(_within(options, "tokens", chosen.tokens, 16, 512)),
        repetitions=int(_within(options, "repetitions", chosen.repetitions, 1, 100)),
        num_speculative_tokens=int(
            _within(options, "num_speculative_tokens", chosen.num_speculative_tokens, 1, 128)
        ),
        costs=costs,
    )
    if chosen.costs.pass_ms(1) <= 0:
        raise InvalidArgumentError(
            "a target pass takes no time, so there is no bound; give --target-step-ms above 0"
        )
    return chosen, options.json or (UNDOCUMENTED if options.quick else DOCUMENTED)


def _within(
    options: argparse.Namespace, name: str, default: float, least: float, most: float
) -> float:
    value: float | None = getattr(options, name)
    if value is None:
        return default
    if not least <= value <= most:
        flag = "--" + name.replace("_", "-")
        raise InvalidArgumentError(f"{flag} is {value:g}; give {least:g} to {most:g}")
    return value
