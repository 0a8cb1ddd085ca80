"""A verifier that waits for depth gets it: the first path comes before branches and their room."""

import pytest
from draft.drafted import commit, opening, run, step
from draft.gated import scripted

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.plans import DraftPart, DraftPlan
from outrider.types import AcceptanceMode, SamplingParams

MODES = list(AcceptanceMode)


def started(plan: DraftPlan, mode: AcceptanceMode) -> tuple[Drafter, DraftSession]:
    drafter = Drafter(scripted("vocab=8,tokenizer=any,sharpness=0.3"))
    return drafter, drafter.open(opening(plan=plan, sampling=SamplingParams(seed=3, mode=mode)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_room_of_a_plan_is_enough_for_the_depth_that_is_waited_for(
    mode: AcceptanceMode, width: int
) -> None:
    plan = DraftPlan(6, width, max_nodes=6 * width, part=DraftPart.TREE, min_depth=6)
    drafter, session = started(plan, mode)
    for _ in range(5):
        run(drafter, session)
        assert session.tree.depth == 6
        assert session.tree.pending <= 6 * width
        assert not session.is_awaited or mode in (AcceptanceMode.REJECTION, AcceptanceMode.BLOCK)
        commit(drafter, session, next(iter(session.tree.root.children)), 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_awaited_path_is_as_deep_as_passes_can_make_it(mode: AcceptanceMode) -> None:
    plan = DraftPlan(6, 3, part=DraftPart.TREE, min_depth=4)
    drafter, session = started(plan, mode)
    for depth in range(1, 5):
        assert session.is_awaited
        step(drafter, session)
        assert session.tree.depth == depth


@pytest.mark.parametrize("mode", [AcceptanceMode.REJECTION, AcceptanceMode.BLOCK])
def test_trap_2_while_a_path_comes_first_a_draft_that_draws_grows_no_other(
    mode: AcceptanceMode,
) -> None:
    """Where the path ended, with a token that was drawn, a branch would overtake that token."""
    plan = DraftPlan(6, 3, part=DraftPart.TREE, min_depth=4)
    drafter, session = started(plan, mode)
    run(drafter, session)
    inner = [node for node in session.tree.root.descendants() if node.children]
    assert len(inner) == len({node.position for node in inner}) == 5
