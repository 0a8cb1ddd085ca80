"""Real services with scripted models for one forecast: a verifier, a draft behind a proxy that
makes its way long, an orchestrator. Knows processes; measures nothing.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cli.child import Child, ChildSpec
from outrider.client import Client
from outrider.errors import UnavailableError

START_S = 60.0
VOCAB = 62


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting; times in milliseconds. `drift`: how far the draft's law is from the target's."""

    rtt_ms: float
    drift: float
    draft_step_ms: float
    target_step_ms: float = 40.0
    target_row_ms: float = 0.2


@contextlib.contextmanager
def deployment(cell: Cell) -> Iterator[str]:
    """The address of an orchestrator in front of the cell's services, while it is entered."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-forecast-")))
        services = _Services(folder)
        stack.callback(services.stop)
        target = f"scripted:vocab={VOCAB},step_ms={cell.target_step_ms},row_ms={cell.target_row_ms}"
        draft = f"scripted:vocab={VOCAB},drift={cell.drift},step_ms={cell.draft_step_ms}"
        verify = services.start("verify", "verify_service", "--model", target, "--port", "0")
        drafting = services.start("draft", "draft_service", "--model", draft, "--port", "0")
        proxy = services.proxy(services.address(drafting), cell.rtt_ms / 2)
        addresses = ("--verify", services.address(verify), "--draft", f"draft={proxy}")
        front = services.start(
            "orchestrator", "orchestrator", *addresses, "--port", "0", "--ray", "local", "--no-http"
        )
        address = services.address(front)
        _wait_usable(address)
        yield address


@dataclass(slots=True)
class _Services:
    folder: Path
    children: list[Child] = field(default_factory=list)
    proxies: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, name: str, module: str, *arguments: str) -> Child:
        environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        spec = ChildSpec(name, name, module, arguments, environment)
        self.children.append(Child(spec, self.folder, self.folder))
        return self.children[-1]

    def address(self, child: Child) -> str:
        deadline = time.monotonic() + START_S
        while (address := child.address) is None:
            if not child.is_alive or time.monotonic() > deadline:
                raise UnavailableError(f"{child.spec.title} could not start: {child.epitaph()}")
            time.sleep(0.05)
        return address

    def proxy(self, to: str, one_way_ms: float) -> str:
        command = [sys.executable, "-m", "tests.support.delay_proxy", "--to", to]
        command += ["--one-way-ms", str(one_way_ms), "--exit-with-stdin"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.proxies.append(process)
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line.strip():
            raise UnavailableError("the delay proxy could not start")
        return line.strip()

    def stop(self) -> None:
        for process in self.proxies:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for child in reversed(self.children):
            child.kill()


def _wait_usable(address: str) -> None:
    deadline = time.monotonic() + START_S
    with Client(address) as client:
        while not all(draft.usable for draft in client.get_cluster().drafts):
            if time.monotonic() > deadline:
                raise UnavailableError("the draft does not become usable")
            time.sleep(0.2)
