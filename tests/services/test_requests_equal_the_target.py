"""Every request parameter, with drafts on: exactly what the target alone would have given.

The oracle computes the target's answer without any service. Under `coupled` and greedy the tokens
must be equal; that drafts were not idle is counted, so that nothing passes by switching them off.
"""

import asyncio
import json
from typing import Any

import pytest
from support.drafts import FakeDraft, chunk, node, opened
from support.local import Local
from support.models import alone
from support.requests import history_of, sampling_of
from support.saying import SayingModel

from outrider import AsyncClient, InvalidArgumentError
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.sampling.noise import PhiloxNoise, Stream
from outrider.sampling.processing import distribution
from outrider.types import FinishReason, SamplingParams
from outrider.v1 import draft_pb2

VOCAB, EOS = 48, 7
LAW = ScriptedLaw(vocab=VOCAB, seed=6, order=1)
"""Of order 1: a greedy answer soon goes in circles, which penalties break."""
MODEL = f"scripted:vocab={VOCAB},seed=6,order=1"
PROMPT = [9, 9, 3]
WAITING: dict[str, Any] = {"wait_nodes": 4, "max_wait_ms": 300, "adaptive": False}
TOKENS = 48

PENALTIES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.7},
    "repetition-reward": {"repetition_penalty": 0.6},
    "frequency": {"frequency_penalty": 0.8},
    "presence": {"presence_penalty": 1.5},
    "presence-reward": {"presence_penalty": -0.7},
    "all-penalties": {
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.4,
    },
}
RULES: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {1: 3.0, 2: -100.0, 5: 1.5}},
    "allowed": {"allowed_token_ids": [1, 2, 3, 5, 8, 13, 21]},
    "banned": {"banned_token_ids": list(range(0, 48, 3))},
    "regex": {"regex": "([a-f]{3}[A-F]?)+"},
    "everything": {
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.01,
        "presence_penalty": 0.6,
        "logit_bias": {4: 2.0},
        "banned_token_ids": [0],
        "regex": "[a-pA-P]+",
    },
}


async def served(local: Local, model: str = MODEL) -> AsyncClient:
    """A target, a good draft and a bad one."""
    verify, good, bad = await asyncio.gather(
        local.verify(model), local.draft(f"{model},drift=0.15"), local.draft(f"{model},drift=0.8")
    )
    return await local.orchestrator(verify, {"good": good, "bad": bad}, **WAITING)


PLANS: list[dict[str, int]] = [
    {"max_drafts": 0},
    {"max_drafts": 1},
    {"max_drafts": 2},
    {"max_drafts": 2, "width": 3, "num_speculative_tokens": 3},
]


async def ids_under_every_plan(client: AsyncClient, **options: Any) -> list[list[int]]:
    results = await asyncio.gather(
        *(client.generate(PROMPT, **options, **draft_plan).result() for draft_plan in PLANS)
    )
    assert results[0].stats.accepted_tokens == 0
    assert all(result.stats.accepted_tokens > 0 for result in results[1:]), "drafts were idle"
    return [[token.id for token in result.tokens] for result in results]


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("name", [*PENALTIES, *RULES])
async def test_field_bug_13_output_under_each_parameter_is_the_targets_own(
    local: Local, name: str, temperature: float
) -> None:
    """Neither weakened nor counted twice, however many tokens a round accepts."""
    options = {**PENALTIES, **RULES}[name] | {"temperature": temperature, "seed": 5}
    history = history_of(options, PROMPT, VOCAB)
    expected = alone(LAW, PROMPT, TOKENS, sampling_of(options), history)
    plain = alone(LAW, PROMPT, TOKENS, SamplingParams(temperature=temperature, seed=5))
    assert expected != plain, "the parameter changes nothing, so it is not tested"
    client = await served(local)
    for ids in await ids_under_every_plan(client, max_tokens=TOKENS, **options):
        assert ids == expected


