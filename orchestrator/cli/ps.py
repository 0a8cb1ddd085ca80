"""`outrider ps`: the services behind an orchestrator, and how they are."""

import json
from dataclasses import asdict

from orchestrator.cli.console import errors_told, misuse_told, write
from orchestrator.cli.tables import print_table
from outrider.client import Client, Cluster, Service

HEADERS = ("NAME", "ADDRESS", "USABLE", "MODEL", "CONTEXT", "ROUND TRIP", "PROBLEM")
UNNAMED = "-"
"""Stands for the name of a draft that has none but its address."""


def show_cluster(address: str, timeout_s: float, *, tls: str, show_json: bool) -> None:
    """Prints a row for the verifier and for each draft."""
    with errors_told():
        with misuse_told():
            client = Client(address, timeout_s=timeout_s, tls=tls)
        with client:
            cluster = client.get_cluster()
    if show_json:
        write(json.dumps(asdict(cluster), ensure_ascii=False) + "\n")
    else:
        _print(cluster)


def _print(cluster: Cluster) -> None:
    services = (cluster.verify, *cluster.drafts)
    headers = HEADERS if any(service.problem for service in services) else HEADERS[:-1]
    rows = [_cells(service)[: len(headers)] for service in services]
    print_table(headers, rows, ("CONTEXT", "ROUND TRIP"))


def _cells(service: Service) -> tuple[str, ...]:
    model = service.model
    return (
        UNNAMED if service.name == service.address else service.name,
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
