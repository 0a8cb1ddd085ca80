"""Penalties, bias, allowed and banned tokens, a shortest length and grammars: the law is the one of
the target alone under the same request, for every rule, whatever the drafts know of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.sampling.accepting import accept
from outrider.sampling.grammar import GrammarCompiler
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise
from outrider.sampling.processing import allowed_logits, distribution
from outrider.tree import Subtree, TokenTree
from outrider.types import (
    AcceptanceMode,
    Chunk,
    Grammar,
    Node,
    NodeKind,
    ProposalRow,
    SamplingParams,
)
from outrider.vocabulary import Vocabulary

from .enumeration import (
    Action,
    Deliver,
    Draft,
    MakeOnly,
    Prefix,
    Propose,
    Reopen,
    Simulation,
    Verify,
    drawing_draft,
    listing_draft,
    production_draft,
)
from .forks import RandomNumbers, outcomes
from .worlds import Table, examples, schedules, tables

TOLERANCE = 1e-9
VOCAB = 4
END = 3
PROMPT = (0, 1)
PIECES = Vocabulary((b"a", b"b", b"ab", b"</s>"), (False, False, False, True))
COMPILER = GrammarCompiler(PIECES, (END,))

TARGET = Table(
    ((1, 2, 3, 1), (3, 1, 1, 0.5), (0.5, 1, 4, 2), (2, 2, 1, 5), (1, 1, 1, 1), (4, 1, 2, 1))
)
DRAFTS = (Table(((2, 2, 1, 1), (1, 1, 0.2, 2))), Table(((1, 0.5, 4, 1), (1, 3, 1, 1))), TARGET)


@dataclass(frozen=True)
class Request:
    """What a request asks besides temperature and mode."""

    sampling: dict[str, Any]
    ends: tuple[int, ...] = ()
    min_tokens: int = 0
    grammar: Grammar | None = None

    def params(self, mode: AcceptanceMode, **changes: float) -> SamplingParams:
        """The sampling parameters under a rule."""
        given = {"mode": mode, **self.sampling, **changes}
        return SamplingParams(grammar=self.grammar, **given)

    def history(self, sampling: SamplingParams) -> History:
        """The one before the first token."""
        return History.of(
            sampling,
            PROMPT,
            ends=self.ends,
            min_tokens=self.min_tokens,
            grammar=None if self.grammar is None else COMPILER.compile(self.grammar),
        )


REQUESTS = {
    "repetition": Request({"repetition_penalty": 1.7}),
    "presence-and-frequency": Request({"presence_penalty": 1.3, "frequency_penalty": -0.8}),
    "bias-and-banned": Request({"logit_bias": ((1, 1.5),), "banned_token_ids": frozenset({2})}),
    "allowed": Request({"allowed_token_ids": frozenset({0, 1, END})}, (END,)),
    "min-tokens": Request({}, (END,), 2),
    "regex": Request({}, (END,), grammar=Grammar(regex="(ab|b)*a?")),
    "choice": Request({}, (END,), grammar=Grammar(choice=("aba", "abb", "b"))),
    "everything": Request(
        {
            "repetition_penalty": 1.4,
            "presence_penalty": 0.7,
            "frequency_penalty": 0.4,
            "logit_bias": ((0, -0.5), (END, 1.0)),
            "temperature": 0.8,
            "top_p": 0.97,
        },
        (END,),
        2,
        Grammar(regex="(ab|b)*a?"),
    ),
}
RULES = (AcceptanceMode.REJECTION, AcceptanceMode.BLOCK, AcceptanceMode.MATCH)

PLANS: dict[str, tuple[Action, ...]] = {
    "one-pass": (Draft(0, 2), Draft(1, 1), Verify(4)),
    "carried-over": (Draft(0, 3), Verify(1), Verify(2)),
    "late": (MakeOnly(0, 2), Draft(1, 1), Verify(2), Deliver(0), Verify(2)),
    "opened-again": (Draft(0, 2), Reopen(0), Draft(0, 1), Verify(2)),
}


def knowing(request: Request, sampling: SamplingParams, width: int = 1) -> tuple[Propose, ...]:
    """Two drafts that are conditioned on the request."""
    return tuple(
        production_draft(table, width=width, sampling=sampling, history=request.history(sampling))
        for table in DRAFTS[:2]
    )


def unknowing(request: Request, sampling: SamplingParams) -> tuple[Propose, ...]:
    """Drafts that propose whatever comes, legal or not: drawn, and listed."""
    return drawing_draft(DRAFTS[0], count=2), listing_draft(lambda prefix: (END, 2, 0))


def simulation(
    request: Request,
    sampling: SamplingParams,
    drafts: tuple[Propose, ...],
    schedule: tuple[Action, ...],
    *,
    target: Table = TARGET,
    length: int = 3,
) -> Simulation:
    history = request.history(sampling)
    return Simulation(target, drafts, schedule, length, sampling, history)


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_output_law_equals_the_one_of_the_target_under_the_same_request(
    request_: Request, plan: tuple[Action, ...], mode: AcceptanceMode
) -> None:
    sampling = request_.params(mode)
    drafts = knowing(request_, sampling)
    assert simulation(request_, sampling, drafts, plan).deviation() < TOLERANCE


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_output_law_does_not_ask_what_the_drafts_know_of_the_request(
    request_: Request, mode: AcceptanceMode
) -> None:
    sampling = request_.params(mode)
    plan = (Draft(0, 1), Draft(1, 1), Verify(3))
    drafts = unknowing(request_, sampling)
    assert simulation(request_, sampling, drafts, plan).deviation() < TOLERANCE


@given(
    st.data(),
    st.sampled_from(tuple(REQUESTS.values())),
    st.sampled_from(RULES),
    st.integers(1, 2),
)
@examples(80)
def test_output_law_equals_the_target_s_for_any_tables_and_any_schedule(
    data: DataObject, request_: Request, mode: AcceptanceMode, width: int
) -> None:
    target, *qs = data.draw(tables(VOCAB, 3))
    sampling = request_.params(mode)
    history = request_.history(sampling)
    drafts = tuple(production_draft(q, width=width, sampling=sampling, history=history) for q in qs)
    run = simulation(
        request_,
        sampling,
        drafts,
        data.draw(schedules(2, 2)),
        target=Table(tuple(tuple(w + 0.1 for w in row) for row in target.rows)),
        length=2,
    )
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("seed", [0, 1, 5, 2**63, 2**64 - 1])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_coupled_tokens_are_the_target_s_with_any_drafts(request_: Request, seed: int) -> None:
    sampling = request_.params(AcceptanceMode.COUPLED)
    alone = simulation(request_, sampling, (), (Verify(0),), length=10)
    expected = alone.tokens(PhiloxNoise(seed))
    for drafts in (
        knowing(request_, sampling),
        knowing(request_, sampling, width=3),
        unknowing(request_, sampling)[1:] * 2,
    ):
        for plan in PLANS.values():
            run = simulation(request_, sampling, drafts, plan, length=10)
            assert run.tokens(PhiloxNoise(seed)) == expected


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_greedy_tokens_are_the_most_likely_that_the_request_allows(
    request_: Request, plan: tuple[Action, ...]
) -> None:
    sampling = request_.params(AcceptanceMode.COUPLED, temperature=0.0)
    run = simulation(request_, sampling, knowing(request_, sampling, width=2), plan, length=8)
    expected: Prefix = ()
    while run.text(expected) is None:
        logits = TARGET(expected).log()
        history = request_.history(sampling).after(expected)
        expected = (*expected, int(allowed_logits(logits, sampling, history).argmax()))
    assert run.tokens(PhiloxNoise(0)) == expected


def accepted_share(request: Request, drafts: Callable[..., tuple[Propose, ...]]) -> float:
    """Of the rounds that one answer after the other would take without drafts."""
    sampling = request.params(AcceptanceMode.COUPLED)
    rounds = tokens = 0
    for seed in range(30):
        run = simulation(
            request, sampling, drafts(request, sampling), (Draft(0, 3), Verify(3)), length=6
        )

        def counted(*given: Any, run: Simulation = run) -> Any:
            nonlocal rounds
            rounds += 1
            return run.accept(*given)

        tokens += len(replace(run, accept=counted).tokens(PhiloxNoise(seed)))
    return 1 - rounds / tokens


def test_drafts_that_know_the_grammar_are_right_more_often_than_drafts_that_do_not() -> None:
    def ignorant(request: Request, sampling: SamplingParams) -> tuple[Propose, ...]:
        return (production_draft(DRAFTS[0], sampling=replace(sampling, grammar=None)),)

    request = REQUESTS["choice"]
    assert accepted_share(request, knowing) > 1.5 * accepted_share(request, ignorant)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("mode", AcceptanceMode)
def test_what_a_draft_puts_behind_a_complete_grammar_is_never_asked_for(
    mode: AcceptanceMode, temperature: float
) -> None:
    """It repeats what completed it, and nothing is legal there."""
    choice = Grammar(choice=("b", "aa"))
    sampling = SamplingParams(temperature, mode=mode, grammar=choice)
    history = History.of(sampling, PROMPT, grammar=COMPILER.compile(choice))
    draft = listing_draft(lambda prefix: (1,))
    run = Simulation(TARGET, (draft,), (Draft(0, 3), Verify(3)), 4, sampling, history)
    assert {run.tokens(PhiloxNoise(seed)) for seed in range(9)} <= {(1,), (0, 0)}


@pytest.mark.parametrize("mode", AcceptanceMode)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_request_that_leaves_no_token_is_refused_by_name(
    mode: AcceptanceMode, temperature: float
) -> None:
    """After "a" the choice asks for a token that is banned."""
    choice = Grammar(choice=("ab",))
    banned = frozenset({1, 2})
    sampling = SamplingParams(temperature, mode=mode, grammar=choice, banned_token_ids=banned)
    history = History.of(sampling, PROMPT, grammar=COMPILER.compile(choice))
    draft = production_draft(DRAFTS[0], sampling=sampling, history=history)
    run = Simulation(TARGET, (draft,), (Draft(0, 2), Verify(2)), 2, sampling, history)
    with pytest.raises(InvalidArgumentError, match="leave nothing to emit"):
        run.tokens(PhiloxNoise(0))


def test_a_draft_that_is_left_no_token_proposes_nothing() -> None:
    sampling = SamplingParams(allowed_token_ids=frozenset({9}))
    draft = production_draft(DRAFTS[0], sampling=sampling)
    assert draft(PhiloxNoise(0), (), 0).candidates == ()


DEAD_END = Grammar(choice=("a", "bb"))
"""With a second "b" out of reach, an answer that begins with "b" cannot be finished."""


def dead_end(mode: AcceptanceMode, temperature: float = 1.0) -> tuple[SamplingParams, History]:
    """The tip has both letters; the row behind "b" is empty unless nothing is banned."""
    sampling = SamplingParams(
        temperature, mode=mode, grammar=DEAD_END, logit_bias=((0, 0.4),), seed=0
    )
    return sampling, History.of(sampling, PROMPT, ends=(END,), grammar=COMPILER.compile(DEAD_END))


def rows_with_a_dead_end(subtree: Subtree) -> Tensor:
    """Nobody says "b" after "b", nor "ab"."""
    rows = torch.zeros(1 + len(subtree), VOCAB)
    for row, node in enumerate(subtree.nodes, start=1):
        if node.token == 1:
            rows[row, 1:3] = -torch.inf
            rows[row, 0] = 1.0
    return rows


@pytest.mark.parametrize("mode", RULES)
def test_a_dead_end_below_a_drafted_token_changes_nothing_above_it(mode: AcceptanceMode) -> None:
    """A draft that does not know the request draws "b" and goes on below it: the law of the first
    token is the target's own, and it is emitted before the dead end is an error."""
    sampling, history = dead_end(mode)
    p = distribution(rows_with_a_dead_end(TokenTree().select(0))[0], sampling, history)
    law = [0.0] * VOCAB
    for drawn in (1, 2):
        first = 1 << 24
        tree = TokenTree()
        tree.grow(
            Chunk(
                (
                    Node(first, 0, drawn, 0.5, NodeKind.SAMPLED),
                    Node(first | 1, first, 1, 1.0, NodeKind.SAMPLED),
                ),
                (ProposalRow(0, (1, 2), (0.5, 0.5)), ProposalRow(first, (1,), (1.0,))),
            )
        )
        subtree = tree.select(4)
        logits = rows_with_a_dead_end(subtree)

        def run(noise: RandomNumbers, subtree: Subtree = subtree, logits: Tensor = logits) -> int:
            accepted = accept(subtree, logits, sampling, noise, 2, history)
            assert accepted.path == ()
            return accepted.token

        for chance, token in outcomes(run):
            law[token] += chance / 2
    assert law == pytest.approx(p.tolist(), abs=TOLERANCE)
    assert 0.2 < law[1] < 0.8


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("is_drafted", [False, True])
def test_tokens_before_a_dead_end_are_emitted_with_and_without_drafts(
    is_drafted: bool, temperature: float
) -> None:
    sampling, history = dead_end(AcceptanceMode.COUPLED, temperature)
    sampling = replace(sampling, logit_bias=((0, -3.0),))
    tree = TokenTree()
    if is_drafted:
        first = 1 << 24
        chain = (
            Node(first, 0, 1, 0.9, NodeKind.LISTED),
            Node(first | 1, first, 1, 0.9, NodeKind.LISTED),
        )
        tree.grow(Chunk(chain))
    subtree = tree.select(4)
    noise = PhiloxNoise(3)
    accepted = accept(subtree, rows_with_a_dead_end(subtree), sampling, noise, 2, history)
    assert (accepted.path, accepted.token) == ((), 1)
    after = history.after((1,))
    row = rows_with_a_dead_end(subtree)[-1] if is_drafted else torch.tensor([1.0, -9e9, -9e9, 0])
    row = row.masked_fill(row < -1e9, -torch.inf)
    with pytest.raises(InvalidArgumentError, match="leave nothing to emit"):
        accept(TokenTree().select(0), row[None], sampling, noise, 3, after)
