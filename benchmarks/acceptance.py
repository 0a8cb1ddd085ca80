"""How many tokens a target pass emits under each acceptance rule, on real models.

    python -m benchmarks.acceptance --prompts question.jsonl [--json FILE] [--vocabularies]

The production sessions are driven by hand, in one process and in lock step: the draft makes its
whole chain, the target verifies it in one pass, both commit. So every pass has the same number of
candidates whatever the machine's speed, the figures can be reproduced, and no rule gains from how
the services wait: with real timing a pass of `rejection` or `block` starts at the first candidate,
one of `coupled` or `match` may wait for the whole chain.

The figure is the mean acceptance length, 1 + accepted / passes: what the target emits itself in
every pass (the recovered or the bonus token) counts. An answer that ends early has a last pass cut
short.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.acceptance_report import Figure, table
from benchmarks.agreement import agreement
from benchmarks.deepen import Deepening, deepened
from benchmarks.machine import describe
from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.models.base import CausalModel
from outrider.models.packaged import fetch
from outrider.models.registry import ModelOptions, load_model
from outrider.plans import DraftPlan, ReadinessPolicy
from outrider.tree import TokenTree
from outrider.types import (
    AcceptanceMode,
    Chunk,
    DraftCommit,
    DraftOpening,
    SamplingParams,
    StopConditions,
    VerifyOpening,
)
from verify_service.sessions import Session
from verify_service.settled import Batch
from verify_service.verifier import Outcome, Verifier

NUM_SPECULATIVE_TOKENS = 4
RULES = (
    AcceptanceMode.REJECTION,
    AcceptanceMode.BLOCK,
    AcceptanceMode.COUPLED,
    AcceptanceMode.MATCH,
)
GREEDY = "all rules"
"""At temperature 0 they are one and the same; it is measured once."""

DEEPENING = Deepening(repeats=2, eps=0.1)
ALL_ROWS = 2**20
ALONE = Batch(sessions=1, rows=0, tokens=0, started_at=0.0, ended_at=0.0, gap_us=0)


@dataclass(frozen=True)
class Prompt:
    """A question of the set, as text."""

    category: str
    text: str


@dataclass(frozen=True)
class Answer:
    """What an answer took."""

    emitted: int
    passes: int
    drafted: int


def main(arguments: Sequence[str]) -> int:
    """Measures, prints a table, writes the JSON after every rule."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acceptance")
    parser.add_argument("--prompts", type=Path, required=True, help="Spec-Bench's question.jsonl")
    parser.add_argument("--per-category", type=int, default=2, help="prompts of each category")
    parser.add_argument("--limit", type=int, help="most prompts in all")
    parser.add_argument("--tokens", type=int, default=48, help="length of an answer")
    parser.add_argument("--max-prompt-tokens", type=int, default=768, help="longer ones are left")
    parser.add_argument(
        "--vocabularies", action="store_true", help="pairs of two tokenizers instead"
    )
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    if not options.prompts.is_file():
        sys.stderr.write(
            f"acceptance: there is no file {options.prompts}; give Spec-Bench's question.jsonl "
            "(https://github.com/hemingkx/Spec-Bench, data/spec_bench)\n"
        )
        return 2
    small = load_model("smollm2")
    settings: dict[str, object] = {}
    if options.vocabularies:
        other = load_model("gemma3")
        names = {id(small): "SmolLM2", id(other): "Gemma 3 270M"}
        pairs = [(small, other), (other, small)]
    else:
        other = load_model(str(deepened(fetch("smollm2"), DEEPENING)), ModelOptions())
        names = {id(small): "SmolLM2", id(other): "SmolLM2 deepened"}
        pairs = [(small, other)]
        settings["deepened"] = asdict(DEEPENING)
    prompts = list(read_prompts(options.prompts, options.per_category, small, options))
    if not options.vocabularies:
        settings["overlap"] = round(agreement(small, other, _texts(small, prompts)).overlap, 3)
    result: dict[str, object] = {
        "machine": describe(),
        "settings": {
            "num_speculative_tokens": NUM_SPECULATIVE_TOKENS,
            "tokens": options.tokens,
            "max_prompt_tokens": options.max_prompt_tokens,
            "per_category": options.per_category,
            "limit": options.limit,
            "prompts": len(prompts),
            **settings,
        },
    }
    figures: list[Figure] = []
    for draft, verifier in pairs:
        for sampling in samplings():
            answers = [
                measure(draft, verifier, prompt_ids(verifier, prompt), sampling, options.tokens)
                for prompt in prompts
            ]
            figures.append(pooled(names[id(draft)], names[id(verifier)], sampling, answers))
            sys.stderr.write(table(figures[-1:]).splitlines()[-1] + "\n")
            if options.json is not None:
                result["figures"] = [asdict(figure) for figure in figures]
                options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(table(figures))
    if options.json is None:
        return 0
    return report.redraw("vocabularies" if options.vocabularies else "acceptance", options.json)


def samplings() -> Iterator[SamplingParams]:
    """Every rule at temperature 1, then greedy."""
    for rule in RULES:
        yield SamplingParams(temperature=1.0, mode=rule, seed=7)
    yield SamplingParams(temperature=0.0, seed=7)


