"""Both clients against a real gRPC server: what an answer looks like, and how it is given up."""

import asyncio
import gc
import threading

import pytest
from scripted_orchestrator import (
    FIRST_VERDICT,
    HANG,
    SECOND_VERDICT,
    WHOLE_ANSWER,
    finished,
    started,
    tokens,
)
from support.waiting import until

from outrider import AsyncClient, Client, RequestCancelledError, UnavailableError
from outrider.client import Service, Token
from outrider.types import AcceptanceMode, FinishReason

EXPECTED_TOKENS = (
    Token(11, "The", "attic"),
    Token(12, " s", "attic"),
    Token(13, "ea", ""),
    Token(14, ".", ""),
)


async def test_sync_and_async_client_fold_the_same_result(orchestrator):
    def ask():
        with Client(orchestrator.address) as client:
            return client.generate("hi").result()

    async with AsyncClient(orchestrator.address) as client:
        result = await client.generate("hi").result()

    assert await asyncio.to_thread(ask) == result
    assert result.text == "The sea."
    assert result.tokens == EXPECTED_TOKENS
    assert result.finish_reason is FinishReason.STOP
    assert result.notices == ("hello", "a draft was lost")
    assert (result.seed, result.request_id) == (7, "req-1")
    assert result.stats.drafts[0].lost
    assert (result.mode, result.stop_string) == (AcceptanceMode.BLOCK, "")


