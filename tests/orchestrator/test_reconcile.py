"""A request's session in the orchestrator: what a verdict does, and what a draft may send."""

from dataclasses import replace

import pytest
from fake_session import FakePeer, chain, session, verdict

from orchestrator.attached import MAX_OPEN_COMMITS
from orchestrator.planner import FIRST_CHANCE
from orchestrator.requests import DraftStats, EmittedToken
from outrider.errors import InternalError, InvalidArgumentError
from outrider.plans import MAX_DRAFT_INDEX, ReadinessPolicy
from outrider.seeds import choice_seed, resumed_seed
from outrider.types import (
    AcceptanceMode,
    FinishReason,
    SamplingParams,
    StepTiming,
    StopConditions,
    Verdict,
)
from outrider.wire.draft_client import Done, Opened


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
    [last] = s.reconcile(verdict(5, 4, finish_reason=FinishReason.STOP)).tokens
    assert last.text == "\ufffd"
    assert s.finished().finish_reason is FinishReason.STOP


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
    assert DraftStats("b", 1, 1, lost=True, steps=1, step_us=10) in s.stats.drafts
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


def test_a_silent_draft_saves_nothing_up() -> None:
    s = session("a")
    draft = s.drafts[1]
    for base in range(10 * MAX_OPEN_COMMITS):
        s.reconcile(verdict(base, 0))
    most = MAX_OPEN_COMMITS * draft.plan.max_nodes
    tip = len(s.tree.committed)
    s.relay(draft, chain(1, *(0,) * most, tip=tip))
    with pytest.raises(InvalidArgumentError, match="more nodes than its plan has room for"):
        s.relay(draft, chain(1, 0, first=most, tip=tip))


def test_a_draft_is_judged_by_what_was_committed_where_it_had_a_guess() -> None:
    s = session("a", "b", "silent")
    a, b, silent = (draft.peer for draft in s.drafts.values())
    s.relay(s.drafts[1], chain(1, 0, 1, 2))
    s.relay(s.drafts[2], chain(2, 3, 1))
    assert [a.judged, b.judged, silent.judged] == [[], [], []], "nothing is decided"
    s.reconcile(verdict(0, 0, 2))
    assert [a.judged, b.judged, silent.judged] == [[True, False], [False], []]


def test_where_all_indices_are_used_up_drafts_stay_and_none_joins() -> None:
    s = session()
    for _ in range(MAX_DRAFT_INDEX):
        s.attach(FakePeer("a"))
        [draft] = s.drafts.values()
        s.detach(draft, None)
        assert s.may_have(draft.peer) == (draft.index < MAX_DRAFT_INDEX)
    full = session(*("a" for _ in range(MAX_DRAFT_INDEX)))
    assert full.may_have(full.drafts[MAX_DRAFT_INDEX].peer)
    assert not full.may_have(FakePeer("b"))


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


def test_times_of_a_draft_are_split_into_its_own_and_the_way_there_and_back() -> None:
    s = session("a")
    draft = s.drafts[1]
    s.reconcile(verdict(0, 0))
    committed_at = draft._commits[1]
    relayed = replace(chain(1, 0), heard_at=committed_at + 0.5)
    sent = replace(relayed.chunk, known_tokens=1, held_us=200_000)
    s.relay(draft, replace(relayed, chunk=sent))
    s.relay(draft, replace(relayed, chunk=replace(sent, nodes=chain(1, 1, first=1).chunk.nodes)))
    stats = s.stats.drafts[0]
    assert (stats.steps, stats.step_us) == (2, 20)
    assert (stats.wire_rounds, stats.wire_us) == (1, pytest.approx(300_000, abs=2)), "once a commit"


