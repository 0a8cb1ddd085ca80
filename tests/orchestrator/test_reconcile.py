"""A request's session in the orchestrator: what a verdict does, and what a draft may send."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.planner import Limits
from orchestrator.requests import DraftStats, EmittedToken, GenerationRequest
from orchestrator.servicer import request_from
from orchestrator.session import Session
from outrider.errors import InternalError, InvalidArgumentError
from outrider.types import (
    Chunk,
    DraftCommit,
    DraftOpening,
    FinishReason,
    ModelInfo,
    Node,
    NodeKind,
    ReadinessPolicy,
    SamplingParams,
    StepTiming,
    StopConditions,
    Verdict,
    VerifyOpening,
)
from outrider.v1 import common_pb2
from outrider.v1.orchestrator_pb2 import DraftOptions, GenerateRequest
from outrider.vocabulary import Vocabulary
from outrider.wire.draft_client import RelayedChunk

SAMPLING = SamplingParams(temperature=0, seed=0)
STOP_0 = common_pb2.StopConditions()
STOP_9 = common_pb2.StopConditions(max_tokens=9)
PIECES = Vocabulary((b"a", b"b", b"\xc3", b"\xa9", b"<end>"), (False, False, False, False, True))
TARGET = ModelInfo("target", "fake", "h", 5, 100)


class FakeLink:
    """Keeps what is sent."""

    def __init__(self, opening: Any) -> None:
        self.opening = opening
        self.commits: list[DraftCommit] = []
        self.chunks: list[RelayedChunk] = []
        self.policies: list[ReadinessPolicy] = []
        self.messages = 3
        self.wire_bytes = 100
        self.is_closed = False

    def commit(self, commit: DraftCommit) -> None:
        self.commits.append(commit)

    def extend(self, relayed: RelayedChunk) -> None:
        self.chunks.append(relayed)

    def set_policy(self, policy: ReadinessPolicy) -> None:
        self.policies.append(policy)

    def close(self) -> None:
        self.is_closed = True


class FakePeer:
    """A draft's or the verifier's place; its own client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.round_trip_us = 100
        self.client = self

    def draft(self, name: str, opening: DraftOpening, inbox: Any) -> FakeLink:
        return FakeLink(opening)

    def verify(self, name: str, opening: VerifyOpening, inbox: Any) -> FakeLink:
        return FakeLink(opening)


def session(*drafts: str, speculative: int = 2) -> Any:
    request = GenerationRequest("r", (1,), SAMPLING, StopConditions(50))
    made: Any = Session(request, (1,), SAMPLING, TARGET, PIECES, Limits(speculative, 1, 64))
    for name in drafts:
        made.attach(FakePeer(name))
    made.open_verify(FakePeer("verify"), has_drafts=bool(drafts))
    return made


def chain(index: int, *tokens: int, first: int = 0, tip: int = 0) -> RelayedChunk:
    base = index << 24 | first
    nodes = tuple(
        Node(base + i, tip if i == 0 else base + i - 1, token, 0.5, NodeKind.LISTED)
        for i, token in enumerate(tokens)
    )
    return RelayedChunk(Chunk(nodes, step_us=10), common_pb2.DraftChunk())


def verdict(base: int, *tokens: int, ids: tuple[int, ...] = (), **more: Any) -> Verdict:
    return Verdict(0, base, tokens, ids or (0,) * len(tokens), more.pop("drafted", 0), **more)


def test_a_verdict_is_committed_everywhere() -> None:
    s = session("near", "far")
    s.relay(s.drafts[1], chain(1, 0, 1))
    tokens = s.reconcile(verdict(0, 0, 1, 0, ids=(1 << 24, 1 << 24 | 1, 0), drafted=2))
    assert tokens.tokens == (
        EmittedToken(0, "a", "near"),
        EmittedToken(1, "b", "near"),
        EmittedToken(0, "a", ""),
    )
    assert s.tree.committed == [0, 1, 0]
    for draft in s.drafts.values():
        assert [(c.base, c.tokens) for c in draft.link.commits] == [(0, (0, 1, 0))]
    stats = s.stats
    assert (stats.emitted_tokens, stats.target_passes, stats.accepted_tokens) == (3, 1, 2)
    assert [(d.name, d.accepted_tokens) for d in stats.drafts] == [("near", 2), ("far", 0)]


def test_a_verdict_that_is_known_already_changes_nothing() -> None:
    s = session("a")
    s.reconcile(verdict(0, 0, 1))
    before = replace(s.stats)
    assert s.reconcile(verdict(0, 0, 1)) is None
    assert s.reconcile(verdict(1, 1)) is None
    assert s.tree.committed == [0, 1]
    assert s.stats == before
    assert len(s.drafts[1].link.commits) == 1


@pytest.mark.parametrize("wrong", [verdict(3, 0), verdict(1, 1, 1), verdict(0, 0, 1, 1)])
def test_a_verdict_out_of_step_is_refused_and_not_emitted(wrong: Verdict) -> None:
    s = session()
    s.reconcile(verdict(0, 0, 1))
    with pytest.raises(InternalError, match=rf"starts at token {wrong.base}, 2 are committed"):
        s.reconcile(wrong)
    assert s.tree.committed == [0, 1]


