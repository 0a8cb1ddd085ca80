"""Drafts that do exactly what a test says, right or wrong, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from outrider.models.scripted import ScriptedLaw
from outrider.types import ModelInfo
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc
from outrider.wire.convert import info_to
from support.models import alone

LISTED = common_pb2.NODE_KIND_LISTED
SAMPLED = common_pb2.NODE_KIND_SAMPLED
END = draft_pb2.DraftRequest()
ANY_IDS = ModelInfo("fake", "fake", "", 0, 1 << 20)


class FakeDraft(draft_pb2_grpc.DraftServiceServicer):
    """Answers the handshake; subclasses say what a session sends."""

    info = info_to(ANY_IDS)

    def __init__(self) -> None:
        self.sessions = 0
        self.handshakes = 0

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.handshakes += 1
        return draft_pb2.DraftServiceGetModelInfoResponse(model=self.info)

    async def Draft(  # noqa: N802
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        self.sessions += 1
        requests = aiter(request_iterator)
        opening = (await anext(requests)).open
        async for response in self.session(opening, requests):
            yield response

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        """What is sent after open."""
        raise NotImplementedError
        yield


class PatternDraft(FakeDraft):
    """After each commit: a chain of which the first `right` tokens are the target's, others not.
    Drafts of one `name` are one model.
    """

    def __init__(self, law: ScriptedLaw, right: int, length: int, name: str = "fake") -> None:
        super().__init__()
        self.info = info_to(replace(ANY_IDS, model_name=name))
        self._law = law
        self._right = right
        self._length = length

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        emitted = list(opening.emitted_ids)
        counter = 0
        yield opened()
        while True:
            context = [*opening.prompt_ids, *emitted]
            tokens = alone(self._law, context, self._length)
            if self._right < self._length:
                tokens[self._right] = (tokens[self._right] + 1) % self._law.vocab
            nodes = chain(opening.draft_index, counter, len(emitted), tokens)
            counter += len(nodes)
            yield chunk(nodes)
            while not (request := await anext(requests, END)).HasField("commit"):
                if request is END:
                    return
            emitted += request.commit.tokens


class SilentDraft(FakeDraft):
    """Opens the session and never proposes anything."""

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()
        await asyncio.Event().wait()


def opened() -> draft_pb2.DraftResponse:
    """The answer to open."""
    return draft_pb2.DraftResponse(opened=draft_pb2.DraftOpened())


def chunk(
    nodes: Sequence[common_pb2.Node], rows: Sequence[common_pb2.ProposalRow] = ()
) -> draft_pb2.DraftResponse:
    """A chunk as it travels."""
    return draft_pb2.DraftResponse(chunk=common_pb2.DraftChunk(nodes=nodes, rows=rows, step_us=50))


def node(
    index: int,
    counter: int,
    parent_id: int,
    token: int,
    q: float = 0.5,
    kind: "common_pb2.NodeKind.ValueType" = LISTED,
    chance: float = 0.0,
) -> common_pb2.Node:
    """Node number `counter` of draft `index`."""
    return common_pb2.Node(
        id=index << 24 | counter, parent_id=parent_id, token=token, q=q, kind=kind, chance=chance
    )


def chain(index: int, first: int, tip: int, tokens: Sequence[int]) -> list[common_pb2.Node]:
    """LISTED nodes one below the other, from the tip after `tip` emitted tokens."""
    parents = [tip, *(index << 24 | first + i for i in range(len(tokens) - 1))]
    return [
        node(index, first + i, parent, token)
        for i, (parent, token) in enumerate(zip(parents, tokens, strict=True))
    ]
