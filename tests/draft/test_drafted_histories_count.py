"""Proposals are conditioned on what was drafted above them: penalties, lengths, grammars, ends."""

import pytest
from draft.drafted import GREEDY, commit, drafted, opening, run, step
from draft.gated import scripted

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.errors import InvalidArgumentError
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.plans import DraftPlan
from outrider.sampling.history import History
from outrider.sampling.processing import process
from outrider.types import AcceptanceMode, Grammar, Node, NodeKind, SamplingParams

PENALISED = SamplingParams(
    temperature=0, seed=1, repetition_penalty=1.5, frequency_penalty=2.0, presence_penalty=2.0
)
REJECTION = SamplingParams(seed=5, mode=AcceptanceMode.REJECTION)


def start(model: str = "vocab=16,order=1", **options: object) -> tuple[Drafter, DraftSession]:
    drafter = Drafter(scripted(model))
    options.setdefault("tokenizer_hash", drafter.model.info.tokenizer_hash)
    options.setdefault("vocab_size", 16)
    options.setdefault("plan", DraftPlan(6))
    return drafter, drafter.open(opening(**options))  # type: ignore[arg-type]


def greedy_by_hand(context: list[int], history: History, count: int) -> list[int]:
    """A chain worked out without a session: every row processed with all that is above it."""
    tokens: list[int] = []
    for _ in range(count):
        row = scripted_logits(ScriptedLaw(vocab=16, order=1), [[*context, *tokens]])[0]
        tokens.append(int(process(row, PENALISED, history.after(tokens)).argmax()))
    return tokens


def test_trap_5_penalties_see_the_drafted_history_at_every_node() -> None:
    drafter, session = start(sampling=PENALISED, emitted=(4, 4))
    history = History.of(PENALISED, (1, 2, 3)).after((4, 4))
    expected = greedy_by_hand([1, 2, 3, 4, 4], history, 6)
    got = [node.token for node in run(drafter, session)]
    assert got == expected
    assert got != [node.token for node in run(*start(sampling=GREEDY, emitted=(4, 4)))]


def test_after_a_commit_the_history_is_the_committed_one() -> None:
    drafter, session = start(sampling=PENALISED)
    chain = [node.token for node in run(drafter, session)]
    other = next(t for t in range(16) if t != chain[2])
    commit(drafter, session, *chain[:2], other)
    run(drafter, session)
    history = History.of(PENALISED, (1, 2, 3)).after((*chain[:2], other))
    expected = greedy_by_hand([1, 2, 3, *chain[:2], other], history, 6)
    assert max(drafted(session), key=len) == tuple(expected)


def test_no_end_is_proposed_before_the_shortest_length_and_none_is_drafted_below() -> None:
    drafter, session = start("vocab=2,order=0", vocab_size=2, prompt=(0, 1))
    favourite = run(drafter, session)[0].token
    drafter, session = start(
        "vocab=2,order=0",
        vocab_size=2,
        prompt=(0, 1),
        emitted=(1 - favourite,),
        ends=[favourite],
        min_tokens=4,
    )
    assert [node.token for node in run(drafter, session)] == [1 - favourite] * 3 + [favourite]
    assert session.task(100) is None


def test_the_targets_ends_count_and_not_the_drafts_own() -> None:
    model = "vocab=16,order=1,seed=2"
    free = [node.token for node in run(*start(model))]
    assert free[0] != free[1]
    assert [n.token for n in run(*start(f"{model},eos={free[1]}"))] == free
    assert [n.token for n in run(*start(model, ends=[free[1]]))] == free[:2]


def text_of(session: DraftSession, drafter: Drafter) -> set[bytes]:
    tokenizer = drafter.model.tokenizer
    assert tokenizer is not None
    return {
        b"".join(tokenizer.vocabulary.pieces[token] for token in path) for path in drafted(session)
    }


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=3), REJECTION])
def test_a_grammar_is_followed_down_every_path(sampling: SamplingParams) -> None:
    grammar = Grammar(choice=("abcdef", "fedcba"))
    constrained = SamplingParams(
        temperature=sampling.temperature, seed=3, mode=sampling.mode, grammar=grammar
    )
    drafter, session = start(sampling=constrained, plan=DraftPlan(4, 2), ends=[15])
    run(drafter, session)
    texts = text_of(session, drafter)
    assert all(b"abcdef".startswith(t) or b"fedcba".startswith(t) for t in texts)
    assert max(map(len, texts)) == 4


def test_where_the_grammar_allows_nothing_more_nothing_is_proposed() -> None:
    grammar = SamplingParams(temperature=0, seed=1, grammar=Grammar(choice=("ab",)))
    drafter, session = start(sampling=grammar)
    assert [node.token for node in run(drafter, session)] == [0, 1]
    assert session.task(100) is None
    commit(drafter, session, 0, 1, 5)
    assert run(drafter, session) == [], "the target went astray; nothing fits"


def test_a_draft_on_any_ids_that_was_told_nothing_drafts_without_the_grammar() -> None:
    grammar = SamplingParams(temperature=0, seed=1, grammar=Grammar(choice=("ab",)))
    drafter, session = start("vocab=16,order=1,tokenizer=any", sampling=grammar)
    free = run(*start("vocab=16,order=1,tokenizer=any"))
    assert [n.token for n in run(drafter, session)] == [n.token for n in free]


def test_a_grammar_that_is_none_is_refused() -> None:
    broken = SamplingParams(seed=1, grammar=Grammar(regex="("))
    with pytest.raises(InvalidArgumentError, match="grammar cannot be used"):
        start(sampling=broken)


def below_tip(session: DraftSession) -> list[int]:
    return [node.token for node in session.tree.root.children.values()]


@pytest.mark.parametrize("accepted", [0, 1, 2, 3, 4])
def test_a_fresh_commit_drops_what_was_drafted_below_the_tip_and_goes_on(accepted: int) -> None:
    drafter, session = start(sampling=REJECTION, plan=DraftPlan(4))
    chain = run(drafter, session)
    assert [node.kind for node in chain] == [NodeKind.SAMPLED] * 4
    tokens = [node.token for node in chain[:accepted]]
    if accepted < 4:
        tokens.append(chain[accepted].token)  # the last token is drafted, too: its path was fed
    commit(drafter, session, *tokens, fresh=True)
    assert below_tip(session) == []
    assert session.sequence.tokens == [1, 2, 3, *tokens[:-1]]
    nodes = step(drafter, session)
    assert nodes is not None
    assert [node.parent_id for node in nodes] == [len(tokens)]
    assert nodes[0].id not in {node.id for node in chain}
    assert session.sequence.tokens == [1, 2, 3, *tokens]


def test_fresh_draws_are_new_draws() -> None:
    """With the same numbers again, the tokens that the verifier has looked at would come back."""
    seen = set()
    for seed in range(20):
        sampling = SamplingParams(seed=seed, mode=AcceptanceMode.REJECTION)
        drafter, session = start("vocab=16,order=0,sharpness=0", sampling=sampling)
        first, second, *_ = run(drafter, session)
        commit(drafter, session, first.token, fresh=True)
        again: tuple[Node, ...] | None = step(drafter, session)
        assert again
        seen.add(again[0].token == second.token)
    assert seen == {True, False}, "as often as chance has it, not always"
