"""`outrider generate`: one prompt in, one answer out, as it comes."""

import json

import typer

from orchestrator.cli.console import INTERRUPTED, errors_told, misuse_told, say, write
from orchestrator.cli.progress import Progress
from orchestrator.cli.prompts import as_messages
from orchestrator.cli.summary import answer_line, as_json, counted, partial_as_json
from outrider.client import Client, Generation, Token
from outrider.client.request import GenerateOptions


def generate(
    prompt: str, address: str, *, tls: str, raw: bool, show_json: bool, options: GenerateOptions
) -> None:
    """Streams the answer to standard output, and tells about it on standard error.

    Ctrl-C ends the answer on the server, keeps what had come, and ends with status 130.
    """
    with errors_told():
        with misuse_told():
            client = Client(address, tls=tls)
            generation = client.generate(prompt if raw else as_messages(prompt), **options)
        with client, generation:
            try:
                _stream(generation, is_shown=not show_json)
            except KeyboardInterrupt:
                _tell_interrupted(generation, show_json)
                raise typer.Exit(INTERRUPTED) from None
            if show_json:
                write(json.dumps(as_json(generation.result()), ensure_ascii=False) + "\n")


def first_token(generation: Generation) -> Token | None:
    """The first token of an answer, None of an empty one; shows that the prompt is being read."""
    with Progress() as progress:
        progress.waits_for("reading the prompt")
        return next(generation, None)


def _stream(generation: Generation, *, is_shown: bool) -> None:
    with Progress() as progress:
        progress.waits_for("asking the orchestrator")
        started = generation.wait_started()
    for notice in started.notices:
        say(notice)
    told = len(started.notices)
    shown = 0
    try:
        token = first_token(generation)
        while token is not None:
            if is_shown:
                # Counted first: Ctrl-C right after the text has gone out must not repeat it.
                shown += len(token.text)
                write(token.text)
            token = next(generation, None)
    finally:
        result_text = generation.text
        if is_shown and result_text:
            write(result_text[shown:] + "\n")
    result = generation.result()
    for notice in result.notices[told:]:
        say(notice)
    if is_shown:
        say(answer_line(result))


def _tell_interrupted(generation: Generation, show_json: bool) -> None:
    count = len(generation.tokens)
    if show_json:
        partial = partial_as_json(generation.started, generation.text, generation.tokens)
        write(json.dumps(partial, ensure_ascii=False) + "\n")
    seed = f", seed {generation.started.seed}" if generation.started else ""
    say(f"stopped after {counted(count, 'token')}{seed}")
