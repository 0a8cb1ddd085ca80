"""Which alternatives a draft sends: those that a pass may verify; what it learns of others."""

import pytest
from draft.drafted import FirstGuesses, commit, drafted, opening, path_of, run
from draft.gated import scripted

from draft_service.chances import Chances
from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.plans import DraftPart, DraftPlan
from outrider.types import AcceptanceMode, SamplingParams

LEAST = 0.25


def started(
    sampling: SamplingParams, least_sent: float, chances: Chances, width: int = 3
) -> tuple[Drafter, DraftSession]:
    drafter = Drafter(scripted("vocab=8,tokenizer=any"))
    drafter.chances = chances
    plan = DraftPlan(1, width, least_sent=least_sent, part=DraftPart.TREE)
    return drafter, drafter.open(opening(plan=plan, sampling=sampling))


@pytest.mark.parametrize("seed", range(20))
def test_alternatives_that_no_pass_would_verify_are_not_sent(seed: int) -> None:
    sampling = SamplingParams(seed=seed)
    everything = drafted_by(*started(sampling, 0.0, FirstGuesses()))
    sent = drafted_by(*started(sampling, LEAST, FirstGuesses()))
    best = max(everything.values())
    assert len(everything) == 3
    assert sent == {p: c for p, c in everything.items() if c >= LEAST or c == best}


@pytest.mark.parametrize("mode", [AcceptanceMode.REJECTION, AcceptanceMode.BLOCK])
def test_trap_2_where_drafts_draw_all_is_sent(mode: AcceptanceMode) -> None:
    sampling = SamplingParams(seed=1, mode=mode)
    drafter, session = started(sampling, 0.99, FirstGuesses())
    assert len(run(drafter, session)) == 3


def test_an_alternative_that_was_not_sent_is_learned_from_and_sent_once_it_pays() -> None:
    drafter, session = started(SamplingParams(temperature=0, seed=1), LEAST, Chances(), width=2)
    for _ in range(60):
        other = runner_up(drafter, session)
        run(drafter, session)
        if any(node.token == other for node in session.tree.root.children.values()):
            return
        commit(drafter, session, other)
    pytest.fail("the runner-up was always right and never sent")


def runner_up(drafter: Drafter, session: DraftSession) -> int:
    """The second token of a greedy draft after the same text that sends everything."""
    plan = DraftPlan(1, 2)
    wide = Drafter(scripted("vocab=8,tokenizer=any"))
    again = wide.open(opening(emitted=tuple(session.tree.committed), plan=plan))
    return run(wide, again)[1].token


def drafted_by(drafter: Drafter, session: DraftSession) -> dict[tuple[int, ...], float]:
    """All paths and their chances once nothing is left to do."""
    run(drafter, session)
    assert all(len(path_of(node)) == 1 for node in session.tree.root.descendants())
    return drafted(session)