async def test_tokens_arrive_one_by_one_with_their_origin_and_the_text_so_far(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        seen = [(token.id, token.is_drafted, generation.text) async for token in generation]

    assert seen == [
        (11, True, "The"),
        (12, True, "The s"),
        (13, False, "The sea"),
        (14, False, "The sea."),
    ]


async def test_sync_iteration_yields_the_same_tokens(orchestrator):
    def ask():
        with Client(orchestrator.address) as client, client.generate("hi") as generation:
            return tuple(generation), generation.stats

    yielded, stats = await asyncio.to_thread(ask)

    assert yielded == EXPECTED_TOKENS
    assert stats is not None
    assert stats.tokens_per_pass == 2


async def test_started_is_known_before_the_first_token(orchestrator):
    orchestrator.servicer.script = (started(), HANG)

    def ask():
        with Client(orchestrator.address) as client, client.generate("hi") as generation:
            return generation.wait_started()

    async with AsyncClient(orchestrator.address) as client, client.generate("hi") as generation:
        assert generation.started is None
        known = await generation.wait_started()
        assert generation.started == known
        assert generation.stats is None
        assert generation.text == ""

    assert (known.request_id, known.seed, known.prompt_tokens) == ("req-1", 7, 3)
    assert (known.drafts, known.notices) == (("attic",), ("hello",))
    assert await asyncio.to_thread(ask) == known


async def test_result_after_some_tokens_has_all_of_them(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        await anext(generation)
        first = await generation.result()
        assert first.tokens == EXPECTED_TOKENS
        assert await generation.result() is first


async def test_a_character_left_incomplete_ends_the_text(orchestrator):
    orchestrator.servicer.script = (started(), tokens((1, "a\ufffd", "")), finished())
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        assert [token.text async for token in generation] == ["a\ufffd"]
        assert generation.text == (await generation.result()).text == "a\ufffd"


async def test_leaving_the_block_cancels_on_the_server(orchestrator):
    servicer = orchestrator.servicer
    servicer.script = (started(), FIRST_VERDICT, HANG)

    def leave():
        client = Client(orchestrator.address)
        with client.generate("hi") as generation:
            next(generation)
        return client, generation

    client, generation = await asyncio.to_thread(leave)
    await asyncio.wait_for(servicer.cancelled.wait(), 10)
    with pytest.raises(RequestCancelledError, match="1 token had arrived") as caught:
        next(generation)
    assert caught.value.request_id == "req-1"
    assert generation.text == "The"
    client.close()


async def test_leaving_the_async_block_cancels_on_the_server(orchestrator):
    servicer = orchestrator.servicer
    servicer.script = (started(), FIRST_VERDICT, HANG)
    async with AsyncClient(orchestrator.address) as client:
        async with client.generate("hi") as generation:
            await anext(generation)
        await asyncio.wait_for(servicer.cancelled.wait(), 10)
        with pytest.raises(RequestCancelledError, match="1 token had arrived"):
            await generation.result()


@pytest.mark.parametrize("is_async", [False, True])
async def test_dropping_the_last_reference_cancels_on_the_server(orchestrator, is_async):
    servicer = orchestrator.servicer
    servicer.script = (started(), FIRST_VERDICT, HANG)
    if is_async:
        client = AsyncClient(orchestrator.address)
        generation = client.generate("hi")
        await anext(generation)
    else:
        client = Client(orchestrator.address)
        generation = await asyncio.to_thread(client.generate, "hi")
        await asyncio.to_thread(next, generation)
    await asyncio.wait_for(servicer.hanging.wait(), 10)

    del generation
    gc.collect()

    await asyncio.wait_for(servicer.cancelled.wait(), 10)


async def test_dropping_a_client_together_with_its_answer_cancels_on_the_server(orchestrator):
    """In a cycle the client may be the first to go, and its thread with it."""
    servicer = orchestrator.servicer
    servicer.script = (started(), FIRST_VERDICT, HANG)
    before = {thread for thread in threading.enumerate()}
    client = Client(orchestrator.address)
    generation = client.generate("hi")
    await asyncio.to_thread(next, generation)
    await asyncio.wait_for(servicer.hanging.wait(), 10)
    cycle: list[object] = [client, generation]
    cycle.append(cycle)

    del client, generation, cycle
    gc.collect()

    await asyncio.wait_for(servicer.cancelled.wait(), 10)

    def ours():
        return [t for t in threading.enumerate() if t.name == "outrider-client" and t not in before]

    await until(lambda: not ours(), "the end of its threads")


async def test_cancel_from_another_thread_wakes_the_reader(orchestrator):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, HANG)
    client = Client(orchestrator.address)
    generation = await asyncio.to_thread(client.generate, "hi")
    reader = asyncio.create_task(asyncio.to_thread(lambda: list(generation)))
    await asyncio.wait_for(orchestrator.servicer.hanging.wait(), 10)

    await asyncio.to_thread(generation.cancel)

    with pytest.raises(RequestCancelledError):
        await reader
    client.close()


async def test_cancel_from_another_task_is_no_task_cancellation(orchestrator):
    orchestrator.servicer.script = (started(), HANG)
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        reader = asyncio.create_task(generation.result())
        await asyncio.wait_for(orchestrator.servicer.hanging.wait(), 10)
        generation.cancel()
        with pytest.raises(RequestCancelledError):
            await reader


async def test_cancelling_the_waiting_task_cancels_on_the_server(orchestrator):
    servicer = orchestrator.servicer
    servicer.script = (started(), HANG)
    async with AsyncClient(orchestrator.address) as client:
        reader = asyncio.create_task(client.generate("hi").result())
        await asyncio.wait_for(servicer.hanging.wait(), 10)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.wait_for(servicer.cancelled.wait(), 10)


async def test_closing_the_client_ends_running_answers(orchestrator):
    servicer = orchestrator.servicer
    servicer.script = (started(), HANG)
    client = AsyncClient(orchestrator.address)
    generation = client.generate("hi")
    await generation.wait_started()
    await client.close()
    await asyncio.wait_for(servicer.cancelled.wait(), 10)
    with pytest.raises(RequestCancelledError):
        await generation.result()


async def test_closing_the_client_ends_running_unary_calls(orchestrator):
    orchestrator.servicer.is_silent = True
    client = AsyncClient(orchestrator.address)
    asking = asyncio.create_task(client.get_model_info())
    await asyncio.wait_for(orchestrator.servicer.hanging.wait(), 10)
    await client.close()
    with pytest.raises(RequestCancelledError):
        await asking


async def test_a_generation_outlives_the_variable_of_its_client(orchestrator):
    generation = AsyncClient(orchestrator.address).generate("hi")
    gc.collect()
    assert (await generation.result()).text == "The sea."


async def test_cancelling_a_complete_answer_changes_nothing(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        result = await generation.result()
        generation.cancel()
        assert await generation.result() == result
        assert not orchestrator.servicer.cancelled.is_set()


async def test_the_connection_may_end_after_the_last_message(orchestrator):
    orchestrator.servicer.script = (*WHOLE_ANSWER, UnavailableError("draining"))
    async with AsyncClient(orchestrator.address) as client:
        assert (await client.generate("hi").result()).text == "The sea."


async def test_an_empty_answer_is_an_answer(orchestrator):
    orchestrator.servicer.script = (started(), finished())
    async with AsyncClient(orchestrator.address) as client:
        assert (await client.generate("hi").result()).tokens == ()


async def test_two_answers_at_once_do_not_mix(orchestrator):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, SECOND_VERDICT, finished())
    async with AsyncClient(orchestrator.address) as client:
        both = await asyncio.gather(client.generate("a").result(), client.generate("b").result())
    assert [result.text for result in both] == ["The sea."] * 2


async def test_model_and_cluster_are_told_by_both_clients(orchestrator):
    def ask():
        with Client(orchestrator.address) as client:
            return client.get_model_info(), client.get_cluster()

    async with AsyncClient(orchestrator.address) as client:
        model, cluster = await client.get_model_info(), await client.get_cluster()

    assert await asyncio.to_thread(ask) == (model, cluster)
    assert (model.model_name, model.eos_token_ids) == ("sea", (2, 3))
    assert cluster.verify.model is not None
    assert cluster.drafts == (Service("attic", "", False, "does not answer", None, 0),)
