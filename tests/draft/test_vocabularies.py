"""What a draft is told of other tokenizers: compared, bounded, kept while it is used."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from draft.drafted import opening
from draft.gated import GatedModel, scripted
from support.local import Local
from support.waiting import until

from draft_service import servicer as servicer_module
from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.servicer import DraftServicer
from draft_service.settings import DraftSettings
from draft_service.vocabularies import MAX_VOCABULARIES, Vocabularies
from outrider.errors import (
    CapacityError,
    DeadlineError,
    InvalidArgumentError,
    OutriderError,
    TokenizerMismatchError,
)
from outrider.models.registry import load_model
from outrider.models.scripted import ScriptedTokenizer
from outrider.plans import DraftPlan
from outrider.types import DraftCommit, Grammar, SamplingParams
from outrider.v1 import draft_pb2
from outrider.vocabulary import Vocabulary
from outrider.wire import uploads
from outrider.wire.channels import open_channel
from outrider.wire.draft_client import Done, DraftClient, Opened
from outrider.wire.links import Arrival
from outrider.wire.uploads import collect

Request = draft_pb2.SetVocabularyRequest


def shifted(shift: int, vocab: int = 16) -> Vocabulary:
    """The vocabulary of `scripted:vocab=16,shift=...`."""
    return ScriptedTokenizer(vocab, None, range(shift, shift + vocab)).vocabulary


def tell(vocabularies: Vocabularies, vocabulary: Vocabulary) -> int:
    return vocabularies.keep(vocabulary.hash, vocabularies.read(vocabulary.hash, vocabulary))


def known(vocabularies: Vocabularies) -> dict[str, int]:
    return dict(vocabularies.info.known_vocabularies)


def test_what_a_draft_was_told_is_shown_with_the_shared_tokens() -> None:
    vocabularies = Vocabularies(scripted("vocab=16"))
    assert vocabularies.info.takes_vocabulary
    assert known(vocabularies) == {}
    assert tell(vocabularies, shifted(4)) == 12
    assert known(vocabularies) == {shifted(4).hash: 12}
    assert tell(vocabularies, shifted(4)) == 12, "to be told again changes nothing"


def test_a_draft_on_any_ids_takes_a_vocabulary_for_grammars() -> None:
    vocabularies = Vocabularies(scripted("vocab=16,tokenizer=any"))
    sampling = Grammar(choice=("ab",))
    assert vocabularies.find(shifted(0).hash).compile(sampling) is None
    assert tell(vocabularies, shifted(0)) == 16
    target = vocabularies.find(shifted(0).hash)
    assert target.translation.token(99) == (99,)
    state = target.compile(sampling)
    assert state is not None
    assert state.allowed(16, ()).nonzero().flatten().tolist() == [0]


def test_a_vocabulary_under_another_hash_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"has the hash .* was announced as"):
        Vocabularies(scripted("vocab=16")).read("other", shifted(1))


@pytest.mark.parametrize(
    ("draft", "message"),
    [("vocab=16,rotate=5", "another order"), ("vocab=8,shift=16", "in common")],
)
def test_a_vocabulary_that_no_draft_can_work_for_is_refused(draft: str, message: str) -> None:
    vocabularies = Vocabularies(scripted(draft))
    with pytest.raises(TokenizerMismatchError, match=message):
        tell(vocabularies, shifted(0))
    with pytest.raises(TokenizerMismatchError, match=r"different tokenizers.*ngram:"):
        vocabularies.hold(shifted(0).hash)


def test_the_one_used_longest_ago_goes_first_and_none_that_is_in_use() -> None:
    vocabularies = Vocabularies(scripted("vocab=16"))
    told = [shifted(i) for i in range(1, MAX_VOCABULARIES + 1)]
    for vocabulary in told:
        tell(vocabularies, vocabulary)
    held = vocabularies.hold(told[0].hash)
    tell(vocabularies, shifted(12))
    assert told[0].hash in known(vocabularies)
    assert told[1].hash not in known(vocabularies)
    holds = [vocabularies.hold(name) for name in known(vocabularies)]
    with pytest.raises(CapacityError) as failure:
        tell(vocabularies, shifted(13))
    assert failure.value.retry_after_s is not None
    for target in (held, *holds):
        vocabularies.release(target)
    assert tell(vocabularies, shifted(13)) == 3
    assert len(known(vocabularies)) == MAX_VOCABULARIES


async def parts(requests: Sequence[Request]) -> AsyncIterator[Request]:
    for request in requests:
        yield request


async def test_a_vocabulary_arrives_in_pieces() -> None:
    name, vocabulary = await collect(
        parts(
            [
                Request(tokenizer_hash="h", pieces=[b"a", b""], control=[False, True]),
                Request(pieces=[b"\xff"], control=[False]),
            ]
        )
    )
    assert (name, vocabulary) == ("h", Vocabulary((b"a", b"", b"\xff"), (False, True, False)))


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "is empty"),
        ([Request(tokenizer_hash="h")], "is empty"),
        ([Request(pieces=[b"a"], control=[False])], "hash has 0 characters"),
        ([Request(tokenizer_hash="h" * 129)], "hash has 129 characters"),
        ([Request(tokenizer_hash="h", pieces=[b"a"])], "1 pieces came with 0 control"),
        ([Request(tokenizer_hash="h", pieces=[b"a" * 4097], control=[False])], "has 4097 bytes"),
        (
            [Request(tokenizer_hash="h", pieces=[b"a"] * 6, control=[False] * 6)] * 2,
            "more than 10 pieces",
        ),
    ],
)
async def test_what_no_tokenizer_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, requests: list[Request], message: str
) -> None:
    monkeypatch.setattr(uploads, "MAX_PIECES", 10)
    with pytest.raises(InvalidArgumentError, match=message):
        await collect(parts(requests))


async def test_the_bytes_of_all_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_BYTES", 10)
    big = Request(tokenizer_hash="h", pieces=[b"a" * 11], control=[False])
    with pytest.raises(InvalidArgumentError, match="10 bytes"):
        await collect(parts([big]))


async def endless(first: Sequence[Request]) -> AsyncIterator[Request]:
    for request in first:
        yield request
    await asyncio.Event().wait()


async def test_an_upload_that_stalls_ends_and_too_many_at_once_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = Scheduler(Drafter(GatedModel("vocab=16")), DraftSettings())
    servicer = DraftServicer(scheduler, 1)
    stalled = [
        asyncio.ensure_future(servicer.SetVocabulary(endless(()), None))  # type: ignore[arg-type]
        for _ in range(servicer_module.MAX_UPLOADS)
    ]
    await asyncio.sleep(0)
    with pytest.raises(CapacityError, match="being sent already"):
        await servicer.SetVocabulary(endless(()), None)  # type: ignore[arg-type]
    for upload in stalled:
        upload.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)
    monkeypatch.setattr(servicer_module, "UPLOAD_S", 0.01)
    with pytest.raises(DeadlineError, match="did not arrive within"):
        await servicer.SetVocabulary(endless(()), None)  # type: ignore[arg-type]
    await scheduler.stop()


async def test_a_client_tells_a_draft_and_drafts_with_it(local: Local) -> None:
    draft = await local.draft("scripted:vocab=16,shift=4")
    channel = open_channel(draft.address)
    client = DraftClient(channel, draft.address)
    target = shifted(0)
    told = {"tokenizer_hash": target.hash, "vocab_size": 16, "prompt": (5, 6, 7)}
    inbox: asyncio.Queue[Arrival] = asyncio.Queue()
    client.draft("d", opening(**told), inbox)  # type: ignore[arg-type]
    error = (await inbox.get()).error
    assert isinstance(error, TokenizerMismatchError)
    assert await client.set_vocabulary(target, 5) == 12
    info = await client.model_info(5)
    assert (info.takes_vocabulary, info.known_vocabularies) == (True, ((target.hash, 12),))
    stream = client.draft("d", opening(**told), inbox)  # type: ignore[arg-type]
    assert isinstance((await inbox.get()).message, Opened)
    chunk = (await inbox.get()).message.chunk  # type: ignore[attr-defined]
    assert all(4 <= node.token < 16 for node in chunk.nodes)
    stream.close()
    await until(lambda: not draft.scheduler._seats, "the session's end")
    with pytest.raises(TokenizerMismatchError, match="in common"):
        await client.set_vocabulary(Vocabulary((b"?",), (False,)), 5)
    await channel.close()


async def test_a_big_vocabulary_travels_in_several_messages(local: Local) -> None:
    draft = await local.draft("scripted:vocab=16")
    channel = open_channel(draft.address)
    pieces = tuple(b"piece %d" % i for i in range(20_000))
    big = Vocabulary((*pieces, b"a"), (False,) * 20_001)
    assert await DraftClient(channel, draft.address).set_vocabulary(big, 10) == 1
    await channel.close()


@pytest.mark.parametrize("length", [32, 33, 40])
async def test_a_prompt_beyond_the_drafts_context_is_opened_and_done(
    local: Local, length: int
) -> None:
    draft = await local.draft("scripted:vocab=8,context=32,tokenizer=any")
    channel = open_channel(draft.address)
    inbox: asyncio.Queue[Arrival] = asyncio.Queue()
    DraftClient(channel, draft.address).draft("d", opening((1,) * length), inbox)
    assert isinstance((await inbox.get()).message, Opened)
    done = (await inbox.get()).message
    assert isinstance(done, Done)
    assert f"{length} of the draft's tokens" in done.reason
    assert "context is 32" in done.reason
    await until(lambda: not draft.scheduler._seats, "the session's end")
    assert draft.model.passes == 0
    await channel.close()


async def test_a_draft_that_reaches_its_context_is_done_after_its_last_chunk() -> None:
    model = GatedModel("vocab=8,context=8,tokenizer=any")
    scheduler = Scheduler(Drafter(model), DraftSettings())
    seat = await scheduler.open(opening((1,) * 5, plan=DraftPlan(8)))
    await until(lambda: len(seat.chunks) == 3, "drafts up to the context")
    assert seat.done is None, "a commit may still choose another branch"
    chain = [chunk.nodes[0].token for chunk in seat.chunks]
    scheduler.commit(seat, DraftCommit(0, tuple(chain[:2])))
    scheduler.commit(seat, DraftCommit(2, (chain[2],)))
    await until(lambda: seat.done is not None, "the end")
    assert seat.error is None
    await scheduler.close(seat)
    assert model.pinned == 0
    await scheduler.stop()


async def test_a_row_without_a_proposal_is_no_end() -> None:
    scheduler = Scheduler(Drafter(load_model("ngram:")), DraftSettings())
    seat = await scheduler.open(opening((1, 2, 3)))
    scheduler.commit(seat, DraftCommit(0, (1, 2)))
    await until(lambda: bool(seat.chunks), "a match")
    assert seat.done is None
    await scheduler.stop()


async def test_a_grammar_is_compiled_before_the_model_is_asked() -> None:
    model = GatedModel("vocab=16")
    scheduler = Scheduler(Drafter(model), DraftSettings())
    broken = SamplingParams(seed=1, grammar=Grammar(regex="("))
    told = {"tokenizer_hash": model.info.tokenizer_hash, "vocab_size": 16}
    with pytest.raises(OutriderError, match="cannot be used"):
        await scheduler.open(opening(sampling=broken, **told))  # type: ignore[arg-type]
    assert model.opened == 0
    assert scheduler.drafter.vocabularies.find(model.info.tokenizer_hash).sessions == 0
    await scheduler.stop()
