"""The traps of docs/exactness.md that belong to the rules: a small direct test for each, by number.

Trap 8 (different vocabularies) is held in tests/draft, trap 9 (cuts inside an accepted run) in
tests/services. The joint laws that hang on all of them are enumerated in the modules beside this
one.
"""

import subprocess
import sys
from itertools import product

import pytest
import torch
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.sampling.accepting import accept
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise, Stream
from outrider.sampling.proposing import Proposal, propose
from outrider.sampling.rules import block, reject
from outrider.tree import Subtree, TokenTree
from outrider.types import (
    AcceptanceMode,
    Chunk,
    Node,
    NodeKind,
    ProposalRow,
    SamplingParams,
)

from .enumeration import BLOCK, REJECTION, Draft, MakeOnly, Simulation, Verify, production_draft
from .forks import outcomes
from .worlds import Table

TOLERANCE = 1e-9
FIRST_ID = 1 << 24
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.3, -1.0])
TARGET = Table(((1, 2, 3), (4, 1, 2)))
Q = Table(((3, 2, 1), (1, 1, 3)))


def proposed(
    sampling: SamplingParams,
    *,
    width: int = 1,
    top_k: int = 64,
    seed: int = 1,
    logits: Tensor = LOGITS,
) -> Proposal:
    return propose(
        logits, sampling, PhiloxNoise(seed), position=0, width=width, top_k=top_k, draw_index=0
    )


def drawn(token: int, row: tuple[float, ...], *, q: float | None = None) -> TokenTree:
    """A tree with one SAMPLED token below the tip."""
    tree = TokenTree()
    node = Node(FIRST_ID, 0, token, row[token] if q is None else q, NodeKind.SAMPLED)
    tree.grow(Chunk((node,), (ProposalRow(0, tuple(range(len(row))), row),)))
    return tree


def test_trap_1_the_row_that_is_sent_is_the_one_that_was_drawn_from() -> None:
    """Draws come from the cut, renormalised and rounded row, whose numbers go out as they are."""
    law: dict[int, float] = {}
    for chance, proposal in outcomes(
        lambda noise: propose(LOGITS, REJECTION, noise, position=0, width=1, top_k=3, draw_index=0)
    ):
        token = proposal.candidates[0].token
        law[token] = law.get(token, 0.0) + chance
        sent = proposal
    total = sum(sent.row_probs)
    assert law == pytest.approx(
        {t: prob / total for t, prob in zip(sent.row_ids, sent.row_probs, strict=True)}, abs=1e-15
    )
    assert list(sent.row_probs) == torch.tensor(sent.row_probs, dtype=torch.float32).tolist()
    assert len(sent.row_ids) == 3


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_trap_2_what_is_selected_does_not_ask_for_a_drawn_token_or_its_q(budget: int) -> None:
    """Another draft lists token 2, which may be the drawn one, and goes on below it."""
    num_draws = set()
    for token, q in product(range(3), (1e-6, 0.2, 1.0)):
        tree = drawn(token, (0.5, 0.3, 0.2), q=q)
        below = Node(FIRST_ID + 1, FIRST_ID, 0, 0.9, NodeKind.LISTED)
        listed = Node(2 << 24, 0, 2, 0.6, NodeKind.LISTED)
        below_listed = Node(2 << 24 | 1, 2 << 24, 1, 0.9, NodeKind.LISTED)
        tree.grow(Chunk((below, listed, below_listed)))
        num_draws.add(len(tree.select(budget).draws[0]))
    assert len(num_draws) == 1


def test_trap_2_a_budget_that_looks_at_the_token_is_off_by_what_was_worked_out_by_hand() -> None:
    def only_first_token(tree: TokenTree, budget: int) -> Subtree:
        return tree.select(budget if all(draw.token == 0 for draw in tree.root.draws) else 0)

    for sampling in (REJECTION, BLOCK):
        run = Simulation(
            Table(((7, 3),)),
            (production_draft(Table(((1, 1),))),),
            (Draft(0, 1), Verify(1)),
            1,
            sampling,
            select=only_first_token,
        )
        assert run.law()[(0,)] == pytest.approx(0.85, abs=1e-9)


def test_trap_3_streams_and_positions_and_indices_share_no_number() -> None:
    noise = PhiloxNoise(5)
    uniforms = {noise.uniform(position, index) for position in range(40) for index in range(40)}
    assert len(uniforms) == 1600
    weights = torch.ones(64)
    orders = {tuple(noise.rank(weights, 64, position, s)) for s in Stream for position in range(9)}
    assert len(orders) == 9 * len(Stream)


