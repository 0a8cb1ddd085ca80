"""The rates that the page makes of the endpoint's counters, in the browser that shows them."""

from typing import Any

import pytest
from page.conftest import Opening, Theatre
from playwright.sync_api import Page

NOTHING = {
    "emitted_tokens": 0,
    "target_passes": 0,
    "drafted_passes": 0,
    "verified_tokens": 0,
    "accepted_tokens": 0,
    "accepted_per_position": [],
    "forward_seconds": 0,
    "idle_seconds": 0,
}


def worked(passes: int, each: int = 4) -> dict[str, Any]:
    return {
        **NOTHING,
        "emitted_tokens": passes * each,
        "target_passes": passes,
        "drafted_passes": passes,
        "verified_tokens": passes * each,
        "accepted_tokens": passes * (each - 1),
        "accepted_per_position": [passes] * (each - 1),
        "forward_seconds": passes,
        "idle_seconds": passes / 4,
    }


def rates(page: Page, *states: tuple[float, float, dict[str, Any]]) -> dict[str, Any]:
    """The figures behind states, each (when it came, since when its server counts, its work)."""
    return dict(
        page.evaluate(
            """async (states) => {
                const { Rates } = await import("/page/rates.js");
                const rates = new Rates();
                for (const [at, since, work] of states) rates.take({ since, work }, at);
                return { ...rates.figures, speed: rates.speed };
            }""",
            [list(state) for state in states],
        )
    )


@pytest.fixture
def page(theatre: Theatre, opened: Opening) -> Page:
    return opened(theatre.says([b"a"]))


def test_what_was_seen_last_stays_however_long_nothing_is_asked(page: Page) -> None:
    busy = [(float(at), 1.0, worked(at)) for at in range(20)]
    idle = [(20.0 + at, 1.0, worked(19)) for at in range(200)]
    for states in (busy, busy + idle):
        found = rates(page, *states)
        assert (found["tokensPerPass"], found["acceptance"]) == (4, 0.75)
        assert (found["idle"], found["positions"]) == (0.2, [1, 1, 1])
    assert found["speed"] == 0


def test_only_the_last_minute_of_work_counts(page: Page) -> None:
    slow = [(float(at), 1.0, worked(at, 1)) for at in range(100)]
    base = slow[-1][2]
    quick = [
        (100.0 + at, 1.0, {name: _added(base[name], value) for name, value in worked(at).items()})
        for at in range(100)
    ]
    assert rates(page, *slow, *quick)["tokensPerPass"] == 4


def test_a_server_that_began_anew_counts_from_nothing(page: Page) -> None:
    old = [(float(at), 1.0, worked(at, 1)) for at in range(5)]
    new = [(5.0 + at, 9.0, worked(50 + at)) for at in range(5)]
    found = rates(page, *old, *new)
    assert found["tokensPerPass"] == 4
    assert found["speed"] == pytest.approx(4.0)


def test_a_gap_makes_no_speed(page: Page) -> None:
    """As of a page that nobody saw for an hour."""
    assert rates(page, (0.0, 1.0, worked(0)), (3600.0, 1.0, worked(9000)))["speed"] == 0


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, list):
        longest = max(len(one), len(other))
        padded = [[*part, *[0] * (longest - len(part))] for part in (one, other)]
        return [a + b for a, b in zip(*padded, strict=True)]
    return one + other
