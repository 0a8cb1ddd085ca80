"""Random operations on several sequences against a slow and obvious model of what must come out."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.errors import CapacityError
from outrider.models.base import TIP, CausalModel, Feed, ModelSequence

from .steps import same
from .tiny import MakeModel, Oracle

KV_TOKENS = 24
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "feed", "feed", "feed", "keep", "keep", "close"]),
        st.integers(0, 2**30),
        st.lists(st.tuples(st.integers(2, 5), st.integers(0, 2**30)), min_size=1, max_size=5),
    ),
    min_size=4,
    max_size=25,
)


@dataclass
class Obvious:
    """A sequence as plain lists: what is committed, and for every node its whole path."""

    sequence: ModelSequence
    committed: list[int]
    paths: dict[int, list[int]] = field(default_factory=dict)


@pytest.mark.parametrize("backend", ["llama", "gemma3", "llamacpp", "scripted"])
@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(operations=OPERATIONS)
def test_random_operations_equal_the_obvious_model(
    make_model: MakeModel, oracle: Oracle, backend: str, operations: list
) -> None:
    model = make_model(backend, kv_tokens=KV_TOKENS)
    live: list[Obvious] = []
    for kind, choice, items in operations:
        if kind == "open" or not live:
            prompt = [token for token, _ in items] + [6]
            sequence = model.open(prompt)
            assert sequence.tokens == prompt[: len(sequence.tokens)]
            assert len(sequence.tokens) < len(prompt)
            live.append(Obvious(sequence, list(sequence.tokens)))
            continue
        chosen = live[choice % len(live)]
        if kind == "feed":
            _feed(model, oracle, [chosen] + [live[0]] * (chosen is not live[0]), items)
        elif kind == "keep":
            _keep(model, chosen, choice)
        else:
            model.close(chosen.sequence)
            live.remove(chosen)
    for obvious in live:
        assert obvious.sequence.tokens == obvious.committed
        assert set(obvious.sequence.nodes) == set(obvious.paths)
        model.close(obvious.sequence)
    assert model.cells.pinned == 0


def _feed(
    model: CausalModel, oracle: Oracle, chosen: list[Obvious], items: list[tuple[int, int]]
) -> None:
    feeds, new_paths = [], []
    for obvious in chosen:
        first = obvious.sequence.next_node
        paths = dict(obvious.paths)
        parents = []
        for index, (token, where) in enumerate(items):
            parents.append([TIP, *paths][where % (len(paths) + 1)])
            before = obvious.committed if parents[-1] == TIP else paths[parents[-1]]
            paths[first + index] = [*before, token]
        tokens = tuple(token for token, _ in items)
        feeds.append(Feed(obvious.sequence, tokens, tuple(parents), (len(items) - 1,)))
        new_paths.append(paths)
    used = model.cells.pinned
    needed = sum(len(feed.tokens) for feed in feeds)
    if used + needed > KV_TOKENS:
        with pytest.raises(CapacityError):
            model.forward(feeds)
        return
    for obvious, paths, rows in zip(chosen, new_paths, model.forward(feeds), strict=True):
        obvious.paths = paths
        assert same(rows[0], oracle(paths[obvious.sequence.next_node - 1]))


def _keep(model: CausalModel, obvious: Obvious, choice: int) -> None:
    numbers = [TIP, *obvious.paths]
    tip = numbers[choice % len(numbers)]
    path = obvious.sequence.path(tip)
    committed = obvious.committed if tip == TIP else obvious.paths[tip]
    below = {
        number: tokens
        for number, tokens in obvious.paths.items()
        if len(tokens) > len(committed) and tip in (TIP, *obvious.sequence.path(number))
    }
    surviving = below if choice % 2 else {}
    model.keep(obvious.sequence, path, surviving)
    obvious.committed, obvious.paths = committed, dict(surviving)
