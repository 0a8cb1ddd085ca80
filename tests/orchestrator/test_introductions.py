"""How drafts of other tokenizers are told the target's vocabulary, and what becomes of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.local import Local
from support.waiting import until

from orchestrator import peers as peers_module
from orchestrator.peers import Peers, Refusal, tokenizer_misfit
from outrider.errors import CapacityError, TokenizerMismatchError, UnavailableError
from outrider.models.scripted import ScriptedTokenizer
from outrider.types import ModelInfo
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire.convert import info_to
from outrider.wire.errors import abort

TARGET = "scripted:vocab=16"
HASH = ScriptedTokenizer(16, None).vocabulary.hash


class Student(draft_pb2_grpc.DraftServiceServicer):
    """Takes vocabularies, or says why not; counts how often it is asked to."""

    def __init__(self, tokenizer_hash: str = "own", error: Exception | None = None) -> None:
        self.info = ModelInfo("student", "fake", tokenizer_hash, 16, 100, takes_vocabulary=True)
        self.known: tuple[tuple[str, int], ...] = ()
        self.error = error
        self.lessons = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        model = info_to(self.info)
        for name, shared in self.known:
            model.known_vocabularies.append(
                common_pb2.KnownVocabulary(tokenizer_hash=name, shared_tokens=shared)
            )
        return draft_pb2.DraftServiceGetModelInfoResponse(model=model)

    async def SetVocabulary(  # noqa: N802
        self, request_iterator: AsyncIterator[Any], context: Any
    ) -> Any:
        self.lessons += 1
        name = ""
        async for request in request_iterator:
            name = name or request.tokenizer_hash
        await self.may_go_on.wait()
        if self.error is not None:
            await abort(context, self.error)  # type: ignore[arg-type]
        self.known = (*self.known, (name, 7))
        return draft_pb2.SetVocabularyResponse(shared_tokens=7)


async def classroom(local: Local, student: Student) -> Peers:
    verify = await local.verify(TARGET)
    return Peers(verify.address, [f"student={await local.fake_draft(student)}"])


async def test_a_draft_of_another_tokenizer_is_told_once_and_used(local: Local) -> None:
    student = Student()
    peers = await classroom(local, student)
    await peers.probe()
    draft = peers.drafts[0]
    assert (draft.problem, draft.shared_tokens) == ("", 7)
    await peers.probe()
    await peers.probe()
    assert student.lessons == 1
    assert student.known == ((HASH, 7),)
    await peers.stop()


async def test_a_draft_that_came_back_is_told_again(local: Local) -> None:
    student = Student()
    peers = await classroom(local, student)
    await peers.probe()
    student.known = ()
    await peers.probe()
    assert student.lessons == 2
    assert peers.drafts[0].is_usable
    await peers.stop()


async def test_a_slow_draft_does_not_hold_up_the_others(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "PROBE_TIMEOUT_S", 0.3)
    student = Student()
    student.may_go_on.clear()
    peers = await classroom(local, student)
    await peers.probe()
    draft = peers.drafts[0]
    assert "is being told its vocabulary" in draft.problem
    await peers.probe()
    assert student.lessons == 1, "one upload at a time"
    student.may_go_on.set()
    await until(lambda: draft.is_usable, "the end of the upload")
    await peers.stop()


async def test_a_draft_that_cannot_work_for_the_target_is_told_once_and_says_why(
    local: Local,
) -> None:
    student = Student(error=TokenizerMismatchError("the ids are in another order"))
    peers = await classroom(local, student)
    for _ in range(3):
        await peers.probe()
    assert student.lessons == 1
    assert "student cannot draft for this target: the ids are in" in peers.drafts[0].problem
    assert peers.drafts[0].shared_tokens == 0
    student.info = ModelInfo("student", "fake", "another", 16, 100, takes_vocabulary=True)
    student.error = None
    await peers.probe()
    assert peers.drafts[0].is_usable, "it is another model now"
    await peers.stop()


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("it is busy"),
        CapacityError("it is busy with four vocabularies", retry_after_s=1.0),
    ],
)
async def test_what_may_work_later_is_tried_again_but_not_at_every_probe(
    local: Local, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A vocabulary is megabytes: a draft that asks to be tried again after a second gets longer."""
    student = Student(error=error)
    peers = await classroom(local, student)
    for _ in range(4):
        await peers.probe()
        assert "it is busy" in peers.drafts[0].problem
    assert student.lessons == 1
    student.error = None
    refusal = peers.drafts[0]._refusal
    assert refusal is not None
    for passed_s, lessons in ((29.0, 1), (31.0, 2)):
        monkeypatch.setattr(peers.drafts[0], "_refusal", _aged(refusal, passed_s))
        await peers.probe()
        assert student.lessons == lessons
    assert peers.drafts[0].is_usable
    await peers.stop()


async def test_a_draft_that_asks_for_a_longer_pause_gets_it(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = Student(error=CapacityError("it is busy", retry_after_s=100.0))
    peers = await classroom(local, student)
    await peers.probe()
    refusal = peers.drafts[0]._refusal
    assert refusal is not None
    for passed_s, lessons in ((99.0, 1), (101.0, 2)):
        monkeypatch.setattr(peers.drafts[0], "_refusal", _aged(refusal, passed_s))
        await peers.probe()
        assert student.lessons == lessons
    await peers.stop()


def _aged(refusal: Refusal, passed_s: float) -> Refusal:
    """The refusal, so many seconds later."""
    return replace(refusal, at_s=time.monotonic() - passed_s)


@pytest.mark.parametrize("error", [None, TokenizerMismatchError("no"), UnavailableError("no")])
async def test_a_draft_on_any_ids_is_told_for_grammars_and_used_in_any_case(
    local: Local, error: Exception | None
) -> None:
    student = Student("", error)
    peers = await classroom(local, student)
    await peers.probe()
    assert student.lessons == 1
    assert peers.drafts[0].is_usable
    assert peers.drafts[0].shared_tokens == 0
    await peers.stop()


async def test_a_draft_of_the_targets_tokenizer_is_told_nothing(local: Local) -> None:
    student = Student(HASH)
    peers = await classroom(local, student)
    await peers.probe()
    assert (student.lessons, peers.drafts[0].problem) == (0, "")
    await peers.stop()


async def test_a_vocabulary_that_is_not_the_targets_goes_nowhere(local: Local) -> None:
    class Liar(verify_pb2_grpc.VerifyServiceServicer):
        async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
            info = ModelInfo("liar", "fake", "no such hash", 16, 100)
            return verify_pb2.VerifyServiceGetModelInfoResponse(model=info_to(info))

        async def GetVocabulary(self, request: Any, context: Any) -> Any:  # noqa: N802
            yield verify_pb2.GetVocabularyResponse(pieces=[b"a"], control=[False])

    student = Student()
    address = await local.fake_draft(student)
    peers = Peers(await local.fake_verify(Liar()), [f"student={address}"])
    await peers.probe()
    assert student.lessons == 0
    assert "not the one that its tokenizer hash names" in peers.drafts[0].problem
    await peers.stop()


def test_a_draft_that_takes_no_vocabulary_is_refused_by_hash() -> None:
    target = ModelInfo("t", "fake", HASH, 16, 100)
    old = ModelInfo("old", "fake", "own", 16, 100)
    assert "another tokenizer" in tokenizer_misfit(old, target)
    assert "ngram:" in tokenizer_misfit(old, target)
