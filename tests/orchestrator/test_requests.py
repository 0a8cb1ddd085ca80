"""A request as the servicer reads it: every field arrives, or is refused by name."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message

from orchestrator.requests import GenerationRequest
from orchestrator.servicer import request_from
from outrider.errors import InvalidArgumentError
from outrider.types import AcceptanceMode, Grammar, SamplingParams, StopConditions
from outrider.v1 import common_pb2
from outrider.v1.orchestrator_pb2 import DraftOptions, GenerateRequest

STOP_0 = common_pb2.StopConditions()
STOP_9 = common_pb2.StopConditions(max_tokens=9)
WHOLE = GenerateRequest(
    text="hi",
    sampling=common_pb2.SamplingParams(
        temperature=0.5,
        top_k=40,
        top_p=0.95,
        min_p=0.125,
        seed=7,
        mode=common_pb2.ACCEPTANCE_MODE_BLOCK,
        repetition_penalty=1.25,
        frequency_penalty=-0.5,
        presence_penalty=0.75,
        logit_bias=[common_pb2.LogitBias(id=3, bias=-100)],
        allowed_token_ids=common_pb2.TokenIds(ids=[1, 3]),
        banned_token_ids=[2],
        grammar=common_pb2.Grammar(regex="a+"),
    ),
    stop=common_pb2.StopConditions(max_tokens=9, stop_token_ids=[7], ignore_eos=True, min_tokens=5),
    model="m",
    draft=DraftOptions(max_drafts=1, num_speculative_tokens=5, width=2),
    stop_strings=["END"],
    include_stop_string=True,
    logprobs=3,
    choice_index=4,
    delivered_ids=[6, 7],
)


def test_a_whole_request_arrives_whole() -> None:
    assert request_from(WHOLE, "r") == GenerationRequest(
        "r",
        "hi",
        SamplingParams(
            temperature=0.5,
            top_k=40,
            top_p=0.95,
            min_p=0.125,
            seed=7,
            mode=AcceptanceMode.BLOCK,
            repetition_penalty=1.25,
            frequency_penalty=-0.5,
            presence_penalty=0.75,
            logit_bias=((3, -100.0),),
            allowed_token_ids=frozenset({1, 3}),
            banned_token_ids=frozenset({2}),
            grammar=Grammar(regex="a+"),
        ),
        StopConditions(9, frozenset({7}), ignore_eos=True, min_tokens=5),
        "m",
        max_drafts=1,
        num_speculative_tokens=5,
        width=2,
        mode=AcceptanceMode.BLOCK,
        stop_strings=("END",),
        include_stop_string=True,
        logprobs=3,
        choice_index=4,
        delivered_ids=(6, 7),
    )


def paths(message: Message, *above: str) -> Iterator[tuple[str, ...]]:
    """Where the fields that are set lie, messages in messages included."""
    for field, value in message.ListFields():
        yield (*above, field.name)
        if field.message_type is not None and not field.is_repeated:
            yield from paths(value, *above, field.name)


@pytest.mark.parametrize("path", tuple(paths(WHOLE)), ids=".".join)
def test_no_field_is_ignored(path: tuple[str, ...]) -> None:
    """Without the field it is another request, or none."""
    message = GenerateRequest()
    message.CopyFrom(WHOLE)
    inner: Any = message
    for name in path[:-1]:
        inner = getattr(inner, name)
    inner.ClearField(path[-1])
    try:
        read = request_from(message, "r")
    except InvalidArgumentError:
        return
    assert read != request_from(WHOLE, "r")


def test_every_field_is_among_those_tried() -> None:
    """`prompt` and `grammar` have other forms, and one form at a time."""
    tried = {name for path in paths(WHOLE) for name in path}
    for kind in (GenerateRequest, common_pb2.SamplingParams, common_pb2.StopConditions):
        missing = set(kind.DESCRIPTOR.fields_by_name) - tried - {"chat", "token_ids"}
        assert not missing
    assert set(DraftOptions.DESCRIPTOR.fields_by_name) <= tried


def test_a_request_without_a_mode_leaves_it_to_the_deployment_and_without_logprobs_has_none() -> (
    None
):
    plain = request_from(GenerateRequest(text="x", stop=STOP_9), "r")
    assert (plain.mode, plain.logprobs) == (None, None)
    zero = request_from(GenerateRequest(text="x", stop=STOP_9, logprobs=0), "r")
    assert zero.logprobs == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_speculative_tokens": 0}, "num_speculative_tokens is 0; give 1 to 128"),
        ({"num_speculative_tokens": 129}, "num_speculative_tokens is 129; give 1 to 128"),
        ({"width": 0}, "width is 0; give 1 to 32"),
        ({"width": 33}, "width is 33; give 1 to 32"),
        ({"logprobs": 21}, "logprobs is 21; give 0 to 20"),
        ({"logprobs": -1}, "logprobs is -1; give 0 to 20"),
        ({"choice_index": 1024}, "choice_index is 1024; give 0 to 1023"),
        ({"choice_index": -1}, "choice_index is -1; give 0 to 1023"),
        ({"stop_strings": ("a", "")}, "stop string 1 has 0 characters; give 1 to 256"),
        ({"stop_strings": ("a" * 257,)}, "stop string 0 has 257 characters"),
        ({"stop_strings": ("a",) * 17}, "there are 17 stop strings; give at most 16"),
    ],
)
def test_options_out_of_bounds_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        GenerationRequest("r", "x", SamplingParams(), StopConditions(1), **options)


def test_draft_options_within_bounds_are_taken() -> None:
    for speculative, width, drafts in ((1, 1, 0), (128, 32, 255), (None, None, None)):
        GenerationRequest(
            "r", "x", SamplingParams(), StopConditions(1), "", drafts, speculative, width
        )


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (GenerateRequest(text="x"), "max_tokens is 0 or unset"),
        (GenerateRequest(text="x", stop=STOP_0), "max_tokens is 0 or unset"),
        (GenerateRequest(stop=STOP_9), "the prompt is empty"),
        (GenerateRequest(text="", stop=STOP_9), "the prompt is empty"),
        (GenerateRequest(chat=common_pb2.Chat(), stop=STOP_9), "the prompt is empty"),
        (GenerateRequest(token_ids=common_pb2.TokenIds(), stop=STOP_9), "the prompt is empty"),
        (GenerateRequest(text="x", stop=STOP_9, draft=DraftOptions(width=0)), "width is 0"),
    ],
)
def test_a_request_that_can_never_work_is_refused_by_name(
    message: GenerateRequest, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        request_from(message, "r")


def test_unset_draft_options_are_the_deployments_and_zero_drafts_is_none() -> None:
    unset = request_from(GenerateRequest(text="x", stop=STOP_9), "r")
    assert (unset.max_drafts, unset.num_speculative_tokens, unset.width) == (None, None, None)
    off = request_from(
        GenerateRequest(text="x", stop=STOP_9, draft=DraftOptions(max_drafts=0)), "r"
    )
    assert off.max_drafts == 0
