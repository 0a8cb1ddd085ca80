"""Real services as processes: started in parallel, waited for with deadlines, ended by id.

A failure shows the tail of the log of the service that it is about.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 30.0
POLL_S = 0.02


class ServiceProcess:
    """One service as a process."""

    def __init__(self, module: str, arguments: list[str], ready_file: Path) -> None:
        self.name = module
        self._ready_file = ready_file
        ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", module, *arguments, "--ready-file", str(ready_file)]
        self.process = subprocess.Popen(
            [*command, "--exit-with-stdin", "--log-format", "json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
        )
        self._log: deque[str] = deque(maxlen=200)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        """Waits until the service serves; fails with its log if it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready_file.exists():
            try:
                code = self.process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise AssertionError(self.explain("did not serve in time")) from None
                continue
            raise AssertionError(self.explain(f"ended with status {code}"))
        return self._ready_file.read_text()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        """The last lines of its log."""
        return "".join(self._log)

    def wait_for_log(self, text: str) -> None:
        """Returns once a line with `text` is in the log."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while text not in self.log:
            if time.monotonic() > deadline:
                raise AssertionError(self.explain(f"never logged {text!r}"))
            threading.Event().wait(POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this process alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends it without a chance to say goodbye."""
        self.process.kill()
        self.process.wait(END_TIMEOUT_S)

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit status, once it has ended."""
        try:
            code = self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.explain("did not end in time")) from None
        self._reader.join(END_TIMEOUT_S)
        return code

    def end(self) -> None:
        """Ends it if it still runs, stopped or not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_TIMEOUT_S)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def explain(self, problem: str) -> str:
        """A failure message with the log's tail."""
        return f"{self.name} (pid {self.process.pid}) {problem}; its log ends with:\n{self.log}"

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._log.append(line)


class Processes:
    """Starts services; ends those that still run when it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[ServiceProcess] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for service in reversed(self._started):
            if service.process.poll() is None:
                service.process.send_signal(signal.SIGCONT)
                service.process.terminate()
        for service in reversed(self._started):
            service.end()

    def verify(self, model: str, *arguments: str, port: int = 0) -> ServiceProcess:
        """A verify service; returns at once."""
        return self.start("verify_service", "--model", model, *arguments, port=port)

    def draft(self, model: str, *arguments: str, port: int = 0) -> ServiceProcess:
        """A draft service; returns at once."""
        return self.start("draft_service", "--model", model, *arguments, port=port)

    def orchestrator(
        self,
        verify: "ServiceProcess | str",
        drafts: "Mapping[str, ServiceProcess | str]",
        *arguments: str,
        ray: str = "local",
        port: int = 0,
    ) -> ServiceProcess:
        """An orchestrator over services that serve already; each request has all drafts."""
        peers = ["--verify", verify if isinstance(verify, str) else verify.address]
        for name, draft in drafts.items():
            address = draft if isinstance(draft, str) else draft.address
            peers += ["--draft", f"{name}={address}"]
        if not drafts:
            peers += ["--draft", "none"]
        elif "--drafts-per-session" not in arguments:
            peers += ["--drafts-per-session", str(len(drafts))]
        http = () if "--http-port" in arguments else ("--no-http",)
        return self.start("orchestrator", "--ray", ray, *peers, *http, *arguments, port=port)

    def start(self, module: str, *arguments: str, port: int = 0) -> ServiceProcess:
        """`python -m module`; returns at once."""
        ready_file = self.folder / f"{module}-{len(self._started)}.address"
        service = ServiceProcess(module, ["--port", str(port), *arguments], ready_file)
        self._started.append(service)
        return service


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
