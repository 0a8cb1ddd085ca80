"""`outrider ps`: the services behind an orchestrator, and how they are."""

import json
from dataclasses import asdict

from orchestrator.cli.console import errors_told, is_colourful, misuse_told, write
from outrider.client import Client, Cluster, Service

PIPED_WIDTH = 400
HEADERS = ("NAME", "ADDRESS", "USABLE", "MODEL", "CONTEXT", "ROUND TRIP", "PROBLEM")


def show_cluster(address: str, timeout_s: float, *, show_json: bool) -> None:
    """Prints a row for the verifier and for each draft."""
    with errors_told():
        with misuse_told():
            client = Client(address, timeout_s=timeout_s)
        with client:
            cluster = client.get_cluster()
    if show_json:
        write(json.dumps(asdict(cluster), ensure_ascii=False) + "\n")
    else:
        _print_table(cluster)


def _print_table(cluster: Cluster) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    services = (cluster.verify, *cluster.drafts)
    for name in HEADERS if any(s.problem for s in services) else HEADERS[:-1]:
        is_number = name in ("CONTEXT", "ROUND TRIP")
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for service in services:
        table.add_row(*(Text(cell) for cell in _cells(service)[: len(table.columns)]))
    console = Console(no_color=not is_colourful())
    if console.is_terminal:
        console.print(table)
        return
    console.width = PIPED_WIDTH
    with console.capture() as captured:
        console.print(table)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _cells(service: Service) -> tuple[str, ...]:
    model = service.model
    return (
        service.name,
        service.address,
        "yes" if service.usable else "no",
        model.model_name if model else "",
        f"{model.context_tokens}" if model else "",
        _round_trip(service),
        service.problem,
    )


def _round_trip(service: Service) -> str:
    """Of a service that answers; what was measured before says nothing of one that does not."""
    if not service.usable or not service.round_trip_us:
        return ""
    return f"{service.round_trip_us / 1000:.1f} ms"
