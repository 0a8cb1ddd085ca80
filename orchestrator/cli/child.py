"""One service as a child process: started, watched, stopped. Knows no other child."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cli.interrupts import Interrupts

TAIL_LINES = 5
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run: `python -m module arguments`. `title` is how people are told about it."""

    name: str
    title: str
    module: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A service that dies with this process, whatever ends it: it watches its standard input.

    It gets a session of its own, so that Ctrl-C in the terminal reaches the parent only and so
    that everything it starts (Ray's processes) can be found.
    """

    def __init__(self, spec: ChildSpec, log_folder: Path, run_folder: Path) -> None:
        self.spec = spec
        self.log = log_folder / f"{spec.name}.log"
        self._is_swept = False
        self._ready_file = run_folder / f"{spec.name}.address"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", spec.module, *spec.arguments),
                    *("--exit-with-stdin", "--log-format", "json"),
                    *("--ready-file", str(self._ready_file)),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **spec.environment},
            )

    @property
    def pid(self) -> int:
        """Its process id, which is its session id too."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. What a dead one had started is ended once that is noticed."""
        if self._process.poll() is None:
            return True
        self._sweep()
        return False

    @property
    def address(self) -> str | None:
        """Where it serves; None before that."""
        try:
            return self._ready_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    @property
    def is_draft(self) -> bool:
        """Whether the others can do without it."""
        return self.spec.module == "draft_service"

    def epitaph(self) -> str:
        """Why it ended: in its own words where it had any, else how, and the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        last = _logged(lines[-1]).get("problem") if lines else None
        if isinstance(last, str):
            return f"{last} (log: {self.log})"
        telling = [line for line in lines if _is_telling(line)][-TAIL_LINES:]
        if not telling:
            return f"{self._ending()} (log: {self.log})"
        return "\n".join([f"{self._ending()}. The end of {self.log}:", *telling])

    def terminate(self) -> None:
        """Asks it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it and everything it started, at once."""
        self._process.kill()
        self._process.wait()
        self._sweep()

    def _sweep(self) -> None:
        """Once only: later its process id may belong to somebody else."""
        if self._is_swept:
            return
        self._is_swept = True
        end_session(self.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _ending(self) -> str:
        code = self._process.poll()
        if code is None or code >= 0:
            return f"it ended with status {code}"
        name = signal.Signals(-code).name
        hint = " (is there enough memory?)" if name == "SIGKILL" else ""
        return f"it was ended by {name}{hint}"


def end_all(children: Sequence[Child], within_s: float, interrupts: Interrupts) -> None:
    """Ends what still runs: with SIGTERM, and what runs on after `within_s`, or when one more
    signal comes meanwhile, with SIGKILL."""
    running = [child for child in children if child.is_alive]
    for child in running:
        child.terminate()
    deadline = time.monotonic() + within_s
    while any(child.is_alive for child in running):
        if time.monotonic() > deadline or interrupts.is_repeated:
            break
        time.sleep(POLL_S)
    for child in running:
        if child.is_alive:
            child.kill()


def _logged(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _is_telling(line: str) -> bool:
    """Whether a line may say what went wrong: it is no entry of ours, or one about a problem."""
    entry = _logged(line)
    return not entry or "problem" in entry or entry.get("level") in ("error", "critical")


def end_session(session_id: int) -> None:
    """Ends every process of a session, at once."""
    for pid in _session(session_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session(session_id: int) -> Iterator[int]:
    """The processes of a session. Its id cannot be taken by another one while any of them runs."""
    if Path("/proc/self").exists():
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True)
        pids = [int(word) for word in listed.stdout.split()]
    for pid in pids:
        try:
            if os.getsid(pid) == session_id:
                yield pid
        except (ProcessLookupError, PermissionError):
            continue