PROGRAM = """
import torch
from outrider.sampling.noise import PhiloxNoise, Stream
noise = PhiloxNoise({seed})
weights = torch.arange(1, 2001, dtype=torch.float64)
print([noise.uniform(p, i).hex() for p in (0, 7, 10**6) for i in (0, 31)])
print([noise.rank(weights, 5, p, s, i) for p in (0, 9) for s in Stream for i in (0, 3)])
"""


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
def test_trap_3_numbers_are_the_same_to_the_bit_in_every_process(seed: int) -> None:
    noise = PhiloxNoise(seed)
    weights = torch.arange(1, 2001, dtype=torch.float64)
    here = [
        str([noise.uniform(p, i).hex() for p in (0, 7, 10**6) for i in (0, 31)]),
        str([noise.rank(weights, 5, p, s, i) for p in (0, 9) for s in Stream for i in (0, 3)]),
    ]
    program = [sys.executable, "-c", PROGRAM.format(seed=seed)]
    there = subprocess.run(program, capture_output=True, text=True, check=True)
    assert there.stdout.splitlines() == here


def test_trap_4_where_p_is_q_to_the_bit_a_draw_is_accepted_whatever_u_is() -> None:
    """u is as large as it can be; the residual is empty."""

    class Largest(PhiloxNoise):
        def uniform(self, position: int, index: int) -> float:
            return 1 - 2.0**-53

    row = (0.5, 0.25, 0.25)
    subtree = drawn(1, row).select(1)
    p = torch.tensor(row, dtype=torch.float64)
    for rule in (reject, block):
        accepted = rule(subtree, lambda row: p, Largest(0), 0)
        assert accepted.path == (1,)


def test_trap_4_where_rounding_empties_the_residual_the_draw_is_taken() -> None:
    row = (0.5, 0.25, 0.25)
    subtree = drawn(1, row).select(1)
    p = torch.tensor(row, dtype=torch.float64) * (1 - 1e-9)
    for rule in (reject, block):
        for _, accepted in outcomes(
            lambda noise, rule=rule: rule(subtree, lambda row: p, noise, 0)
        ):
            assert accepted.token == 1 if accepted.fresh else accepted.path == (1,)


@pytest.mark.parametrize("row", [(0.5, 0.0, 0.5), (1.0, 0.0, 0.0)])
def test_trap_4_a_drawn_token_without_probability_is_refused(row: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot have been drawn"):
        drawn(1, row)


@pytest.mark.parametrize("mode", AcceptanceMode)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trap_5_every_row_is_conditioned_on_what_was_drafted_down_to_it(
    mode: AcceptanceMode, temperature: float
) -> None:
    """The model always says 0, a strong penalty forbids to repeat: 0 was drafted, then 1."""
    sampling = SamplingParams(
        temperature, mode=mode, presence_penalty=2.0, frequency_penalty=2.0, top_k=1
    )
    history = History.of(sampling, (9,))
    tree = TokenTree()
    chain = (
        Node(FIRST_ID, 0, 0, 0.9, NodeKind.LISTED),
        Node(FIRST_ID + 1, FIRST_ID, 1, 0.9, NodeKind.LISTED),
    )
    tree.grow(Chunk(chain))
    logits = torch.tensor([[5.0, 4.0, 3.5]] * 3)
    accepted = accept(tree.select(2), logits, sampling, PhiloxNoise(1), 0, history)
    assert (accepted.path, accepted.token) == ((1, 2), 2)


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_trap_5_drafts_are_conditioned_on_the_same(mode: AcceptanceMode) -> None:
    sampling = SamplingParams(
        mode=mode, banned_token_ids=frozenset({0}), presence_penalty=2, top_k=1
    )
    history = History.of(sampling, (9,)).after((1, 1))
    proposal = propose(
        torch.tensor([5.0, 4.0, 3.0]),
        sampling,
        PhiloxNoise(1),
        position=2,
        width=1,
        top_k=64,
        draw_index=0,
        history=history,
    )
    assert [candidate.token for candidate in proposal.candidates] == [2]


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_trap_6_a_greedy_draft_s_tokens_are_listed(mode: AcceptanceMode) -> None:
    proposal = proposed(SamplingParams(0.0, mode=mode), width=3)
    assert {candidate.kind for candidate in proposal.candidates} == {NodeKind.LISTED}
    assert proposal.row_ids == ()


@pytest.mark.parametrize("sampling", [REJECTION, BLOCK], ids=["rejection", "block"])
def test_trap_7_a_draft_that_is_late_or_missing_is_no_draft(sampling: SamplingParams) -> None:
    """Where nothing has arrived the token is the target's own draw, and no u is asked for."""
    empty = TokenTree().select(8)
    logits = TARGET(()).log()[None]
    law = {
        accepted.token: chance
        for chance, accepted in outcomes(lambda noise: accept(empty, logits, sampling, noise, 0))
    }
    assert law == pytest.approx(dict(enumerate(TARGET(()).tolist())), abs=1e-15)
    late = Simulation(TARGET, (production_draft(Q),), (MakeOnly(0, 2), Verify(4)), 2, sampling)
    assert late.deviation() < TOLERANCE
