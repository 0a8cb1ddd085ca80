"""What the orchestrator makes of services that are down, foreign, hung, or up only later."""

import asyncio
from typing import Any

import grpc
import pytest
from support.drafts import SilentDraft
from support.local import Local
from support.processes import free_port

from orchestrator import peers as peers_module
from orchestrator.peers import Peers, tokenizer_misfit
from outrider.errors import UnavailableError
from outrider.pass_times import PassTimes
from outrider.types import PROTOCOL_VERSION, ModelInfo
from outrider.v1 import draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire.convert import info_to

TARGET = ModelInfo("target", "fake", "hash-1", 16, 100)
NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "PROBE_TIMEOUT_S", 0.3)


class FakeVerify(verify_pb2_grpc.VerifyServiceServicer):
    """Answers the handshake with `info`; counts how often the vocabulary is fetched."""

    def __init__(self, info: ModelInfo = TARGET) -> None:
        self.info = info
        self.vocabularies = 0

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return verify_pb2.VerifyServiceGetModelInfoResponse(model=info_to(self.info))

    async def GetVocabulary(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.vocabularies += 1
        yield verify_pb2.GetVocabularyResponse(pieces=[b"a"], control=[False])


def draft_of(info: ModelInfo, version: int = PROTOCOL_VERSION) -> SilentDraft:
    draft = SilentDraft()
    draft.info = info_to(info)
    draft.info.protocol_version = version
    return draft


class HungDraft(draft_pb2_grpc.DraftServiceServicer):
    """Accepts the call and never answers."""

    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        await asyncio.Event().wait()


async def probed(verify: str, *drafts: str) -> Peers:
    peers = Peers(verify, drafts)
    await peers.probe()
    await peers.stop()
    return peers


async def test_services_that_answer_and_fit_are_usable(local: Local) -> None:
    verify = await local.fake_verify(FakeVerify())
    same = await local.fake_draft(draft_of(ModelInfo("d", "fake", "hash-1", 16, 100)))
    any_ids = await local.fake_draft(draft_of(ModelInfo("ngram", "ngram", "", 0, 100)))
    peers = await probed(verify, f"a={same}", any_ids)
    view = peers.view()
    assert view.verify.usable
    assert view.verify.model == TARGET
    assert [(d.name, d.usable, d.problem) for d in view.drafts] == [
        ("a", True, ""),
        (any_ids, True, ""),
    ]
    assert all(d.round_trip_us > 0 for d in view.drafts)


async def test_a_draft_with_another_tokenizer_is_refused_by_name(local: Local) -> None:
    verify = await local.fake_verify(FakeVerify())
    other = await local.fake_draft(draft_of(ModelInfo("other", "fake", "hash-2", 16, 100)))
    peers = await probed(verify, other)
    assert "other has another tokenizer than the target target" in peers.drafts[0].problem
    assert "ngram:" in peers.drafts[0].problem


async def test_a_draft_of_another_protocol_version_is_refused(local: Local) -> None:
    verify = await local.fake_verify(FakeVerify())
    old = await local.fake_draft(draft_of(TARGET, version=7))
    peers = await probed(verify, old)
    assert f"protocol version 7, this side {PROTOCOL_VERSION}" in peers.drafts[0].problem


async def test_a_draft_that_does_not_answer_is_told_by_its_deadline(local: Local) -> None:
    verify = await local.fake_verify(FakeVerify())
    hung = await local.fake_draft(HungDraft())
    peers = await probed(verify, hung)
    assert f"the answer from {hung} took longer than 0.3 s" in peers.drafts[0].problem
    assert peers.verify.is_usable, "the others are not held up"


async def test_the_wrong_kind_of_service_is_told(local: Local) -> None:
    verify = await local.fake_verify(FakeVerify())
    peers = await probed(verify, verify)
    assert "is it the right Outrider service" in peers.drafts[0].problem


async def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    peers = Peers(NOBODY, [f"a={NOBODY}"])
    await peers.probe()
    assert f"nothing answers at {NOBODY}; is it running?" in peers.drafts[0].problem
    with pytest.raises(UnavailableError, match=r"outrider serve verify.*--verify") as failure:
        await peers.verify.ready()
    assert failure.value.retry_after_s is not None
    await peers.stop()


async def test_a_service_that_comes_later_or_comes_back_is_used(local: Local) -> None:
    address = f"127.0.0.1:{free_port()}"
    verify = await local.fake_verify(FakeVerify())
    peers = Peers(verify, [f"a={address}"])
    await peers.probe()
    assert not peers.drafts[0].is_usable
    server = grpc.aio.server()
    draft_pb2_grpc.add_DraftServiceServicer_to_server(draft_of(TARGET), server)
    server.add_insecure_port(address)
    await server.start()
    for _ in range(20):  # gRPC may be in the middle of a pause between two attempts
        await peers.probe()
        if peers.drafts[0].is_usable:
            break
    assert peers.drafts[0].is_usable
    peers.drafts[0].fail("its stream broke")
    assert peers.drafts[0].problem == "its stream broke"
    await peers.probe()
    assert peers.drafts[0].is_usable
    await server.stop(None)
    await peers.probe()
    assert not peers.drafts[0].is_usable
    assert peers.drafts[0].info is not None, "what it was is remembered"
    await peers.stop()


async def test_the_vocabulary_is_fetched_once_a_tokenizer(local: Local) -> None:
    fake = FakeVerify()
    peers = Peers(await local.fake_verify(fake), [])
    vocabulary = await peers.verify.vocabulary()
    fake.info = ModelInfo("target", "fake", vocabulary.hash, 16, 100)
    await peers.probe()
    first = fake.vocabularies
    assert await peers.verify.vocabulary() == vocabulary
    assert fake.vocabularies == first
    fake.info = ModelInfo("target", "fake", "hash-9", 16, 100)
    await peers.probe()
    await peers.verify.vocabulary()
    assert fake.vocabularies == first + 1
    await peers.stop()


async def test_what_was_learned_of_passes_is_forgotten_with_the_model_only(local: Local) -> None:
    fake = FakeVerify()
    peers = Peers(await local.fake_verify(fake), [])
    await peers.probe()
    learned = PassTimes().add(1, 20_000)
    peers.verify.learn(TARGET, learned)
    peers.verify.fail("its stream broke")
    await peers.probe()
    assert peers.verify.passes == learned
    fake.info = ModelInfo("another", "fake", "hash-1", 16, 100)
    await peers.probe()
    peers.verify.learn(TARGET, learned)  # by a session that began before
    assert peers.verify.passes == PassTimes()
    await peers.stop()


@pytest.mark.parametrize(
    ("draft", "target", "fits"),
    [("h", "h", True), ("", "h", True), ("h", "g", False), ("h", None, True)],
)
def test_tokenizers_fit_where_they_are_equal_or_any(
    draft: str, target: str | None, fits: bool
) -> None:
    known = None if target is None else ModelInfo("t", "fake", target, 16, 100)
    assert (tokenizer_misfit(ModelInfo("d", "fake", draft, 16, 100), known) == "") is fits
