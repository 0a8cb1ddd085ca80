"""Prompt lookup proposes what followed before, and nothing where nothing did."""

import numpy as np
import pytest
import torch

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models.base import TIP, CausalModel, Feed, ModelSequence
from outrider.models.ngram import lookup
from outrider.models.options import ModelOptions
from outrider.models.registry import load_model


def prefill(model: CausalModel, tokens: list[int]) -> tuple[ModelSequence, torch.Tensor]:
    sequence = model.open(tokens)
    rest = tokens[len(sequence.tokens) :]
    first = sequence.next_node
    (rows,) = model.forward([Feed.chain(sequence, rest, [len(rest) - 1])])
    model.keep(sequence, range(first, first + len(rest)))
    return sequence, rows[0]


def proposals(row: torch.Tensor) -> list[int]:
    """Tokens with any probability, likeliest first."""
    order = row.argsort(descending=True, stable=True).tolist()
    return [token for token in order if row[token] > -torch.inf]


def test_the_continuation_of_the_longest_match_is_proposed() -> None:
    _, row = prefill(load_model("ngram"), [1, 2, 3, 7, 9, 3, 8, 9, 2, 3, 6, 1, 2, 3])
    assert proposals(row) == [7]


def test_probability_goes_by_count_and_ties_to_the_most_recent() -> None:
    _, row = prefill(load_model("ngram:n=1"), [5, 1, 5, 2, 5, 1, 5, 3, 5])
    assert proposals(row) == [1, 3, 2]
    assert row.exp().sum() == pytest.approx(1.0)
    assert row.exp()[[1, 2, 3]].tolist() == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


@pytest.mark.parametrize("tokens", [[4], [4, 5], [1, 2, 3, 4]])
def test_no_match_is_a_row_of_minus_infinity(tokens: list[int]) -> None:
    _, row = prefill(load_model("ngram"), tokens)
    assert row.shape == (max(tokens) + 1,)
    assert proposals(row) == []


def test_the_end_of_the_prompt_does_not_match_itself() -> None:
    _, row = prefill(load_model("ngram"), [9, 1, 2, 3])
    assert proposals(row) == []


def test_a_match_that_touches_the_end_of_the_prompt_is_found() -> None:
    _, row = prefill(load_model("ngram"), [9, 3, 3])
    assert proposals(row) == [3]
    _, row = prefill(load_model("ngram"), [6, 6, 6, 6])
    assert proposals(row) == [6]


def test_a_prompt_shorter_than_n_still_matches() -> None:
    _, row = prefill(load_model("ngram:n=8"), [3, 4, 3])
    assert proposals(row) == [4]


def test_trees_look_up_along_their_own_path() -> None:
    model = load_model("ngram:n=2")
    sequence, row = prefill(model, [1, 2, 3, 1, 4, 5, 1])
    assert proposals(row) == [4, 2]
    at = sequence.next_node
    feed = Feed(sequence, (4, 2, 3, 9), (TIP, TIP, at + 1, at), (0, 1, 2, 3))
    (rows,) = model.forward([feed])
    assert [proposals(row) for row in rows] == [[5], [3], [1], []]
    assert rows.shape == (4, 10)
    model.keep(sequence, [at + 1], [at + 2])
    (rows,) = model.forward([Feed(sequence, (1,), (at + 2,), (0,))])
    assert proposals(rows[0]) == [4] or proposals(rows[0]) == [2, 4]


def test_a_given_vocabulary_sets_the_width_and_refuses_other_ids() -> None:
    model = load_model("ngram:vocab=50")
    sequence, row = prefill(model, [1, 2, 1])
    assert (row.shape, model.info.vocab_size) == ((50,), 50)
    with pytest.raises(InvalidArgumentError, match="vocabulary of 50"):
        model.forward([Feed(sequence, (50,), (TIP,), (0,))])


def test_absurd_ids_are_refused_rather_than_given_a_row() -> None:
    model = load_model("ngram")
    with pytest.raises(InvalidArgumentError, match="outside the vocabulary"):
        model.forward([Feed.chain(model.open([1]), [2**30], [0])])


def test_it_fits_every_tokenizer_and_has_none() -> None:
    model = load_model("ngram")
    assert (model.info.tokenizer_hash, model.info.vocab_size, model.tokenizer) == ("", 0, None)
    assert (model.info.model_name, model.info.backend) == ("ngram", "ngram")


def test_known_tokens_are_bounded_and_shared() -> None:
    model = load_model("ngram", ModelOptions(kv_tokens=8))
    sequence, _ = prefill(model, [1, 2, 3, 4, 5])
    assert len(model.open([1, 2, 3, 9]).tokens) == 3
    with pytest.raises(CapacityError):
        model.forward([Feed(sequence, (1,) * 4, (TIP,) * 4, (0,))])


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="m; known keys are n, vocab"):
        load_model("ngram:m=3")


@pytest.mark.parametrize("length", [0, 1])
def test_lookup_of_nothing_is_empty(length: int) -> None:
    assert lookup(np.zeros(length, dtype=np.int64), 3) == {}
