"""The exact law of a generation: whole answers of the production code, over every random outcome.

`Simulation` runs generations with random numbers that fork: drafting, delivery (perhaps late),
selection under a budget, acceptance, commit, and the next round with what survived. It knows the
seams of the production code, not what happens between them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from draft_service.frontier import Frontier
from outrider.nodes import TreeNode
from outrider.plans import DraftPart, DraftPlan
from outrider.sampling.accepting import accept
from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import DraftNoise, Noise, PhiloxNoise, Stream
from outrider.sampling.processing import distribution
from outrider.sampling.proposing import Candidate, Proposal, propose
from outrider.sampling.rules import Acceptance
from outrider.tree import Subtree, TokenTree
from outrider.types import DRAFT_INDEX_SHIFT, AcceptanceMode, Chunk, NodeKind, SamplingParams

from .forks import Outcome, RandomNumbers, outcomes
from .states import (
    Action,
    Commit,
    Deliver,
    Draft,
    Head,
    MakeOnly,
    Prefix,
    Reopen,
    Spread,
    State,
    Verify,
    chunk_of,
    delivered,
    prefixes,
    reopened,
)

Law = Mapping[Prefix, float]
Rows = Callable[[Prefix], Tensor]
"""A distribution, float64 [vocab], after each prefix of emitted tokens."""

REJECTION = SamplingParams(mode=AcceptanceMode.REJECTION)
BLOCK = SamplingParams(mode=AcceptanceMode.BLOCK)

IDS_PER_ACTION = 256


class Propose(Protocol):
    """What a draft proposes after a prefix."""

    def __call__(self, noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal: ...


def production_draft(
    q: Rows,
    *,
    width: int = 1,
    top_k: int = 64,
    sampling: SamplingParams = REJECTION,
    history: History = NO_HISTORY,
) -> Propose:
    """A draft that proposes with the production code; `history` is the one before the answer."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        return propose(
            q(prefix).log(),
            sampling,
            noise,
            position=len(prefix),
            width=width,
            top_k=top_k,
            draw_index=draw_index,
            history=history.after(prefix),
        )

    return run


def drawing_draft(q: Rows, *, count: int) -> Propose:
    """A draft that draws up to `count` tokens without replacement from one float32 row."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        row = q(prefix).to(torch.float32).to(torch.float64)
        ids = tuple(row.nonzero().flatten().tolist())
        left = row.clone()
        candidates: list[Candidate] = []
        for index in range(min(count, len(ids))):
            token = noise.choose(left, len(prefix), Stream.DRAFT, draw_index + index)
            left[token] = 0.0
            candidates.append(Candidate(token, float(row[token]), NodeKind.SAMPLED))
        return Proposal(tuple(candidates), ids, tuple(row[list(ids)].tolist()))

    return run


def listing_draft(tokens: Callable[[Prefix], Sequence[int]]) -> Propose:
    """A draft that lists tokens and calls each of them likely."""

    def run(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        return Proposal(tuple(Candidate(t, 0.9, NodeKind.LISTED) for t in tokens(prefix)))

    return run


Accept = Callable[[Subtree, Tensor, SamplingParams, Noise, int, History], Acceptance]
Select = Callable[[TokenTree, int], Subtree]
Send = Callable[[Chunk], Chunk]


@dataclass(frozen=True)
class Simulation:
    """A target, its drafts and a schedule that is repeated until `length` tokens are emitted, or a
    token that ends the text or completes its grammar.

    The schedule knows no tokens. `history` is the one before the first token. `accept`, `select`
    and `send` are the production steps; a test that plants a bug swaps one of them, or a draft.
    """

    target: Rows
    drafts: tuple[Propose, ...]
    schedule: tuple[Action, ...]
    length: int
    sampling: SamplingParams = REJECTION
    history: History = NO_HISTORY
    capacity: int = 4096
    accept: Accept = accept
    select: Select = TokenTree.select
    send: Send = lambda chunk: chunk

    def law(self) -> Law:
        """The exact joint law of the first `length` emitted tokens."""
        return _Enumeration(self).run()

    def tokens(self, noise: PhiloxNoise) -> Prefix:
        """The tokens of one generation with the random numbers of a real request."""
        (tokens,) = _Enumeration(self, noise).run()
        return tokens

    def expected_law(self) -> Law:
        """The product of the target's conditionals, as the request asks for them."""
        law: dict[Prefix, float] = {}
        texts: list[tuple[Prefix, float]] = [((), 1.0)]
        while texts:
            tokens, probability = texts.pop()
            if self.text(tokens) is not None:
                law[tokens] = probability
                continue
            logits = self.target(tokens).log()
            p = distribution(logits, self.sampling, self.history.after(tokens)).tolist()
            texts += [((*tokens, x), probability * chance) for x, chance in enumerate(p) if chance]
        return law

    def text(self, emitted: Prefix) -> Prefix | None:
        """The whole text that `emitted` begins with, None where more has to come."""
        grammar = self.history.grammar
        for count, token in enumerate(emitted[: self.length], start=1):
            grammar = None if grammar is None else grammar.after(token)
            if token in self.history.ends or (grammar is not None and grammar.is_finished):
                return emitted[:count]
        return emitted[: self.length] if len(emitted) >= self.length else None

    def total_variation(self) -> float:
        """Distance of the law from the target's."""
        return total_variation(self.law(), self.expected_law())

    def deviation(self) -> float:
        """Largest difference of the law from the target's, over all token sequences."""
        law, expected = self.law(), self.expected_law()
        return max(abs(law.get(t, 0.0) - expected.get(t, 0.0)) for t in {*law, *expected})


