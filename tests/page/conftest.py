"""A browser before the page of a real endpoint over scripted models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from support.browser import Watched, chromium
from support.local import Local, Running
from support.saying import SayingModel
from support.stage import Stage

Opening = Callable[..., Page]

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as services:
        yield services


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opening]:
    """Opens pages; none may ask another origin for anything, break its own policy, or throw."""
    watched: list[Watched] = []

    def open_page(base: str, path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        page = context.new_page()
        page.set_default_timeout(20_000)
        watched.append(Watched(page, base))
        page.goto(base + path)
        return page

    yield open_page
    for one in watched:
        one.page.context.close()
    assert [problem for one in watched for problem in one.problems] == []
    assert all(len(one.asked) >= 5 for one in watched), "the page was not looked at"


class Theatre:
    """Endpoints over models that say a text, with drafts that know it."""

    def __init__(self, stage: Stage, local: Local) -> None:
        self.stage = stage
        self._local = local
        self.drafts: dict[str, Running] = {}

    def says(
        self, pieces: Sequence[bytes], names: Sequence[str] = ("laptop",), **settings: Any
    ) -> str:
        """The base address of an endpoint that answers `?` with `pieces`."""
        drafts = {name: SayingModel(pieces, drift=0.3) for name in names}
        return self.runs(SayingModel(pieces), drafts, **settings)

    def runs(self, target: Any, drafts: Mapping[str, Any], **settings: Any) -> str:
        """The base address of an endpoint over these models. A pass waits for drafts: the target
        takes no time, and would be done before they have begun."""

        # More than one pass, even where all is accepted.
        settings.setdefault("num_speculative_tokens", 3)

        async def open_all() -> str:
            local = self._local
            verify = await local.verify(target)
            self.drafts = {name: await local.draft(model) for name, model in drafts.items()}
            if drafts:
                settings.setdefault("wait_nodes", 2)
                settings.setdefault("max_wait_ms", 5000)
            return await local.gateway(verify, self.drafts, **settings)

        return self.stage.run(open_all())


@pytest.fixture
def theatre(stage: Stage) -> Iterator[Theatre]:
    local = Local()
    yield Theatre(stage, local)
    stage.run(local.__aexit__())


def ask(page: Page, text: str = "?") -> None:
    """Sends a message, and waits for the end of the answer."""
    count = page.locator(".answer").count()
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")
    expect(page.locator(".answer:not(.writing)")).to_have_count(count + 1)


def said(page: Page) -> str:
    """The text of the last answer, as it is in the document."""
    return page.locator(".answer .text").last.evaluate(
        "node => [...node.querySelectorAll('.token:not(.silent)')].map(t => t.textContent).join('')"
    )
