"""What the clients send, and what they refuse before anything is sent."""

import json

import grpc
import pytest
from scripted_orchestrator import WHOLE_ANSWER, ScriptedOrchestrator

from orchestrator.requests import GenerationRequest
from outrider import AsyncClient, Client, InvalidArgumentError
from outrider.client.arguments import MAX_SPECULATIVE_TOKENS, MAX_WIDTH
from outrider.types import AcceptanceMode, SamplingParams, StopConditions
from outrider.v1 import common_pb2, orchestrator_pb2
from outrider.v1.orchestrator_pb2_grpc import add_OrchestratorServiceServicer_to_server

CONVERSATION = [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]


class Index:
    """An integer of another library."""

    def __index__(self):
        return 5


async def test_every_argument_reaches_the_server(orchestrator):
    async with AsyncClient(orchestrator.address, metadata={"x-user": "ann"}) as client:
        await client.generate(
            "The sea",
            max_tokens=9,
            min_tokens=3,
            temperature=0,
            top_k=40,
            top_p=0.9,
            min_p=0.05,
            repetition_penalty=1.5,
            frequency_penalty=-0.5,
            presence_penalty=0.25,
            logit_bias={9: -100, Index(): 0.5},
            allowed_token_ids=[5, 4],
            banned_token_ids=(7, 6),
            regex="a+",
            seed=2**64 - 1,
            choice_index=3,
            mode="match",
            stop=["END", "é"],
            include_stop=True,
            stop_token_ids=(2, Index()),
            ignore_eos=True,
            logprobs=2,
            max_drafts=0,
            num_speculative_tokens=4,
            width=2,
            model="sea",
        ).result()

    assert orchestrator.servicer.requests == [
        orchestrator_pb2.GenerateRequest(
            text="The sea",
            sampling=common_pb2.SamplingParams(
                temperature=0.0,
                top_k=40,
                top_p=0.9,
                min_p=0.05,
                repetition_penalty=1.5,
                frequency_penalty=-0.5,
                presence_penalty=0.25,
                logit_bias=[
                    common_pb2.LogitBias(id=5, bias=0.5),
                    common_pb2.LogitBias(id=9, bias=-100),
                ],
                allowed_token_ids=common_pb2.TokenIds(ids=[5, 4]),
                banned_token_ids=[6, 7],
                grammar=common_pb2.Grammar(regex="a+"),
                seed=2**64 - 1,
                mode=common_pb2.ACCEPTANCE_MODE_MATCH,
            ),
            stop=common_pb2.StopConditions(
                max_tokens=9, stop_token_ids=[2, 5], ignore_eos=True, min_tokens=3
            ),
            stop_strings=["END", "é"],
            include_stop_string=True,
            logprobs=2,
            choice_index=3,
            model="sea",
            draft=orchestrator_pb2.DraftOptions(max_drafts=0, num_speculative_tokens=4, width=2),
        )
    ]
    assert orchestrator.servicer.metadata[0]["x-user"] == "ann"


