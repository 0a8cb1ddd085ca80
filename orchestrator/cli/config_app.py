"""The commands of `outrider config` and their flags. What they do is imported when they run."""

from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli import flags
from orchestrator.cli.console import MISUSED, fail, settings_told

config_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


class Service(str, Enum):
    """What has a section in the config file."""

    DRAFT = "draft"
    VERIFY = "verify"
    ORCHESTRATOR = "orchestrator"


@config_app.callback()
def _config(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@config_app.command("show", short_help="Show settings, and where each comes from.")
def _show(
    service: Annotated[Service | None, typer.Argument(help="Default: all three.")] = None,
    config: flags.Config = None,
    json: flags.Json = False,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Print a config file with these values.")
    ] = False,
) -> None:
    """Show the settings that the services would have here, and where each value comes from.

    A flag of `outrider serve` comes before the environment, that before the config file, that
    before the default. Keys are not shown.
    """
    from orchestrator.cli.config import show_settings

    if json and yaml:
        fail("--json and --yaml are given; give one of them", MISUSED)
    with settings_told():
        show_settings(None if service is None else service.value, config, json=json, yaml=yaml)


@config_app.command("schema", short_help="Print the JSON schema of the config file.")
def _schema() -> None:
    """Print the JSON schema of the config file, for editors and checks."""
    from orchestrator.cli.config import show_schema

    show_schema()