def test_text_comes_out_whole_characters_at_a_time_and_the_rest_at_the_end() -> None:
    s = session()
    texts = [t.text for t in s.reconcile(verdict(0, 0, 2, 3, 4, 2)).tokens]
    assert texts == ["a", "", "é", "", ""]
    s.reconcile(verdict(5, 4, finish_reason=FinishReason.STOP))
    finished = s.finished()
    assert (finished.text, finished.finish_reason) == ("\ufffd", FinishReason.STOP)


def test_the_end_is_not_told_to_drafts_and_closes_every_link() -> None:
    s = session("a")
    link, verify = s.drafts[1].link, s.verify
    s.reconcile(verdict(0, 0, finish_reason=FinishReason.LENGTH))
    assert link.commits == []
    finished = s.finished()
    assert link.is_closed
    assert verify.is_closed
    assert (finished.stats.messages, finished.stats.wire_bytes) == (6, 200)


def test_an_unfinished_generation_has_no_end() -> None:
    with pytest.raises(InternalError):
        session().finished()


def test_an_author_that_nobody_knows_is_the_target() -> None:
    s = session("a")
    [token] = s.reconcile(verdict(0, 0, ids=(9 << 24,), drafted=1)).tokens
    assert token.draft == ""


def test_a_draft_that_left_is_still_named_as_the_author() -> None:
    s = session("a", "b")
    s.relay(s.drafts[2], chain(2, 0))
    s.detach(s.drafts[2], "gone")
    [token, _] = s.reconcile(verdict(0, 0, 1, ids=(2 << 24, 0), drafted=1)).tokens
    assert token.draft == "b"
    assert DraftStats("b", 1, 1, lost=True) in s.stats.drafts
    assert s.notices == ["draft b was lost: gone"]


def test_a_chunk_is_relayed_as_it_came_unless_nothing_of_it_is_alive() -> None:
    s = session("a")
    alive = chain(1, 0, 1)
    s.relay(s.drafts[1], alive)
    assert s.verify.chunks == [alive]
    s.reconcile(verdict(0, 1))
    s.relay(s.drafts[1], chain(1, 0, first=2))
    assert s.verify.chunks == [alive], "it hangs off a token that was not emitted"
    late = chain(1, 1, 0, first=3)
    s.relay(s.drafts[1], late)
    assert s.verify.chunks == [alive, late], "it begins with what was emitted"


def test_a_node_id_sent_twice_breaks_the_protocol() -> None:
    s = session("a")
    s.relay(s.drafts[1], chain(1, 0))
    with pytest.raises(InvalidArgumentError, match="a node id twice"):
        s.relay(s.drafts[1], chain(1, 0))


def test_a_draft_may_send_what_its_plan_has_room_for_and_no_more() -> None:
    s = session("a")
    depth = s.drafts[1].link.opening.plan.depth
    s.relay(s.drafts[1], chain(1, *[0] * depth))
    with pytest.raises(InvalidArgumentError, match="more nodes than its plan"):
        s.relay(s.drafts[1], chain(1, 1, first=depth))
    s = session("a")
    s.relay(s.drafts[1], chain(1, *[0] * depth))
    s.reconcile(verdict(0, 1))
    s.relay(s.drafts[1], chain(1, *[0] * depth, first=depth, tip=1))


def test_when_the_last_draft_leaves_nobody_waits_for_drafts() -> None:
    s = session("a")
    s._seen = replace(s._seen, draft_step_us=10.0)
    for base in range(3):
        timing = StepTiming(forward_us=100_000, rows=3)
        s.reconcile(verdict(base, 0, timing=timing))
    assert s._plan.policy.min_nodes > 0
    s.detach(s.drafts[1], "gone")
    assert s.verify.policies[-1] == ReadinessPolicy(0, 0, 0)


def test_a_resumed_session_goes_on_from_what_was_emitted() -> None:
    s = session("a")
    s.reconcile(verdict(0, 0, 1))
    broken = s.verify
    s.detach(s.drafts[1], None)
    s.attach(FakePeer("a"))
    s.open_verify(FakePeer("verify"), has_drafts=True)
    assert broken.is_closed
    assert s.verify.opening.emitted_ids == (0, 1)
    [draft] = s.drafts.values()
    assert (draft.index, draft.link.opening.emitted_ids) == (2, (0, 1)), "ids stay unique"
    assert [d.name for d in s.stats.drafts] == ["a"]
    assert s.notices == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_speculative_tokens": 0}, "num_speculative_tokens is 0; give 1 to 128"),
        ({"num_speculative_tokens": 129}, "num_speculative_tokens is 129; give 1 to 128"),
        ({"width": 0}, "width is 0; give 1 to 32"),
        ({"width": 33}, "width is 33; give 1 to 32"),
    ],
)
def test_draft_options_out_of_bounds_are_refused_by_name(
    options: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        GenerationRequest("r", "x", SAMPLING, StopConditions(1), **options)  # type: ignore[arg-type]


def test_draft_options_within_bounds_are_taken() -> None:
    for speculative, width, drafts in ((1, 1, 0), (128, 32, 255), (None, None, None)):
        GenerationRequest("r", "x", SAMPLING, StopConditions(1), "", drafts, speculative, width)


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
