"""What can never work with a target is refused by name before anything is opened."""

from typing import Any

import pytest
from fake_session import TARGET, request_of

from orchestrator.admission import check_room, check_target
from outrider.errors import InvalidArgumentError, NotFoundError
from outrider.types import SamplingParams, StopConditions

# The target knows five ids, and 100 tokens fit its context.
BEYOND: dict[str, dict[str, Any]] = {
    "the prompt": {"prompt": (1, 5)},
    "logit_bias": {"sampling": SamplingParams(logit_bias=((1, 0.5), (5, 0.5)))},
    "allowed_token_ids": {"sampling": SamplingParams(allowed_token_ids=frozenset({0, 5}))},
    "banned_token_ids": {"sampling": SamplingParams(banned_token_ids=frozenset({0, 5}))},
    "stop_token_ids": {"stop": StopConditions(9, frozenset({0, 5}))},
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_id_that_the_target_does_not_know_is_refused_by_the_name_of_its_list(name: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{name} has token id 5; the model knows 0 to 4"
    ):
        check_target(request_of(**BEYOND[name]), TARGET)


def test_the_highest_id_is_known_and_text_has_none() -> None:
    sampling = SamplingParams(
        logit_bias=((4, 1.0),),
        allowed_token_ids=frozenset({3, 4}),
        banned_token_ids=frozenset({4}),
    )
    for prompt in ((4,), "hi", (("user", "hi"),)):
        check_target(
            request_of(prompt=prompt, sampling=sampling, stop=StopConditions(9, frozenset({4}))),
            TARGET,
        )


def test_another_model_is_not_found() -> None:
    check_target(request_of(model="target"), TARGET)
    with pytest.raises(NotFoundError, match=r"model 'other' is not served here; .* 'target'"):
        check_target(request_of(model="other"), TARGET)


@pytest.mark.parametrize(
    ("prompt", "least", "says"),
    [
        (100, 0, "the prompt has 100 tokens and the model's context is 100; shorten"),
        (99, 2, "min_tokens is 2 .* context is 100; .* or give at most 1 min_tokens"),
        (1, 100, "give at most 99 min_tokens"),
    ],
)
def test_what_cannot_fit_the_context_is_refused(prompt: int, least: int, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        check_room((1,) * prompt, request_of(stop=StopConditions(200, min_tokens=least)), TARGET)


def test_what_just_fits_is_taken() -> None:
    check_room((1,) * 99, request_of(stop=StopConditions(200, min_tokens=1)), TARGET)
    check_room((1,), request_of(stop=StopConditions(200, min_tokens=99)), TARGET)
    check_room((1,), request_of(stop=StopConditions(200), delivered_ids=(3,) * 99), TARGET)


def test_what_was_delivered_has_to_fit_too() -> None:
    request = request_of(stop=StopConditions(200), delivered_ids=(3,) * 100)
    with pytest.raises(
        InvalidArgumentError, match=r"1 tokens, 100 are delivered .* context is 100"
    ):
        check_room((1,), request, TARGET)
    with pytest.raises(
        InvalidArgumentError, match=r"201 tokens are delivered and max_tokens is 200"
    ):
        request_of(stop=StopConditions(200), delivered_ids=(3,) * 201)
