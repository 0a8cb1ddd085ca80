"""The drafts of a session: their parts of the tree, and what they tell one another."""

import pytest
from fake_session import FakePeer, chain, session, verdict

from orchestrator.attached import SILENT_COMMITS
from orchestrator.planner import Limits, Pace
from outrider.plans import DraftPart
from outrider.types import (
    AcceptanceMode,
    SamplingParams,
    StepTiming,
)
from outrider.wire.convert import chunk_from


def test_drafts_of_one_model_divide_the_tree_and_tell_each_other_what_they_make() -> None:
    s = session("smol1", "smol2", "ngram")
    first = chain(1, 0, 1)
    s.relay(s.drafts[1], first)
    branch = chain(2, 2, tip=1 << 24)
    s.relay(s.drafts[2], branch)
    lookup = chain(3, 1)
    s.relay(s.drafts[3], lookup)
    assert s.verify.chunks == [first, branch, lookup]
    assert [s.drafts[i].link.told for i in (1, 2, 3)] == [[branch], [first], []]
    assert s.tree.node(2 << 24).parent is s.tree.node(1 << 24)
    s.reconcile(verdict(0, 0))
    plans = [s.drafts[i].plan for i in (1, 2, 3)]
    parts = [(plan.part, plan.share, plan.shares) for plan in plans]
    told = [s.drafts[i].link.commits[-1].plan for i in (1, 2, 3)]
    assert told == [plans[0], None, None], "the others' are what they were opened with"
    assert parts == [(DraftPart.CHAIN, 0, 1), (DraftPart.BRANCHES, 0, 1), (DraftPart.TREE, 0, 1)]
    s.detach(s.drafts[1], None)
    s.reconcile(verdict(1, 0))
    assert s.drafts[2].link.commits[-1].plan.part is DraftPart.TREE, "it has the whole tree now"


def test_a_draft_that_joins_is_told_what_drafts_of_its_model_have_made() -> None:
    s = session("smol1", "ngram")
    s.relay(s.drafts[1], chain(1, 0, 1))
    s.relay(s.drafts[2], chain(2, 1, 1))
    s.reconcile(verdict(0, 0))
    s.attach(FakePeer("smol2"))
    [told] = s.drafts[3].link.told
    [node] = told.chunk.nodes
    assert (node.id, node.parent_id, node.token) == (1 << 24 | 1, 1, 1)
    assert chunk_from(told.message, 5) == told.chunk
    s.attach(FakePeer("gemma"))
    assert s.drafts[4].link.told == []
    s.reconcile(verdict(1, 0))
    s.attach(FakePeer("smol3"))
    assert s.drafts[5].link.told == [], "nothing is alive"


def test_a_draft_that_went_silent_does_not_hold_up_those_of_its_model() -> None:
    s = session("smol1", "smol2")
    s.relay(s.drafts[1], chain(1, 0))
    s.relay(s.drafts[2], chain(2, 1))
    parts = []
    for base in range(2 * SILENT_COMMITS):
        s.relay(s.drafts[2], chain(2, 1, first=base + 1, tip=base))
        s.reconcile(verdict(base, 0))
        parts.append([s.drafts[i].plan.part for i in (1, 2)])
    assert parts[0] == [DraftPart.CHAIN, DraftPart.BRANCHES]
    assert parts[-1] == [DraftPart.BRANCHES, DraftPart.CHAIN]
    s.relay(s.drafts[1], chain(1, 0, first=1, tip=2 * SILENT_COMMITS))
    s.reconcile(verdict(2 * SILENT_COMMITS, 0))
    assert s.drafts[1].plan.part is DraftPart.CHAIN, "it is back"


def test_each_draft_is_told_by_how_far_away_it_is() -> None:
    s = session("near1", "far1", limits=Limits(2, 3, 64))
    s.drafts[2].pace = Pace(10e6)
    for base in range(30):
        timing = StepTiming(forward_us=20_000 + 500 * (base % 3), rows=1 + base % 3)
        s.reconcile(verdict(base, 0, timing=timing))
    near, far = (s.drafts[i].plan.min_chance for i in (1, 2))
    assert 0 < far < near


@pytest.mark.parametrize("mode", [AcceptanceMode.REJECTION, AcceptanceMode.BLOCK])
def test_drafts_that_draw_go_down_one_path_each_and_know_nothing_of_one_another(
    mode: AcceptanceMode,
) -> None:
    s = session("smol1", "smol2", "ngram", mode=mode, sampling=SamplingParams(seed=0))
    s.relay(s.drafts[1], chain(1, 0, 1))
    s.reconcile(verdict(0, 0))
    drafts = s.drafts.values()
    assert {draft.link.opening.plan.part for draft in drafts} == {DraftPart.CHAIN}
    assert {draft.plan.part for draft in drafts} == {DraftPart.CHAIN}
    assert [draft.link.told for draft in drafts] == [[], [], []]


def test_branch_drafts_that_have_nothing_to_say_keep_their_parts() -> None:
    s = session("smol1", "smol2", "smol3")
    parts = []
    for base in range(4 * SILENT_COMMITS):
        s.relay(s.drafts[1], chain(1, 0, first=base, tip=base))
        s.reconcile(verdict(base, 0))
        plans = [s.drafts[i].plan for i in (1, 2, 3)]
        parts.append([(plan.part, plan.share) for plan in plans])
    assert s.drafts[2].is_silent
    assert s.drafts[3].is_silent
    assert all(part == parts[0] for part in parts)
