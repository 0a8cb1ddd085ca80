"""Bad input gets a typed error that says what to do, and costs neither side anything."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from support.local import TARGET, Local, Running

from outrider import AsyncClient
from outrider.errors import (
    CapacityError,
    InvalidArgumentError,
    NotFoundError,
    OutriderError,
    UnavailableError,
)
from outrider.v1 import common_pb2, orchestrator_pb2
from outrider.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from outrider.wire.errors import from_rpc_error

NAN, INF = float("nan"), float("inf")
Sampling = common_pb2.SamplingParams
Stop = common_pb2.StopConditions
Request = orchestrator_pb2.GenerateRequest
OK: dict[str, Any] = {"text": "hi", "stop": Stop(max_tokens=4)}


class Everything:
    """One of each service."""

    def __init__(self, verify: Running, draft: Running, client: AsyncClient) -> None:
        self.verify = verify
        self.draft = draft
        self.client = client

    def cost(self) -> tuple[int, ...]:
        """What the two models were asked so far."""
        models = (self.verify.model, self.draft.model)
        return tuple(n for m in models for n in (m.opened, m.passes))


@pytest.fixture
async def services(local: Local) -> AsyncIterator[Everything]:
    verify, draft = await asyncio.gather(
        local.verify(f"{TARGET},context=100", kv_tokens=256), local.draft(TARGET)
    )
    yield Everything(verify, draft, await local.orchestrator(verify, {"a": draft}))


async def refused(local: Local, services: Everything, request: Any) -> OutriderError:
    """Sends what our own clients would not, and returns the error."""
    stub = OrchestratorServiceStub(await local.channel(services.client.address))
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        async for _ in stub.Generate(request, timeout=20):
            pass
    return from_rpc_error(failure.value)


def sampled(**more: Any) -> Any:
    return Request(**OK, sampling=Sampling(**more))


def biased(*pairs: tuple[int, float]) -> Any:
    return sampled(logit_bias=[common_pb2.LogitBias(id=i, bias=bias) for i, bias in pairs])


def formed(**form: Any) -> Any:
    return sampled(grammar=common_pb2.Grammar(**form))


def chosen(*texts: str) -> Any:
    return formed(choice=common_pb2.GrammarChoice(choices=texts))


PENALTIES: dict[str, tuple[float, ...]] = {
    "repetition_penalty": (0, -1, 10.5, NAN, INF),
    "frequency_penalty": (-2.5, 2.5, NAN, INF),
    "presence_penalty": (-2.5, 2.5, NAN, INF),
}
NEW_FIELDS: dict[str, tuple[Any, str]] = {
    **{
        f"{name}={value}": (sampled(**{name: value}), f"{name} is {float(value)}; give a number")
        for name, values in PENALTIES.items()
        for value in values
    },
    **{
        f"bias={bias}": (biased((3, bias)), f"logit_bias of token 3 is {bias}; give a number")
        for bias in (100.5, -100.5, NAN, INF)
    },
    "bias-twice": (biased((3, 1.0), (3, 2.0)), "logit_bias names a token twice"),
    "biases": (biased(*((i, 0.0) for i in range(4097))), "logit_bias has 4097 tokens"),
    "bias-beyond": (biased((64, 1.0)), "logit_bias"),
    "allowed-none": (sampled(allowed_token_ids=common_pb2.TokenIds()), "no allowed token is left"),
    "allowed-beyond": (
        sampled(allowed_token_ids=common_pb2.TokenIds(ids=[1, 64])),
        "allowed_token_ids",
    ),
    "banned-beyond": (sampled(banned_token_ids=[64]), "banned_token_ids"),
    "stop-id-beyond": (
        Request(text="hi", stop=Stop(max_tokens=4, stop_token_ids=[64])),
        "stop_token_ids",
    ),
    "grammar-without-form": (sampled(grammar=common_pb2.Grammar()), "the grammar has 0 forms"),
    "regex-empty": (formed(regex=""), "the regex of the grammar is empty"),
    "regex-wrong": (formed(regex="(a"), "grammar"),
    "regex-large": (formed(regex="a" * 2**14), "16384 bytes; give at most 8192"),
    "schema-empty": (formed(json_schema=""), "the json_schema of the grammar is empty"),
    "schema-no-json": (formed(json_schema="{"), "JSON"),
    "schema-wrong": (formed(json_schema='{"type": "frob"}'), "frob"),
    "schema-large": (formed(json_schema='"' + "a" * 2**16), "65537 bytes; give at most 65536"),
    "choice-none": (chosen(), "the choice of the grammar is empty"),
    "choice-empty": (chosen("a", ""), "a choice is empty"),
    "choice-large": (chosen("a" * 2**15, "b" * 2**15, "c"), "65537 bytes; give at most 65536"),
    "choice-unwritable": (chosen("~"), "no token"),
    "choice_index": (Request(**OK, choice_index=1024), "choice_index is 1024; give 0 to 1023"),
    "logprobs": (Request(**OK, logprobs=21), "logprobs is 21; give 0 to 20"),
    "stop-empty": (Request(**OK, stop_strings=["a", ""]), "stop string 1 has 0 characters"),
    "stop-many": (Request(**OK, stop_strings=["a"] * 17), "there are 17 stop strings"),
    "stop-long": (Request(**OK, stop_strings=["a" * 257]), "stop string 0 has 257 characters"),
    "include-stop-alone": (Request(**OK, include_stop_string=True), "without a stop string"),
    "min-tokens": (Request(text="hi", stop=Stop(max_tokens=4, min_tokens=5)), "min_tokens is 5"),
}

BAD_REQUESTS: list[tuple[str, Any, type[OutriderError], str]] = [
    ("empty-text", Request(text="", stop=Stop(max_tokens=4)), InvalidArgumentError, "empty"),
    (
        "9-MiB",
        Request(text="x" * 9_500_000, stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "bytes",
    ),
    (
        "a-million-empty-messages",
        Request(
            chat=common_pb2.Chat(messages=[common_pb2.ChatMessage()] * 1_000_000),
            stop=Stop(max_tokens=4),
        ),
        InvalidArgumentError,
        "1000000 messages; give at most 8192",
    ),
    (
        "two-million-ids",
        Request(token_ids=common_pb2.TokenIds(ids=[1] * 2_000_000), stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "2000000 token ids",
    ),
    (
        "thousands-of-stop-ids",
        Request(text="hi", stop=Stop(max_tokens=4, stop_token_ids=range(5000))),
        InvalidArgumentError,
        "5000 stop token ids",
    ),
    ("no-prompt", Request(stop=Stop(max_tokens=4)), InvalidArgumentError, "empty"),
    (
        "empty-chat",
        Request(chat=common_pb2.Chat(), stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "empty",
    ),
    (
        "empty-ids",
        Request(token_ids=common_pb2.TokenIds(), stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "empty",
    ),
    ("too-long", Request(text="x" * 100, stop=Stop(max_tokens=4)), InvalidArgumentError, "100"),
    (
        "max-tokens-0",
        Request(text="x", stop=Stop(max_tokens=0)),
        InvalidArgumentError,
        "max_tokens",
    ),
    ("no-stop", Request(text="x"), InvalidArgumentError, "max_tokens"),
    ("model", Request(**OK, model="gpt-9"), NotFoundError, "gpt-9"),
    ("temperature", Request(**OK, sampling=Sampling(temperature=-1)), InvalidArgumentError, "-1"),
    ("nan", Request(**OK, sampling=Sampling(temperature=NAN)), InvalidArgumentError, "nan"),
    ("inf", Request(**OK, sampling=Sampling(temperature=INF)), InvalidArgumentError, "inf"),
    ("top-p-0", Request(**OK, sampling=Sampling(top_p=0)), InvalidArgumentError, "top_p"),
    ("top-p-nan", Request(**OK, sampling=Sampling(top_p=NAN)), InvalidArgumentError, "top_p"),
    ("top-p-2", Request(**OK, sampling=Sampling(top_p=2)), InvalidArgumentError, "top_p"),
    ("min-p-1", Request(**OK, sampling=Sampling(min_p=1)), InvalidArgumentError, "min_p"),
    ("min-p-nan", Request(**OK, sampling=Sampling(min_p=NAN)), InvalidArgumentError, "min_p"),
    ("mode", Request(**OK, sampling=Sampling(mode=99)), InvalidArgumentError, "99"),  # type: ignore[arg-type]
    (
        "vocabulary",
        Request(token_ids=common_pb2.TokenIds(ids=[1, 64]), stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "64",
    ),
    (
        "huge-id",
        Request(token_ids=common_pb2.TokenIds(ids=[2**32 - 1]), stop=Stop(max_tokens=4)),
        InvalidArgumentError,
        "4294967295",
    ),
    (
        "width",
        Request(**OK, draft=orchestrator_pb2.DraftOptions(width=33)),
        InvalidArgumentError,
        "width",
    ),
    (
        "depth",
        Request(**OK, draft=orchestrator_pb2.DraftOptions(num_speculative_tokens=129)),
        InvalidArgumentError,
        "num_speculative_tokens",
    ),
    *((name, request, InvalidArgumentError, word) for name, (request, word) in NEW_FIELDS.items()),
]


@pytest.mark.parametrize(
    ("request_message", "kind", "word"),
    [row[1:] for row in BAD_REQUESTS],
    ids=[row[0] for row in BAD_REQUESTS],
)
async def test_bad_input_is_refused_by_name_and_costs_nothing(
    local: Local,
    services: Everything,
    request_message: Any,
    kind: type[OutriderError],
    word: str,
) -> None:
    before = services.cost()
    error = await refused(local, services, request_message)
    assert type(error) is kind
    assert word in error.message
    assert error.request_id
    assert services.cost() == before
    result = await services.client.generate("fine", max_tokens=3).result()
    assert len(result.tokens) == 3


@pytest.mark.parametrize("max_tokens", [0, -1, 2**40])
async def test_the_client_refuses_a_bad_max_tokens_before_sending(
    services: Everything, max_tokens: int
) -> None:
    with pytest.raises(InvalidArgumentError, match="max_tokens"):
        services.client.generate("x", max_tokens=max_tokens)


@pytest.mark.parametrize("temperature", [-1, NAN, INF])
async def test_the_client_refuses_a_bad_temperature_before_sending(
    services: Everything, temperature: float
) -> None:
    with pytest.raises(InvalidArgumentError, match="temperature"):
        services.client.generate("x", temperature=temperature)


async def test_a_draft_that_shares_no_token_is_never_called_and_the_answer_says_so(
    local: Local,
) -> None:
    verify, stranger = await asyncio.gather(local.verify(), local.draft(f"{TARGET},shift=64"))
    client = await local.orchestrator(verify, {"stranger": stranger})
    result = await client.generate("hello", max_tokens=12, temperature=0).result()
    assert result.stats.target_passes == 12
    assert [n for n in result.notices if "stranger" in n and "tokenizer" in n]
    assert [n for n in result.notices if "own speed" in n]
    assert stranger.model.opened == 0
    assert result.stats.drafts == ()
    cluster = await client.get_cluster()
    assert not cluster.drafts[0].usable
    assert "tokenizer" in cluster.drafts[0].problem


async def test_each_notice_is_given_once(local: Local) -> None:
    verify = await local.verify()
    client = await local.orchestrator(verify, {"gone": "127.0.0.1:1"})
    result = await client.generate("hello", max_tokens=2).result()
    assert len(result.notices) == len(set(result.notices)) == 2


async def test_without_a_reachable_draft_it_answers_and_says_so(local: Local) -> None:
    verify = await local.verify()
    client = await local.orchestrator(verify, {"gone": "127.0.0.1:1"})
    generation = client.generate("hello", max_tokens=8, temperature=0)
    started = await generation.wait_started()
    assert [n for n in started.notices if "gone is not used" in n and "127.0.0.1:1" in n]
    assert (await generation.result()).stats.target_passes == 8


async def test_without_a_reachable_verifier_the_error_says_how_to_start_one(local: Local) -> None:
    client = await local.orchestrator("127.0.0.1:1")
    with pytest.raises(UnavailableError, match="outrider serve verify") as failure:
        await client.generate("hello", max_tokens=8).result()
    assert failure.value.request_id
    assert failure.value.retry_after_s is not None
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        await client.get_model_info()


async def test_an_answer_that_can_never_fit_into_the_kv_cache_is_refused_at_once(
    local: Local,
) -> None:
    verify = await local.verify(kv_tokens=64)
    client = await local.orchestrator(verify)
    with pytest.raises(CapacityError, match="kv-tokens") as failure:
        await client.generate("hello", max_tokens=200).result()
    assert failure.value.request_id
    assert verify.model.opened == 0
    assert len((await client.generate("hello", max_tokens=20).result()).tokens) == 20