@pytest.mark.parametrize("name", ["frequency", "everything"])
async def test_match_mode_holds_the_parameters_too(local: Local, name: str) -> None:
    options = {**PENALTIES, **RULES}[name] | {"temperature": 1.0, "seed": 5, "mode": "match"}
    client = await served(local)
    noise, sampling = PhiloxNoise(5), sampling_of(options)
    history, tokens = history_of(options, PROMPT, VOCAB), list(PROMPT)
    for position in range(len(PROMPT), len(PROMPT) + TOKENS):
        p = distribution(scripted_logits(LAW, [tokens])[0], sampling, history)
        tokens.append(noise.choose(p, position, Stream.MATCH))
        history = history.after(tokens[-1:])
    for ids in await ids_under_every_plan(client, max_tokens=TOKENS, **options):
        assert ids == tokens[len(PROMPT) :]


@pytest.mark.parametrize("temperature", [0, 1.0])
async def test_min_tokens_keeps_every_end_away_until_then(local: Local, temperature: float) -> None:
    model = f"{MODEL},eos={EOS}"
    client = await served(local, model)
    options = {"temperature": temperature, "seed": 2, "logit_bias": {EOS: 4.0, 11: 4.0}}
    for shortest in (0, 1, 5, 17):
        asked = options | {"min_tokens": shortest, "stop_token_ids": [11]}
        history = history_of(asked, PROMPT, VOCAB, EOS)
        expected = alone(LAW, PROMPT, TOKENS, sampling_of(asked), history)
        end = next(i for i, token in enumerate(expected) if token in (EOS, 11))
        for draft_plan in PLANS:
            result = await client.generate(
                PROMPT, max_tokens=TOKENS, **asked, **draft_plan
            ).result()
            assert [token.id for token in result.tokens] == expected[: end + 1]
            assert result.finish_reason is FinishReason.STOP
            assert len(result.tokens) > shortest


async def test_ignore_eos_with_min_tokens_leaves_the_eos_token_an_ordinary_one(
    local: Local,
) -> None:
    client = await served(local, f"{MODEL},eos={EOS}")
    options = {"temperature": 0, "logit_bias": {EOS: 4.0}, "ignore_eos": True, "min_tokens": 20}
    expected = alone(LAW, PROMPT, 30, sampling_of(options), history_of(options, PROMPT, VOCAB, EOS))
    assert EOS in expected[:20]
    for ids in await ids_under_every_plan(client, max_tokens=30, **options):
        assert ids == expected


CHOICES = ["abacus", "abc", "zebra"]


@pytest.mark.parametrize("temperature", [0, 1.0])
async def test_a_choice_is_one_of_the_texts_and_the_targets_own(
    local: Local, temperature: float
) -> None:
    client = await served(local, f"{MODEL},eos={EOS}")
    seen = set()
    for seed in range(12):
        options = {"choice": CHOICES, "temperature": temperature, "seed": seed}
        results = [
            await client.generate(PROMPT, max_tokens=20, **options, **draft_plan).result()
            for draft_plan in PLANS
        ]
        length = len(results[0].tokens)
        history = history_of(options, PROMPT, VOCAB, EOS)
        expected = alone(LAW, PROMPT, length, sampling_of(options), history)
        for result in results:
            assert [token.id for token in result.tokens] == expected
            assert result.finish_reason is FinishReason.STOP
        seen.add(results[0].text)
    assert seen <= set(CHOICES)
    assert len(seen) > 1 or temperature == 0


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
async def test_a_grammar_that_is_complete_ends_the_text_even_where_no_token_may(
    local: Local, mode: str
) -> None:
    """No end token is allowed, so that the row behind the last token is empty: it is never used."""
    client = await served(local)
    for draft_plan in PLANS:
        for temperature in (0, 1.0):
            result = await client.generate(
                PROMPT,
                max_tokens=20,
                temperature=temperature,
                regex="[a-d]{5}",
                ignore_eos=True,
                mode=mode,
                **draft_plan,
            ).result()
            assert (len(result.text), result.finish_reason) == (5, FinishReason.STOP)


