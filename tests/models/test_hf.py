"""The hf backend: equal to the library's generate(), passes in pieces, idle sessions, attention."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from outrider.errors import CapacityError, InvalidArgumentError
from outrider.models import hf, hf_model
from outrider.models.base import TIP, Feed
from outrider.models.hf_attention import grouped_attention
from outrider.models.hf_model import HfModel
from outrider.models.registry import load_model
from outrider.models.visibility import PassView

from .steps import PROMPT, assert_rows, prefill, same
from .tiny import HF_BACKENDS, MakeModel, Oracle


@pytest.fixture(params=HF_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(backend: str, make_model: MakeModel) -> HfModel:
    return make_model(backend)


def greedy(model: HfModel, prompt: list[int], count: int, draw: random.Random) -> list[int]:
    """Greedy tokens, with a drafted tree in every pass of which one branch may be right."""
    sequence, row = prefill(model, prompt)
    token = int(row.argmax())
    emitted: list[int] = []
    while True:
        emitted.append(token)
        at = sequence.next_node
        guesses = tuple(draw.randrange(model.info.vocab_size) for _ in range(3))
        (rows,) = model.forward(
            [Feed(sequence, (guesses[0], token, *guesses[1:]), (TIP, TIP, at + 1, at + 1), (1, 2))]
        )
        model.keep(sequence, [at + 1])
        if len(emitted) == count:
            return emitted
        token = int(rows[0].argmax())


def test_greedy_tokens_equal_generate(
    backend: str, model: HfModel, libraries: dict[str, PreTrainedModel]
) -> None:
    expected = libraries[backend].generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(PROMPT) :]
    assert greedy(model, PROMPT, 24, random.Random(1)) == expected.tolist()


def test_a_long_pass_in_pieces_gives_the_same_rows(
    model: HfModel, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_model, "PASS_TOKENS", 3)
    idle, _ = prefill(model, [9] * 40)
    sequence = model.open(PROMPT)
    (rows,) = model.forward([Feed.chain(sequence, PROMPT, range(8))])
    assert_rows(rows, oracle, [PROMPT[: i + 1] for i in range(8)])
    tree = (3, 4, 5, 6, 7)
    (rows,) = model.forward([Feed(sequence, tree, (7, 7, 8, 9, 11), (4, 0, 2))])
    assert_rows(rows, oracle, [[*PROMPT, 4, 6, 7], [*PROMPT, 3], [*PROMPT, 3, 5]])
    model.close(idle)


def test_idle_sessions_are_not_read(model: HfModel, oracle: Oracle) -> None:
    idle, _ = prefill(model, [9] * 100)
    _, row = prefill(model, PROMPT)
    assert model.cache.placement.limit == len(PROMPT)
    assert same(row, oracle(PROMPT))
    model.close(idle)


def test_a_sequence_that_overflowed_leaves_nothing_behind(
    model: HfModel, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = model._run

    def overflow(view: PassView, wanted: Sequence[int]) -> torch.Tensor:
        logits = run(view, wanted)
        for pool in model.cache.pools.values():
            pool.keys[:, :, view.written] = torch.inf
            pool.values[:, :, view.written] = torch.nan
        return torch.full_like(logits, torch.nan)

    broken = model.open(PROMPT)
    with monkeypatch.context() as patch:
        patch.setattr(model, "_run", overflow)
        model.forward([Feed.chain(broken, PROMPT[::-1], [0])])
    _, beside = prefill(model, PROMPT)
    assert same(beside, oracle(PROMPT))
    model.close(broken)
    _, after = prefill(model, [*PROMPT, 9, 9])
    assert same(after, oracle([*PROMPT, 9, 9]))


@pytest.mark.parametrize(
    ("error", "raised"),
    [(torch.OutOfMemoryError("no memory"), CapacityError), (RuntimeError("a bug"), RuntimeError)],
)
def test_a_pass_that_fails_changes_nothing(
    model: HfModel,
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception],
) -> None:
    sequence, _ = prefill(model, PROMPT)
    used = model.cells.used

    def fail(*_: object) -> torch.Tensor:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(model, "_run", fail)
        with pytest.raises(raised):
            model.forward([Feed(sequence, (3,), (TIP,), (0,))])
    assert (model.cells.used, sequence.nodes) == (used, {})
    (rows,) = model.forward([Feed(sequence, (3,), (TIP,), (0,))])
    assert_rows(rows, oracle, [[*PROMPT, 3]])


def test_info_says_what_was_loaded(
    backend: str, model: HfModel, checkpoints: dict[str, Path]
) -> None:
    assert model.info.model_name == str(checkpoints[backend])
    assert model.info.backend == "hf"
    assert model.info.eos_token_ids == (1, 2)
    assert model.tokenizer is not None
    assert model.info.tokenizer_hash == model.tokenizer.vocabulary.hash
    assert model.info.vocab_size == len(model.tokenizer.vocabulary) + 3


def test_an_architecture_that_ignores_the_mask_is_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = HfModel._masks

    def blind(self: HfModel, *arguments: int) -> torch.Tensor:
        return torch.zeros_like(masks(self, *arguments))

    monkeypatch.setattr(HfModel, "_masks", blind)
    with pytest.raises(InvalidArgumentError, match="llama does not honour tree attention"):
        load_model(str(checkpoints["llama"]))


def test_an_architecture_that_cannot_take_a_mask_is_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HfModel, "_masks", lambda *_: "no mask")
    with pytest.raises(InvalidArgumentError, match="llama cannot run several branches"):
        load_model(str(checkpoints["llama"]))


def test_a_cache_that_does_not_fit_is_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(hf.PooledCache, "resized", fail)
    with pytest.raises(CapacityError, match="16384 tokens does not fit in memory; lower kv_tokens"):
        load_model(str(checkpoints["llama"]))


def test_grouped_attention_equals_repeated_keys() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 6, 5, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 4)
    mask = torch.zeros(1, 1, 5, 9).masked_fill(torch.rand(1, 1, 5, 9) < 0.4, -1e9)
    output, _ = grouped_attention(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query,
        key.repeat_interleave(3, dim=1),
        value.repeat_interleave(3, dim=1),
        attn_mask=mask,
        scale=0.3,
    )
    assert torch.allclose(output, expected.transpose(1, 2), atol=1e-6)
