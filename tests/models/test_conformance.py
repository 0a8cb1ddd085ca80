"""What every backend must do, against rows that are computed without cache, tree or batch."""

import random

import pytest
import torch

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models.base import TIP, CausalModel, Feed

from .steps import PROMPT, assert_rows, feed_random_tree, path_tokens, prefill, same
from .tiny import CONTEXT, MakeModel, Oracle


def test_prompt_row_equals_the_row_of_the_library(model: CausalModel, oracle: Oracle) -> None:
    _, row = prefill(model, PROMPT)
    assert row.dtype == torch.float32
    assert row.shape == (model.info.vocab_size,)
    assert same(row, oracle(PROMPT))


def test_tree_rows_equal_each_path_fed_alone(model: CausalModel, oracle: Oracle) -> None:
    sequence, _ = prefill(model, PROMPT)
    at = sequence.next_node
    tokens = (3, 4, 5, 6, 7, 8, 9)
    parents = (TIP, TIP, at, at, at + 1, at + 4, at + 2)
    (rows,) = model.forward([Feed(sequence, tokens, parents, tuple(range(7)))])
    paths = [[3], [4], [3, 5], [3, 6], [4, 7], [4, 7, 8], [3, 5, 9]]
    assert_rows(rows, oracle, [PROMPT + path for path in paths])


def test_nodes_fed_later_see_ancestors_fed_earlier(model: CausalModel, oracle: Oracle) -> None:
    sequence, _ = prefill(model, PROMPT)
    at = sequence.next_node
    model.forward([Feed(sequence, (3, 4, 5), (TIP, TIP, at + 1), ())])
    (rows,) = model.forward([Feed(sequence, (6, 7, 8), (at + 2, at, TIP), (0, 1, 2))])
    assert_rows(rows, oracle, [PROMPT + path for path in ([4, 5, 6], [3, 7], [8])])


def test_rows_come_in_the_order_they_are_asked_for(model: CausalModel, oracle: Oracle) -> None:
    sequence = model.open(PROMPT)
    (rows,) = model.forward([Feed.chain(sequence, PROMPT, (6, 2, 2, 7))])
    assert_rows(rows, oracle, [PROMPT[:7], PROMPT[:3], PROMPT[:3], PROMPT])


def test_an_empty_pass_gives_nothing(model: CausalModel) -> None:
    assert model.forward([]) == []


def test_rows_belong_to_the_caller(model: CausalModel, oracle: Oracle) -> None:
    sequence, row = prefill(model, PROMPT)
    row.mul_(0)
    (rows,) = model.forward([Feed(sequence, (3, 4), (TIP, TIP), (0, 1))])
    rows[0].fill_(1.0)
    assert same(rows[1], oracle([*PROMPT, 4]))


def test_a_feed_may_ask_for_no_row(model: CausalModel) -> None:
    sequence = model.open(PROMPT)
    (rows,) = model.forward([Feed.chain(sequence, PROMPT, ())])
    assert rows.shape == (0, model.info.vocab_size)


@pytest.mark.parametrize(
    ("path", "surviving", "below"),
    [
        ([0], [2, 3, 6], {6: [3, 5, 9], 3: [3, 6]}),
        ([1], [4, 5], {5: [4, 7, 8]}),
        ([0, 2, 6], [], {}),
        ([1, 4], [5], {5: [4, 7, 8]}),
        ([1, 4, 5], [], {}),
        ([], [1, 4], {4: [4, 7]}),
        ([], [], {}),
    ],
)
def test_after_keep_rows_equal_a_fresh_prefill(
    model: CausalModel,
    oracle: Oracle,
    path: list[int],
    surviving: list[int],
    below: dict[int, list[int]],
) -> None:
    sequence, _ = prefill(model, PROMPT)
    at = sequence.next_node
    tokens = (3, 4, 5, 6, 7, 8, 9)
    parents = (TIP, TIP, at, at, at + 1, at + 4, at + 2)
    model.forward([Feed(sequence, tokens, parents, ())])
    model.keep(sequence, [at + step for step in path], [at + step for step in surviving])
    committed = PROMPT + [tokens[step] for step in path]
    assert sequence.tokens == committed
    assert set(sequence.nodes) == {at + step for step in surviving}
    next_parents = (TIP, *(at + node for node in below))
    fed = tuple(range(20, 20 + len(next_parents)))
    (rows,) = model.forward([Feed(sequence, fed, next_parents, tuple(range(len(fed))))])
    paths = [[*committed, 20]]
    paths += [[*PROMPT, *path_below, 21 + i] for i, path_below in enumerate(below.values())]
    assert_rows(rows, oracle, paths)