@pytest.mark.parametrize("length", range(1, 10))
async def test_a_grammar_ends_the_text_at_every_place_of_an_accepted_run(
    local: Local, length: int
) -> None:
    """An agreeing draft has no nodes behind it, a careless one has; seven are verified at once."""
    verify, draft, careless = await asyncio.gather(
        local.verify(MODEL), local.draft(MODEL), local.draft(f"{MODEL},tokenizer=any")
    )
    waiting = {**WAITING, "wait_nodes": 7, "num_speculative_tokens": 7}
    client = await local.orchestrator(verify, {"a": draft, "careless": careless}, **waiting)
    options: dict[str, Any] = {"regex": f"[a-z]{{{length}}}", "temperature": 0}
    history = history_of(options, [9], VOCAB)
    expected = alone(LAW, [9], length, sampling_of(options), history)
    for count in (0, 1, 2):
        result = await client.generate(
            [9], max_tokens=20, logprobs=1, max_drafts=count, **options
        ).result()
        assert [token.id for token in result.tokens] == expected
        assert result.finish_reason is FinishReason.STOP
        assert result.stats.emitted_tokens == len(result.text) == length
        assert all(token.logprob is not None for token in result.tokens)
        assert (result.stats.accepted_tokens > 0) is (count > 0)


class IllegalDraft(FakeDraft):
    """Proposes, at every position, a token that the grammar forbids, and a chain below it."""

    async def session(self, opening: draft_pb2.DraftOpen, requests: Any) -> Any:
        yield opened()
        tip, counter = len(opening.emitted_ids), 0
        while True:
            first = opening.draft_index << 24 | counter
            nodes = [node(opening.draft_index, counter, tip, 47, q=0.9)]
            nodes += [node(opening.draft_index, counter + i, first + i - 1, 46) for i in (1, 2)]
            counter += 3
            yield chunk(nodes)
            request = await anext(requests, None)
            if request is None:
                return
            tip += len(request.commit.tokens)


@pytest.mark.parametrize("mode", ["coupled", "match", "rejection", "block"])
async def test_field_bug_19_a_draft_that_proposes_illegal_tokens_everywhere_changes_nothing(
    local: Local, mode: str
) -> None:
    """The rows of drafted nodes and the bonus row are all held to the grammar."""
    # Passes long enough for the good draft to compile the grammar before the answer is over.
    slow, near = f"{MODEL},step_ms=20", f"{MODEL},drift=0.15"
    verify, good = await asyncio.gather(local.verify(slow), local.draft(near))
    drafts = {"illegal": await local.fake_draft(IllegalDraft()), "good": good}
    client = await local.orchestrator(verify, drafts, **WAITING)
    for temperature, seed in ((0, 1), (1.0, 1), (1.0, 2)):
        options = {"regex": "([a-f]{2}[A-D])+", "temperature": temperature, "seed": seed}
        result = await client.generate(PROMPT, max_tokens=36, mode=mode, **options).result()
        assert result.stats.accepted_tokens > 0
        assert all(
            (c in "ABCD") if i % 3 == 2 else (c in "abcdef") for i, c in enumerate(result.text)
        )
        assert len(result.text) == 36
        if temperature == 0 or mode == "coupled":
            history = history_of(options, PROMPT, VOCAB)
            expected = alone(LAW, PROMPT, 36, sampling_of(options), history)
            assert [token.id for token in result.tokens] == expected


async def test_drafts_stay_useful_inside_a_structure(local: Local) -> None:
    """A draft that knows the grammar is accepted as without one: always, if it is the target."""
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft(MODEL))
    waiting = {**WAITING, "wait_nodes": 7, "max_wait_ms": 5000}
    client = await local.orchestrator(verify, {"a": draft}, **waiting)
    chain = {"num_speculative_tokens": 7, "width": 1}
    result = await client.generate(
        [9], max_tokens=64, seed=1, regex="([a-f]{2}[A-D])+", **chain
    ).result()
    assert result.stats.acceptance_rate == 1.0
    assert result.stats.target_passes == 8


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_field_bug_7_logprobs_are_the_targets_with_and_without_drafts(
    local: Local, mode: str, temperature: float
) -> None:
    """At accepted, recovered and bonus positions, to 1e-6; never 0.0, never the draft's."""
    client = await served(local)
    options: dict[str, Any] = {
        "temperature": temperature,
        "seed": 3,
        "mode": mode,
        "top_k": 12,
        "frequency_penalty": 0.3,
    }
    seen = set()
    for draft_plan in PLANS:
        result = await client.generate(
            PROMPT, max_tokens=TOKENS, logprobs=5, **options, **draft_plan
        ).result()
        said = list(PROMPT)
        for token in result.tokens:
            row = scripted_logits(LAW, [said])[0].double().log_softmax(-1)
            assert token.logprob == pytest.approx(float(row[token.id]), abs=1e-6)
            best = row.topk(5)
            assert [top.id for top in token.top_logprobs] == best.indices.tolist()
            for top, value in zip(token.top_logprobs, best.values.tolist(), strict=True):
                assert top.logprob == pytest.approx(value, abs=1e-6)
            said.append(token.id)
            seen.add(token.is_drafted)
        assert result.stats.emitted_tokens == TOKENS
    assert seen == {True, False}


