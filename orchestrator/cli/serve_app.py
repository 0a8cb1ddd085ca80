"""The commands of `outrider serve` and their flags. What they do is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import flags

FORWARDING = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}

serve_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@serve_app.callback()
def _serve(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@serve_app.command("draft", context_settings=FORWARDING)
def _serve_draft(context: typer.Context) -> None:
    """The draft service: proposes tokens. Its own flags: outrider serve draft --help."""
    _serve_one("draft", context)


@serve_app.command("verify", context_settings=FORWARDING)
def _serve_verify(context: typer.Context) -> None:
    """The verify service: runs the target. Its own flags: outrider serve verify --help."""
    _serve_one("verify", context)


@serve_app.command("orchestrator", context_settings=FORWARDING)
def _serve_orchestrator(context: typer.Context) -> None:
    """The orchestrator: answers users. Its own flags: outrider serve orchestrator --help."""
    _serve_one("orchestrator", context)


def _serve_one(service: str, context: typer.Context) -> None:
    from orchestrator.cli.serve import serve_one

    raise typer.Exit(serve_one(service, context.args))


@serve_app.command("all", short_help="Everything at once, on this machine.")
def _serve_all(
    model: Annotated[str, typer.Option(help="The target.")] = "smollm2",
    draft_model: flags.DraftModels = ["ngram:"],  # noqa: B006 - Typer copies it
    host: Annotated[str, typer.Option(help="Where users reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 7070,
    http_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="OpenAI-compatible HTTP endpoint; 0: any free port."),
    ] = 8000,
    http: Annotated[bool, typer.Option(help="Serve that endpoint.")] = True,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTTP requests need one of its keys, one in a line."),
    ] = None,
    allow_no_api_key: Annotated[
        bool, typer.Option("--allow-no-api-key", help="HTTP beyond loopback without keys.")
    ] = False,
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Listen beyond loopback without TLS.")
    ] = False,
    mode: flags.ServedMode = None,
    ray: flags.Ray = "embedded",
    threads: flags.Threads = 0,
    grace_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds that running requests get to end.")
    ] = 5.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """The target, its drafts and the orchestrator, each as a process on this machine.

    Further settings come from the environment, named as in each service's --help:
    OUTRIDER_VERIFY_KV_TOKENS=32768, OUTRIDER_DRAFT_DEVICE=cuda:1, OUTRIDER_WIDTH=2.
    """
    from orchestrator.cli.serve import serve_all
    from orchestrator.cli.stack_plan import StackPlan

    serve_all(
        StackPlan(
            model,
            tuple(draft_model),
            host,
            port,
            threads=threads,
            grace_s=grace_s,
            http_port=http_port if http else None,
            every_service=("--log-level", log_level),
            orchestrator=(
                *("--ray", ray),
                *(("--mode", mode) if mode is not None else ()),
                *(("--allow-plaintext",) if allow_plaintext else ()),
                *(("--api-key-file", str(api_key_file)) if api_key_file is not None else ()),
                *(("--allow-no-api-key",) if allow_no_api_key else ()),
            ),
        )
    )
