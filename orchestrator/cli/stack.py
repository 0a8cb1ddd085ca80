"""A verifier, drafts and an orchestrator as child processes of this one: up, watched, down.

Knows processes and addresses; knows no requests. The demo and the tests use it too.
"""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import platformdirs

from orchestrator.cli.child import Child, end_all
from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.progress import Progress
from orchestrator.cli.stack_plan import StackPlan, specs_of
from outrider.errors import UnavailableError
from outrider.wire.ports import require_free

POLL_S = 0.05
KEPT_LOG_FOLDERS = 10


class Stack:
    """Leaving its `with` block ends every process it started: the orchestrator, then the drafts,
    then the verifier, first with SIGTERM and after a grace with SIGKILL."""

    def __init__(self, plan: StackPlan, interrupts: Interrupts) -> None:
        self.plan = plan
        self.address = ""
        self._interrupts = interrupts
        self._run_folder = Path(tempfile.mkdtemp(prefix="outrider-"))
        self._log_folder = _new_log_folder()
        self._verify: list[Child] = []
        self._drafts: list[Child] = []
        self._orchestrator: list[Child] = []

    def __enter__(self) -> "Stack":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, progress: Progress) -> None:
        """Returns once every service serves; raises UnavailableError that says which one does not
        and why. All load at the same time."""
        require_free(self.plan.host, self.plan.port)
        *ports, http_port = _free_ports(2 + len(self.plan.drafts))
        if self.plan.http_port == 0:
            self.plan = replace(self.plan, http_port=http_port)
        verify, drafts, orchestrator = specs_of(self.plan, ports)
        for spec, children in (
            (verify, self._verify),
            *((draft, self._drafts) for draft in drafts),
            (orchestrator, self._orchestrator),
        ):
            children.append(Child(spec, self._log_folder, self._run_folder))
        self._wait_ready(progress)
        self.address = self._orchestrator[0].address or ""

    def watch(self) -> Child:
        """Waits until a service dies and returns it; each is returned once."""
        while True:
            dead = self.take_dead()
            if dead is not None:
                return dead
            time.sleep(4 * POLL_S)

    def take_dead(self) -> Child | None:
        """A service that has died since the last call, if any; the indispensable ones first."""
        for children in (self._verify, self._orchestrator, self._drafts):
            for child in children:
                if not child.is_alive:
                    children.remove(child)
                    return child
        return None

    def stop(self) -> None:
        """Ends what still runs. A signal that arrives meanwhile ends it at once."""
        self._interrupts.defer()
        for children in (self._orchestrator, self._drafts, self._verify):
            end_all(children, self.plan.grace_s + 5.0, self._interrupts)
        shutil.rmtree(self._run_folder, ignore_errors=True)

    def _wait_ready(self, progress: Progress) -> None:
        waiting = [*self._verify, *self._drafts, *self._orchestrator]
        progress.says(f"starting {_listed(child.spec.title for child in waiting)}")
        while waiting:
            names = _listed(child.spec.title for child in waiting)
            progress.waits_for(f"waiting for {names}")
            dead = self.take_dead()
            if dead is not None:
                raise UnavailableError(f"{dead.spec.title} could not start: {dead.epitaph()}")
            for child in list(waiting):
                if child.address is not None:
                    progress.says(f"{child.spec.title} is up after {progress.seconds:.1f} s")
                    waiting.remove(child)
            time.sleep(POLL_S)


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for held_socket in sockets:
            held_socket.bind(("127.0.0.1", 0))
        return [held_socket.getsockname()[1] for held_socket in sockets]


def _new_log_folder() -> Path:
    """A folder for this run's logs where a user looks for them; those of the last runs are kept."""
    parent = Path(platformdirs.user_log_dir("outrider"))
    folder = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        folder.mkdir(parents=True)
        for old in sorted(p for p in parent.iterdir() if p.is_dir())[:-KEPT_LOG_FOLDERS]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="outrider-logs-"))
    return folder


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items)
