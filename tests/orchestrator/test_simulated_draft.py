"""A simulated draft grows the very tree that a draft session grows, where both guess the same."""

from collections.abc import Sequence
from random import Random

import pytest
import torch
from draft.drafted import GREEDY, drafted, opening, path_of
from draft.gated import GatedModel
from torch import Tensor

from draft_service.chances import Chances
from draft_service.drafter import Drafter
from draft_service.growth import MOST_SPOTS
from orchestrator.simulated_draft import RIGHT, SimulatedDraft
from orchestrator.texts import Guess, Recorded
from outrider.models.base import Feed
from outrider.pass_times import PassTimes, most_per_time
from outrider.plans import DraftPart, DraftPlan
from outrider.sampling.noise import PhiloxNoise
from outrider.sampling.proposing import propose_listed
from outrider.types import Chunk, DraftCommit

SHARES = torch.tensor([0.5, 0.0, 0.27, 0.13, 0.1, 0.0, 0.0, 0.0])
"""What the draft says everywhere; the target always says the first. Others have the tokens that a
simulated draft gives them: their rank and one more."""

WIDEST = 3


class Constant(GatedModel):
    """Says the same whatever it is asked."""

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        return [SHARES.log().expand(len(rows), -1) for rows in super().forward(feeds)]


def everywhere() -> Recorded:
    [proposal] = propose_listed(
        SHARES.log()[None], GREEDY, [PhiloxNoise(0)], positions=[1], width=WIDEST
    )
    candidates = proposal.candidates
    assert [c.token for c in candidates] == [RIGHT, 2, 3]
    return Recorded(
        GREEDY,
        [Guess(tuple(c.chance for c in candidates), tuple(c.evidence for c in candidates), 0)],
    )


def some_plan(random: Random) -> DraftPlan:
    depth = random.randint(1, 9)
    return DraftPlan(
        depth,
        random.randint(1, WIDEST),
        part=random.choice((DraftPart.CHAIN, DraftPart.TREE, DraftPart.TREE)),
        min_chance=random.choice((0.0, 0.05, 0.2, 0.4)),
        least_sent=random.choice((0.0, 0.1, 0.3)),
        min_depth=random.choice((0, 0, 3, depth)),
        max_nodes=random.choice((6, 12, 40)),
        max_bytes=random.choice((200, 2000, 10**6)),
    )


@pytest.mark.parametrize("seed", range(50))
def test_a_simulated_draft_grows_the_tree_that_a_session_grows(seed: int) -> None:
    random = Random(seed)
    plan = some_plan(random)
    drafter = Drafter(Constant("vocab=8,tokenizer=any"))
    session = drafter.open(opening(plan=plan))
    simulated = SimulatedDraft(plan, Chances(), everywhere())
    times = PassTimes()
    grown = 0
    for _ in range(12):
        for _ in range(random.randint(1, 6)):
            count = most_per_time(session.wishes(MOST_SPOTS), times)
            task = session.task(10_000, count) if count else None
            targets = simulated.targets()
            real = task.targets if task is not None else ()
            assert [path_of(node) for node in targets] == [path_of(node) for node in real]
            if task is None:
                break
            rows = simulated.feed(targets)
            if grown:
                assert rows == len(task.tokens), "the first pass reads the prompt, too"
            times = times.add(rows, 1000 + 100 * rows)
            simulated.grow(targets, rows, 1000 + 100 * rows)
            [chunk] = drafter.step([(session, task)])
            assert isinstance(chunk, Chunk)
            grown += len(chunk.nodes)
            below = simulated._tree.root.descendants()
            assert {path_of(node): node.chance for node in below} == drafted(session)
        plan = some_plan(random) if random.random() < 0.5 else plan
        count = random.randint(1, 4)
        drafter.commit(session, DraftCommit(len(session.tree.committed), (RIGHT,) * count, plan))
        simulated.commit(count, plan)
    assert grown
