"""The commands of `outrider certs` and their flags. What they do is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import flags

certs_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

Authority = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the CA is.")]


@certs_app.callback()
def _certs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@certs_app.command("init", short_help="Make a CA.")
def _init(
    folder: Annotated[Path, typer.Argument(help="Where the CA goes: ca.pem and ca.key.")],
    name: Annotated[str, typer.Option(help="What the CA is called.")] = "Outrider CA",
    days: Annotated[int, typer.Option(help="So long it is valid.")] = 3650,
    json: flags.Json = False,
) -> None:
    """Make a CA. Keep its key to yourself: whoever has it can be any service of yours."""
    from orchestrator.cli.certs import make_authority_in

    make_authority_in(folder, name, days, show_json=json)


@certs_app.command("issue", short_help="Sign a certificate for a node.")
def _issue(
    folder: Authority,
    role: Annotated[str, typer.Option(help="draft, verify, orchestrator or client.")],
    name: Annotated[
        str, typer.Option(help="What the node is called. Default: as its role.", show_default=False)
    ] = "",
    host: Annotated[
        list[str],
        typer.Option(
            metavar="HOST",
            help="A host name or IP address, for HTTPS and foreign tools; our services know each "
            "other by role. Repeatable.",
        ),
    ] = [],  # noqa: B006 - Typer copies it
    days: Annotated[int, typer.Option(help="So long it is valid.")] = 365,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where it goes. Default: FOLDER/NAME of the CA's."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of the certificate that is there.")
    ] = False,
    json: flags.Json = False,
) -> None:
    """Sign a certificate for a node: a folder with cert.pem, key.pem and ca.pem for its --tls."""
    from orchestrator.cli.certs import issue_in

    issue_in(folder, role, name or role, host, days, out, replaces=replace, show_json=json)


@certs_app.command("show", short_help="Say whose a certificate is, and until when.")
def _show(
    file: Annotated[Path, typer.Argument(help="A certificate, or a folder with one.")],
    json: flags.Json = False,
) -> None:
    """Say whose a certificate is and how long it is valid. Status 1: it has expired."""
    from orchestrator.cli.certs import show

    show(file, show_json=json)
