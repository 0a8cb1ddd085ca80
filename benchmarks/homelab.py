"""The home-lab rig: two machines of one core each, wires of several lengths, and two peers.

    python -m benchmarks.homelab [--quick] [--json FILE] [--prompts question.jsonl]
        [--per-category N] [--tokens N] [--rtt-ms 0.2,5,20,100] [--modes outrider,synchronous]

The target has one core and one thread; the draft, the wires (proxies that delay), the orchestrators
and this client share the other one. For every prompt, at temperature 0 and 1, one after the other
and each time in another order: the target alone; classic synchronous drafting, which drafts, asks,
waits; Outrider with its defaults, both over every wire; and, on the target's core, llama.cpp's and
transformers' own speculation. Before a prompt's first answer everybody who keeps a prompt cache has
seen the prompt, so that the time to the first token is that of a conversation that goes on.

Exits with status 1, and lists it under "errors", where a text at temperature 0 is not the target's.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from benchmarks import report
from benchmarks.homelab_answer import Answer, answer_of
from benchmarks.homelab_bound import inner_rounds, pass_times
from benchmarks.homelab_figure import Difference, Figure, differences, figures
from benchmarks.homelab_lab import Lab, LabPlan
from benchmarks.homelab_options import read_options
from benchmarks.homelab_plan import ALONE, OURS, Turn, turns
from benchmarks.homelab_report import table
from benchmarks.machine import describe
from benchmarks.peers_client import PeerRequest
from benchmarks.pinned import bind
from benchmarks.spec_bench import Prompt
from orchestrator.cli.interrupts import Interrupts
from outrider.errors import InvalidArgumentError, OutriderError

FIRST_SEED = 1000
WARM_TOKENS = 2
MISUSED = 2
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured: each prompt at each temperature, `tokens` tokens at most.

    No prompt is begun that would probably not be through `within_s` after the start; the first one
    always is.
    """

    prompts: tuple[Prompt, ...]
    temperatures: tuple[float, ...]
    tokens: int
    within_s: float = math.inf


def main(arguments: Sequence[str]) -> int:
    """Measures, prints the table, writes the JSON; returns the exit status."""
    try:
        return _run(read_options(arguments))
    except InvalidArgumentError as error:
        sys.stderr.write(f"homelab: {error.message}\n")
        return MISUSED
    except OutriderError as error:
        sys.stderr.write(f"homelab: {error.message}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("homelab: stopped\n")
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    plan: LabPlan = options.plan
    work = Work(options.prompts, options.temperatures, options.tokens, options.within_s)
    result: dict[str, object] = {"machine": describe(), "settings": options.settings}
    answers: list[Answer] = []
    bind(plan.other_core)
    with Interrupts() as interrupts, Lab(plan, interrupts) as lab:
        for batch in measured(lab, work, options.began_s):
            answers += batch
            _write(options.json, {**result, **summary(answers, plan)})
    _say(f"done after {time.monotonic() - options.began_s:.0f} s")
    told = summary(answers, plan)
    _write(options.json, {**result, **told})
    drawn = report.redraw("homelab", options.json)
    sys.stdout.write(table(_figures(answers, plan)))
    for error in errors_of(differences(answers)):
        sys.stderr.write(f"homelab: {error}\n")
    return 1 if told["errors"] else drawn


def measured(lab: Lab, work: Work, began_s: float) -> Iterator[list[Answer]]:
    """All answers to one prompt after the other. `began_s` is when the whole run began."""
    plan = lab.plan
    longest_s = 0.0
    by_prompt = groupby(
        turns(len(work.prompts), plan.modes, plan.rtts_ms, work.temperatures),
        key=lambda turn: turn.prompt,
    )
    for number, asked in by_prompt:
        prompt_began_s = time.monotonic()
        if number and prompt_began_s + longest_s > began_s + work.within_s:
            _say(f"time is up: {len(work.prompts) - number} prompts are left out")
            return
        _warm_up(lab, work.prompts[number], number)
        yield [_asked(lab, work, turn) for turn in asked]
        longest_s = max(longest_s, time.monotonic() - prompt_began_s)


def _asked(lab: Lab, work: Work, turn: Turn) -> Answer:
    lab.check_alive()
    answer = ask(lab, work, turn)
    asked = turn.configuration
    _say(
        f"prompt {turn.prompt + 1} of {len(work.prompts)}, T = {asked.temperature:g}, "
        f"{asked.mode} at {asked.rtt_ms:g} ms: {len(answer.ids)} tokens in {answer.passes} "
        f"passes, {answer.tokens_per_s or 0:.2f} tokens/s"
    )
    return answer


def ask(lab: Lab, work: Work, turn: Turn) -> Answer:
    """One answer, with the time of every token as this process saw it."""
    asked = turn.configuration
    prompt = work.prompts[turn.prompt]
    seed = FIRST_SEED + turn.prompt
    if asked.mode not in OURS:
        peer = lab.peers[asked.mode].answer(
            PeerRequest(prompt.text, work.tokens, asked.temperature, seed)
        )
        return Answer(turn.prompt, asked, peer.ids, peer.at_ms, peer.passes, peer.accepted_tokens)
    client = lab.client(asked.mode, asked.rtt_ms)
    began_s = time.perf_counter()
    generation = client.chat(
        [{"role": "user", "content": prompt.text}],
        max_tokens=work.tokens,
        temperature=asked.temperature,
        seed=seed,
        max_drafts=0 if asked.mode == ALONE else None,
    )
    tokens = []
    at_ms = []
    for token in generation:
        at_ms.append(1000 * (time.perf_counter() - began_s))
        tokens.append(token)
    return answer_of(turn.prompt, asked, tokens, at_ms, generation.result().stats)


def _warm_up(lab: Lab, prompt: Prompt, number: int) -> None:
    """Everybody with a prompt cache sees the prompt."""
    messages = [{"role": "user", "content": prompt.text}]
    seed = FIRST_SEED + number
    for client in list(lab.clients.values())[:1]:
        client.chat(messages, max_tokens=WARM_TOKENS, temperature=0, seed=seed).result()
    for peer in lab.peers.values():
        if peer.has_prompt_cache:
            peer.answer(PeerRequest(prompt.text, WARM_TOKENS, 0.0, seed))


def summary(answers: Sequence[Answer], plan: LabPlan) -> dict[str, object]:
    """What the JSON says about the answers so far."""
    rounds = [r for a in answers for r in inner_rounds(a.rounds)]
    different = differences(answers)
    return {
        "figures": [asdict(figure) for figure in _figures(answers, plan)],
        "pass_ms_by_rows": {str(k): round(v, 2) for k, v in pass_times(rounds).items()},
        "differences": [asdict(difference) for difference in different],
        "errors": errors_of(different),
    }


def errors_of(different: Sequence[Difference]) -> list[str]:
    """Differences that must not be: at temperature 0."""
    return [
        f"{d.mode} at {d.rtt_ms:g} ms, prompt {d.prompt + 1}, temperature 0: token {d.token + 1} "
        "is not the target's own"
        for d in different
        if d.temperature == 0
    ]


def _figures(answers: Sequence[Answer], plan: LabPlan) -> list[Figure]:
    return figures(answers, plan.longest)


def _write(path: Path, result: dict[str, object]) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    sys.stderr.write(f"homelab: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
