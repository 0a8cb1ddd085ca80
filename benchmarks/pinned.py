"""Processes on cores of their own. Knows processes and cores, not what runs."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from outrider.errors import InvalidArgumentError, UnavailableError

END_TIMEOUT_S = 15.0
ROOT = Path(__file__).resolve().parent.parent

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""For a process that has one core: no thread pool, and nothing that spins while it waits."""


def chosen_cores(asked: Sequence[int] = ()) -> tuple[int, int]:
    """The target's core and that of everything else: those asked for, else the first two.

    Raises:
        InvalidArgumentError: there are not two different usable cores, or processes cannot be
            bound to cores here.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise InvalidArgumentError(
            f"{sys.platform} cannot bind processes to cores, as the rig does; run it on Linux"
        )
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise InvalidArgumentError(
            f"{len(usable)} core is usable here; the rig needs two, one as each machine"
        )
    if not asked:
        return usable[0], usable[1]
    if len(set(asked)) != 2 or not set(asked) <= set(usable):
        listed = ", ".join(map(str, usable))
        raise InvalidArgumentError(
            f"cores are {','.join(map(str, asked))}; give two different ones of {listed}"
        )
    return asked[0], asked[1]


def bind(core: int) -> None:
    """Binds the calling thread, and all that it starts from now on, to one core."""
    os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def started_on(core: int) -> Iterator[None]:
    """Processes that are started inside run on `core` from their first instruction on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class LineProcess:
    """`python -m module`, which says something in lines on its standard output.

    It ends when its standard input does, so that it does not outlive this process.
    """

    def __init__(self, module: str, arguments: Sequence[str], core: int, log: Path) -> None:
        self.module = module
        self.log = log
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with log.open("wb") as log_file, started_on(core):
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
                start_new_session=True,
                env={**os.environ, **ONE_THREAD},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def line(self, timeout_s: float) -> str:
        """Its next line.

        Raises:
            UnavailableError: it ended, or said nothing in time.
        """
        try:
            said = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise UnavailableError(
                f"{self.module} said nothing for {timeout_s:.0f} s; its log: {self.log}"
            ) from None
        if not said:
            raise UnavailableError(f"{self.module} ended: {self._last_words()}")
        return said.rstrip("\n")

    def tell(self, line: str) -> None:
        """Sends it a line.

        Raises:
            UnavailableError: it ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise UnavailableError(f"{self.module} ended: {self._last_words()}") from None

    def end(self) -> None:
        """Ends it, by force where it does not by itself."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self.is_alive:
            self.process.terminate()
        deadline = time.monotonic() + END_TIMEOUT_S
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(END_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _last_words(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        said = lines[-1] if lines else f"status {self.process.poll()}"
        return f"{said} (log: {self.log})"
