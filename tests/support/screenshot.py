"""Takes the README's picture of the page, from a real run over the packaged small model.

`PYTHONPATH=tests python -m support.screenshot [FOLDER]` writes page.png below FOLDER, which is
docs/images unless told otherwise, and with `--all` other views of it, to look at.
"""

import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from orchestrator.cli.interrupts import Interrupts
from orchestrator.cli.serve import bring_up
from orchestrator.cli.stack import Stack
from orchestrator.cli.stack_plan import StackPlan
from support.browser import chromium

ROOT = Path(__file__).resolve().parents[2]
PLAN = StackPlan(
    "smollm2-f32.gguf",
    ("smollm2.gguf", "ngram:"),
    http_port=0,
    orchestrator=("--ray", "local"),
)
QUESTION = "Why is the sky blue?"
SETTINGS = {"temperature": "0", "max-tokens": "130"}
ANSWER_MS = 120_000


def opened(browser: Browser, base: str, width: int, height: int, scheme: str) -> Page:
    """The page with an answer."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(base)
    page.click("#show-settings")
    for name, value in SETTINGS.items():
        page.fill(f"#{name}", value)
    page.click("#show-settings")
    page.fill("#prompt", QUESTION)
    page.press("#prompt", "Enter")
    return page


def answered(page: Page) -> Page:
    """The page once the answer is whole, and its drafts' work is counted."""
    expect(page.locator(".answer:not(.writing)")).to_be_visible(timeout=ANSWER_MS)
    expect(page.locator("#drafts .card dd").first).not_to_have_text("–")
    return page


def point_at(page: Page, word: str) -> None:
    """Shows what else was likely at the last token with this text."""
    page.locator(".answer .token", has_text=word).last.hover()


def main(folder: Path, *, has_all: bool) -> None:
    """Writes the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with Interrupts() as interrupts, Stack(PLAN, interrupts) as stack, chromium() as browser:
        bring_up(stack)
        base = f"http://127.0.0.1:{stack.plan.http_port}/"
        page = answered(opened(browser, base, 1240, 800, "light"))
        point_at(page, "wavelengths")
        page.screenshot(path=folder / "page.png")
        if not has_all:
            return
        page = opened(browser, base, 1240, 800, "dark")
        expect(page.locator(".answer.writing .token").nth(12)).to_be_attached(timeout=ANSWER_MS)
        page.screenshot(path=folder / "dark-writing.png")
        page = answered(page)
        point_at(page, "wavelengths")
        page.screenshot(path=folder / "dark.png")
        page.get_by_role("button", name="Again without drafts").click()
        expect(page.locator(".outcome")).to_be_visible(timeout=ANSWER_MS)
        page.screenshot(path=folder / "dark-compared.png")
        page = answered(opened(browser, base, 360, 740, "light"))
        page.screenshot(path=folder / "phone.png")
        page.locator(".answer .token.by-draft").first.click()
        page.screenshot(path=folder / "phone-token.png")
        page.click("#show-cluster")
        page.screenshot(path=folder / "phone-cluster.png")
        page.goto(base)
        page.screenshot(path=folder / "phone-welcome.png")
        for name, path in (("welcome", ""), ("reference", "docs")):
            page = browser.new_page(viewport={"width": 1240, "height": 800})
            page.goto(base + path)
            page.wait_for_timeout(1500)
            page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    rest = [argument for argument in sys.argv[1:] if argument != "--all"]
    main(Path(rest[0]) if rest else ROOT / "docs/images", has_all="--all" in sys.argv)
