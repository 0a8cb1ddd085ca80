"""Draft sessions in every mode: as good as new after any history, the cache always in order."""

from random import Random

import pytest
from draft.drafted import (
    GREEDY,
    VOCAB,
    FirstGuesses,
    commit,
    drafted,
    opening,
    path_of,
    random_verdict,
    run,
    step,
)
from draft.gated import scripted

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.errors import InvalidArgumentError, StateMismatchError
from outrider.models.base import TIP
from outrider.plans import DraftPlan
from outrider.types import AcceptanceMode, DraftCommit, Node, NodeKind, SamplingParams

EOS = 7
CONTEXT = 40
MODEL = f"vocab={VOCAB},context={CONTEXT}"
HASH = scripted(MODEL).info.tokenizer_hash
MODES = {
    "greedy": GREEDY,
    "coupled": SamplingParams(seed=5),
    "match": SamplingParams(seed=5, mode=AcceptanceMode.MATCH),
    "rejection": SamplingParams(seed=5, mode=AcceptanceMode.REJECTION),
}
REPEATABLE = ["greedy", "coupled", "match"]
"""Modes whose proposals are a function of seed, context and position; rejection's draws are not."""


class History:
    """Random passes and commits, with what must hold looked at after each."""

    def __init__(self, sampling: SamplingParams, width: int, seed: int) -> None:
        self.random = Random(seed)
        self.width = width
        self.drafter = Drafter(scripted(MODEL))
        self.drafter.chances = FirstGuesses()
        self.session = self.drafter.open(
            opening(
                sampling=sampling,
                plan=DraftPlan(4, width, proposal_top_k=4),
                ends=[EOS],
                tokenizer_hash=HASH,
            )
        )
        self.seen: set[int] = set()

    def go_on(self) -> None:
        for _ in range(self.random.randrange(8)):
            nodes = step(self.drafter, self.session, budget=self.random.randrange(1, 4))
            self.look_at(nodes or ())
        plan = None
        if self.random.random() < 0.3:
            plan = DraftPlan(self.random.randrange(6), self.width, proposal_top_k=4)
        tokens = random_verdict(self.session, self.random) if self.random.random() < 0.9 else []
        commit(self.drafter, self.session, *tokens, plan=plan)
        self.look_at(())

    def look_at(self, nodes: tuple[Node, ...]) -> None:
        session = self.session
        for node in nodes:
            assert node.id not in self.seen, "a node id was used twice"
            self.seen.add(node.id)
            inside = session.tree.node(node.id)
            assert inside is not None
            depth = len(path_of(inside))
            assert depth <= session.plan.depth
            assert session.length + depth <= CONTEXT
            assert EOS not in path_of(inside)[:-1], "drafted below a proposed end"
        self.look_at_cache()

    def look_at_cache(self) -> None:
        session, sequence = self.session, self.session.sequence
        whole = [*session.opening.prompt_ids, *session.tree.committed]
        assert sequence.tokens == whole[: len(sequence.tokens)]
        assert set(sequence.nodes) == set(session.numbers.values())
        for node, number in session.numbers.items():
            assert session.tree.node(node.ids[0]) is node
            fed = tuple(sequence.nodes[n].token for n in sequence.path(number))
            assert fed == path_of(node)
        if session.numbers:
            assert sequence.tokens == whole


def fresh_copy(session: DraftSession) -> dict[tuple[int, ...], float]:
    """What a session that is opened now, with the same emitted tokens and plan, proposes."""
    drafter = Drafter(scripted(MODEL))
    fresh = drafter.open(
        opening(
            session.opening.prompt_ids,
            tuple(session.tree.committed),
            plan=session.plan,
            sampling=session.opening.sampling,
            ends=session.opening.end_token_ids,
            tokenizer_hash=HASH,
        )
    )
    run(drafter, fresh)
    return drafted(fresh)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("mode", REPEATABLE)
def test_after_any_history_the_proposals_are_those_of_a_new_session(mode: str, width: int) -> None:
    for seed in range(25):
        history = History(MODES[mode], width, seed)
        for _ in range(8):
            history.go_on()
            session = history.session
            if history.random.random() < 0.5 or session.length >= CONTEXT:
                continue
            run(history.drafter, session)
            history.look_at_cache()
            depth = session.plan.depth
            shown = {path: q for path, q in drafted(session).items() if len(path) <= depth}
            assert shown == fresh_copy(session), f"seed {seed}"


@pytest.mark.parametrize("width", [1, 3])
def test_drawn_proposals_keep_ids_limits_and_cache_in_order_too(width: int) -> None:
    for seed in range(25):
        history = History(MODES["rejection"], width, seed)
        for _ in range(8):
            history.go_on()


