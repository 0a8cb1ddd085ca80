"""How the page looks and what it shows of the cluster, in Chromium before a real endpoint."""

import re
from pathlib import Path

import httpx
import pytest
from page.conftest import Opening, Theatre, ask
from playwright.sync_api import Page, expect
from support.browser import chromium

PIECES = [b"Soon", b" the", b" coach", b" is", b" there", b"."]
NARROW = {"viewport": {"width": 360, "height": 740}}


def brightness(page: Page) -> float:
    """Of the page's ground, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [float(part) for part in re.findall(r"[\d.]+", str(colour))[:3]]
    return sum(parts) / 3


def test_the_cluster_is_shown_while_it_works(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES, ("laptop", "oldgpu")))
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#model")).to_have_text("saying")
    cards = page.locator("#drafts .card")
    expect(cards.locator("h3 .token")).to_have_text(["laptop", "oldgpu"])
    expect(cards.locator(".state")).to_have_text(["ready", "ready"])
    expect(page.locator("#per-pass")).to_have_text("–")
    ask(page)
    expect(page.locator("#per-pass")).to_have_text(re.compile(r"^\d+\.\d\d$"))
    expect(page.locator("#acceptance")).to_have_text(re.compile("%$"))
    expect(page.locator("#idle")).to_have_text(re.compile("%$"))
    expect(page.locator("#positions li").first).to_be_visible()
    expect(cards.locator(".wrote").first).to_have_text(re.compile(r"wrote \d+%|wrote \d\.\d%"))
    theatre.stage.run(theatre.drafts["oldgpu"].server.stop(None))
    expect(cards.locator(".state")).to_have_text(["ready", "not usable"])
    expect(cards.last.locator(".problem")).not_to_be_empty()


def test_the_panel_comes_back_when_the_page_is_seen_again(
    theatre: Theatre, opened: Opening
) -> None:
    page = opened(theatre.says(PIECES))
    expect(page.locator("#connection")).to_have_text("live")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#connection")).to_have_text("The server cannot be reached.")
    page.context.set_offline(False)
    expect(page.locator("#connection")).to_have_text("live")


def test_it_follows_the_systems_scheme_until_the_reader_chooses(
    theatre: Theatre, opened: Opening
) -> None:
    base = theatre.says(PIECES)
    assert brightness(opened(base, color_scheme="light")) > 200
    page = opened(base, color_scheme="dark")
    assert brightness(page) < 60
    button = page.get_by_role("button", name="Dark scheme")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert brightness(page) > 200
    page.reload()
    assert brightness(page) > 200


def test_nothing_is_wider_than_a_phone(theatre: Theatre, opened: Opening) -> None:
    names = [f"a-draft-with-a-long-name-{number}" for number in range(9)]
    base = theatre.says([b"word" * 60, b"\n```\n", b"x" * 200, b"\n```\n", *PIECES], names)
    page = opened(base, **NARROW)

    def is_narrow() -> bool:
        return bool(page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"))

    assert is_narrow()
    ask(page)
    assert is_narrow()
    page.locator(".answer .token").last.click()
    expect(page.locator("#inspector")).to_be_visible()
    assert is_narrow()
    page.click("#show-settings")
    assert is_narrow()
    page.click("#show-cluster")
    expect(page.locator("#drafts .card")).to_have_count(9)
    expect(page.locator("#chat")).to_be_hidden()
    assert is_narrow()
    marks = page.locator("#drafts .card h3 .token").evaluate_all("all => all.map(t => t.className)")
    assert len(set(marks)) == 9, "each draft has a look of its own"
    reference = opened(base, "/docs", **NARROW)
    expect(reference.locator("article").last).to_be_visible()
    assert reference.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_the_reference_has_every_path_of_the_schema(theatre: Theatre, opened: Opening) -> None:
    base = theatre.says(PIECES)
    page = opened(base, "/docs")
    paths = httpx.get(f"{base}/openapi.json").json()["paths"]
    wanted = [path for path, methods in paths.items() for _ in methods]
    expect(page.locator("article h3 code")).to_have_text(wanted)
    chat = page.locator("article", has_text="/v1/chat/completions").first
    expect(chat.get_by_text("return_token_authors", exact=True)).to_be_visible()


def test_every_control_can_be_reached_and_has_a_name(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    expect(page.locator("#prompt")).to_be_focused()
    page.click("#show-settings")
    ask(page)
    page.locator("body").press("Tab")
    names: list[str] = []
    for _ in range(40):
        name = page.evaluate(
            """() => {
              const e = document.activeElement;
              if (e === document.body) return '';
              return e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() ||
                e.textContent.trim() || '?' + e.outerHTML;
            }"""
        )
        names.append(str(name))
        page.keyboard.press("Tab")
    told = " ".join(names)
    assert "?" not in told.replace("Who writes this?", ""), told
    for control in ("New chat", "Dark scheme", "Your message", "Drafts", "Settings", "Send"):
        assert control in told
    for field in ("Temperature", "Max tokens", "Seed", "System prompt"):
        assert field in told


def test_a_missing_browser_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install chromium"), chromium():
        pass


def test_no_request_leaves_the_origin(theatre: Theatre, opened: Opening) -> None:
    """`opened` watches every page for that; here is what they ask for instead."""
    base = theatre.says(PIECES)
    page = opened(base)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    ask(page)
    expect(page.locator("#connection")).to_have_text("live")
    page.goto(f"{base}/docs")
    expect(page.locator("article").last).to_be_visible()
    assert all(address.startswith(f"{base}/") for address in asked)
    paths = {address.removeprefix(base) for address in asked}
    assert {"/", "/docs", "/openapi.json", "/v1/cluster", "/v1/chat/completions"} <= paths
    assert all(path.startswith("/page/") for path in paths if "." in path and "openapi" not in path)


def test_a_key_that_can_be_no_key_is_asked_for_again(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES, api_key=["right"]))
    for key in ("k’", "right"):
        expect(page.locator("#key-form")).to_be_visible()
        page.fill("#key", key)
        page.press("#key", "Enter")
        if key != "right":
            expect(page.locator("#connection")).to_contain_text("a character that no key can have")
    expect(page.locator("#connection")).to_have_text("live")
    ask(page)


def test_a_browser_that_keeps_nothing_shows_it_all_the_same(
    theatre: Theatre, opened: Opening
) -> None:
    page = opened(theatre.says(PIECES))
    page.add_init_script(
        """for (const area of ["localStorage", "sessionStorage"]) {
            Object.defineProperty(window, area, {
                get() { throw new DOMException("blocked", "SecurityError"); },
            });
        }"""
    )
    page.reload()
    expect(page.locator("#connection")).to_have_text("live")
    page.click("#theme")
    ask(page)


def test_an_answer_that_is_cut_is_not_called_complete(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    page.click("#show-settings")
    page.fill("#max-tokens", "3")
    ask(page)
    expect(page.locator(".summary")).to_contain_text("cut at its longest length")
    expect(page.locator("#announcer")).to_contain_text("The answer ends early")
