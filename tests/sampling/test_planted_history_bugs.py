"""Rows conditioned on the wrong history: the enumeration must reject each of them (trap 5)."""

from collections.abc import Callable

import pytest

from outrider.sampling import accepting
from outrider.sampling.history import History
from outrider.types import AcceptanceMode

from .enumeration import Draft, Verify
from .planting import CLEARLY_WRONG, EXACT, Plant, swapped
from .test_history_law import REQUESTS, knowing, simulation

Rows = accepting._Rows
HistoryAt = Callable[[Rows, int], History]

real_history = Rows._history


def committed_only(rows: Rows, row: int) -> History:
    """Every row is conditioned on the tokens before the pass."""
    return real_history(rows, 0)


def bonus_row_one_token_behind(rows: Rows, row: int) -> History:
    """A row that nothing hangs off, of which the bonus token comes, forgets its own token."""
    is_last = row > 0 and not rows._subtree.children[row]
    return real_history(rows, rows._subtree.parents[row - 1] if is_last else row)


def in_the_order_of_the_rows(rows: Rows, row: int) -> History:
    """All nodes of the pass that come before a row, on other branches, too."""
    return real_history(rows, 0).after([node.token for node in rows._subtree.nodes[:row]])


def bonus_row_free_of_the_grammar(rows: Rows, row: int) -> History:
    """The request holds at every drafted token, and not at the one after them."""
    is_last = row > 0 and not rows._subtree.children[row]
    return accepting.NO_HISTORY if is_last else real_history(rows, row)


BUGS: dict[str, tuple[HistoryAt, tuple[str, ...]]] = {
    "committed-only": (
        committed_only,
        ("repetition", "presence-and-frequency", "min-tokens", "regex"),
    ),
    "bonus-row-one-token-behind": (
        bonus_row_one_token_behind,
        ("repetition", "presence-and-frequency", "regex"),
    ),
    "other-branches-counted": (in_the_order_of_the_rows, ("repetition", "presence-and-frequency")),
    "bonus-row-free": (bonus_row_free_of_the_grammar, ("presence-and-frequency", "regex")),
}
ONE_PASS = (Draft(0, 1), Draft(1, 2), Verify(4))
MODES = (AcceptanceMode.REJECTION, AcceptanceMode.BLOCK, AcceptanceMode.MATCH)


def plant(bug: str, request: str, mode: AcceptanceMode) -> Plant:
    wanted = REQUESTS[request]
    sampling = wanted.params(mode)
    drafts = knowing(wanted, sampling, width=2)
    length = 1 + max(wanted.min_tokens, 1)  # a shortest length shows in the token after it
    right = simulation(wanted, sampling, drafts, ONE_PASS, length=length)
    return swapped(right, "_history", BUGS[bug][0], owner=Rows)


CASES = [(bug, request) for bug, (_, requests) in BUGS.items() for request in requests]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("bug", "request_"), CASES)
def test_enumeration_rejects_the_bug(
    bug: str, request_: str, mode: AcceptanceMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plant(bug, request_, mode).error(monkeypatch) > CLEARLY_WRONG


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("bug", "request_"), CASES)
def test_the_same_scenario_without_the_bug_is_exact(
    bug: str, request_: str, mode: AcceptanceMode
) -> None:
    assert plant(bug, request_, mode).right.deviation() < EXACT