def test_many_rounds_of_random_trees_stay_exact(model: CausalModel, oracle: Oracle) -> None:
    draw = random.Random(3)
    sequence, _ = prefill(model, PROMPT)
    for _ in range(12):
        first = sequence.next_node
        count = draw.randrange(1, 8)
        rows = feed_random_tree(model, sequence, count, draw)
        for index in draw.sample(range(count), min(count, 2)):
            assert same(rows[index], oracle(path_tokens(sequence, first + index)))
        path = sequence.path(draw.choice(list(sequence.nodes)))[: draw.randrange(1, 4)]
        below = {path[-1]}
        for number, node in sequence.nodes.items():
            if node.parent in below and draw.random() < 0.7:
                below.add(number)
        model.keep(sequence, path, below - {path[-1]})


def test_batched_rows_equal_each_sequence_alone(model: CausalModel, oracle: Oracle) -> None:
    prompts = [PROMPT, [*PROMPT[:3], 9, 9], [50, 51, 52, 53], [60]]
    sequences = [model.open(prompt) for prompt in prompts]
    firsts = [len(sequence.tokens) for sequence in sequences]
    rows = model.forward(
        [
            Feed.chain(sequence, prompt[first:], range(len(prompt) - first))
            for sequence, prompt, first in zip(sequences, prompts, firsts, strict=True)
        ]
    )
    for result, prompt, first in zip(rows, prompts, firsts, strict=True):
        assert_rows(result, oracle, [prompt[: i + 1] for i in range(first, len(prompt))])
    feeds = []
    for sequence in sequences:
        model.keep(sequence, sequence.path(sequence.next_node - 1))
        at = sequence.next_node
        feeds.append(Feed(sequence, (3, 4, 5), (TIP, TIP, at), (2, 1)))
    for result, prompt in zip(model.forward(feeds), prompts, strict=True):
        assert_rows(result, oracle, [[*prompt, 3, 5], [*prompt, 4]])


def test_a_closed_prefix_is_reused_and_counted(model: CausalModel, oracle: Oracle) -> None:
    sequence, _ = prefill(model, PROMPT)
    model.close(sequence)
    again, row = prefill(model, PROMPT)
    assert same(row, oracle(PROMPT))
    model.close(again)
    longer = [*PROMPT, 70, 71]
    assert len(model.open(longer).tokens) == len(PROMPT)
    assert len(model.open(PROMPT).tokens) == len(PROMPT) - 1
    assert len(model.open([*PROMPT[:4], 99, 99]).tokens) == 4
    assert model.open([99, *PROMPT]).tokens == []


def test_live_sequences_share_a_prefix_and_do_not_disturb_each_other(
    model: CausalModel, oracle: Oracle
) -> None:
    first, _ = prefill(model, PROMPT)
    second, row = prefill(model, [*PROMPT, 70])
    assert same(row, oracle([*PROMPT, 70]))
    third = model.open([*PROMPT, 70, 71])
    assert len(third.tokens) == len(PROMPT) + 1
    model.close(first)
    model.close(third)
    (rows,) = model.forward([Feed(second, (3, 4), (TIP, TIP), (0, 1))])
    assert_rows(rows, oracle, [[*PROMPT, 70, 3], [*PROMPT, 70, 4]])


def test_uncommitted_nodes_are_not_shared(model: CausalModel) -> None:
    sequence, _ = prefill(model, PROMPT)
    model.forward([Feed(sequence, (3,), (TIP,), (0,))])
    assert len(model.open([*PROMPT, 3, 4]).tokens) == len(PROMPT)


def test_eviction_takes_the_least_recently_used(
    backend: str, make_model: MakeModel, oracle: Oracle
) -> None:
    model = make_model(backend, kv_tokens=24)
    prompts = [[10 * k + i for i in range(8)] for k in range(1, 5)]
    for prompt in prompts[:3]:
        model.close(prefill(model, prompt)[0])
    user = model.open(prompts[0])  # so prompts[1] is the one used longest ago
    _, row = prefill(model, prompts[3])
    assert same(row, oracle(prompts[3]))
    cached = [len(model.open([*prompt, 99]).tokens) for prompt in prompts]
    assert cached == [8, 0, 8, 8]
    model.close(user)


