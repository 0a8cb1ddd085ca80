"""The services of the scale rig as processes of this machine, with delay proxies between them.

Knows processes, addresses and what they use of the machine; sends no request.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.machine import ROOT
from orchestrator.cli.child import Child, ChildSpec, end_all
from orchestrator.cli.interrupts import Interrupts
from outrider.errors import UnavailableError

POLL_S = 0.05
START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 15.0


class Proxy:
    """A delay proxy in front of an address."""

    def __init__(self, to: str, one_way_ms: float) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.delay_proxy", "--to", to),
                *("--one-way-ms", f"{one_way_ms:g}", "--exit-with-stdin"),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._process.stdout is None:
            raise UnavailableError("the delay proxy has no standard output")
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise UnavailableError(f"the delay proxy in front of {to} did not start")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def end(self) -> None:
        """Ends it, if it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Services:
    """Starts services; every one it started is ended when its `with` block is left."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._folder = tempfile.TemporaryDirectory(prefix="outrider-protocol-")
        self._children: dict[str, Child] = {}
        self._proxies: dict[str, Proxy] = {}

    def __enter__(self) -> "Services":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._interrupts.defer()
        end_all(list(reversed(self._children.values())), END_TIMEOUT_S, self._interrupts)
        for proxy in self._proxies.values():
            proxy.end()
        self._folder.cleanup()

    def __contains__(self, name: str) -> bool:
        """Whether a service of this name was started."""
        return name in self._children

    def start(self, name: str, module: str, *arguments: str) -> None:
        """`python -m module`; returns at once."""
        folder = Path(self._folder.name)
        # Scripted models need no threads, and spinning ones would take the cores from the others.
        environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        spec = ChildSpec(
            name, name, module, ("--port", "0", "--grace-s", "1", *arguments), environment
        )
        self._children[name] = Child(spec, folder, folder)

    def address(self, name: str) -> str:
        """Where a service serves; waits for it, and raises UnavailableError with its last words
        where it ended or takes too long.
        """
        child = self._children[name]
        deadline = time.monotonic() + START_TIMEOUT_S
        while child.address is None:
            if not child.is_alive:
                raise UnavailableError(f"{name} could not start: {child.epitaph()}")
            if time.monotonic() > deadline:
                raise UnavailableError(f"{name} does not serve after {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        return child.address

    def behind(self, name: str, rtt_ms: float) -> str:
        """The address of a service as seen from `rtt_ms` away; 0: the service's own."""
        address = self.address(name)
        if rtt_ms == 0:
            return address
        key = f"proxy of {name} at {rtt_ms:g} ms"
        if key not in self._proxies:
            self._proxies[key] = Proxy(address, rtt_ms / 2)
        return self._proxies[key].address

    def orchestrator(
        self, name: str, verify: str, drafts: Mapping[str, str], flags: Sequence[str]
    ) -> None:
        """An orchestrator without Ray over addresses; returns at once."""
        told = ",".join(f"{draft}={address}" for draft, address in drafts.items())
        peers = ("--verify", verify, "--draft", told or "none")
        self.start(name, "orchestrator", "--ray", "local", "--no-http", *peers, *flags)

    def resident_bytes(self) -> dict[str, int]:
        """Resident memory of each service."""
        return {n: psutil.Process(c.pid).memory_info().rss for n, c in self._children.items()}

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds that each process has used so far; `client` is this one."""
        pids = {name: child.pid for name, child in self._children.items()}
        pids |= {name: proxy.pid for name, proxy in self._proxies.items()}
        pids["client"] = psutil.Process().pid
        times = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items()}
        return {name: used.user + used.system for name, used in times.items()}
