"""The commands of `outrider serve` and their flags. What they do is imported when they run."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from orchestrator.cli import flags
from orchestrator.cli.completing import known_models, service_words
from orchestrator.cli.console import settings_told

FORWARDING = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


class ServiceCommand(TyperCommand):
    """A command that hands its whole command line on, and completes it as far as it knows it."""

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What its one argument offers, for flags, too."""
        (arguments,) = self.params
        return arguments.shell_complete(ctx, incomplete)


serve_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


def _forwarded(service: str) -> Any:
    return typer.Argument(hidden=True, autocompletion=service_words(service))


DraftWords = Annotated[list[str], _forwarded("draft")]
VerifyWords = Annotated[list[str], _forwarded("verify")]
OrchestratorWords = Annotated[list[str], _forwarded("orchestrator")]


@serve_app.callback()
def _serve(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@serve_app.command("draft", cls=ServiceCommand, context_settings=FORWARDING)
def _serve_draft(arguments: DraftWords = []) -> None:  # noqa: B006 - Typer copies it
    """The draft service: proposes tokens. Its own flags: outrider serve draft --help."""
    _serve_one("draft", arguments)


@serve_app.command("verify", cls=ServiceCommand, context_settings=FORWARDING)
def _serve_verify(arguments: VerifyWords = []) -> None:  # noqa: B006 - Typer copies it
    """The verify service: runs the target. Its own flags: outrider serve verify --help."""
    _serve_one("verify", arguments)


@serve_app.command("orchestrator", cls=ServiceCommand, context_settings=FORWARDING)
def _serve_orchestrator(arguments: OrchestratorWords = []) -> None:  # noqa: B006 - Typer copies it
    """The orchestrator: answers users. Its own flags: outrider serve orchestrator --help."""
    _serve_one("orchestrator", arguments)


def _serve_one(service: str, arguments: list[str]) -> None:
    from orchestrator.cli.serve import serve_one

    raise typer.Exit(serve_one(service, arguments))


@serve_app.command("all", short_help="Everything at once, on this machine.")
def _serve_all(
    model: Annotated[
        str | None,
        typer.Option(help="The target. Default: smollm2.", autocompletion=known_models),
    ] = None,
    draft_model: flags.DraftModels = [],  # noqa: B006 - Typer copies it
    host: Annotated[
        str | None, typer.Option(help="Where users reach it. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free one. Default: 7070.")
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="OpenAI-compatible HTTP endpoint; 0: any free port. Default: 8000.",
        ),
    ] = None,
    http: Annotated[
        bool | None, typer.Option("--http/--no-http", help="Serve that endpoint. Default: yes.")
    ] = None,
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
    tls: flags.ServedTls = None,
    mode: flags.ServedMode = None,
    ray: Annotated[str | None, flags.RAY] = None,
    threads: Annotated[int | None, flags.THREADS] = None,
    grace_s: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds that running requests get to end. Default: 10."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error. Default: info.")
    ] = None,
    config: flags.Config = None,
) -> None:
    """The target, its drafts and the orchestrator, each as a process on this machine.

    Further settings come from the environment, named as in each service's --help
    (OUTRIDER_VERIFY_KV_TOKENS=32768, OUTRIDER_DRAFT_DEVICE=cuda:1, OUTRIDER_WIDTH=2), or from the
    config file. Without a draft of any of these, the draft is ngram:. Where the services of a stack
    listen for each other is its own affair.
    """
    from orchestrator.cli.serve import serve_all
    from orchestrator.cli.stack_flags import StackFlags, planned

    with settings_told():
        plan = planned(
            StackFlags(
                model=model,
                draft_models=tuple(draft_model),
                host=host,
                port=port,
                http=http,
                http_port=http_port,
                api_key_file=api_key_file,
                allow_no_api_key=allow_no_api_key,
                allow_plaintext=allow_plaintext,
                tls=tls,
                mode=mode,
                ray=ray,
                threads=threads,
                grace_s=grace_s,
                log_level=log_level,
                config=config,
            )
        )
    serve_all(plan)
