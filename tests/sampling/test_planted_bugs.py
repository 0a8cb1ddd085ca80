"""Wrong variants of the rules: the enumeration that proves the right ones must reject each.

A variant swaps one step of the simulation or one function; production code is never edited. Every
scenario is exact without its bug, so it is the bug that is found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from outrider.sampling import rules
from outrider.sampling.history import History
from outrider.sampling.noise import DraftNoise, Noise, Stream
from outrider.sampling.proposing import Candidate, Proposal
from outrider.sampling.rules import Acceptance, accepts, follow, residual_after, row_without
from outrider.sampling.warping import warp
from outrider.tree import Draw, Subtree, TokenTree
from outrider.types import Chunk, Node, NodeKind, ProposalRow, SamplingParams

from .enumeration import (
    Deliver,
    Draft,
    MakeOnly,
    Prefix,
    Propose,
    Simulation,
    Verify,
    drawing_draft,
    listing_draft,
    production_draft,
)
from .planting import CLEARLY_WRONG, EXACT, Plant, accept_with_shared_u, swapped
from .worlds import Table

TARGET = Table(((1, 2, 3, 4), (4, 1, 2, 3), (1, 4, 2, 2)))
Q = Table(((4, 3, 2, 1), (1, 1, 3, 4)))
OTHER_Q = Table(((1, 1, 4, 2), (3, 2, 1, 1)))

CHAIN = Simulation(TARGET, (production_draft(Q),), (Draft(0, 2), Verify(2)), 2)
SIBLINGS = Simulation(
    TARGET,
    (production_draft(Q), production_draft(OTHER_Q)),
    (Draft(0, 1), Draft(1, 1), Verify(4)),
    2,
)
WITHOUT_REPLACEMENT = Simulation(TARGET, (drawing_draft(Q, count=2),), (Draft(0, 1), Verify(4)), 2)
LISTED = Simulation(TARGET, (listing_draft(lambda prefix: (0, 2)),), (Draft(0, 1), Verify(4)), 2)


def unnormalised_residual(r: Tensor, ids: Tensor, q: Tensor) -> Tensor | None:
    left = r.clone()
    left[ids] -= q
    return left.clamp(min=0) if float(left.max()) > 0 else None


def forgotten_residual(r: Tensor, ids: Tensor, q: Tensor) -> Tensor | None:
    return r


def q_of_token(draw: Draw) -> float:
    ids, q = row_without(draw.row, draw.gone)
    return float(q[ids == draw.token][0])


def siblings_against_p(
    draws: Sequence[Draw], p: Tensor, numbers: Iterator[float]
) -> tuple[int | None, Tensor]:
    """Tests each sibling on its own against p; only the end looks at the residual."""
    residual = p
    for draw in draws:
        if accepts(next(numbers), q_of_token(draw), float(p[draw.token])):
            return draw.token, residual
        left = residual_after(residual, *row_without(draw.row, draw.gone))
        residual = residual if left is None else left
    return None, residual


def residual_of_last_row_only(
    draws: Sequence[Draw], p: Tensor, numbers: Iterator[float]
) -> tuple[int | None, Tensor]:
    """Tests siblings as it should, then draws from norm[p - q]+ with the last sibling's q."""
    accepted, residual = real_try_draws(draws, p, numbers)
    if accepted is None and draws:
        last = residual_after(p, *row_without(draws[-1].row, draws[-1].gone))
        residual = residual if last is None else last
    return accepted, residual


def without_removing_earlier_draws(row: ProposalRow, gone: Sequence[int]) -> tuple[Tensor, Tensor]:
    return row_without(row, ())


def argmax_match(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History,
) -> Acceptance:
    """Accepts a sampled token where it is the target's most likely one."""

    def decide(row: int, depth: int) -> int:
        p = warp(logits[row], sampling)
        for draw in subtree.draws[row]:
            if draw.token == int(p.argmax()):
                return draw.token
            left = residual_after(p, *row_without(draw.row, draw.gone))
            p = p if left is None else left
        return noise.choose(p, position + depth, Stream.RESIDUAL)

    return follow(subtree, decide)


def listed_tested_and_drawn(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History,
) -> Acceptance:
    """Accepts each LISTED child with probability p(x), then draws from the whole of p."""

    def decide(row: int, depth: int) -> int:
        p = warp(logits[row], sampling)
        for index, token in enumerate(subtree.children[row]):
            if accepts(noise.uniform(position + depth, index), 1.0, float(p[token])):
                return token
        return noise.choose(p, position + depth, Stream.BONUS)

    return follow(subtree, decide)


def full_softmax_but_top_k_sent(q: Table, top_k: int) -> Propose:
    """Draws from all of q; sends the renormalised row of the top k and of what was drawn."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        row = q(prefix)
        token = noise.choose(row, len(prefix), Stream.DRAFT, draw_index)
        ids = sorted({*row.topk(top_k).indices.tolist(), token})
        sent = (row[ids] / row[ids].sum()).tolist()
        candidate = Candidate(token, float(row[token]), NodeKind.SAMPLED)
        return Proposal((candidate,), tuple(ids), tuple(sent))

    return run


def row_rounded_after_the_draw(q: Table) -> Propose:
    """Sends q in steps of a quarter, having drawn from the exact one."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        row = q(prefix)
        token = noise.choose(row, len(prefix), Stream.DRAFT, draw_index)
        sent = (row * 4).round().clamp(min=1) / 4
        candidate = Candidate(token, float(row[token]), NodeKind.SAMPLED)
        return Proposal((candidate,), tuple(range(len(row))), tuple((sent / sent.sum()).tolist()))

    return run


