"""A draft that lies, floods or hangs costs its own session's speed, and nothing else.

Each hostile draft answers the handshake correctly and then misbehaves; the answer must be the
target's own, greedy and seeded, the draft must be named in a notice, and a neighbour must not
notice anything.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from support.drafts import (
    LISTED,
    SAMPLED,
    FakeDraft,
    SilentDraft,
    chain,
    chunk,
    node,
    opened,
)
from support.local import Local
from support.models import alone

from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams
from outrider.v1 import common_pb2, draft_pb2

LAW = ScriptedLaw(vocab=64)
PROMPT = [7]
NAN = float("nan")
NODES_A_CHUNK = 64  # of a flood: three chunks are what a plan has room for
Row = common_pb2.ProposalRow
Messages = Callable[[int], list[draft_pb2.DraftResponse]]


def uniform_row(parent_id: int, *ids: int) -> Row:
    return Row(parent_id=parent_id, ids=ids, probs=[1 / len(ids)] * len(ids))


def sampled_below(draft_index: int) -> list[common_pb2.Node]:
    """A LISTED node and a SAMPLED one, token 3, below it."""
    parent_id = draft_index << 24
    return [
        node(draft_index, 0, 0, 3),
        node(draft_index, 1, parent_id, 3, kind=SAMPLED),
    ]


PROTOCOL_BREAKERS: dict[str, Messages] = {
    "nan-q": lambda i: [chunk([node(i, 0, 0, 3, q=NAN)])],
    "q-above-one": lambda i: [chunk([node(i, 0, 0, 3, q=2)])],
    "q-below-zero": lambda i: [chunk([node(i, 0, 0, 3, q=-0.5)])],
    "token-outside-the-vocabulary": lambda i: [chunk([node(i, 0, 0, 64)])],
    "another-drafts-id": lambda i: [chunk([node(i + 1, 0, 0, 3)])],
    "no-drafts-id": lambda i: [chunk([common_pb2.Node(id=5, token=3, q=0.5, kind=LISTED)])],
    "nan-chance": lambda i: [chunk([node(i, 0, 0, 3, chance=NAN)])],
    "chance-above-one": lambda i: [chunk([node(i, 0, 0, 3, chance=1.5)])],
    "kind-unset": lambda i: [chunk([node(i, 0, 0, 3, kind=common_pb2.NODE_KIND_UNSPECIFIED)])],
    # Below a node of the same chunk, so that it does not matter how far the answer is by now.
    "sampled-without-a-row": lambda i: [chunk(sampled_below(i))],
    "sampled-with-probability-zero": lambda i: [
        chunk(sampled_below(i), [Row(parent_id=i << 24, ids=[3, 4], probs=[0.0, 1.0])])
    ],
    "sampled-outside-its-row": lambda i: [chunk(sampled_below(i), [uniform_row(i << 24, 4, 5)])],
    "sampled-twice-from-one-row": lambda i: [
        chunk(
            [node(i, 0, 0, 3, kind=SAMPLED), node(i, 1, 0, 3, kind=SAMPLED)],
            [uniform_row(0, 3, 4)],
        )
    ],
    "row-with-nan": lambda i: [
        chunk([node(i, 0, 0, 3, kind=SAMPLED)], [Row(parent_id=0, ids=[3, 4], probs=[NAN, 1.0])])
    ],
    "row-that-does-not-add-up": lambda i: [
        chunk([node(i, 0, 0, 3, kind=SAMPLED)], [Row(parent_id=0, ids=[3, 4], probs=[0.5, 0.1])])
    ],
    "row-with-an-id-twice": lambda i: [
        chunk([node(i, 0, 0, 3, kind=SAMPLED)], [Row(parent_id=0, ids=[3, 3], probs=[0.5, 0.5])])
    ],
    "row-with-more-ids-than-probs": lambda i: [
        chunk([node(i, 0, 0, 3, kind=SAMPLED)], [Row(parent_id=0, ids=[3, 4], probs=[1.0])])
    ],
    "two-rows-for-one-parent": lambda i: [
        chunk([node(i, 0, 0, 3, kind=SAMPLED)], [uniform_row(0, 3, 4), uniform_row(0, 3, 4, 5)])
    ],
    "replayed-ids": lambda i: [chunk([node(i, 0, 0, 3)]), chunk([node(i, 0, 0, 4)])],
    "huge-chunk": lambda i: [chunk(chain(i, 0, 0, [1] * 5000))],
    "message-larger-than-grpc-takes": lambda i: [
        chunk([node(i, 0, 0, 3)], [Row(parent_id=0, ids=[2**31] * 3_500_000)])
    ],
    "a-message-of-no-kind": lambda i: [draft_pb2.DraftResponse()],
    "empty-chunks": lambda i: [chunk([])],
    "opened-twice": lambda i: [opened()],
    "more-than-its-plan": lambda i: [
        chunk([node(i, n, 0, n % 64) for n in range(first, first + 100)])
        for first in range(0, 4000, 100)
    ],
}


class Scripted(FakeDraft):
    """Sends a fixed list of messages, then nothing."""

    def __init__(self, messages: Messages) -> None:
        super().__init__()
        messages(1)  # a mistake in them is the test's own error, not the draft's
        self._messages = messages

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()
        for message in self._messages(opening.draft_index):
            yield message
        await asyncio.Event().wait()


class Endless(FakeDraft):
    """Sends well-formed chunks for ever, as fast as they go."""

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()
        for first in range(0, 2**24, NODES_A_CHUNK):
            counters = range(first, first + NODES_A_CHUNK)
            yield chunk([node(opening.draft_index, n, 0, n % 64) for n in counters])


class ChunksBeforeOpened(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield chunk([node(opening.draft_index, 0, 0, 3)])
        await asyncio.Event().wait()


class ClosesAtOnce(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        return
        yield


class ClosesAfterOpened(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()


class Raises(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        yield opened()
        raise RuntimeError("a bug in the draft")


class NeverAnswersOpen(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        await asyncio.Event().wait()
        yield


async def answers_are_the_targets(local: Local, hostile: FakeDraft) -> list[str]:
    """Two answers beside the hostile draft, one of them with a good draft too; the notices."""
    verify = await local.verify("scripted:vocab=64,step_ms=10", max_sessions=8)
    good = await local.draft("scripted:vocab=64")
    address = await local.fake_draft(hostile)
    client = await local.orchestrator(verify, {"bad": address, "good": good})
    undisturbed = await local.orchestrator(verify, {"good": good})
    seeded = SamplingParams(temperature=1.0, seed=4)
    greedy, coupled, neighbour = await asyncio.gather(
        client.generate(PROMPT, max_tokens=40, temperature=0, timeout_s=20).result(),
        client.generate(PROMPT, max_tokens=40, temperature=1.0, seed=4, timeout_s=20).result(),
        undisturbed.generate(PROMPT, max_tokens=40, temperature=0, timeout_s=20).result(),
    )
    assert [t.id for t in greedy.tokens] == alone(LAW, PROMPT, 40)
    assert [t.id for t in coupled.tokens] == alone(LAW, PROMPT, 40, seeded)
    assert [t.id for t in neighbour.tokens] == alone(LAW, PROMPT, 40)
    assert neighbour.notices == ()
    assert not neighbour.stats.drafts[0].lost
    assert not next(d for d in greedy.stats.drafts if d.name == "good").lost
    # Lost, or not used at all where the answer beside it had lost it before.
    return [notice for notice in greedy.notices if notice.startswith("draft bad ")]


@pytest.mark.parametrize("name", PROTOCOL_BREAKERS)
async def test_a_draft_that_breaks_the_protocol_is_detached_and_named(
    local: Local, name: str
) -> None:
    notices = await answers_are_the_targets(local, Scripted(PROTOCOL_BREAKERS[name]))
    assert len(notices) == 1


@pytest.mark.parametrize(
    "hostile", [Endless, ChunksBeforeOpened, ClosesAtOnce, ClosesAfterOpened, Raises]
)
async def test_a_draft_that_floods_or_breaks_off_is_detached_and_named(
    local: Local, hostile: type[FakeDraft]
) -> None:
    assert len(await answers_are_the_targets(local, hostile())) == 1


@pytest.mark.parametrize("hostile", [NeverAnswersOpen, SilentDraft])
async def test_a_silent_draft_does_not_hold_up_the_answer(
    local: Local, hostile: type[FakeDraft]
) -> None:
    await answers_are_the_targets(local, hostile())


HARMLESS: dict[str, Messages] = {
    "cyclic-parents": lambda i: [
        chunk([node(i, 0, i << 24 | 1, 3), node(i, 1, i << 24, 4), node(i, 2, i << 24 | 2, 5)])
    ],
    "unknown-parents": lambda i: [chunk([node(i, 0, i << 24 | 99, 3), node(i, 1, 2**24 - 1, 3)])],
    "children-before-parents": lambda i: [
        chunk([node(i, 1, i << 24, 4)]),
        chunk([node(i, 0, 0, 3)]),
    ],
    "lists-everything-that-its-plan-has-room-for": lambda i: [
        chunk([node(i, n, 0, n) for n in range(14)])
    ],
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_nodes_that_hang_off_nothing_alive_are_dropped(local: Local, name: str) -> None:
    """They look like nodes that a verdict overtook, so the draft stays."""
    await answers_are_the_targets(local, Scripted(HARMLESS[name]))