@lru_cache(maxsize=4096)
def first_child(proposal: Proposal) -> int:
    """Index of the candidate below which a draft with one path goes on, where it would."""
    first_id = 1 << DRAFT_INDEX_SHIFT
    tree = TokenTree()
    tree.grow(chunk_of(proposal, 0, first_id))
    frontier = Frontier(lambda node: not node.children)
    frontier.restart(tree.root, DraftPlan(2, part=DraftPart.CHAIN))
    [spot] = frontier.best(1)
    return spot.node.ids[0] - first_id


def total_variation(one: Law, other: Law) -> float:
    """Half the sum of absolute differences."""
    return sum(abs(one.get(t, 0.0) - other.get(t, 0.0)) for t in {*one, *other}) / 2


class _Enumeration:
    """Runs a simulation over all outcomes at once: states with their probabilities."""

    def __init__(self, simulation: Simulation, noise: PhiloxNoise | None = None) -> None:
        self._simulation = simulation
        self._noise = noise
        self._proposals: dict[tuple[int, Prefix], list[tuple[float, Proposal]]] = {}
        self._verdicts: dict[object, list[tuple[float, Commit]]] = {}

    def run(self) -> Law:
        drafts = self._simulation.drafts
        anchors = tuple(Head(0, ()) for _ in drafts)
        start = State((), (), anchors, tuple(range(1, len(drafts) + 1)))
        states = [(1.0, start)]
        law: dict[Prefix, float] = defaultdict(float)
        step = 0
        while states:
            for action in self._simulation.schedule:
                reached: list[tuple[float, State]] = []
                for probability, state in states:
                    for chance, after in self._act(action, state, step):
                        text = self._simulation.text(after.emitted)
                        if text is not None:
                            law[text] += probability * chance
                        else:
                            reached.append((probability * chance, after))
                states = self._merged(reached) if isinstance(action, Verify) else reached
                step += 1
        return law

    def _outcomes(self, run: Callable[[RandomNumbers], Outcome]) -> list[tuple[float, Outcome]]:
        return list(outcomes(run)) if self._noise is None else [(1.0, run(self._noise))]

    def _act(self, action: Action, state: State, step: int) -> Iterator[tuple[float, State]]:
        if isinstance(action, Verify):
            yield from self._verify(state, action.budget)
        elif isinstance(action, MakeOnly):
            yield from self._make(state, action.number, action.depth, step)
        elif isinstance(action, Draft):
            for chance, after in self._make(state, action.number, action.depth, step):
                yield chance, delivered(after, action.number)
        elif isinstance(action, Spread):
            yield from self._spread(state, action, step)
        elif isinstance(action, Deliver):
            yield 1.0, delivered(state, action.number)
        elif isinstance(action, Reopen):
            yield 1.0, reopened(state, action.number)
        else:
            yield 1.0, replace(state, log=(*state.log, action))

    def _make(
        self, state: State, number: int, depth: int, step: int, made: int = 0
    ) -> Iterator[tuple[float, State]]:
        """All states after a draft has run ahead to `depth`, one proposal after the other."""
        head = state.heads[number]
        is_deep = len(head.prefix) - len(state.emitted) >= depth
        if is_deep or len(head.prefix) >= self._simulation.length:
            yield 1.0, state
            return
        first_id = state.indices[number] << DRAFT_INDEX_SHIFT | step * IDS_PER_ACTION + made
        for chance, proposal in self._propose(number, head.prefix):
            if not proposal.candidates:
                yield chance, state
                continue
            chunk = self._simulation.send(chunk_of(proposal, head.node_id, first_id))
            going_on = first_child(proposal)
            token = proposal.candidates[going_on].token
            below = Head(first_id + going_on, (*head.prefix, token))
            heads = (*state.heads[:number], below, *state.heads[number + 1 :])
            under_way = (*state.under_way, (number, chunk))
            after = replace(state, heads=heads, under_way=under_way)
            made_now = made + len(proposal.candidates)
            for further, final in self._make(after, number, depth, step, made_now):
                yield chance * further, final

    def _spread(
        self, state: State, action: Spread, step: int, made: int = 0, steps: int = 0
    ) -> Iterator[tuple[float, State]]:
        """All states after a draft has grown its tree where the production code would."""
        spot = self._spot(state, action) if steps < action.count else None
        if spot is None:
            yield 1.0, state
            return
        prefix, parent_id = spot
        number = action.number
        first_id = state.indices[number] << DRAFT_INDEX_SHIFT | step * IDS_PER_ACTION + made
        for chance, proposal in self._propose(number, prefix):
            if not proposal.candidates:
                yield chance, state
                continue
            chunk = self._simulation.send(chunk_of(proposal, parent_id, first_id))
            after = replace(state, log=(*state.log, chunk))
            made_now = made + len(proposal.candidates)
            for further, final in self._spread(after, action, step, made_now, steps + 1):
                yield chance * further, final

    def _spot(self, state: State, action: Spread) -> tuple[Prefix, int] | None:
        """Where a draft goes on next: the tokens down to there, and its name for the node."""
        own = state.indices[action.number] if action.is_alone else None
        tree = self._tree(state, own)
        ends = self._simulation.history.ends
        frontier = Frontier(lambda node: not node.children and node.token not in ends)
        depth = self._simulation.length - len(state.emitted)
        plan = DraftPlan(depth, part=action.part, min_chance=action.min_chance)
        frontier.restart(tree.root, plan)
        spots = frontier.best(1)
        if not spots:
            return None
        node = spots[0].node
        path: list[int] = []
        at: TreeNode | None = node
        while at is not None and at is not tree.root:
            path.append(at.token)
            at = at.parent
        parent_id = node.position if node is tree.root else node.ids[0]
        return (*state.emitted, *reversed(path)), parent_id

    def _propose(self, number: int, prefix: Prefix) -> list[tuple[float, Proposal]]:
        key = (number, prefix)
        if key not in self._proposals:
            draft = self._simulation.drafts[number]
            self._proposals[key] = self._outcomes(lambda noise: draft(noise, prefix, 0))
        return self._proposals[key]

    def _verify(self, state: State, budget: int) -> Iterator[tuple[float, State]]:
        subtree = self._simulation.select(self._tree(state), budget)
        assert len(subtree) <= budget
        for chance, commit in self._decide(subtree, state.emitted):
            emitted = (*state.emitted, *commit.tokens)
            tip = Head(len(emitted), emitted)
            heads = tuple(
                tip if commit.fresh or head.prefix[: len(emitted)] != emitted else head
                for head in state.heads
            )
            yield chance, replace(state, emitted=emitted, log=(*state.log, commit), heads=heads)

    def _decide(self, subtree: Subtree, emitted: Prefix) -> list[tuple[float, Commit]]:
        key = (
            emitted,
            tuple(node.token for node in subtree.nodes),
            subtree.parents,
            tuple(tuple(sorted(children.items())) for children in subtree.children),
            subtree.draws,
        )
        if key not in self._verdicts:
            simulation = self._simulation
            logits = torch.stack([simulation.target(p).log() for p in prefixes(subtree, emitted)])
            history = simulation.history.after(emitted)
            law: dict[Commit, float] = defaultdict(float)
            for chance, accepted in self._outcomes(
                lambda noise: simulation.accept(
                    subtree, logits, simulation.sampling, noise, len(emitted), history
                )
            ):
                tokens = (subtree.nodes[row - 1].token for row in accepted.path)
                law[Commit((*tokens, accepted.token), accepted.fresh)] += chance
            self._verdicts[key] = [(chance, commit) for commit, chance in law.items()]
        return self._verdicts[key]

    def _tree(self, state: State, own: int | None = None) -> TokenTree:
        """The verifier's tree; with `own` a draft's that knows only what that index drafted."""
        tree = TokenTree(capacity=self._simulation.capacity)
        for event in state.log:
            if isinstance(event, Chunk):
                owners = {node.id >> DRAFT_INDEX_SHIFT for node in event.nodes}
                if own is None or own in owners:
                    tree.grow(event)
            else:
                tree.commit(event.tokens, fresh=event.fresh)
        return tree

    def _merged(self, states: Sequence[tuple[float, State]]) -> list[tuple[float, State]]:
        """States that differ only in their dead past are one; not while chunks are under way."""
        merged: dict[object, float] = defaultdict(float)
        of_key: dict[object, State] = {}
        for probability, state in states:
            key: object = state if state.under_way else (state.heads, self._living(state))
            of_key.setdefault(key, state)
            merged[key] += probability
        return [(merged[key], state) for key, state in of_key.items()]

    def _living(self, state: State) -> object:
        everything = self._tree(state).select(10**6)
        nodes = tuple((n.token, tuple(n.ids), n.chance) for n in everything.nodes)
        return state.emitted, state.indices, nodes, everything.parents, everything.draws
