"""Sampling parameters and stop conditions over the wire: what unset means, what is refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from golden_messages import SAMPLING, STOP
from message_changes import changed, put

from outrider.errors import InvalidArgumentError
from outrider.types import (
    MAX_GRAMMAR_BYTES,
    AcceptanceMode,
    Grammar,
    SamplingParams,
)
from outrider.v1 import common_pb2
from outrider.wire.convert_sampling import (
    mode_from,
    mode_to,
    sampling_from,
    sampling_to,
    stop_from,
)

NO_NUMBERS = (math.nan, math.inf, -math.inf)
Change = Callable[[Any], object]


def grammar(**form: Any) -> Change:
    return lambda message: message.grammar.CopyFrom(common_pb2.Grammar(**form))


def allowing(*ids: int) -> Change:
    return lambda message: message.allowed_token_ids.CopyFrom(common_pb2.TokenIds(ids=ids))


def choices(*texts: str) -> Change:
    return grammar(choice=common_pb2.GrammarChoice(choices=texts))


def biased(*pairs: tuple[int, float]) -> Change:
    return put("logit_bias", [common_pb2.LogitBias(id=i, bias=bias) for i, bias in pairs])


OUT_OF_BOUNDS: dict[str, tuple[float, ...]] = {
    "temperature": (math.nan, math.inf, -1.0),
    "top_p": (*NO_NUMBERS, 0.0, -0.5, 1.5),
    "min_p": (*NO_NUMBERS, -0.5, 1.0),
    "repetition_penalty": (*NO_NUMBERS, 0.0, 0.005, -1.0, 10.5),
    "frequency_penalty": (*NO_NUMBERS, -2.5, 2.5),
    "presence_penalty": (*NO_NUMBERS, -2.5, 2.5),
}
REFUSED: list[tuple[str, Change, str]] = [
    *(
        (f"{name}-{value}", put(name, value), f"{name} is {value}")
        for name, values in OUT_OF_BOUNDS.items()
        for value in values
    ),
    *(
        (f"bias-{x}", biased((3, x)), f"logit_bias of token 3 is {x}; give a number from -100")
        for x in (*NO_NUMBERS, 100.5, -100.5)
    ),
    ("bias-twice", biased((3, 1), (3, 1)), "logit_bias names a token twice"),
    ("biases", biased(*((i, 0) for i in range(4097))), "logit_bias has 4097 tokens"),
    ("allowed-none", allowing(), "no allowed token is left"),
    ("allowed-banned", allowing(2, 301), "no allowed token is left"),
    ("allowed", allowing(*range(4097)), "allowed_token_ids has 4097 tokens"),
    ("banned", put("banned_token_ids", list(range(4097))), "banned_token_ids has 4097 tokens"),
    ("mode", put("mode", 9), "acceptance mode 9 is unknown"),
    ("grammar-no-form", grammar(), "the grammar has 0 forms"),
    ("grammar-no-schema", grammar(json_schema=""), "the json_schema of the grammar is empty"),
    ("grammar-no-regex", grammar(regex=""), "the regex of the grammar is empty"),
    ("grammar-no-choice", choices(), "the choice of the grammar is empty"),
    ("grammar-empty-choice", choices("a", ""), "a choice is empty"),
    ("grammar-large", grammar(regex="x" * (MAX_GRAMMAR_BYTES + 1)), "at most 65536"),
]


@pytest.mark.parametrize(
    ("change", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_sampling_that_means_nothing_is_refused_by_name(change: Change, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        sampling_from(changed(SAMPLING, change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("max_tokens", 0), "max_tokens is 0"),
        (put("min_tokens", 65), "min_tokens is 65; give 0 to max_tokens, which is 64"),
        (put("stop_token_ids", list(range(1025))), "1025 stop token ids; give at most 1024"),
    ],
)
def test_stop_conditions_that_mean_nothing_are_refused_by_name(change: Change, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        stop_from(changed(STOP, change))


def test_the_unchanged_messages_are_taken() -> None:
    """Else the refusals above would prove nothing."""
    assert sampling_from(SAMPLING).grammar == Grammar(json_schema='{"type": "object"}')
    assert stop_from(STOP).min_tokens == 5


def test_unset_sampling_is_plain_sampling_with_a_seed_to_be_drawn() -> None:
    assert sampling_from(common_pb2.SamplingParams()) == SamplingParams()


def test_no_allowed_set_is_another_thing_than_an_empty_one() -> None:
    sent = sampling_to(SamplingParams())
    assert not sent.HasField("allowed_token_ids")
    sent.allowed_token_ids.SetInParent()
    with pytest.raises(InvalidArgumentError, match="no allowed token is left"):
        sampling_from(type(sent).FromString(sent.SerializeToString()))


def test_biases_arrive_in_the_order_of_the_ids_whatever_order_they_were_sent_in() -> None:
    sent = changed(SAMPLING, biased((9, 0.5), (3, -1)))
    assert sampling_from(sent).logit_bias == ((3, -1.0), (9, 0.5))


def test_an_unset_mode_is_none_and_every_other_comes_back() -> None:
    assert mode_from(common_pb2.ACCEPTANCE_MODE_UNSPECIFIED) is None
    assert [mode_from(mode_to(mode)) for mode in AcceptanceMode] == list(AcceptanceMode)
    assert {mode_to(mode) for mode in AcceptanceMode} == set(range(1, 5))
