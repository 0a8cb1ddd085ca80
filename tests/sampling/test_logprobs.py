"""Reported log-probabilities are those of the logits as they are."""

import pytest
import torch

from outrider.sampling.logprobs import token_logprobs


def test_each_row_gives_its_token_and_the_most_likely_ones() -> None:
    rows = torch.tensor([[0.0, 2.0, 1.0], [3.0, -1.0, 0.0]])
    first, second = token_logprobs(rows, [0, 0], 2)
    expected = rows.double().log_softmax(-1)
    assert first.logprob == float(expected[0, 0])
    assert first.top == ((1, float(expected[0, 1])), (2, float(expected[0, 2])))
    assert second.top[0] == (0, second.logprob)


@pytest.mark.parametrize("count", [1, 3, 16, 20])
def test_among_equals_the_lowest_ids_are_taken_in_order(count: int) -> None:
    row = torch.zeros(1, 16)
    row[0, 9] = 1.0
    [reported] = token_logprobs(row, [3], count)
    expected = [9, *(i for i in range(16) if i != 9)][:count]
    assert [token for token, _ in reported.top] == expected


def test_forbidden_tokens_have_none_and_no_alternatives_are_reported_unasked() -> None:
    row = torch.tensor([[0.0, -torch.inf, 0.0]], dtype=torch.float16)
    [reported] = token_logprobs(row, [1], 0)
    assert (reported.logprob, reported.top) == (-torch.inf, ())