async def test_logprobs_are_there_only_where_asked_for(local: Local) -> None:
    client = await served(local)
    without = await client.generate(PROMPT, max_tokens=8, temperature=0).result()
    assert all(t.logprob is None and not t.top_logprobs for t in without.tokens)
    chosen = await client.generate(PROMPT, max_tokens=8, temperature=0, logprobs=0).result()
    assert all(t.logprob is not None and not t.top_logprobs for t in chosen.tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"banned_token_ids": [VOCAB]}, "banned"),
        ({"allowed_token_ids": [VOCAB + 5]}, "allowed"),
        ({"stop_token_ids": [VOCAB]}, "stop"),
        ({"regex": "(a"}, "unclosed"),
        ({"json_schema": {"type": "frog"}}, "frog"),
        ({"allowed_token_ids": [1], "banned_token_ids": [1]}, "no allowed token is left"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_what_cannot_work_is_refused_by_name_and_nothing_is_computed(
    local: Local, options: dict[str, Any], message: str
) -> None:
    verify = await local.verify(MODEL)
    client = await local.orchestrator(verify)
    with pytest.raises(InvalidArgumentError, match=message):
        await client.generate(PROMPT, max_tokens=8, **options).result()
    assert verify.model.passes == 0
    assert (await client.generate(PROMPT, max_tokens=4).result()).stats.emitted_tokens == 4


async def test_a_request_that_leaves_nothing_to_say_ends_with_an_error_that_says_so(
    local: Local,
) -> None:
    """The grammar wants an "a", which is banned: an error for this request, and for no other."""
    client = await served(local)
    good = client.generate([1], max_tokens=64, temperature=0).result()
    bad = client.generate(PROMPT, max_tokens=8, regex="b?a+", banned_token_ids=[0]).result()
    result, error = await asyncio.gather(good, bad, return_exceptions=True)
    assert isinstance(error, InvalidArgumentError)
    assert "leave nothing to emit" in error.message
    assert [t.id for t in result.tokens] == alone(LAW, [1], 64)  # type: ignore[union-attr]


async def test_json_follows_its_schema_with_and_without_drafts(local: Local) -> None:
    """Over a vocabulary of single bytes, where JSON can be written."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "maxItems": 2, "items": {"enum": ["red", "blue"]}},
        },
        "required": ["id", "tags"],
        "additionalProperties": False,
    }
    verify, draft, other = await asyncio.gather(
        local.verify(SayingModel(sure=0.0)),
        local.draft(SayingModel(sure=0.0, drift=0.1)),
        local.draft("ngram:"),
    )
    client = await local.orchestrator(verify, {"a": draft, "n": other}, **WAITING)
    for mode in ("coupled", "rejection", "block", "match"):
        results = [
            await client.generate(
                [1],
                max_tokens=400,
                seed=4,
                mode=mode,
                json_schema=schema,
                max_drafts=count,
                banned_token_ids=[32, 9, 10, 13],
                logit_bias={ord("}"): 3.0, ord("]"): 3.0, ord(","): 3.0},
            ).result()
            for count in (0, 1, 2)
        ]
        for result in results:
            answer = json.loads(result.text)
            assert isinstance(answer["id"], int)
            assert set(answer["tags"]) <= {"red", "blue"}
            assert result.finish_reason is FinishReason.STOP
        if mode in ("coupled", "match"):
            assert len({result.text for result in results}) == 1
        assert sum(result.stats.accepted_tokens for result in results[1:]) > 0
