"""Chromium as the system has it, and what a page asks for and complains of."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; fails with what to install where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise RuntimeError(
            f"there is no {' or '.join(NAMES)} on the PATH; install one: apt-get install chromium"
        )
    # As root it has no sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page, and what is held against it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.problems.append(f"threw {error}"))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self._look(request.url))

    def _note(self, message: Any) -> None:
        # What the endpoint refuses is an error to the console, too; a broken policy is ours.
        if "Content Security Policy" in message.text or "Trusted" in message.text:
            self.problems.append(message.text)

    def _look(self, url: str) -> None:
        self.asked.append(url)
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.problems.append(f"asked {url}")