def new(argument: str = f"vocab={VOCAB}", **options: object) -> tuple[Drafter, DraftSession]:
    drafter = Drafter(scripted(argument))
    options.setdefault("tokenizer_hash", drafter.model.info.tokenizer_hash)
    return drafter, drafter.open(opening(**options))  # type: ignore[arg-type]


def state(session: DraftSession) -> object:
    return (
        session.wishes(100),
        list(session.tree.committed),
        drafted(session),
        dict(session.numbers),
        list(session.sequence.tokens),
        dict(session.sequence.nodes),
        session.plan,
    )


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (DraftCommit(1, (2,), DraftPlan(1)), StateMismatchError, "starts after 1 .* knows 0"),
        (DraftCommit(0, (1, VOCAB), DraftPlan(1)), InvalidArgumentError, "outside the draft's"),
    ],
)
def test_a_commit_that_cannot_be_followed_is_refused_and_harms_nothing(
    wrong: DraftCommit, error: type[Exception], message: str
) -> None:
    drafter, session = new()
    run(drafter, session)
    before = state(session)
    with pytest.raises(error, match=message):
        drafter.commit(session, wrong)
    assert state(session) == before


def test_a_path_that_was_fed_costs_no_token_again() -> None:
    drafter, session = new()
    chain = [node.token for node in run(drafter, session)]
    commit(drafter, session, *chain[:3])
    assert session.sequence.tokens == [1, 2, 3, *chain[:3]]
    task = session.task(100)
    assert task is not None
    assert (task.committed, task.tokens, task.feed.parents) == (0, (chain[3],), (TIP,))


def test_a_path_that_ends_at_a_node_without_cache_runs_that_node_and_the_next_token() -> None:
    drafter, session = new()
    chain = [node.token for node in run(drafter, session)]
    commit(drafter, session, *chain, 5)
    assert session.sequence.tokens == [1, 2, 3, *chain[:3]]
    task = session.task(100)
    assert task is not None
    assert (task.committed, task.tokens) == (2, (chain[3], 5))


def test_an_alternative_that_the_verdict_chose_is_run_as_a_token() -> None:
    drafter, session = new(plan=DraftPlan(3, width=2))
    nodes = run(drafter, session)
    first = next(n for n in nodes[:2] if n.id == nodes[2].parent_id)
    alternative = next(n for n in nodes[2:4] if session.tree.node(n.id) not in session.numbers)
    commit(drafter, session, first.token, alternative.token)
    assert session.sequence.tokens == [1, 2, 3, first.token]
    assert not session.sequence.nodes
    task = session.task(100)
    assert task is not None
    assert task.tokens == (alternative.token,)


def test_a_token_that_nobody_drafted_starts_anew_below_it() -> None:
    drafter, session = new()
    chain = run(drafter, session)
    unknown = next(t for t in range(VOCAB) if t != chain[0].token)
    commit(drafter, session, unknown)
    task = session.task(100)
    assert task is not None
    assert task.tokens == (unknown,)
    assert session.tree.pending == 0
    assert run(drafter, session)[0].parent_id == 1, "it hangs off the tip after one token"


def test_a_plan_that_comes_without_tokens_is_followed() -> None:
    drafter, session = new(plan=DraftPlan(0))
    commit(drafter, session, 4)
    assert run(drafter, session) == []
    commit(drafter, session, plan=DraftPlan(2))
    assert len(run(drafter, session)) == 2
    commit(drafter, session, plan=DraftPlan(0))
    assert run(drafter, session) == []
    commit(drafter, session, plan=DraftPlan(5))
    assert len(run(drafter, session)) == 3


def test_nothing_is_drafted_below_a_proposed_end_until_a_verdict_goes_past_it() -> None:
    without_end = run(*new("vocab=8,seed=3"))
    end = without_end[1].token
    assert end != without_end[0].token
    drafter, session = new("vocab=8,seed=3", ends=[end])
    chain = run(drafter, session)
    assert [node.token for node in chain] == [without_end[0].token, end]
    commit(drafter, session, chain[0].token)
    assert run(drafter, session) == [], "the end is still the best guess"
    commit(drafter, session, end)
    assert run(drafter, session), "the target went on past the end"


def test_no_token_is_drafted_that_the_target_does_not_know() -> None:
    drafter, session = new("vocab=64", vocab_size=4, plan=DraftPlan(8, 4))
    assert {node.token for node in run(drafter, session)} <= {0, 1, 2, 3}


@pytest.mark.parametrize("mode", MODES)
def test_only_rejection_draws_and_then_one_child_a_node(mode: str) -> None:
    drafter, session = new(sampling=MODES[mode], plan=DraftPlan(3, 2))
    kinds = [node.kind for node in run(drafter, session)]
    assert kinds.count(NodeKind.SAMPLED) == (3 if mode == "rejection" else 0)