async def test_what_is_not_given_is_left_to_the_server(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi").result()
    (request,) = orchestrator.servicer.requests
    assert request.stop.max_tokens == 256
    assert not request.sampling.ListFields()
    assert not request.draft.ListFields()
    assert {field.name for field, _ in request.ListFields()} == {
        "text",
        "sampling",
        "stop",
        "draft",
    }
    assert not request.HasField("logprobs")


@pytest.mark.parametrize("mode", [*AcceptanceMode, *(mode.value for mode in AcceptanceMode)])
async def test_a_mode_is_given_by_name_or_value(orchestrator, mode):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi", mode=mode).result()
    (request,) = orchestrator.servicer.requests
    name = f"ACCEPTANCE_MODE_{AcceptanceMode(mode).name}"
    assert request.sampling.mode == common_pb2.AcceptanceMode.Value(name)


async def test_the_mode_auto_is_coupled_whatever_the_server_has(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi", mode="auto").result()
    (request,) = orchestrator.servicer.requests
    assert request.sampling.mode == common_pb2.ACCEPTANCE_MODE_COUPLED


async def test_zero_logprobs_are_another_thing_than_none(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi", logprobs=0).result()
    (request,) = orchestrator.servicer.requests
    assert request.HasField("logprobs")
    assert request.logprobs == 0


async def test_one_stop_string_needs_no_list(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi", stop="END").result()
    (request,) = orchestrator.servicer.requests
    assert list(request.stop_strings) == ["END"]


SCHEMA = {"type": "object", "required": ["é"]}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({"json_schema": SCHEMA}, SCHEMA),
        ({"json_schema": json.dumps(SCHEMA)}, SCHEMA),
        ({"json_schema": {}}, {}),
        ({"regex": "a|b"}, common_pb2.Grammar(regex="a|b")),
        (
            {"choice": ("yes", "no")},
            common_pb2.Grammar(choice=common_pb2.GrammarChoice(choices=["yes", "no"])),
        ),
    ],
)
async def test_a_grammar_is_sent_in_the_form_that_is_given(orchestrator, argument, expected):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate("hi", **argument).result()
    (request,) = orchestrator.servicer.requests
    sent = request.sampling.grammar
    assert (json.loads(sent.json_schema) if sent.json_schema else sent) == expected


async def test_ids_and_messages_are_told_apart_from_text(orchestrator):
    async with AsyncClient(orchestrator.address) as client:
        await client.generate([1, Index(), 3]).result()
        await client.generate(CONVERSATION).result()
        chat = client.chat(CONVERSATION, max_tokens=5, mode=AcceptanceMode.REJECTION)
        await chat.result()
    ids, generated, chatted = orchestrator.servicer.requests
    assert list(ids.token_ids.ids) == [1, 5, 3]
    assert generated.chat == chatted.chat
    assert [(item.role, item.content) for item in chatted.chat.messages] == [
        ("system", ""),
        ("user", "hi"),
    ]
    assert chatted.stop.max_tokens == 5
    assert chatted.sampling.mode == common_pb2.ACCEPTANCE_MODE_REJECTION


async def test_credentials_secure_the_channel():
    servicer = ScriptedOrchestrator()
    servicer.script = WHOLE_ANSWER
    server = grpc.aio.server()
    add_OrchestratorServiceServicer_to_server(servicer, server)
    port = server.add_secure_port("127.0.0.1:0", grpc.local_server_credentials())
    await server.start()
    credentials = grpc.local_channel_credentials()
    async with AsyncClient(f"127.0.0.1:{port}", credentials=credentials) as client:
        assert (await client.generate("hi").result()).text == "The sea."
    await server.stop(None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": None}, "prompt is a NoneType; give a str"),
        ({"prompt": b"hi"}, "prompt is a bytes"),
        ({"prompt": 5}, "prompt is a int"),
        ({"prompt": "\ud800"}, "lone surrogate at character 0"),
        ({"prompt": [1, -2]}, r"prompt\[1\] is -2; give a whole number from 0"),
        ({"prompt": [1, True]}, r"prompt\[1\] is True"),
        ({"prompt": [1, 2.0]}, r"prompt\[1\] is 2.0"),
        ({"prompt": [1, {"role": "user"}]}, r"prompt\[1\]"),
        ({"prompt": [2**32]}, r"prompt\[0\] is 4294967296"),
        (
            {"prompt": [{"role": "user"}]},
            r"messages\[0\] has \['role'\]; give 'role' and 'content'",
        ),
        ({"prompt": [{"role": "user", "content": "a", "name": "b"}]}, "nothing else"),
        ({"prompt": [{"role": "tool", "content": "a"}]}, "role 'tool'; give one of system, user"),
        ({"prompt": [{"role": "user", "content": 5}]}, r"the content of messages\[0\] is a int"),
        ({"prompt": [*CONVERSATION, "x"]}, r"messages\[2\] is a str"),
        ({"prompt": "a" * (16 * 1024 * 1024 + 1)}, "give a shorter prompt"),
        ({"max_tokens": 0}, "max_tokens is 0; give a whole number from 1"),
        ({"max_tokens": None}, "max_tokens is None"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"temperature": -1}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"temperature": "hot"}, "temperature is 'hot'; give a number"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"top_p": 0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": 1}, "min_p is 1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"mode": "fast"}, "mode is 'fast'; give one of auto, coupled, rejection, block, match"),
        ({"min_tokens": -1}, "min_tokens is -1"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens is 9; give 0 to max_tokens, which is 8"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0.0; give a number from 0.01"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty is nan"),
        ({"frequency_penalty": 2.1}, "frequency_penalty is 2.1; give a number from -2 to 2"),
        ({"presence_penalty": "much"}, "presence_penalty is 'much'; give a number"),
        ({"logit_bias": [(1, 2)]}, "logit_bias is a list; give a mapping"),
        ({"logit_bias": {"a": 2}}, "a token id of logit_bias is 'a'"),
        ({"logit_bias": {True: 2}}, "a token id of logit_bias is True"),
        ({"logit_bias": {3: "x"}}, "logit_bias of token 3 is 'x'; give a number"),
        ({"logit_bias": {3: 101}}, "logit_bias of token 3 is 101.0; give a number from -100"),
        ({"logit_bias": {3: float("nan")}}, "logit_bias of token 3 is nan"),
        ({"allowed_token_ids": []}, "no allowed token is left"),
        ({"allowed_token_ids": [1], "banned_token_ids": [1]}, "no allowed token is left"),
        ({"allowed_token_ids": 5}, "allowed_token_ids is a int"),
        ({"banned_token_ids": range(4097)}, "banned_token_ids has 4097 tokens; give at most 4096"),
        ({"json_schema": 5}, "json_schema is a int; give a mapping, or JSON text"),
        ({"json_schema": "{"}, "json_schema is no JSON: "),
        ({"json_schema": "[1]"}, "json_schema is no JSON object"),
        ({"json_schema": {"const": float("nan")}}, "json_schema is no JSON: "),
        ({"json_schema": {"const": object()}}, "json_schema is no JSON: "),
        ({"regex": ""}, "regex is ''"),
        ({"regex": 5}, "regex is a int; give a str"),
        ({"choice": "yes"}, "choice is a str; give a list of texts"),
        ({"choice": []}, "choice is empty"),
        ({"choice": ["yes", ""]}, "a choice is empty"),
        ({"choice": ["yes", 5]}, r"choice\[1\] is a int"),
        ({"regex": "a", "choice": ["a"]}, "regex and choice are given; give one of them"),
        ({"choice_index": 1024}, "choice_index is 1024; give a whole number from 0 to 1023"),
        ({"stop": 5}, "stop is a int; give a str or a list of str"),
        ({"stop": b"END"}, "stop is a bytes"),
        ({"stop": ["END", 5]}, r"stop\[1\] is a int"),
        ({"stop": ""}, "stop string 0 has 0 characters; give 1 to 256"),
        ({"stop": ["a"] * 17}, "there are 17 stop strings; give at most 16"),
        ({"include_stop": 1}, "include_stop is 1; give True or False"),
        ({"logprobs": 21}, "logprobs is 21; give a whole number from 0 to 20"),
        ({"logprobs": True}, "logprobs is True"),
        ({"mode": ["match"]}, "mode is"),
        ({"stop_token_ids": 5}, "stop_token_ids is a int"),
        ({"stop_token_ids": "ab"}, "stop_token_ids is a str"),
        ({"stop_token_ids": [-1]}, r"stop_token_ids\[0\] is -1"),
        ({"ignore_eos": 1}, "ignore_eos is 1; give True or False"),
        ({"max_drafts": -1}, "max_drafts is -1"),
        ({"num_speculative_tokens": "4"}, "num_speculative_tokens is '4'"),
        ({"max_tokens": 2**24 + 1}, "max_tokens is 16777217; give a whole number from 1 to 16777"),
        ({"num_speculative_tokens": 0}, "from 1 to 128 .max_drafts 0 turns drafting off."),
        ({"num_speculative_tokens": 129}, "num_speculative_tokens is 129"),
        ({"width": 0}, "width is 0; give a whole number from 1 to 32"),
        ({"width": 33}, "width is 33"),
        ({"model": None}, "model is a NoneType"),
        ({"timeout_s": 0}, "timeout_s is 0; give seconds above 0"),
        ({"timeout_s": -1.0}, "timeout_s is -1.0"),
        ({"timeout_s": float("inf")}, "timeout_s is inf"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"timeout_s": True}, "timeout_s is True"),
        ({"timeout_s": "1"}, "timeout_s is '1'"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_call(arguments, words):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgumentError, match=words):
        client.generate(**({"prompt": "hi"} | arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"address": ""}, "address is ''; give host:port"),
        ({"address": 7070}, "address is 7070"),
        ({"address": "nowhere"}, "address is 'nowhere'; give host:port, the port from 1 to 65535"),
        ({"address": "localhost:99999"}, "address is 'localhost:99999'"),
        ({"address": "localhost:0"}, "address is 'localhost:0'"),
        ({"address": "https://localhost:7070"}, "address is 'https://localhost:7070'"),
        ({"address": "::1:7070"}, "address is '::1:7070'"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": None}, "timeout_s is None"),
        ({"metadata": [("a", "b")]}, "metadata is a list"),
        ({"metadata": {"X": "b"}}, "metadata key is 'X'"),
        ({"metadata": {"grpc-x": "b"}}, "metadata key is 'grpc-x'"),
        ({"metadata": {"x-bin": "b"}}, "metadata key is 'x-bin'"),
        ({"metadata": {"x": "é"}}, "the value of metadata 'x'"),
        ({"credentials": "cert"}, "credentials is a str"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_refuses_wrong_arguments_of_its_own(kind, arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        kind(**arguments)


@pytest.mark.parametrize("address", ["localhost:1", "[::1]:65535", " a-b.example_c:7070 "])
def test_addresses_have_a_host_and_a_port(address):
    with Client(address) as client:
        assert client.address == address.strip()


def test_the_bounds_are_those_of_the_services():
    sampling, stop = SamplingParams(), StopConditions(1)
    for name, most in (("width", MAX_WIDTH), ("num_speculative_tokens", MAX_SPECULATIVE_TOKENS)):
        GenerationRequest("r", "hi", sampling, stop, **{name: most})
        with pytest.raises(InvalidArgumentError, match=f"{name} is {most + 1}"):
            GenerationRequest("r", "hi", sampling, stop, **{name: most + 1})


@pytest.mark.parametrize("messages", ["hi", [], None])
def test_chat_wants_messages(messages):
    with Client() as client, pytest.raises(InvalidArgumentError, match="message"):
        client.chat(messages)


async def test_a_closed_client_says_so():
    client = Client()
    client.close()
    with pytest.raises(InvalidArgumentError, match="closed"):
        client.generate("hi")
    with pytest.raises(InvalidArgumentError, match="closed"):
        client.get_model_info()
    async_client = AsyncClient()
    await async_client.close()
    with pytest.raises(InvalidArgumentError, match="closed"):
        async_client.generate("hi")
    with pytest.raises(InvalidArgumentError, match="closed"):
        await async_client.get_cluster()


@pytest.mark.parametrize(
    "ask", [lambda client: client.generate("hi").result(), lambda client: client.get_model_info()]
)
def test_a_client_that_another_thread_closes_meanwhile_says_so(monkeypatch, ask):
    client = Client()
    client.close()
    checks = iter([lambda: None])
    monkeypatch.setattr(
        client, "require_open", lambda: next(checks, type(client).require_open.__get__(client))()
    )
    with pytest.raises(InvalidArgumentError, match="closed"):
        ask(client)
