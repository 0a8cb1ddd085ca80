"""What is being waited for, on standard error: alive on a terminal, lines that stay elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from orchestrator.cli.console import say

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn

LINE_EVERY_S = 10.0
"""Where there is no terminal, a transfer is told of so often."""


class Progress:
    """A wait of unknown length: a spinner and a clock on a terminal, nothing but the said lines
    elsewhere."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._started = time.monotonic()

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            self._bars = _bars(SpinnerColumn(), text, TimeElapsedColumn())
            self._bars.add_task("", total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    def waits_for(self, text: str) -> None:
        """Shows what is waited for now, and from when on."""
        if self._bars is not None:
            self._bars.start()
            self._bars.update(self._bars.task_ids[0], description=text)

    def says(self, text: str) -> None:
        """A line that stays."""
        say(text)


class Transfer:
    """Bytes that come: a bar with sizes, speed and time left on a terminal, a line now and then
    elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bars: Bars | None = None
        self._started = self._told = time.monotonic()

    def __enter__(self) -> "Transfer":
        if sys.stderr.isatty():
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            text = TextColumn("{task.description}", markup=False)
            self._bars = _bars(
                *(text, BarColumn(), DownloadColumn(), TransferSpeedColumn()),
                TimeRemainingColumn(compact=True),
            )
            self._bars.add_task(self._what, total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def report(self, done: int, total: int) -> None:
        """So many bytes of so many are here."""
        if self._bars is not None:
            # Not before: what fetches a packaged model draws a bar of its own.
            self._bars.start()
            self._bars.update(self._bars.task_ids[0], completed=done, total=total)
            return
        now = time.monotonic()
        if now - self._told >= LINE_EVERY_S:
            self._told = now
            speed = sized(int(done / (now - self._started)))
            say(f"{self._what}: {sized(done)} of {sized(total)}, {speed}/s")


def sized(count: int) -> str:
    """Bytes for people.

    >>> sized(999), sized(93_400_000), sized(2 * 10**9)
    ('999 B', '93.4 MB', '2.0 GB')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _bars(*columns: "ProgressColumn") -> "Bars":
    from rich.console import Console
    from rich.progress import Progress as Bars

    return Bars(*columns, console=Console(stderr=True), transient=True)
