"""Command lines that run as processes: their output while it comes, their children, their end."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

TIMEOUT_S = 60.0
COMMAND = (sys.executable, "-c", "from outrider.command import main; raise SystemExit(main())")
"""As the installed `outrider` does, but of the interpreter and the sources that are tested."""


@dataclass(frozen=True)
class Finished:
    status: int
    stdout: str
    stderr: str


class Output:
    """What a pipe has given so far; whoever waits for a text gets it once it has come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = b""
        self._expected = 0
        self._is_over = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        with self._changed:
            return self._bytes.decode("utf-8", errors="replace")

    def wait_for(self, wanted: str, timeout_s: float = TIMEOUT_S) -> str:
        """All that came until `wanted` was in it."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: wanted.encode() in self._bytes or self._is_over, timeout_s
            )
        assert came and wanted in self.text, f"waited for {wanted!r}, got {self.text!r}"
        return self.text

    def wait_for_any(self) -> None:
        """Returns once something has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._bytes or self._is_over, TIMEOUT_S)

    def expect(self, wanted: str) -> None:
        """Waits for `wanted` behind the last thing that was expected."""
        with self._changed:
            self._changed.wait_for(lambda: self._found(wanted) >= 0 or self._is_over, TIMEOUT_S)
            at = self._found(wanted)
            assert at >= 0, f"expected {wanted!r}, got {self._bytes[self._expected :]!r}"
            self._expected = at + len(wanted.encode())

    def _found(self, wanted: str) -> int:
        return self._bytes.find(wanted.encode(), self._expected)

    def whole(self) -> str:
        self._reader.join(TIMEOUT_S)
        return self.text

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._descriptor, 65536)
            except OSError:  # A pseudo-terminal whose other end is closed.
                piece = b""
            with self._changed:
                self._bytes += piece
                self._is_over = not piece
                self._changed.notify_all()
            if not piece:
                return


class Running:
    """A running command line. Leaving its `with` block ends it and everything it started."""

    def __init__(self, arguments: Sequence[str], *, stdin: int = subprocess.DEVNULL) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout = Output(self.process.stdout.fileno())
        self.stderr = Output(self.process.stderr.fileno())
        self._seen: list[psutil.Process] = []

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.descendants()
            self.process.kill()
        for process in self._seen:
            if process.is_running():
                process.kill()
        self.process.wait(TIMEOUT_S)
        self.stdout.whole()
        self.stderr.whole()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def descendants(self) -> list[psutil.Process]:
        """Everything it has started, remembered for the end."""
        self._seen = psutil.Process(self.process.pid).children(recursive=True)
        return self._seen

    def child(self, module: str) -> psutil.Process:
        """The child that runs `python -m module`."""
        return next(p for p in self.descendants() if ["-m", module] == p.cmdline()[1:3])

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finished(self, timeout_s: float = TIMEOUT_S) -> Finished:
        status = self.process.wait(timeout_s)
        return Finished(status, self.stdout.whole(), self.stderr.whole())


def run(*arguments: str, text: str | None = None, timeout_s: float = TIMEOUT_S) -> Finished:
    """A command line from start to end, with `text` as its standard input."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input="" if text is None else text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def survivors(processes: Sequence[psutil.Process], timeout_s: float = 20.0) -> list[str]:
    """Those of `processes` that still run after all had time to end."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return [f"{p.pid} {' '.join(p.cmdline())}" for p in alive if p.status() != psutil.STATUS_ZOMBIE]


class Terminal:
    """A command line on a pseudo-terminal, ended with the `with` block."""

    def __init__(self, *arguments: str, term: str = "dumb") -> None:
        self._terminal, inside = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**environment, "TERM": term},
        )
        os.close(inside)
        self.screen = Output(self._terminal)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.screen.whole()
        os.close(self._terminal)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def type_until_it_ends(self, key: str) -> int:
        """Types a key again and again: one that comes before the editor reads keys is lost."""
        for _ in range(int(TIMEOUT_S)):
            self.type(key)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(1.0)
        raise AssertionError(f"it did not end, and shows {self.screen.text!r}")
