"""A session whose links only keep what they are told."""

from typing import Any

from orchestrator.planner import Limits
from orchestrator.requests import GenerationRequest
from orchestrator.session import Session
from outrider.plans import ReadinessPolicy
from outrider.types import (
    AcceptanceMode,
    Chunk,
    DraftCommit,
    DraftOpening,
    ModelInfo,
    Node,
    NodeKind,
    SamplingParams,
    StopConditions,
    Verdict,
    VerifyOpening,
)
from outrider.v1 import common_pb2
from outrider.vocabulary import Vocabulary
from outrider.wire.draft_client import RelayedChunk

SAMPLING = SamplingParams(temperature=0, seed=0)
PIECES = Vocabulary((b"a", b"b", b"\xc3", b"\xa9", b"<end>"), (False, False, False, False, True))
TARGET = ModelInfo("target", "fake", "h", 5, 100, (4,))


class FakeLink:
    """Keeps what is sent."""

    def __init__(self, opening: Any) -> None:
        self.opening = opening
        self.commits: list[DraftCommit] = []
        self.chunks: list[RelayedChunk] = []
        self.told: list[RelayedChunk] = []
        self.policies: list[ReadinessPolicy] = []
        self.messages = 3
        self.wire_bytes = 100
        self.is_closed = False
        self.heard_at = 0.0

    def commit(self, commit: DraftCommit) -> None:
        self.commits.append(commit)

    def branches(self, relayed: RelayedChunk) -> None:
        self.told.append(relayed)

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
        self.law = name.rstrip("0123456789")
        self.sessions = 0
        self.round_trip_us = 100
        self.judged: list[bool] = []
        self.client = self

    def note(self, chunk: Chunk) -> None:
        """Nobody asks how fast it is."""

    def judge(self, is_right: bool) -> None:
        self.judged.append(is_right)

    def draft(
        self, name: str, opening: DraftOpening, inbox: Any, traceparent: str = ""
    ) -> FakeLink:
        return FakeLink(opening)

    def verify(
        self, name: str, opening: VerifyOpening, inbox: Any, traceparent: str = ""
    ) -> FakeLink:
        return FakeLink(opening)


def request_of(**more: Any) -> GenerationRequest:
    fields = {
        "request_id": "r",
        "prompt": (1,),
        "sampling": SAMPLING,
        "stop": StopConditions(50),
        "mode": AcceptanceMode.COUPLED,
    }
    return GenerationRequest(**(fields | more))


def session(*drafts: str, speculative: int = 2, limits: Limits | None = None, **more: Any) -> Any:
    request = request_of(**more)
    made: Any = Session(request, (1,), TARGET, PIECES, limits or Limits(speculative, 1, 64))
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
