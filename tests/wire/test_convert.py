"""Dataclasses to protos and back, and what is refused from a peer that sends nonsense."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from golden_messages import CHUNK, INFO, MESSAGES, PLAN, POLICY, SAMPLING, STOP
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from message_changes import changed, put
from wire_values import (
    VOCAB,
    chunks,
    commits,
    draft_openings,
    infos,
    plans,
    policies,
    samplings,
    stops,
    verdicts,
    verify_openings,
)

from orchestrator.servicer import request_from
from outrider.errors import InvalidArgumentError, ProtocolMismatchError
from outrider.types import PROTOCOL_VERSION, Chunk, FinishReason
from outrider.v1 import common_pb2, draft_pb2, orchestrator_pb2, verify_pb2
from outrider.wire import convert, convert_plan, convert_sampling

QUICK = settings(deadline=None, max_examples=60)

ROUND_TRIPS: dict[str, tuple[Any, Callable[[Any], Message], Callable[[Any], Any]]] = {
    "sampling": (samplings, convert_sampling.sampling_to, convert_sampling.sampling_from),
    "stop": (stops, convert_sampling.stop_to, convert_sampling.stop_from),
    "plan": (plans, convert_plan.plan_to, convert_plan.plan_from),
    "policy": (policies, convert_plan.policy_to, convert_plan.policy_from),
    "info": (infos, convert.info_to, convert.info_from),
    "commit": (commits, convert.commit_to, convert.commit_from),
    "draft_opening": (draft_openings, convert.draft_opening_to, convert.draft_opening_from),
    "verify_opening": (verify_openings, convert.verify_opening_to, convert.verify_opening_from),
    "chunk": (chunks(), convert.chunk_to, lambda message: convert.chunk_from(message, VOCAB)),
    "verdict": (verdicts(), convert.verdict_to, convert.verdict_from),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_what_is_sent_is_what_arrives(name: str) -> None:
    values, to, back = ROUND_TRIPS[name]

    @QUICK
    @given(values)
    def holds(value: Any) -> None:
        sent = to(value)
        assert back(type(sent).FromString(sent.SerializeToString())) == value

    holds()


@pytest.mark.parametrize("reason", [None, *FinishReason])
def test_finish_reasons_are_numbered_both_ways(reason: FinishReason | None) -> None:
    assert convert_sampling.finish_from(convert_sampling.finish_to(reason)) is reason


def chunk_of(draft_index: int) -> Callable[[Any], Chunk]:
    return lambda message: convert.chunk_from(message, VOCAB, draft_index)


def branches_for(draft_index: int) -> Callable[[Any], Chunk]:
    return lambda message: convert.branches_from(message, VOCAB, draft_index)


def duplicate_row(message: Any) -> None:
    message.rows.add().CopyFrom(message.rows[0])


def drop_logprob(message: Any) -> None:
    del message.logprobs[-1]


SUM = [0.75, 0.3]
HOSTILE: list[tuple[str, Message, Callable[[Any], object], Callable[[Any], object], str]] = [
    ("no-nodes", CHUNK, put("nodes", []), chunk_of(1), "0 nodes"),
    ("many", CHUNK, put("nodes", [CHUNK.nodes[0]] * 4097), chunk_of(1), "4097 nodes"),
    ("other-draft", CHUNK, lambda m: None, chunk_of(2), "draft index 1; this draft's index is 2"),
    ("no-draft", CHUNK, put("nodes.0.id", 5), chunk_of(0), "draft index 0"),
    *(
        (f"chance-{x}", CHUNK, put("nodes.1.chance", x), chunk_of(1), "has chance = .*0 to 1")
        for x in (math.nan, math.inf, -0.25, 1.5)
    ),
    ("own-branch", CHUNK, lambda m: None, branches_for(1), "the index of this draft"),
    ("token", CHUNK, put("nodes.0.token", VOCAB), chunk_of(1), "token 50; the target knows 50"),
    ("token-max", CHUNK, put("nodes.0.token", 2**32 - 1), chunk_of(1), "token 4294967295"),
    *(
        (f"q-{q}", CHUNK, put("nodes.0.q", q), chunk_of(1), "has q = ")
        for q in (math.nan, math.inf, -math.inf, -0.5, 1.5)
    ),
    ("kind-unset", CHUNK, put("nodes.0.kind", 0), chunk_of(1), "neither SAMPLED nor LISTED"),
    ("kind-new", CHUNK, put("nodes.0.kind", 9), chunk_of(1), "neither SAMPLED nor LISTED"),
    ("row-twice", CHUNK, duplicate_row, chunk_of(1), "two proposal rows for one parent"),
    ("row-astray", CHUNK, put("rows.0.parent_id", 9), chunk_of(1), "parent without nodes"),
    ("row-empty", CHUNK, put("rows.0.ids", []), chunk_of(1), "0 ids and 2 probabilities"),
    ("row-short", CHUNK, put("rows.0.probs", [1.0]), chunk_of(1), "2 ids and 1 probabilities"),
    ("row-id-twice", CHUNK, put("rows.0.ids", [5, 5]), chunk_of(1), "an id twice"),
    ("row-id-high", CHUNK, put("rows.0.ids", [5, VOCAB]), chunk_of(1), "does not know"),
    *(
        (f"row-{p}", CHUNK, put("rows.0.probs", [0.75, p]), chunk_of(1), "outside 0 to 1")
        for p in (math.nan, math.inf, -0.25, 1.5)
    ),
    ("row-over", CHUNK, put("rows.0.probs", SUM), chunk_of(1), r"adds up to 1\.05.*add up to 1"),
    ("row-under", CHUNK, put("rows.0.probs", [0.5, 0.25]), chunk_of(1), r"adds up to 0\.75"),
    ("row-zeros", CHUNK, put("rows.0.probs", [0.0, 0.0]), chunk_of(1), r"adds up to 0\.0"),
    ("depth", PLAN, put("depth", 257), convert_plan.plan_from, "depth is 257"),
    ("width-0", PLAN, put("width", 0), convert_plan.plan_from, "width is 0"),
    ("width", PLAN, put("width", 33), convert_plan.plan_from, "width is 33"),
    ("top-k-0", PLAN, put("proposal_top_k", 0), convert_plan.plan_from, "proposal_top_k is 0"),
    ("top-k", PLAN, put("proposal_top_k", 1025), convert_plan.plan_from, "proposal_top_k is 1025"),
    ("max-nodes-0", PLAN, put("max_nodes", 0), convert_plan.plan_from, "max_nodes is 0"),
    ("max-nodes", PLAN, put("max_nodes", 8193), convert_plan.plan_from, "max_nodes is 8193"),
    ("max-bytes-0", PLAN, put("max_bytes", 0), convert_plan.plan_from, "max_bytes is 0"),
    ("max-bytes", PLAN, put("max_bytes", 2**26 + 1), convert_plan.plan_from, "64 MiB"),
    ("least-sent", PLAN, put("least_sent", 1.5), convert_plan.plan_from, "least_sent is 1.5"),
    ("part-0", PLAN, put("part", 0), convert_plan.plan_from, "no part"),
    ("part", PLAN, put("part", 9), convert_plan.plan_from, "no part"),
    ("share", PLAN, put("share", 3), convert_plan.plan_from, "number 3 of 3"),
    ("shares-0", PLAN, put("shares", 0), convert_plan.plan_from, "number 1 of 0"),
    ("shares", PLAN, put("shares", 256), convert_plan.plan_from, "at most 255"),
    *(
        (f"{name}-chance-{x}", message, put("min_chance", x), read, "min_chance is .*0 to 1")
        for name, message, read in (
            ("plan", PLAN, convert_plan.plan_from),
            ("policy", POLICY, convert_plan.policy_from),
        )
        for x in (math.nan, math.inf, -0.25, 1.5)
    ),
    ("min-depth", POLICY, put("min_depth", 257), convert_plan.policy_from, "min_depth is 257"),
    ("wait", POLICY, put("max_wait_us", 60_000_001), convert_plan.policy_from, "max_wait_us is"),
    ("max-rows", POLICY, put("max_rows", 4097), convert_plan.policy_from, "max_rows is 4097"),
]
DRAFT_OPEN = MESSAGES["draft_open"].open  # type: ignore[attr-defined]
VERIFY_OPEN = MESSAGES["verify_open"].open  # type: ignore[attr-defined]
VERDICT = MESSAGES["verify_verdict"].verdict  # type: ignore[attr-defined]
COMMIT = MESSAGES["draft_commit"].commit  # type: ignore[attr-defined]
for side, message, read in (
    ("draft", DRAFT_OPEN, convert.draft_opening_from),
    ("verify", VERIFY_OPEN, convert.verify_opening_from),
):
    HOSTILE += [
        (f"{side}-name", message, put("session_id", ""), read, "session_id has 0"),
        (f"{side}-long", message, put("session_id", "x" * 129), read, "session_id has 129"),
        (f"{side}-prompt", message, put("prompt_ids", []), read, "the prompt is empty"),
        (f"{side}-seed", message, lambda m: m.sampling.ClearField("seed"), read, "the seed is"),
    ]
HOSTILE += [
    ("index-0", DRAFT_OPEN, put("draft_index", 0), convert.draft_opening_from, "is 0; give 1"),
    ("index", DRAFT_OPEN, put("draft_index", 256), convert.draft_opening_from, "to 255"),
    ("no-plan", DRAFT_OPEN, lambda m: m.ClearField("plan"), convert.draft_opening_from, "no part"),
    (
        "no-stop",
        VERIFY_OPEN,
        lambda m: m.ClearField("stop"),
        convert.verify_opening_from,
        "max_tokens is 0",
    ),
    (
        "all-said",
        VERIFY_OPEN,
        put("emitted_ids", [4] * 65),
        convert.verify_opening_from,
        "65 tokens are emitted already",
    ),
    ("commit-plan", COMMIT, put("plan.depth", 300), convert.commit_from, "depth is 300"),
    ("nothing-said", VERDICT, put("tokens", []), convert.verdict_from, "0 tokens and 3 node ids"),
    ("no-author", VERDICT, put("node_ids", [1]), convert.verdict_from, "3 tokens and 1 node ids"),
    ("finish", VERDICT, put("finish_reason", 9), convert.verdict_from, "finish reason 9"),
    *(
        (f"logprob-{x}", VERDICT, put("logprobs.0.logprob", x), convert.verdict_from, "at most 0")
        for x in (math.nan, math.inf, 0.5)
    ),
    *(
        (
            f"top-logprob-{x}",
            VERDICT,
            put("logprobs.0.top_logprobs", [-0.5, x]),
            convert.verdict_from,
            "at most 0",
        )
        for x in (math.nan, 0.5)
    ),
    ("few-logprobs", VERDICT, drop_logprob, convert.verdict_from, "3 tokens and 2 log-prob"),
    (
        "top-alone",
        VERDICT,
        put("logprobs.0.top_logprobs", [-0.5]),
        convert.verdict_from,
        "alternatives without a log-probability",
    ),
    ("logprobs", VERIFY_OPEN, put("logprobs", 21), convert.verify_opening_from, "give 0 to 20"),
]


@pytest.mark.parametrize(
    ("message", "change", "read", "says"),
    [case[1:] for case in HOSTILE],
    ids=[case[0] for case in HOSTILE],
)
def test_a_hostile_field_is_refused_with_what_is_wrong(
    message: Message,
    change: Callable[[Any], object],
    read: Callable[[Any], object],
    says: str,
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        read(changed(message, change))


def test_the_unchanged_messages_are_taken() -> None:
    """Else the refusals above would prove nothing."""
    assert len(convert.chunk_from(CHUNK, VOCAB, 1).nodes) == 2
    convert_sampling.sampling_from(SAMPLING)
    convert_sampling.stop_from(STOP)
    convert_plan.plan_from(PLAN)
    convert_plan.policy_from(POLICY)
    convert.draft_opening_from(DRAFT_OPEN)
    convert.verify_opening_from(VERIFY_OPEN)
    convert.commit_from(COMMIT)
    convert.verdict_from(VERDICT)


@pytest.mark.parametrize("version", [0, 1, 2**32 - 1])
def test_a_peer_of_another_protocol_version_is_told_apart(version: int) -> None:
    with pytest.raises(
        ProtocolMismatchError, match=rf"0\.1\.0.* version {version}, this side {PROTOCOL_VERSION}"
    ):
        convert.info_from(changed(INFO, put("protocol_version", version)))


READERS: dict[type[Message], Callable[[Any], object]] = {
    common_pb2.SamplingParams: convert_sampling.sampling_from,
    common_pb2.StopConditions: convert_sampling.stop_from,
    common_pb2.DraftChunk: chunk_of(1),
    common_pb2.ModelInfo: convert.info_from,
    draft_pb2.DraftPlan: convert_plan.plan_from,
    draft_pb2.DraftOpen: convert.draft_opening_from,
    draft_pb2.DraftCommit: convert.commit_from,
    verify_pb2.ReadinessPolicy: convert_plan.policy_from,
    verify_pb2.VerifyOpen: convert.verify_opening_from,
    verify_pb2.Verdict: convert.verdict_from,
    orchestrator_pb2.GenerateRequest: lambda message: request_from(message, "r"),
}
SAMPLES: dict[type[Message], Message] = {
    type(m): m
    for m in (SAMPLING, STOP, CHUNK, INFO, PLAN, POLICY, DRAFT_OPEN, COMMIT, VERIFY_OPEN, VERDICT)
} | {orchestrator_pb2.GenerateRequest: MESSAGES["generate_text"]}


def read_or_refuse(kind: type[Message], data: bytes) -> None:
    """Anything else than a refusal by name is a bug."""
    try:
        message = kind.FromString(data)
        READERS[kind](message)
    except (DecodeError, InvalidArgumentError):
        return
    except ProtocolMismatchError:
        assert kind is common_pb2.ModelInfo


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_random_bytes_are_read_or_refused(kind: type[Message]) -> None:
    @QUICK
    @given(st.binary(max_size=80))
    def holds(data: bytes) -> None:
        read_or_refuse(kind, data)

    holds()


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_damaged_messages_are_read_or_refused(kind: type[Message]) -> None:
    """Random bytes seldom parse; a message with a few bytes changed often does."""
    rng = random.Random(7)
    whole = SAMPLES[kind].SerializeToString()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        read_or_refuse(kind, bytes(data[: rng.randrange(len(data) // 2, len(data) + 1)]))


def test_more_end_tokens_than_anybody_means_are_refused() -> None:
    most = convert_sampling.MAX_END_TOKENS
    message = draft_pb2.DraftOpen()
    message.CopyFrom(DRAFT_OPEN)
    message.end_token_ids[:] = range(most)
    assert len(convert.draft_opening_from(message).end_token_ids) == most
    message.end_token_ids.append(most)
    with pytest.raises(
        InvalidArgumentError, match=f"{most + 1} end token ids; give at most {most}"
    ):
        convert.draft_opening_from(message)
