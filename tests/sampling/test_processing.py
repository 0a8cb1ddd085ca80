"""Penalties, bias and forbidden tokens do what their definitions say, in the documented order."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from outrider.errors import InternalError, InvalidArgumentError
from outrider.sampling.grammar import GrammarCompiler, GrammarState
from outrider.sampling.history import History
from outrider.sampling.processing import allowed_logits, distribution, process
from outrider.types import Grammar, SamplingParams
from outrider.vocabulary import Vocabulary

from .worlds import examples

INF = math.inf
VOCABULARY = Vocabulary((b"a", b"b", b"c", b"d", b""), (False, False, False, False, True))
COMPILER = GrammarCompiler(VOCABULARY, [4])
ROW = (1.0, -2.0, 0.5, 0.0, 3.0)
LOGITS = st.lists(
    st.sampled_from((-INF, -3.0, -0.5, 0.0, 0.5, 1.0, 2.5)), min_size=5, max_size=5
).filter(lambda row: max(row) > -INF)
TOKENS = st.lists(st.integers(0, 4), max_size=6)


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(**fields)


def row_of(values: Sequence[float] = ROW, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def processed(
    sampling: SamplingParams,
    prompt: Sequence[int] = (),
    answer: Sequence[int] = (),
    *,
    row: Sequence[float] = ROW,
    grammar: str = "",
    **conditions: Any,
) -> list[float]:
    state = COMPILER.compile(Grammar(regex=grammar)) if grammar else None
    history = History.of(sampling, prompt, grammar=state, **conditions).after(answer)
    return process(row_of(row, torch.float64), sampling, history).tolist()


@given(LOGITS, TOKENS, TOKENS, st.sampled_from((0.5, 1.3, 10.0)))
@examples(100)
def test_repetition_penalty_equals_the_one_of_transformers(
    row: list[float], prompt: list[int], answer: list[int], penalty: float
) -> None:
    scores = torch.tensor([row], dtype=torch.float64)
    ids = torch.tensor([[*prompt, *answer]], dtype=torch.int64)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)[0].tolist()
    ours = processed(params(repetition_penalty=penalty), prompt, answer, row=row)
    assert ours == pytest.approx(expected, abs=1e-12)


@given(LOGITS, TOKENS, TOKENS, st.sampled_from((-2.0, 0.0, 0.7)), st.sampled_from((-1.5, 0.0, 2.0)))
@examples(100)
def test_frequency_and_presence_follow_the_openai_formula_over_the_answer_alone(
    row: list[float], prompt: list[int], answer: list[int], frequency: float, presence: float
) -> None:
    """mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence."""
    expected = [
        logit - answer.count(j) * frequency - float(answer.count(j) > 0) * presence
        for j, logit in enumerate(row)
    ]
    sampling = params(frequency_penalty=frequency, presence_penalty=presence)
    assert processed(sampling, prompt, answer, row=row) == pytest.approx(expected, abs=1e-12)


def test_the_prompt_counts_for_the_repetition_penalty_only() -> None:
    sampling = params(repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=0.5)
    assert processed(sampling, prompt=[0, 0, 4], answer=[4])[0] == 1.0 / 2
    assert processed(sampling, prompt=[0, 0, 4], answer=[4])[4] == 3.0 / 2 - 1.5


def test_bias_is_added_to_its_tokens() -> None:
    ours = processed(params(logit_bias=((0, 100.0), (3, -100.0))))
    assert ours == [101.0, -2.0, 0.5, -100.0, 3.0]


def test_only_allowed_tokens_that_are_not_banned_are_left() -> None:
    sampling = params(allowed_token_ids=frozenset({0, 1, 3}), banned_token_ids=frozenset({1, 4}))
    assert processed(sampling) == [1.0, -INF, -INF, 0.0, -INF]
    assert processed(params(banned_token_ids=frozenset({2}))) == [1.0, -2.0, -INF, 0.0, 3.0]


def test_no_end_token_is_left_before_min_tokens_were_emitted() -> None:
    for emitted in range(5):
        row = processed(params(), answer=[0] * emitted, ends=(3, 4), min_tokens=3)
        assert row == ([1.0, -2.0, 0.5, -INF, -INF] if emitted < 3 else list(ROW))


def test_a_grammar_leaves_what_may_follow_and_the_ends_where_it_matches() -> None:
    assert processed(params(), grammar="ab?", ends=(4,)) == [1.0, -INF, -INF, -INF, -INF]
    assert processed(params(), (), [0], grammar="ab?", ends=(4,)) == [-INF, -2.0, -INF, -INF, 3.0]
    assert processed(params(), (), [0], grammar="ab?") == [-INF, -2.0, -INF, -INF, -INF]


def test_min_tokens_yields_to_a_grammar_that_is_complete_before() -> None:
    conditions: dict[str, Any] = {"grammar": "ab?", "ends": (4,), "min_tokens": 9}
    assert processed(params(), (), [0], **conditions) == [-INF, -2.0, -INF, -INF, -INF]
    assert processed(params(), (), [0, 1], **conditions) == [-INF, -INF, -INF, -INF, 3.0]


def test_the_repetition_penalty_comes_before_frequency_and_presence() -> None:
    sampling = params(repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=0.5)
    assert processed(sampling, answer=[0])[0] == 1.0 / 2 - 1.5


def test_the_repetition_penalty_comes_before_the_bias() -> None:
    sampling = params(repetition_penalty=2.0, logit_bias=((1, 10.0),))
    assert processed(sampling, prompt=[1])[1] == -2.0 * 2 + 10


def test_a_bias_does_not_bring_a_forbidden_token_back() -> None:
    bias = ((1, 100.0), (4, 100.0))
    for sampling in (
        params(logit_bias=bias, banned_token_ids=frozenset({1})),
        params(logit_bias=bias, allowed_token_ids=frozenset({0})),
    ):
        assert processed(sampling)[1] == -INF
    assert processed(params(logit_bias=bias), grammar="a", ends=(4,))[1] == -INF
    assert processed(params(logit_bias=bias), ends=(4,), min_tokens=1)[4] == -INF


def test_min_tokens_looks_at_what_the_grammar_has_left() -> None:
    """The other way round, the end would be banned before the grammar shows that it is all."""
    assert processed(params(), grammar="a{0}", ends=(4,), min_tokens=1)[4] == 3.0


def test_min_tokens_looks_at_what_allowed_and_banned_tokens_have_left() -> None:
    sampling = params(banned_token_ids=frozenset({1}))
    conditions: dict[str, Any] = {"grammar": "ab?", "ends": (4,), "min_tokens": 9}
    assert processed(sampling, (), [0], **conditions)[4] == 3.0


def test_penalties_and_bias_come_before_temperature_and_truncation() -> None:
    sampling = params(
        temperature=0.5, top_k=2, presence_penalty=2.0, logit_bias=((3, 1.5),), repetition_penalty=2
    )
    history = History.of(sampling, ()).after([4])
    # 4: 3/2 - 2 = -0.5; 3: 0 + 1.5; so 3 and 0 are the two most likely ones.
    weights = [math.exp(1.0 / 0.5), 0.0, 0.0, math.exp(1.5 / 0.5), 0.0]
    expected = [weight / sum(weights) for weight in weights]
    assert distribution(row_of(), sampling, history).tolist() == pytest.approx(expected)


def test_forbidden_tokens_take_no_place_in_top_k_and_no_mass_in_top_p() -> None:
    sampling = params(top_k=2, banned_token_ids=frozenset({4}))
    probs = distribution(row_of(), sampling, History())
    assert (probs > 0).tolist() == [True, False, True, False, False]
    sampling = params(top_p=0.5, banned_token_ids=frozenset({4}))
    assert (distribution(row_of(), sampling, History()) > 0).tolist() == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_a_request_for_nothing_gives_the_logits_themselves() -> None:
    row = row_of()
    for history in (History(), History.of(params(), [1, 2], ends=(4,)).after([0, 4])):
        assert process(row, params(), history) is row
        assert allowed_logits(row, params(), history) is row


EVERYTHING = params(
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=-0.4,
    logit_bias=((0, 2.0), (1, -1.0)),
    allowed_token_ids=frozenset({0, 1, 2, 4}),
    banned_token_ids=frozenset({2}),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("sampling", [EVERYTHING, params(logit_bias=((0, 2.0),))])
def test_the_row_itself_is_never_written_to(sampling: SamplingParams, dtype: torch.dtype) -> None:
    row = row_of(dtype=dtype)
    history = History.of(sampling, [0, 3], ends=(4,), min_tokens=5).after([0, 1])
    first = process(row, sampling, history)
    assert torch.equal(row, row_of(dtype=dtype))
    assert torch.equal(process(row, sampling, history), first)


def test_float32_rows_are_penalised_in_float64() -> None:
    sampling = params(repetition_penalty=1.1)
    ours = process(row_of((0.3,)), sampling, History.of(sampling, [0]))
    assert ours.dtype == torch.float64
    assert ours.item() == row_of((0.3,)).double().item() / 1.1


@given(TOKENS, TOKENS, st.sets(st.integers(0, 4), min_size=1))
@examples(50)
def test_what_the_model_rules_out_stays_ruled_out(
    prompt: list[int], answer: list[int], out: set[int]
) -> None:
    row = [-INF if token in out else logit for token, logit in enumerate(ROW)]
    ours = processed(EVERYTHING, prompt, answer, row=row, ends=(4,), min_tokens=3)
    assert all(ours[token] == -INF for token in out)
    assert not any(map(math.isnan, ours))


def test_ids_that_the_row_does_not_have_are_passed_over() -> None:
    sampling = params(
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        logit_bias=((0, 1.0), (9, 1.0)),
        allowed_token_ids=frozenset({0, 1, 9}),
        banned_token_ids=frozenset({1, 2**31}),
    )
    ours = processed(sampling, [9, 0], [0, 10**6], ends=(77,), min_tokens=5)
    assert ours == [1.0 / 2 - 1 + 1, -INF, -INF, -INF, -INF]


def test_a_grammar_applies_to_rows_wider_and_narrower_than_its_vocabulary() -> None:
    conditions: dict[str, Any] = {"grammar": "[ac]", "ends": (4,)}
    assert processed(params(), row=(1.0,) * 7, **conditions) == [1.0, -INF, 1.0, *[-INF] * 4]
    assert processed(params(), row=(1.0, 1.0), **conditions) == [1.0, -INF]


def test_a_row_that_the_request_leaves_empty_is_refused() -> None:
    only_a = COMPILER.compile(Grammar(regex="a"))
    for sampling, conditions in (
        (params(allowed_token_ids=frozenset({4})), {"ends": (4,), "min_tokens": 1}),
        (params(allowed_token_ids=frozenset({9})), {}),
        (
            params(banned_token_ids=frozenset({0})),
            {"grammar": only_a},
        ),
    ):
        history = History.of(sampling, (), **conditions)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match=r"after 0 tokens .* leave nothing to emit"):
            allowed_logits(row_of(), sampling, history)


def test_a_row_that_the_model_leaves_empty_is_no_fault_of_the_request() -> None:
    empty = row_of((-INF,) * 5)
    sampling = params(banned_token_ids=frozenset({0}))
    assert allowed_logits(empty, sampling, History()).tolist() == empty.tolist()
    with pytest.raises(InternalError):
        distribution(empty, sampling, History())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampling", [{}, {"repetition_penalty": 1.5}, {"logit_bias": ((0, 1.0),)}])
def test_nan_is_never_sampled_from(temperature: float, sampling: dict[str, Any]) -> None:
    asked = params(temperature=temperature, **sampling)
    row = row_of((1.0, math.nan, 0.0, 0.0, 0.0))
    with pytest.raises(InternalError, match="NaN"):
        distribution(row, asked, History.of(asked, [0, 1]))


def _beyond_a_limit() -> GrammarState:
    """The parser's limit shows after the first token: 600 optional properties."""
    places = {f"p{i}": {"type": "string"} for i in range(600)}
    schema = json.dumps({"type": "object", "properties": places})
    pieces = tuple(bytes([byte]) for byte in range(256))
    compiler = GrammarCompiler(Vocabulary(pieces, (False,) * 256), [])
    return compiler.compile(Grammar(json_schema=schema))


def test_a_grammar_that_hits_a_limit_is_an_error_for_the_target_and_silence_for_a_draft() -> None:
    history = History.of(params(), (), grammar=_beyond_a_limit())
    row = torch.zeros(256)
    assert allowed_logits(row, params(), history).isfinite().nonzero().flatten().tolist() == [123]
    history = history.after([123])
    assert process(row, params(), history).amax() == -INF
    with pytest.raises(InvalidArgumentError, match=r"after 1 tokens the grammar .* max is 2000"):
        allowed_logits(row, params(), history)
