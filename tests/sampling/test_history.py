"""A history is the one of its whole text, however it was put together, and never changes."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.sampling.grammar import GrammarCompiler
from outrider.sampling.history import History
from outrider.sampling.processing import process
from outrider.types import Grammar, SamplingParams
from outrider.vocabulary import Vocabulary

from .worlds import examples

COMPILER = GrammarCompiler(Vocabulary((b"a", b"b", b"c", b""), (False, False, False, True)), [3])
SAMPLING = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.5)
ROW = torch.tensor([1.0, -2.0, 0.5, 3.0])
TOKENS = st.lists(st.integers(0, 2), max_size=5)


def opened(prompt: list[int]) -> History:
    state = COMPILER.compile(Grammar(regex="(a|b|cc)*"))
    return History.of(SAMPLING, prompt, ends=(3,), min_tokens=4, grammar=state)


def seen(history: History) -> list[float]:
    return process(ROW, SAMPLING, history).tolist()


@given(TOKENS, TOKENS, TOKENS)
@examples(60)
def test_a_history_in_pieces_equals_the_one_of_the_whole(
    prompt: list[int], first: list[int], second: list[int]
) -> None:
    whole = opened(prompt).after([*first, *second])
    pieces = opened(prompt).after(first).after(second)
    one_by_one = opened(prompt)
    for token in (*first, *second):
        one_by_one = one_by_one.after([token])
    for history in (pieces, one_by_one):
        assert history.counts == whole.counts
        assert history.length == whole.length == len(first) + len(second)
        assert seen(history) == seen(whole)


@given(TOKENS, st.lists(TOKENS, min_size=1, max_size=4))
@examples(60)
def test_a_history_is_not_changed_by_those_that_follow_it(
    prompt: list[int], branches: list[list[int]]
) -> None:
    root = opened(prompt).after([0])
    before = seen(root)
    counts = dict(root.counts)
    children = [root.after(branch) for branch in branches]
    seen_first = [seen(child) for child in children]
    assert [seen(child) for child in children] == seen_first
    assert seen(root) == before
    assert root.counts == counts
    assert [child.length for child in children] == [1 + len(branch) for branch in branches]


def test_nothing_can_be_assigned_to_a_history() -> None:
    with pytest.raises(FrozenInstanceError):
        History().length = 3  # type: ignore[misc]


def test_no_tokens_give_the_same_history() -> None:
    history = opened([1])
    assert history.after([]) is history


@pytest.mark.parametrize(
    ("asked", "keeps_prompt", "counts"),
    [
        ({}, False, False),
        ({"temperature": 0.0, "banned_token_ids": frozenset({1})}, False, False),
        ({"repetition_penalty": 1.1}, True, True),
        ({"frequency_penalty": 0.1}, False, True),
        ({"presence_penalty": -0.1}, False, True),
    ],
)
def test_a_history_keeps_what_the_request_asks_about_and_no_more(
    asked: dict[str, Any], keeps_prompt: bool, counts: bool
) -> None:
    history = History.of(SamplingParams(**asked), [1, 2, 2]).after([0, 0, 1])
    assert history.prompt.tolist() == ([1, 2] if keeps_prompt else [])
    assert dict(history.counts) == ({0: 2, 1: 1} if counts else {})
    assert history.length == 3
