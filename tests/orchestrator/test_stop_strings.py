"""Where a stop string ends an answer: everything ends at the same token (exactness, trap 9)."""

from typing import Any

import pytest
from fake_session import chain, session, verdict

from orchestrator.requests import TokenLogprob
from outrider.errors import InternalError
from outrider.types import FinishReason, StopConditions, TokenLogprobs

# The tokens: 0 "a", 1 "b", 2 and 3 the two bytes of "é", 4 a control token.
RUN = (0, 1, 0, 1, 0, 1, 0, 0)


def ended(s: Any) -> tuple[str, FinishReason]:
    """The stop string and the reason."""
    finished = s.finished()
    return finished.stop_string, finished.finish_reason


def test_all_ends_at_the_token_that_completes_a_stop_string_inside_an_accepted_run() -> None:
    s = session("a", "b", speculative=4, stop_strings=("ba",), logprobs=0)
    s.relay(s.drafts[1], chain(1, *RUN[:2]))
    s.relay(s.drafts[2], chain(2, *RUN))
    links = [s.verify, *(draft.link for draft in s.drafts.values())]
    ids = (1 << 24, 1 << 24 | 1, *(2 << 24 | i for i in range(2, 7)), 0)
    run = verdict(0, *RUN, ids=ids, drafted=9, logprobs=(TokenLogprobs(-0.5),) * 8)
    tokens = s.reconcile(run).tokens
    assert [token.id for token in tokens] == [0, 1, 0]
    assert [token.text for token in tokens] == ["a", "", ""]
    assert [token.logprob for token in tokens] == [
        TokenLogprob(0, -0.5, b"a"),
        TokenLogprob(1, -0.5, b"b"),
        TokenLogprob(0, -0.5, b"a"),
    ]
    assert s.tree.committed == [0, 1, 0]
    assert (s.stats.emitted_tokens, s.stats.accepted_tokens) == (3, 3)
    counts = [(d.name, d.drafted_tokens, d.accepted_tokens) for d in s.stats.drafts]
    assert counts == [("a", 2, 2), ("b", 8, 1)]
    assert all(link.is_closed for link in links), "the verifier would go on"
    assert [link.commits for link in links[1:]] == [[], []]
    assert ended(s) == ("ba", FinishReason.STOP)


def test_a_stop_string_split_over_rounds_was_not_told_before() -> None:
    s = session(stop_strings=("aba",))
    texts = [t.text for t in s.reconcile(verdict(0, 1, 0, 1)).tokens]
    assert texts == ["b", "", ""]
    assert s.finish_reason is None
    assert [t.text for t in s.reconcile(verdict(3, 0, 1)).tokens] == [""]
    assert s.tree.committed == [1, 0, 1, 0]
    assert ended(s) == ("aba", FinishReason.STOP)


def test_what_was_held_for_a_stop_string_comes_out_with_the_last_token() -> None:
    s = session(stop_strings=("abab",))
    texts = [
        t.text
        for t in s.reconcile(verdict(0, 0, 1, 0, 2, finish_reason=FinishReason.LENGTH)).tokens
    ]
    assert texts == ["", "", "", "aba\ufffd"]
    assert ended(s) == ("", FinishReason.LENGTH)


@pytest.mark.parametrize(("is_included", "texts"), [(False, ["a", "", ""]), (True, ["a", "", "é"])])
def test_a_character_of_several_tokens_can_be_the_stop_string(
    is_included: bool, texts: list[str]
) -> None:
    s = session(stop_strings=("é",), include_stop_string=is_included)
    assert [t.text for t in s.reconcile(verdict(0, 0, 2, 3, 1)).tokens] == texts
    assert ended(s) == ("é", FinishReason.STOP)


def test_an_end_that_the_verifier_found_earlier_stands() -> None:
    """Its verdict stops at that token, so that the stop string is not complete."""
    for reason in FinishReason:
        s = session(stop_strings=("aba",))
        tokens = s.reconcile(verdict(0, 0, 1, finish_reason=reason)).tokens
        assert [token.text for token in tokens] == ["", "ab"]
        assert ended(s) == ("", reason)


def test_a_stop_string_completed_by_the_last_token_that_fits_is_the_reason() -> None:
    s = session(stop_strings=("ab",))
    s.reconcile(verdict(0, 0, 1, finish_reason=FinishReason.LENGTH))
    assert ended(s) == ("ab", FinishReason.STOP)


def test_stop_strings_are_searched_behind_the_first_tokens_only() -> None:
    s = session(stop_strings=("a",), stop=StopConditions(50, min_tokens=2))
    assert [t.text for t in s.reconcile(verdict(0, 0, 1, 1, 0, 0)).tokens] == ["a", "b", "b", ""]
    assert s.tree.committed == [0, 1, 1, 0]


def test_log_probabilities_come_with_the_bytes_of_every_token_also_of_control_tokens() -> None:
    s = session(logprobs=2)
    entry = TokenLogprobs(-1.5, ((2, -0.25), (99, -3.0)))
    [token] = s.reconcile(verdict(0, 4, logprobs=(entry,))).tokens
    assert token.text == ""
    assert token.logprob == TokenLogprob(4, -1.5, b"<end>")
    assert token.top_logprobs == (TokenLogprob(2, -0.25, b"\xc3"), TokenLogprob(99, -3.0, b""))
    assert s.verify.opening.logprobs == 2


def test_without_being_asked_for_none_are_told() -> None:
    s = session()
    [token] = s.reconcile(verdict(0, 0, logprobs=(TokenLogprobs(-1.5),))).tokens
    assert (token.logprob, token.top_logprobs) == (None, ())
    assert s.verify.opening.logprobs is None


def test_missing_log_probabilities_are_the_verifiers_bug_and_emit_nothing() -> None:
    s = session(logprobs=0)
    with pytest.raises(InternalError, match="0 log-probabilities for 1 tokens"):
        s.reconcile(verdict(0, 0))
    assert s.tree.committed == []