def test_a_drafts_pace_is_timed_between_chunks_without_a_commit_between() -> None:
    s = session("a")
    draft = s.drafts[1]

    def arrives(at_s: float, known_tokens: int, first: int) -> None:
        draft.allow(draft.link.opening.plan)
        relayed = chain(1, 0, 1, first=first)
        chunk = replace(relayed.chunk, known_tokens=known_tokens)
        s.relay(draft, replace(relayed, chunk=chunk, heard_at=at_s))

    for at_s, known_tokens, first in ((1.0, 0, 0), (1.5, 0, 2), (4.0, 1, 4), (4.25, 1, 6)):
        arrives(at_s, known_tokens, first)
    stats = s.stats.drafts[0]
    assert (stats.paced_steps, stats.paced_us) == ([4], [750_000])


def test_a_step_below_several_nodes_is_timed_apart() -> None:
    s = session("a")
    draft = s.drafts[1]
    draft.allow(replace(draft.link.opening.plan, max_nodes=64))
    first = chain(1, 0, 1)
    below = tuple(
        replace(first.chunk.nodes[0], id=first.chunk.nodes[0].id + 2 + i, parent_id=node.id)
        for i, node in enumerate(first.chunk.nodes)
    )
    s.relay(draft, replace(first, heard_at=1.0))
    s.relay(draft, replace(first, chunk=replace(first.chunk, nodes=below), heard_at=1.5))
    stats = s.stats.drafts[0]
    assert (stats.paced_steps, stats.paced_us) == ([0, 1], [0, 500_000])


def test_a_draft_that_answers_no_commit_is_remembered_few_of_them() -> None:
    s = session("a")
    for base in range(200):
        s.reconcile(verdict(base, 0))
    assert len(s.drafts[1]._commits) == 64
    assert 200 in s.drafts[1]._commits


def test_passes_are_counted_with_rows_times_and_positions() -> None:
    s = session("a")
    s.relay(s.drafts[1], chain(1, 0, 1))
    node = 1 << 24
    timing = StepTiming(wait_us=1, forward_us=20, accept_us=3, rows=3, queue_us=4)
    s.reconcile(verdict(0, 0, 1, 2, ids=(node, node + 1, 0), drafted=2, timing=timing))
    s.reconcile(verdict(3, 0, timing=replace(timing, rows=1)))
    s.relay(s.drafts[1], chain(1, 0, first=9, tip=4))
    s.reconcile(verdict(4, 0, 1, ids=(node + 9, 0), drafted=1, timing=timing))
    stats = s.stats
    assert (stats.target_passes, stats.drafted_passes) == (3, 2)
    assert stats.accepted_per_position == [2, 1]
    assert (stats.pass_rows, stats.forward_us) == ([3, 1, 3], [20, 20, 20])
    assert (stats.queue_us, stats.accept_us) == (12, 9)
    assert stats.reconcile_us >= 0


def test_when_the_last_draft_leaves_nobody_waits_for_drafts() -> None:
    s = session("a")
    s._seen = replace(s._seen, draft_step_us=10.0)
    for base in range(3):
        timing = StepTiming(forward_us=100_000, rows=3)
        s.reconcile(verdict(base, 0, timing=timing))
    assert s._plan.policy.min_depth > 0
    s.detach(s.drafts[1], "gone")
    assert s.verify.policies[-1] == ReadinessPolicy(0, 0, 2, FIRST_CHANCE)


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


def test_a_draft_that_comes_back_was_lost_all_the_same() -> None:
    s = session("a")
    s.drafts[1].note_opened(Opened(1))
    s.detach(s.drafts[1], "gone")
    s.attach(FakePeer("a"))
    s.drafts[2].note_opened(Opened(9))
    s.relay(s.drafts[2], chain(2, 0))
    [draft] = s.stats.drafts
    assert (draft.lost, draft.drafted_tokens) == (True, 1)
    assert draft.cached_tokens == 1, "what it made itself is no prompt that was cached"
    assert s.notices == ["draft a was lost: gone"]


