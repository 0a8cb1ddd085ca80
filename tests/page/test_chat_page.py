"""The conversation on the page, in a real Chromium before a real endpoint."""

import re
from typing import Any

import httpx
import pytest
from page.conftest import Opening, Theatre, ask, said
from playwright.sync_api import Page, expect
from support.saying import as_bytes

SLOW = "scripted:vocab=62,seed=3,step_ms=15"
PIECES = [
    *(b"The", b" outrider", b" rides", b" ahead", b".", b"\n", b"\n"),
    *(b"So", b" it", b" is", b"."),
]
TEXT = b"".join(PIECES).decode()


def authors(page: Page) -> list[str]:
    """Who wrote each token of the last answer, as the document says."""
    tokens = page.locator(".answer .text").last.locator(".token")
    return [str(name) for name in tokens.evaluate_all("all => all.map(t => t.dataset.author)")]


def test_an_answer_shows_who_wrote_each_token(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    ask(page)
    assert said(page) == TEXT
    names = authors(page)
    assert set(names) == {"laptop", ""}, "the draft wrote some, the target at least the last"
    expect(page.locator("#legend li")).to_have_text(["target", "laptop"])
    looks = {
        name: page.locator(f".answer .token[data-author='{name}']").first.evaluate(
            "t => [getComputedStyle(t).backgroundColor, getComputedStyle(t).textDecorationLine]"
        )
        for name in ("", "laptop")
    }
    assert looks[""] != looks["laptop"]
    assert looks["laptop"][1] == "underline", "colours are not the only sign"
    summary = page.locator(".summary").inner_text()
    assert f"{len(PIECES) + 1} tokens" in summary
    assert "drafted" in summary


def test_pointing_at_a_token_shows_what_else_was_likely(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    ask(page)
    inspector = page.locator("#inspector")
    expect(inspector).to_be_hidden()
    page.locator(".answer .token", has_text="outrider").hover()
    expect(inspector).to_be_visible()
    expect(inspector.locator(".name")).to_have_text("␣outrider")
    expect(inspector.locator(".ranking li")).to_have_count(5)
    expect(inspector.locator(".ranking .taken code")).to_have_text("␣outrider")
    expect(inspector.locator("strong")).to_have_text(re.compile(r"%$"))
    expect(inspector.locator(".author")).to_have_text(
        re.compile("laptop drafted it, the target accepted|the target wrote it")
    )
    page.locator("#legend").hover()
    expect(inspector).to_be_hidden()


def test_the_keyboard_alone_reaches_every_token(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    page.keyboard.type("?")
    page.keyboard.press("Enter")
    expect(page.locator(".answer:not(.writing)")).to_have_count(1)
    inspector = page.locator("#inspector")
    for _ in range(8):
        if page.evaluate("document.activeElement.classList.contains('token')"):
            break
        page.keyboard.press("Shift+Tab")
    expect(inspector.locator(".name")).to_have_text("The")
    focused = page.locator(".token:focus")
    expect(focused).to_have_attribute("aria-describedby", "inspector")
    page.keyboard.press("ArrowRight")
    expect(inspector.locator(".name")).to_have_text("␣outrider")
    page.keyboard.press("ArrowDown")
    expect(inspector.locator(".place")).to_have_text(re.compile("pass 2 · token 1"))
    page.keyboard.press("End")
    expect(inspector.locator(".name")).to_have_text("<end>")
    page.keyboard.press("Escape")
    expect(inspector).to_be_hidden()
    page.keyboard.press("Home")
    expect(inspector.locator(".name")).to_have_text("The")


def test_stop_ends_the_answer_on_the_server_and_keeps_what_was_said(
    theatre: Theatre, opened: Opening
) -> None:
    base = theatre.runs(SLOW, {})
    page = opened(base)
    page.click("#show-settings")
    page.fill("#max-tokens", "4000")
    page.fill("#prompt", "go on")
    page.press("#prompt", "Enter")
    tokens = page.locator(".answer.writing .token")
    expect(tokens.nth(5)).to_be_attached()
    assert running(base) == 1
    page.click("#stop")
    expect(page.locator(".answer.stopped:not(.writing)")).to_be_visible()
    expect(page.locator("#send")).to_be_visible()
    page.wait_for_function(
        "async () => (await (await fetch('v1/cluster')).json()).work.running_requests === 0"
    )
    part = said(page)
    page.fill("#max-tokens", "3")
    with page.expect_request("**/v1/chat/completions") as asking:
        ask(page, "and now?")
    assert asking.value.post_data_json["messages"] == [
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": part},
        {"role": "user", "content": "and now?"},
    ]


def running(base: str) -> int:
    """Requests that the endpoint is answering."""
    return int(httpx.get(f"{base}/v1/cluster").json()["work"]["running_requests"])


def test_settings_are_sent_and_a_new_chat_forgets(theatre: Theatre, opened: Opening) -> None:
    page = opened(theatre.says(PIECES))
    page.click("#show-settings")
    for field, value in (
        ("temperature", "0.25"),
        ("max-tokens", "4"),
        ("seed", "11"),
        ("system", "Be brief."),
    ):
        page.fill(f"#{field}", value)
    page.uncheck("#drafts-on")
    with page.expect_request("**/v1/chat/completions") as asking:
        ask(page)
    sent: dict[str, Any] = asking.value.post_data_json
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.25, 4, 11)
    assert sent["max_drafts"] == 0
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert set(authors(page)) == {""}, "without drafts the target writes all"
    page.click("#new-chat")
    expect(page.locator(".turn")).to_have_count(0)
    page.fill("#system", "")
    page.fill("#seed", "")
    page.check("#drafts-on")
    with page.expect_request("**/v1/chat/completions") as asking:
        ask(page)
    sent = asking.value.post_data_json
    assert len(sent["messages"]) == 1
    assert "max_drafts" not in sent
    assert 0 <= sent["seed"] < 2**32, "drawn here: the answer can be repeated"


def test_the_same_question_without_drafts_has_the_same_answer(
    theatre: Theatre, opened: Opening
) -> None:
    target = "scripted:vocab=62,seed=3"
    page = opened(theatre.runs(target, {"laptop": f"{target},drift=0.3"}))
    page.click("#show-settings")
    page.fill("#max-tokens", "40")
    ask(page)
    text = said(page)
    page.get_by_role("button", name="Again without drafts").click()
    outcome = page.locator(".outcome")
    expect(outcome).to_have_text(re.compile("^The same text, letter for letter: .* instead of 40"))
    assert said(page) == text
    assert set(authors(page)) == {""}


def test_an_error_is_told_as_the_endpoint_tells_it(theatre: Theatre, opened: Opening) -> None:
    base = theatre.says(PIECES)
    page = opened(base)
    long = "?" * 9000
    page.fill("#prompt", long)
    page.press("#prompt", "Enter")
    body = {"messages": [{"role": "user", "content": long}]}
    refused = httpx.post(f"{base}/v1/chat/completions", json=body)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(refused.json()["error"]["message"])
    expect(alert).to_contain_text(str(refused.status_code))
    expect(page.locator("#prompt")).to_have_value(long)
    page.fill("#prompt", "?")
    page.press("#prompt", "Enter")
    expect(page.locator(".answer .token").first).to_be_visible()


def test_a_key_is_asked_for_kept_in_the_tab_and_never_in_an_address(
    theatre: Theatre, opened: Opening
) -> None:
    base = theatre.says(PIECES, api_key=["right-key"])
    page = opened(base)
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    field = page.get_by_label("API key")
    for key in ("wrong-key", "right-key"):
        expect(field).to_be_visible()
        field.fill(key)
        field.press("Enter")
        expect(field).to_have_value("")
        if key == "wrong-key":
            expect(page.locator("#connection")).to_have_text("An API key is wanted.")
    expect(page.locator("#connection")).to_have_text("live")
    expect(field).to_be_hidden()
    ask(page)
    assert said(page) == TEXT
    assert not any("right-key" in address for address in addresses)
    assert page.evaluate("JSON.stringify(localStorage)").count("right-key") == 0
    page.reload()
    expect(page.locator("#connection")).to_have_text("live")
    page.click("#show-settings")
    page.click("#forget-key")
    expect(field).to_be_visible()


@pytest.mark.parametrize("is_split", [False, True])
def test_hostile_text_stays_text(theatre: Theatre, opened: Opening, is_split: bool) -> None:
    evil = "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>\n&lt;b>\u202e\n"
    pieces = as_bytes(evil) if is_split else [evil.encode()]
    page = opened(theatre.says(pieces))
    ask(page)
    assert said(page) == evil
    page.locator(".answer .token").first.hover()
    expect(page.locator("#inspector")).to_be_visible()
    page.fill("#prompt", evil)
    page.press("#prompt", "Enter")
    expect(page.locator(".said").last).to_contain_text("<script>")
    assert page.locator("#turns img, #turns script, #turns b, #inspector script").count() == 0
    assert page.evaluate("window.owned") is None


def test_blanks_code_and_split_characters_come_out_whole(theatre: Theatre, opened: Opening) -> None:
    code = "Né 🐎:\n```python\nif  x:\n    go()\t# ok\n```\nEnd  of it"
    page = opened(theatre.says(as_bytes(code)))
    ask(page)
    assert said(page) == code
    lines = page.locator(".line.code")
    assert lines.evaluate_all("all => all.map(l => l.textContent)") == [
        "if  x:\n",
        "    go()\t# ok\n",
    ]
    assert lines.first.evaluate("l => getComputedStyle(l).whiteSpace") in ("pre-wrap", "preserve")
    horse = page.locator(".token", has_text="🐎")
    horse.hover()
    expect(page.locator("#inspector section")).to_have_count(4)
    expect(page.locator("#inspector .hint")).to_contain_text("4 tokens make this text")
