"""A verify session without gRPC and without a model: when it is ready, and where it ends."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OutriderError
from outrider.models.base import ModelSequence
from outrider.plans import ReadinessPolicy
from outrider.sampling.history import History
from outrider.sampling.rules import Acceptance
from outrider.tree import TokenTree
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    Chunk,
    FinishReason,
    Node,
    NodeKind,
    SamplingParams,
    StopConditions,
    VerifyOpening,
)
from verify_service.sessions import MAX_UNREAD_VERDICTS, Session
from verify_service.settled import Batch
from verify_service.verifier import Outcome, Verifier

PROMPT = (1, 2, 3)
NOW = 1000.0


def session(
    *,
    policy: ReadinessPolicy | None = None,
    max_tokens: int = 100,
    limit: int | None = None,
    cached: int = 2,
    stop: Sequence[int] = (),
    eos: Sequence[int] = (),
    ignore_eos: bool = False,
) -> Session:
    opening = VerifyOpening(
        "s",
        PROMPT,
        (),
        SamplingParams(temperature=0, seed=0),
        StopConditions(max_tokens, frozenset(stop), ignore_eos),
        policy or ReadinessPolicy(),
    )
    return Session(
        opening,
        ModelSequence(list(PROMPT[:cached])),
        History.of(opening.sampling, PROMPT, ends=opening.stop.ends(eos)),
        max_tokens if limit is None else limit,
        TokenTree(capacity=64),
        NOW,
    )


def chain(tokens: Sequence[int], index: int = 1, first: int = 0, tip: int = 0) -> Chunk:
    base = index << DRAFT_INDEX_SHIFT | first
    return Chunk(
        tuple(
            Node(base + i, tip if i == 0 else base + i - 1, token, 0.5, NodeKind.LISTED)
            for i, token in enumerate(tokens)
        )
    )


def extend(s: Session, chunk: Chunk, now: float = NOW) -> None:
    """A chunk that came at `now`, looked at."""
    s.tell(chunk, now)
    s.take_news()


def a_pass(now: float = NOW, gap_us: int = 0) -> Batch:
    """One that took no time."""
    return Batch(1, 1, 1, now, now, gap_us)


def settle(s: Session, accepted: int, token: int, now: float = NOW) -> None:
    """A pass over what waits: `accepted` nodes of the chain stand, then `token`."""
    work = s.part(512)
    acceptance = Acceptance(tuple(range(1, accepted + 1)), token)
    s.settle(work, Outcome(acceptance, 10, 1, history=s.history), a_pass(now), now)
    s.sequence.tokens = [*PROMPT, *s.tree.committed][:-1]


def test_without_candidates_to_wait_for_it_is_ready_at_once() -> None:
    assert session().ready_at() == 0.0 or session().ready_at() == NOW


def test_it_waits_for_candidates_no_longer_than_its_policy_says() -> None:
    s = session(policy=ReadinessPolicy(3, 50_000, 8))
    assert s.ready_at() == pytest.approx(NOW + 0.05)
    extend(s, chain([4, 5]))
    assert s.ready_at() == pytest.approx(NOW + 0.05)
    extend(s, chain([6], index=2, tip=1 << 24 | 1))
    assert s.ready_at() == 0.0


def test_it_does_not_wait_for_more_where_a_path_ends_the_text() -> None:
    s = session(policy=ReadinessPolicy(5, 50_000, 8), stop=(7,))
    extend(s, chain([4, 6]))
    assert s.ready_at() == pytest.approx(NOW + 0.05)
    extend(s, chain([7], index=2, tip=1 << 24 | 1))
    assert s.ready_at() == 0.0


def queue_us(s: Session, started: float) -> int:
    settle(s, 0, 9, now=started)
    return s.read()[-1].timing.queue_us


def test_a_verdict_tells_how_long_the_session_was_ready_before_its_pass() -> None:
    s = session(policy=ReadinessPolicy(2, 50_000, 8))
    assert queue_us(s, NOW + 1) == 0, "the first pass ends the prompt, which is no waiting"
    extend(s, chain([4], tip=1), NOW + 1.01)
    extend(s, chain([5], index=2, tip=1 << 24), NOW + 1.02)
    assert queue_us(s, NOW + 1.04) == pytest.approx(20_000, abs=2)
    assert queue_us(s, NOW + 1.05) == 0, "it was waiting for candidates"
    assert queue_us(s, NOW + 1.15) == pytest.approx(50_000, abs=2)
    extend(s, chain([6, 7], tip=4), NOW + 1.16)
    s.tell(ReadinessPolicy(3, 50_000, 8), NOW + 1.16)
    s.take_news()
    extend(s, chain([8], index=2, tip=1 << 24 | 1), NOW + 1.18)
    assert queue_us(s, NOW + 1.19) == pytest.approx(10_000, abs=2), "more were waited for"
    unwaiting = session(policy=ReadinessPolicy(0, 0, 8))
    settle(unwaiting, 0, 9)
    assert queue_us(unwaiting, NOW + 0.5) == pytest.approx(500_000, abs=2)


def test_a_prompt_never_waits() -> None:
    assert session(policy=ReadinessPolicy(3, 50_000, 8), cached=0).ready_at() == 0.0


def test_it_does_not_wait_for_more_candidates_than_can_still_be_emitted() -> None:
    s = session(policy=ReadinessPolicy(7, 50_000, 8), max_tokens=3)
    extend(s, chain([4, 5]))
    assert s.ready_at() == 0.0
    assert session(policy=ReadinessPolicy(7, 50_000, 8), max_tokens=1).ready_at() == 0.0


def test_it_is_not_ready_after_its_end_or_while_nobody_reads() -> None:
    closed, failed, over, unread = (session() for _ in range(4))
    closed.is_closed = True
    failed.fail(OutriderError("x"))
    over.finish_reason = FinishReason.STOP
    for round_index in range(MAX_UNREAD_VERDICTS):
        settle(unread, 0, 9)
        assert len(unread.verdicts) == round_index + 1
    assert [s.ready_at() for s in (closed, failed, over, unread)] == [None] * 4
    assert len(unread.read()) == MAX_UNREAD_VERDICTS
    assert unread.ready_at() is not None


def test_verdicts_are_numbered_and_say_where_they_start() -> None:
    s = session(policy=ReadinessPolicy(0, 0, 8))
    extend(s, chain([4, 5, 6]))
    settle(s, 2, 9)
    settle(s, 0, 10)
    first, second = s.read()
    assert (first.round_index, first.base, first.tokens) == (0, 0, (4, 5, 9))
    assert first.node_ids == (1 << 24, 1 << 24 | 1, 0)
    assert first.drafted == 3
    assert (second.round_index, second.base, second.tokens, second.node_ids) == (1, 3, (10,), (0,))


def test_a_targets_own_token_is_not_credited_to_a_node_that_was_not_verified() -> None:
    """The tree knew the token, the pass did not test it: it is the target's."""
    s = session(policy=ReadinessPolicy(0, 0, 1))
    extend(s, chain([4, 5]))
    settle(s, 1, 5)
    assert s.read()[0].node_ids == (1 << 24, 0)