def test_a_draft_that_is_done_is_not_lost_and_nobody_waits_for_it() -> None:
    s = session("a", "b")
    s._seen = replace(s._seen, draft_step_us=10.0)
    for base in range(3):
        s.reconcile(verdict(base, 0, timing=StepTiming(forward_us=100_000, rows=3)))
    waits = s._plan.policy
    assert waits.min_depth > 0
    link = s.drafts[1].link
    s.retire(s.drafts[1], Done("its context is full"))
    assert link.is_closed
    assert s._plan.policy == waits, "the other one is still waited for"
    s.retire(s.drafts[2], Done("its context is full"))
    assert s.verify.policies[-1] == ReadinessPolicy(0, 0, 2, FIRST_CHANCE)
    assert s.notices == [
        "draft a stopped helping: its context is full",
        "draft b stopped helping: its context is full",
    ]
    assert not any(draft.lost for draft in s.stats.drafts)


def test_what_a_draft_drafted_before_it_was_done_still_counts() -> None:
    s = session("a")
    s.relay(s.drafts[1], chain(1, 0))
    s.retire(s.drafts[1], Done("full"))
    [token, _] = s.reconcile(verdict(0, 0, 1, ids=(1 << 24, 0), drafted=1)).tokens
    assert token.draft == "a"
    assert s.stats.drafts == [DraftStats("a", 1, 1, steps=1, step_us=10)]


def test_drafts_are_told_which_tokens_end_the_text_and_from_when_on() -> None:
    stop = StopConditions(50, frozenset({3}), min_tokens=4)
    opening = session("a", stop=stop).drafts[1].link.opening
    assert (opening.end_token_ids, opening.min_tokens) == (frozenset({3, 4}), 4)
    stop = StopConditions(50, frozenset({3}), ignore_eos=True)
    opening = session("a", stop=stop).drafts[1].link.opening
    assert (opening.end_token_ids, opening.min_tokens) == (frozenset({3}), 0)


@pytest.mark.parametrize("is_fresh", [False, True])
def test_drafts_are_told_that_what_they_drafted_is_spent(is_fresh: bool) -> None:
    s = session("a")
    s.relay(s.drafts[1], chain(1, 0, 1))
    s.reconcile(verdict(0, 0, ids=(1 << 24,), drafted=2, fresh=is_fresh))
    assert [commit.fresh for commit in s.drafts[1].link.commits] == [is_fresh]
    assert s.tree.pending == (0 if is_fresh else 1)


def test_verifier_and_drafts_sample_a_choice_by_its_own_seed_and_the_request_keeps_its_own() -> (
    None
):
    sampling = SamplingParams(seed=7)
    for choice in (0, 3):
        s = session("a", sampling=sampling, choice_index=choice, mode=AcceptanceMode.BLOCK)
        expected = SamplingParams(seed=choice_seed(7, choice), mode=AcceptanceMode.BLOCK)
        assert s.verify.opening.sampling == s.drafts[1].link.opening.sampling == expected
        started = s.started()
        assert (started.seed, started.mode) == (7, AcceptanceMode.BLOCK)


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_what_follows_delivered_tokens_has_new_numbers_only_where_drafts_draw(
    mode: AcceptanceMode,
) -> None:
    draws = mode in (AcceptanceMode.REJECTION, AcceptanceMode.BLOCK)
    s = session("a", sampling=SamplingParams(seed=7), mode=mode, delivered_ids=(3, 4))
    seed = s.verify.opening.sampling.seed
    assert seed == s.drafts[1].link.opening.sampling.seed
    assert seed == (resumed_seed(7, 2) if draws else 7)
    assert s.verify.opening.emitted_ids == s.drafts[1].link.opening.emitted_ids == (3, 4)
    assert (s.started().seed, s.started().delivered_tokens) == (7, 2)


@pytest.mark.parametrize("missing", [{"mode": None}, {"sampling": SamplingParams()}])
def test_a_session_without_a_seed_or_a_mode_is_a_bug(missing: dict[str, object]) -> None:
    with pytest.raises(InternalError, match="needs a seed and a mode"):
        session(**missing)