def read_prompts(
    path: Path, per_category: int, model: CausalModel, options: argparse.Namespace
) -> Iterator[Prompt]:
    """The first prompts of each category that are short enough, first turns only."""
    taken: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        prompt = Prompt(question["category"], question["turns"][0])
        count = taken.get(prompt.category, 0)
        is_last = options.limit is not None and sum(taken.values()) >= options.limit
        if is_last or count >= per_category:
            continue
        if len(prompt_ids(model, prompt)) <= options.max_prompt_tokens:
            taken[prompt.category] = count + 1
            yield prompt


def prompt_ids(model: CausalModel, prompt: Prompt) -> list[int]:
    """Under the model's chat template; as it stands where the model is not made for chats."""
    if model.tokenizer is None:
        return [1 + byte % (model.info.vocab_size - 1) for byte in prompt.text.encode()]
    if "gemma" in model.info.model_name:
        return model.tokenizer.encode(prompt.text)
    return model.tokenizer.encode_chat([("user", prompt.text)])


def _texts(model: CausalModel, prompts: Sequence[Prompt]) -> list[list[int]]:
    return [prompt_ids(model, prompt)[:128] for prompt in prompts[:6]]


def measure(
    draft: CausalModel,
    target: CausalModel,
    prompt: Sequence[int],
    sampling: SamplingParams,
    tokens: int,
) -> Answer:
    """One answer of at least `tokens` tokens, unless the model ends it."""
    drafter, verifier = Drafter(draft), Verifier(target)
    drafting = _open_draft(drafter, target, prompt, sampling)
    verifying = _open_verify(verifier, prompt, sampling, tokens)
    passes = drafted = 0
    try:
        while verifying.finish_reason is None and len(verifying.tree.committed) < tokens:
            while (task := drafting.task(ALL_ROWS)) is not None:
                (made,) = drafter.step([(drafting, task)])
                if isinstance(made, Chunk):
                    verifying.tell(made, 0.0)
                elif made is not None:
                    raise made
            verifying.take_news()
            work = verifying.part(ALL_ROWS)
            (outcome,) = verifier.step([work])
            if not isinstance(outcome, Outcome):
                raise outcome
            verifying.settle(work, outcome, ALONE, 0.0)
            for verdict in verifying.read():
                passes += 1
                drafted += verdict.drafted
                commit = DraftCommit(verdict.base, verdict.tokens, fresh=verdict.fresh)
                drafter.commit(drafting, commit)
        return Answer(len(verifying.tree.committed), passes, drafted)
    finally:
        drafter.close(drafting)
        verifier.close(verifying.sequence)


def _open_draft(
    drafter: Drafter, target: CausalModel, prompt: Sequence[int], sampling: SamplingParams
) -> DraftSession:
    info = target.info
    is_own = drafter.model.info.tokenizer_hash in ("", info.tokenizer_hash)
    if not is_own and target.tokenizer is not None:
        told = drafter.vocabularies.read(info.tokenizer_hash, target.tokenizer.vocabulary)
        drafter.vocabularies.keep(info.tokenizer_hash, told)
    return drafter.open(
        DraftOpening(
            session_id="benchmark",
            draft_index=1,
            prompt_ids=tuple(prompt),
            emitted_ids=(),
            sampling=sampling,
            plan=DraftPlan(depth=NUM_SPECULATIVE_TOKENS, width=1),
            tokenizer_hash=info.tokenizer_hash,
            vocab_size=info.vocab_size,
            end_token_ids=frozenset(info.eos_token_ids),
        )
    )


def _open_verify(
    verifier: Verifier, prompt: Sequence[int], sampling: SamplingParams, tokens: int
) -> Session:
    # Room for a whole chain in the last pass: a cut one would count against the better rule.
    stop = StopConditions(max_tokens=tokens + NUM_SPECULATIVE_TOKENS + 1)
    policy = ReadinessPolicy(max_rows=NUM_SPECULATIVE_TOKENS)
    opening = VerifyOpening("benchmark", tuple(prompt), (), sampling, stop, policy)
    return Session(
        opening,
        verifier.open(prompt),
        verifier.history(opening),
        stop.max_tokens,
        TokenTree(()),
        0.0,
    )


def pooled(draft: str, target: str, sampling: SamplingParams, answers: Sequence[Answer]) -> Figure:
    """All answers of one rule."""
    emitted = sum(answer.emitted for answer in answers)
    passes = sum(answer.passes for answer in answers)
    own = [answer.emitted / answer.passes for answer in answers]
    return Figure(
        draft=draft,
        target=target,
        rule=GREEDY if sampling.is_greedy else sampling.mode.value,
        temperature=sampling.temperature,
        prompts=len(answers),
        tokens=emitted,
        tokens_per_pass=round(emitted / passes, 2),
        spread=round(statistics.stdev(own), 2) if len(own) > 1 else 0.0,
        accepted=round((emitted - passes) / max(1, sum(a.drafted for a in answers)), 3),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
