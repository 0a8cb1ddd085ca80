"""`outrider generate -n`: several answers to one prompt; what came stays, also on Ctrl-C."""

import asyncio
import json
import secrets
from dataclasses import dataclass

import typer

from orchestrator.cli.checks import require_valid
from orchestrator.cli.console import INTERRUPTED, errors_told, misuse_told, say, write
from orchestrator.cli.progress import Progress
from orchestrator.cli.prompts import as_messages
from orchestrator.cli.summary import answer_line, as_json, counted, partial_as_json
from outrider.client import AsyncClient, AsyncGeneration, Result
from outrider.client.prompt import Prompt
from outrider.client.request import GenerateOptions
from outrider.errors import OutriderError

AT_ONCE = 8


@dataclass(slots=True)
class Answer:
    """One of several: while it arrives, and once it is complete."""

    generation: AsyncGeneration
    result: Result | None = None

    @property
    def text(self) -> str:
        """What there is of it."""
        return self.generation.text if self.result is None else self.result.text

    def as_json(self) -> dict[str, object]:
        """What there is of it, as plain values."""
        if self.result is not None:
            return as_json(self.result)
        arrived = self.generation
        return partial_as_json(arrived.started, arrived.text, arrived.tokens)


def generate_several(
    prompt: str,
    count: int,
    address: str,
    *,
    tls: str,
    raw: bool,
    show_json: bool,
    options: GenerateOptions,
) -> None:
    """Prints `count` independent answers once all are complete: texts, or a JSON object a line.

    Ctrl-C ends those that still run, prints what there is of all, and ends with status 130. So does
    an answer that fails, with its error.
    """
    sent: Prompt = prompt if raw else as_messages(prompt)
    require_valid(sent, options)
    if options.get("seed") is None:
        # One for all of them: the answers differ by their numbers, which repeat them.
        options = {**options, "seed": secrets.randbits(63)}
    answers: dict[int, Answer] = {}
    with errors_told():
        with misuse_told():
            AsyncClient(address, tls=tls)
        try:
            with Progress() as progress:
                progress.waits_for(f"answering {counted(count, 'time')}")
                asyncio.run(_answer_all(sent, count, address, tls, options, answers))
        except KeyboardInterrupt:
            _tell(answers, count, show_json=show_json)
            complete = sum(answer.result is not None for answer in answers.values())
            say(f"stopped; {complete} of {counted(count, 'answer')} had come to their end")
            raise typer.Exit(INTERRUPTED) from None
        except OutriderError:
            _tell(answers, count, show_json=show_json)
            raise
    _tell(answers, count, show_json=show_json)


async def _answer_all(
    prompt: Prompt,
    count: int,
    address: str,
    tls: str,
    options: GenerateOptions,
    answers: dict[int, Answer],
) -> None:
    """Fills `answers` as they come. If one fails, the others are given up."""
    indices = iter(range(count))
    async with AsyncClient(address, tls=tls) as client:

        async def answer_on() -> None:
            for index in indices:  # Shared: each answer is asked for once.
                chosen: GenerateOptions = {**options, "choice_index": index}
                async with client.generate(prompt, **chosen) as generation:
                    answers[index] = Answer(generation)
                    answers[index].result = await generation.result()

        asking = [asyncio.ensure_future(answer_on()) for _ in range(min(AT_ONCE, count))]
        try:
            await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()


def _tell(answers: dict[int, Answer], count: int, *, show_json: bool) -> None:
    results = [answer.result for answer in answers.values() if answer.result is not None]
    for notice in dict.fromkeys(notice for result in results for notice in result.notices):
        say(notice)
    for index, answer in sorted(answers.items()):
        if show_json:
            line = {"choice_index": index, **answer.as_json()}
            write(json.dumps(line, ensure_ascii=False) + "\n")
        else:
            how = "stopped" if answer.result is None else answer_line(answer.result)
            say(f"answer {index} of 0 to {count - 1}: {how}")
            write(answer.text + "\n")
