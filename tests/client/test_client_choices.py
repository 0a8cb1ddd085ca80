"""Several answers to one request, stop strings and log-probabilities, as both clients give them."""

import asyncio

import pytest
from scripted_orchestrator import FIRST_VERDICT, HANG, WHOLE_ANSWER, finished, started, tokens

from outrider import AsyncClient, Client, InvalidArgumentError, StateMismatchError
from outrider.client import Token, TokenLogprob
from outrider.v1 import orchestrator_pb2


async def choices(is_async, address, n, **options):
    if is_async:
        async with AsyncClient(address) as client:
            return await client.generate_choices("hi", n, **options)

    def ask():
        with Client(address) as client:
            return client.generate_choices("hi", n, **options)

    return await asyncio.to_thread(ask)


both = pytest.mark.parametrize("is_async", [False, True])


@both
async def test_choices_share_a_seed_and_differ_in_their_number(orchestrator, is_async):
    results = await choices(is_async, orchestrator.address, 3, max_tokens=9)
    assert [result.text for result in results] == ["The sea."] * 3
    requests = sorted(orchestrator.servicer.requests, key=lambda request: request.choice_index)
    assert [request.choice_index for request in requests] == [0, 1, 2]
    assert len({request.sampling.seed for request in requests}) == 1
    assert all(request.sampling.HasField("seed") for request in requests)
    for request in requests:
        request.choice_index = 0
    assert requests[0] == requests[1] == requests[2]


@both
async def test_two_calls_without_a_seed_draw_two_and_a_given_one_is_kept(orchestrator, is_async):
    for seed in (None, None, 7):
        await choices(is_async, orchestrator.address, 1, seed=seed)
    first, second, given = (r.sampling.seed for r in orchestrator.servicer.requests)
    assert first != second
    assert given == 7


@both
async def test_an_iterator_of_ids_reaches_every_choice(orchestrator, is_async):
    await choices(is_async, orchestrator.address, 2, stop_token_ids=iter([2, 3]))
    assert [list(r.stop.stop_token_ids) for r in orchestrator.servicer.requests] == [[2, 3]] * 2


@both
async def test_all_choices_are_asked_for_before_any_is_waited_for(orchestrator, is_async):
    """The first answer goes on only once the second was asked for; else it would hang."""
    second_came = asyncio.Event()
    orchestrator.servicer.scripts = {
        0: (started(), second_came, FIRST_VERDICT, finished()),
        1: (second_came.set, *WHOLE_ANSWER),
    }
    results = await choices(is_async, orchestrator.address, 2)
    assert [result.text for result in results] == ["The sea", "The sea."]


@both
async def test_eight_choices_run_at_once_and_all_come_in_order(orchestrator, is_async):
    """The first eight wait for one another; the later they were asked for the sooner they end."""
    servicer = orchestrator.servicer
    ends = [asyncio.Event() for _ in range(8)]

    def eight_came():
        if servicer.running == 8:
            ends[7].set()

    def script(index):
        word = tokens((1, f"answer {index}", ""))
        if index < 8:
            before = ends[index - 1].set if index else lambda: None
            return started(), eight_came, ends[index], word, before, finished()
        return started(), word, finished()

    servicer.scripts = {index: script(index) for index in range(40)}
    results = await choices(is_async, orchestrator.address, 40)
    assert [result.text for result in results] == [f"answer {index}" for index in range(40)]
    assert servicer.most_running == 8


@both
async def test_a_choice_that_fails_keeps_those_behind_it_from_being_asked_for(
    orchestrator, is_async
):
    servicer = orchestrator.servicer
    servicer.script = (started(), FIRST_VERDICT, HANG)
    servicer.scripts = {3: (started(), servicer.hanging, StateMismatchError("out of memory"))}
    with pytest.raises(StateMismatchError, match="out of memory"):
        await choices(is_async, orchestrator.address, 40)
    assert len(servicer.requests) <= 9


@both
@pytest.mark.parametrize("failing", [0, 1])
async def test_a_choice_that_fails_fails_all_and_ends_the_others(orchestrator, is_async, failing):
    servicer = orchestrator.servicer
    servicer.scripts = {
        failing: (started(), servicer.hanging, StateMismatchError("out of memory")),
        1 - failing: (started(), FIRST_VERDICT, HANG),
    }
    with pytest.raises(StateMismatchError, match="out of memory"):
        await choices(is_async, orchestrator.address, 2)
    await asyncio.wait_for(servicer.cancelled.wait(), 10)


@both
async def test_a_long_answer_is_read_while_another_one_is_waited_for(orchestrator, is_async):
    """Its 15 MB do not fit what a connection holds unread: the first answer would wait for ever."""
    second_went = asyncio.Event()
    long = tokens(*[(1, "x" * 1000, "")] * 100)
    orchestrator.servicer.scripts = {
        0: (started(), second_went, FIRST_VERDICT, finished()),
        1: (started(), *[long] * 150, second_went.set, finished()),
    }
    first, second = await choices(is_async, orchestrator.address, 2)
    assert (first.text, len(second.text)) == ("The sea", 15_000_000)


@pytest.mark.parametrize(
    ("n", "options", "says"),
    [
        (0, {}, "n is 0; give a whole number from 1 to 1024"),
        (1025, {}, "n is 1025"),
        (2.0, {}, "n is 2.0"),
        (2, {"choice_index": 1}, "choice_index is given; leave it out"),
        (2, {"seed": -1}, "seed is -1"),
        (2, {"temperature": -1}, "temperature is -1"),
    ],
)
@both
async def test_wrong_arguments_are_refused_before_any_call(is_async, n, options, says):
    with pytest.raises(InvalidArgumentError, match=says):
        await choices(is_async, "127.0.0.1:1", n, **options)


async def test_the_stop_string_and_what_was_held_back_are_part_of_the_result(orchestrator):
    orchestrator.servicer.script = (
        started(),
        tokens((1, "a", ""), (2, "b", "")),
        finished(stop_string="END"),
    )
    async with AsyncClient(orchestrator.address) as client:
        result = await client.generate("hi").result()
    assert (result.text, result.stop_string) == ("ab", "END")


async def test_log_probabilities_come_with_their_tokens(orchestrator):
    logprob = orchestrator_pb2.TokenLogprob
    verdict = orchestrator_pb2.GenerateTokens(
        tokens=[
            orchestrator_pb2.EmittedToken(
                id=1,
                text="a",
                logprob=logprob(id=1, logprob=-0.5, piece=b"a"),
                top_logprobs=[
                    logprob(id=1, logprob=-0.5, piece=b"a"),
                    logprob(id=2, logprob=-2.5, piece=b"\xc3"),
                ],
            ),
            orchestrator_pb2.EmittedToken(
                id=3, text="b", logprob=logprob(id=3, logprob=0.0, piece=b"b")
            ),
        ]
    )
    orchestrator.servicer.script = (
        started(),
        orchestrator_pb2.GenerateResponse(tokens=verdict),
        finished(),
    )
    async with AsyncClient(orchestrator.address) as client:
        result = await client.generate("hi", logprobs=2).result()
    top = (TokenLogprob(1, -0.5, b"a"), TokenLogprob(2, -2.5, b"\xc3"))
    assert result.tokens == (
        Token(1, "a", "", -0.5, b"a", top),
        Token(3, "b", "", 0.0, b"b", ()),
    )


async def test_a_mode_that_this_client_does_not_know_is_none(orchestrator):
    orchestrator.servicer.script = (started(mode=99), finished())
    async with AsyncClient(orchestrator.address) as client:
        result = await client.generate("hi").result()
    assert result.mode is None