def greedy_token_with_soft_row(q: Table) -> Propose:
    """Proposes argmax q and calls it SAMPLED from q."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        row = q(prefix)
        token = int(row.argmax())
        candidate = Candidate(token, float(row[token]), NodeKind.SAMPLED)
        return Proposal((candidate,), tuple(range(len(row))), tuple(row.tolist()))

    return run


def only_likely_tokens(chunk: Chunk) -> Chunk:
    """Sends a sampled token only where its own q is high."""
    return replace(chunk, nodes=tuple(node for node in chunk.nodes if node.q > 0.25))


def budget_by_q(tree: TokenTree, budget: int) -> Subtree:
    """Verifies only where the sampled token's own q is high."""
    likely = all(q_of_token(draw) > 0.25 for draw in tree.root.draws)
    return tree.select(budget if likely else 0)


def only_first_token(tree: TokenTree, budget: int) -> Subtree:
    """Verifies only where the sampled token is token 0."""
    return tree.select(budget if all(draw.token == 0 for draw in tree.root.draws) else 0)


def likelier_sibling(tree: TokenTree, budget: int) -> Subtree:
    """Verifies, of several draws, the one whose own q is the highest."""
    subtree = tree.select(budget)
    best = max(tree.root.draws, key=q_of_token, default=None)
    draws = tuple(draw for draw in subtree.draws[0] if draw is best)
    return replace(subtree, draws=(draws, *subtree.draws[1:]))


def draws_that_nobody_listed(tree: TokenTree, budget: int) -> Subtree:
    """Forgets the draw of a token that another draft listed: the node is there already."""
    subtree = tree.select(budget)
    draws = tuple(draw for draw in subtree.draws[0] if tree.root.children[draw.token].chance < 0)
    return replace(subtree, draws=(draws, *subtree.draws[1:]))


def padded_when_late(tree: TokenTree, budget: int) -> Subtree:
    """Fills the place of a draft that has not answered with token 0 and a uniform q."""
    if tree.pending == 0:
        tip = len(tree.committed)
        padding = Node(255 << 24 | tip, tip, 0, 0.25, NodeKind.SAMPLED)
        tree.grow(Chunk((padding,), (ProposalRow(tip, (0, 1, 2, 3), (0.25,) * 4),)))
    return tree.select(budget)


real_try_draws = rules.try_draws

LATE = replace(CHAIN, schedule=(MakeOnly(0, 1), Verify(1), Deliver(0)))
SAMPLED_AND_LISTED = replace(
    SIBLINGS, drafts=(production_draft(Q), listing_draft(lambda prefix: (0,)))
)

PLANTS = {
    "residual-not-renormalised": swapped(SIBLINGS, "residual_after", unnormalised_residual),
    "recovered-token-drawn-from-p": swapped(CHAIN, "residual_after", forgotten_residual),
    "siblings-tested-independently": swapped(SIBLINGS, "try_draws", siblings_against_p),
    "residual-of-one-row-only": swapped(SIBLINGS, "try_draws", residual_of_last_row_only),
    "earlier-draws-not-taken-out-of-q": swapped(
        WITHOUT_REPLACEMENT, "row_without", without_removing_earlier_draws
    ),
    "full-softmax-drawn-top-k-sent": Plant(
        CHAIN, replace(CHAIN, drafts=(full_softmax_but_top_k_sent(Q, 2),))
    ),
    "row-rounded-after-the-draw": Plant(
        CHAIN, replace(CHAIN, drafts=(row_rounded_after_the_draw(Q),))
    ),
    "greedy-token-with-soft-row": Plant(
        CHAIN, replace(CHAIN, drafts=(greedy_token_with_soft_row(Q),))
    ),
    "argmax-match-with-soft-q": Plant(CHAIN, replace(CHAIN, accept=argmax_match)),
    "listed-tested-and-drawn-again": Plant(LISTED, replace(LISTED, accept=listed_tested_and_drawn)),
    "one-u-for-all-siblings": Plant(SIBLINGS, replace(SIBLINGS, accept=accept_with_shared_u)),
    "sent-only-where-q-is-high": Plant(CHAIN, replace(CHAIN, send=only_likely_tokens)),
    "verified-only-where-q-is-high": Plant(CHAIN, replace(CHAIN, select=budget_by_q)),
    "likelier-sibling-verified": Plant(SIBLINGS, replace(SIBLINGS, select=likelier_sibling)),
    "draw-skipped-where-listed": Plant(
        SAMPLED_AND_LISTED, replace(SAMPLED_AND_LISTED, select=draws_that_nobody_listed)
    ),
    "late-draft-padded": Plant(LATE, replace(LATE, select=padded_when_late)),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_enumeration_rejects_the_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plant.error(monkeypatch) > CLEARLY_WRONG


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_same_scenario_without_the_bug_is_exact(plant: Plant) -> None:
    assert plant.right.deviation() < EXACT


def test_budget_chosen_after_a_look_at_the_token_gives_the_law_worked_out_by_hand() -> None:
    """p = (.7, .3), q = (.5, .5): verifying only token 0 gives .5 * 1 + .5 * .7 = .85."""
    run = Simulation(
        Table(((7, 3),)),
        (production_draft(Table(((1, 1),))),),
        (Draft(0, 1), Verify(1)),
        1,
        select=only_first_token,
    )
    assert run.law()[(0,)] == pytest.approx(0.85, abs=1e-9)