def test_a_pass_verifies_no_more_than_can_be_emitted_and_no_more_than_it_may() -> None:
    s = session(policy=ReadinessPolicy(0, 0, 8), max_tokens=3)
    extend(s, chain([4, 5, 6, 7]))
    subtree = s.part(512).subtree
    assert subtree is not None
    assert [node.token for node in subtree.nodes] == [4, 5]
    subtree = s.part(2).subtree
    assert subtree is not None
    assert [node.token for node in subtree.nodes] == [4]


def test_a_prompt_is_run_in_pieces_that_decide_nothing() -> None:
    s = session(cached=0)
    work = s.part(2)
    assert (work.pending, work.subtree) == (PROMPT[:2], None)
    s.settle(work, Outcome(None, 1, 1), a_pass(), NOW)
    assert s.verdicts == []


@given(
    run=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    stop=st.sets(st.integers(0, 9), max_size=2),
    eos=st.sets(st.integers(0, 9), max_size=2),
    ignore_eos=st.booleans(),
    limit=st.integers(1, 10),
)
def test_an_accepted_run_is_cut_at_its_first_stop_or_at_the_limit(
    run: list[int], stop: set[int], eos: set[int], ignore_eos: bool, limit: int
) -> None:
    """Against the obvious loop: take tokens one by one until something ends them."""
    s = session(
        policy=ReadinessPolicy(0, 0, 16),
        limit=limit,
        stop=sorted(stop),
        eos=sorted(eos),
        ignore_eos=ignore_eos,
    )
    expected: list[int] = []
    reason = None
    for token in run:
        expected.append(token)
        if token in stop or (token in eos and not ignore_eos):
            reason = FinishReason.STOP
            break
        if len(expected) == limit:
            reason = FinishReason.LENGTH
            break
    extend(s, chain(run[:-1]))
    accepted = min(len(run) - 1, limit - 1)
    token = run[accepted]
    settle(s, accepted, token)
    [verdict] = s.read()
    assert list(verdict.tokens) == expected[: len(verdict.tokens)]
    assert len(verdict.tokens) == len(expected)
    assert verdict.finish_reason is reason
    assert len(verdict.node_ids) == len(verdict.tokens)


class NaNModel:
    """A target that returns NaN for one of its sessions."""

    info: Any = None
    tokenizer: Any = None

    def forward(self, feeds: Sequence[Any]) -> list[torch.Tensor]:
        rows = []
        for number, feed in enumerate(feeds):
            for i, token in enumerate(feed.tokens):
                feed.sequence.add(feed.parents[i], token)
            fill = float("nan") if number == 0 else 0.0
            rows.append(torch.full((len(feed.rows), 16), fill))
        return rows

    def keep(self, sequence: ModelSequence, path: Sequence[int], surviving: Any = ()) -> None:
        sequence.commit(path, surviving)


def test_a_session_that_fails_in_a_pass_leaves_the_others_alone() -> None:
    verifier = Verifier(NaNModel())  # type: ignore[arg-type]
    bad, good = session(), session()
    broken, fine = verifier.step([bad.part(8), good.part(8)])
    assert isinstance(broken, OutriderError)
    assert isinstance(fine, Outcome)
    assert fine.acceptance == Acceptance((), 0)
