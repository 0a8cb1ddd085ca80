"""`outrider demo`: a whole stack, one answer with drafts and the same one without, what it took."""

import json
from dataclasses import dataclass

import typer

from orchestrator.cli.checks import require_valid
from orchestrator.cli.console import FAILED, errors_told, fail, is_colourful, say, write
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.progress import Progress
from orchestrator.cli.prompts import as_messages
from orchestrator.cli.serve import bring_up
from orchestrator.cli.showcase import Showcase
from orchestrator.cli.stack import Stack
from orchestrator.cli.stack_plan import StackPlan
from orchestrator.cli.summary import as_json, comparison, counted, paces
from outrider.client import Client, Result
from outrider.client.request import GenerateOptions

WARM_UP_TOKENS = 8
COLOURS = ("green", "cyan", "yellow", "magenta")


@dataclass(frozen=True, slots=True)
class Demo:
    """What is shown: a stack, what it is asked, how to sample, and for whom it is told."""

    plan: StackPlan
    showcase: Showcase
    options: GenerateOptions
    show_json: bool = False


def show(demo: Demo) -> None:
    """Runs the demonstration, if its arguments are valid; whatever ends it, no process is left."""
    require_valid(as_messages(demo.showcase.prompt), demo.options)
    if demo.showcase.notice:
        say(demo.showcase.notice)
    with Interrupts() as interrupts:
        try:
            with Stack(demo.plan, interrupts) as stack, errors_told():
                bring_up(stack)
                with Client(stack.address, tls=demo.plan.tls) as client:
                    _perform(demo, client)
        except KeyboardInterrupt:
            say("stopped; no process is left")
            raise typer.Exit(interrupts.status) from None


def _perform(demo: Demo, client: Client) -> None:
    if not demo.show_json:
        typer.secho(f"\n{demo.showcase.prompt}\n", bold=True)
    with Progress() as progress:
        progress.waits_for("reading the prompt")
        _answer(client, demo.showcase.prompt, {**demo.options, "max_tokens": WARM_UP_TOKENS})
    drafted = _drawn(demo, client) if demo.show_json else _stream(demo, client)
    with Progress() as progress:
        progress.waits_for("the same again without drafts, to compare")
        alone = _answer(client, demo.showcase.prompt, {**demo.options, "max_drafts": 0})
    if demo.show_json:
        write(json.dumps(_as_json(demo, drafted, alone), ensure_ascii=False) + "\n")
        _require_same(drafted, alone)
    else:
        _compare(demo, drafted, alone)


def _answer(client: Client, prompt: str, options: GenerateOptions) -> Result:
    with client.generate(as_messages(prompt), **options) as generation:
        return generation.result()


def _drawn(demo: Demo, client: Client) -> Result:
    with Progress() as progress:
        progress.waits_for("answering with drafts")
        return _answer(client, demo.showcase.prompt, demo.options)


def _stream(demo: Demo, client: Client) -> Result:
    with client.generate(as_messages(demo.showcase.prompt), **demo.options) as generation:
        started = generation.wait_started()
        colours = dict(zip(started.drafts, COLOURS * len(started.drafts), strict=False))
        for token in generation:
            write(token.text, colours.get(token.draft))
        result = generation.result()
    write("\n")
    if is_colourful() and colours:
        write("\n")
        for name, colour in colours.items():
            write(f"■ drafted by {name}, accepted by the target   ", colour)
        write("■ the target's own\n")
    write("\n")
    for notice in result.notices:
        say(notice)
    return result


def _ids(result: Result) -> list[int]:
    return [token.id for token in result.tokens]


def _as_json(demo: Demo, drafted: Result, alone: Result) -> dict[str, object]:
    return {
        "prompt": demo.showcase.prompt,
        "model": demo.plan.model,
        "draft_models": list(demo.plan.drafts),
        "drafted": as_json(drafted),
        "alone": as_json(alone),
        "is_same_text": _ids(drafted) == _ids(alone),
        "speed_up": alone.stats.total_us / max(1, drafted.stats.total_us),
    }


def _require_same(drafted: Result, alone: Result) -> None:
    ids, expected = _ids(drafted), _ids(alone)
    if ids != expected:
        pairs = zip(ids, expected, strict=False)
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(expected)))
        fail(
            f"with drafts the answer differs from token {shared + 1} on. On a CPU in float32 that "
            "must never be: please report the prompt, the models and the seed "
            f"{drafted.seed}. On other devices and in other formats kernels may choose by batch "
            "size, and two tokens that are almost equally likely can change places: see "
            f"docs/exactness.md. Without drafts it is:\n{alone.text}",
            FAILED,
        )


def _compare(demo: Demo, drafted: Result, alone: Result) -> None:
    _require_same(drafted, alone)
    draft_is_target = demo.plan.model in demo.plan.drafts
    sampling = f"temperature {demo.options.get('temperature'):g}, seed {drafted.seed}"
    write(
        f"{comparison(drafted, alone, draft_is_target)}\n"
        f"{paces(drafted, alone)}\n"
        f"Both times the tokens are the same, one by one ({sampling}). Timed from request to last "
        f"token, with the prompt already read in both runs{_threads(demo.plan)}.\n"
    )
    if demo.showcase.about:
        write(f"{demo.showcase.about}\n")


def _threads(plan: StackPlan) -> str:
    verify, draft = plan.model_threads()
    if not verify:
        return ""
    told = f". The target had {counted(verify, 'thread')} in both"
    return f"{told}, the draft {draft} of its own, as on two machines" if draft else told