def test_a_full_cache_is_refused_before_anything_changes(
    backend: str, make_model: MakeModel, oracle: Oracle
) -> None:
    model = make_model(backend, kv_tokens=16)
    sequence, _ = prefill(model, PROMPT)
    other = model.open([60, 61])
    at = sequence.next_node
    model.forward([Feed(sequence, (3, 4), (TIP, at), ())])
    with pytest.raises(CapacityError, match=r"needs 7 KV cells.*6 of the 16"):
        model.forward(
            [
                Feed.chain(other, [60, 61], [1]),
                Feed(sequence, (5,) * 5, (TIP, at, at, at, at), (0,)),
            ]
        )
    assert (other.next_node, other.nodes) == (0, {})
    assert set(sequence.nodes) == {at, at + 1}
    (rows,) = model.forward([Feed(sequence, (6, 7), (at + 1, TIP), (0, 1))])
    assert_rows(rows, oracle, [[*PROMPT, 3, 4, 6], [*PROMPT, 7]])


def test_closing_makes_room_for_others(backend: str, make_model: MakeModel) -> None:
    model = make_model(backend, kv_tokens=16)
    for start in range(2, 50, 3):
        sequence, _ = prefill(model, [start + i for i in range(8)])
        model.forward([Feed(sequence, (3, 4, 5), (TIP, TIP, TIP), (0,))])
        model.close(sequence)
        model.close(sequence)


def test_dropped_nodes_free_their_room(backend: str, make_model: MakeModel) -> None:
    model = make_model(backend, kv_tokens=12)
    sequence, _ = prefill(model, PROMPT)
    for _ in range(5):
        model.forward([Feed(sequence, (3, 4, 5, 6), (TIP,) * 4, ())])
        model.keep(sequence, ())


@pytest.mark.parametrize(
    ("tokens", "parents", "rows", "message"),
    [
        ((3,), (77,), (0,), "parent 77 is unknown"),
        ((3, 4), (1, TIP), (0,), "parent 1 is unknown"),
        ((100_000,), (TIP,), (0,), "outside the vocabulary"),
        ((-1,), (TIP,), (0,), "outside the vocabulary"),
        ((3,), (TIP,), (1,), "row 1"),
        ((), (), (), "at least one token"),
        ((3,) * (CONTEXT + 1), (TIP, *range(CONTEXT)), (), "context"),
    ],
)
def test_an_impossible_feed_is_refused_and_changes_nothing(
    model: CausalModel,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    rows: tuple[int, ...],
    message: str,
) -> None:
    sequence = model.open(PROMPT)
    with pytest.raises(InvalidArgumentError, match=message):
        model.forward([Feed(sequence, tokens, parents, rows)])
    assert (sequence.next_node, sequence.nodes, sequence.tokens) == (0, {}, [])


def test_a_closed_sequence_is_refused(model: CausalModel) -> None:
    sequence, _ = prefill(model, PROMPT)
    model.close(sequence)
    with pytest.raises(InvalidArgumentError, match="closed"):
        model.forward([Feed(sequence, (3,), (TIP,), (0,))])
    with pytest.raises(InvalidArgumentError, match="closed"):
        model.keep(sequence, ())


def test_a_sequence_twice_in_one_pass_is_refused(model: CausalModel) -> None:
    sequence = model.open(PROMPT)
    feed = Feed(sequence, (3,), (TIP,), (0,))
    with pytest.raises(InvalidArgumentError, match="twice"):
        model.forward([feed, feed])


def test_a_sequence_of_another_model_is_refused(backend: str, make_model: MakeModel) -> None:
    sequence = make_model(backend).open(PROMPT)
    with pytest.raises(InvalidArgumentError, match="another model"):
        make_model(backend).forward([Feed(sequence, (3,), (TIP,), (0,))])


@pytest.mark.parametrize("path", [[1], [0, 1], [9]])
def test_a_broken_path_is_refused_and_changes_nothing(model: CausalModel, path: list[int]) -> None:
    sequence = model.open(PROMPT)
    model.forward([Feed(sequence, (3, 4, 5), (TIP, 0, TIP), ())])
    bad = path if path != [0, 1] else [0, 2]
    with pytest.raises(InvalidArgumentError, match="does not continue"):
        model.keep(sequence, bad)
    with pytest.raises(InvalidArgumentError, match="cannot survive"):
        model.keep(sequence, [0], [2])
    assert set(sequence.nodes) == {0, 1, 2}


def test_the_context_can_be_lowered_and_not_raised(backend: str, make_model: MakeModel) -> None:
    assert make_model(backend).info.context_tokens == CONTEXT
    assert make_model(backend, context_tokens=20).info.context_tokens == 20
    with pytest.raises(InvalidArgumentError, match=f"1 to {CONTEXT}"):
        make_model(backend, context_tokens=CONTEXT + 1)


def test_the_last_position_of_the_context_can_be_used(model: CausalModel, oracle: Oracle) -> None:
    tokens = [2 + i % 50 for i in range(CONTEXT)]
    _, row = prefill(model, tokens)
    assert same(row, oracle(tokens))
