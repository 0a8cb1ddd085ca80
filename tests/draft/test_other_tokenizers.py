"""Draft sessions for a target of another tokenizer: the target's ids outside, the draft's inside.

`scripted:...,shift=k` is the same law of symbols with other ids: id i is symbol i + k.
"""

from collections.abc import Sequence
from random import Random

import pytest
import torch
from draft.drafted import GREEDY, commit, drafted, opening, path_of, random_verdict, run, step
from draft.gated import scripted
from models.pairs import answer, tell
from sampling.forks import ForkingNoise, outcomes

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.models.scripted import ScriptedLaw, ScriptedModel, scripted_logits
from outrider.plans import DraftPlan
from outrider.sampling.accepting import accept
from outrider.sampling.warping import warp
from outrider.tree import TokenTree
from outrider.types import AcceptanceMode, Chunk, SamplingParams

VOCAB = 12
SHIFT = 4
SHARED = range(SHIFT, VOCAB)
TARGET = f"vocab={VOCAB},order=1,seed=3"
OTHER = f"vocab={VOCAB},order=1,seed=3,shift={SHIFT},context=40"
MODES = {
    "greedy": GREEDY,
    "coupled": SamplingParams(seed=5),
    "match": SamplingParams(seed=5, mode=AcceptanceMode.MATCH),
    "rejection": SamplingParams(seed=5, mode=AcceptanceMode.REJECTION),
    "block": SamplingParams(seed=5, mode=AcceptanceMode.BLOCK),
}


def drafter_for(target: ScriptedModel, draft: str = OTHER) -> Drafter:
    drafter = Drafter(scripted(draft))
    tell(drafter, target)
    return drafter


def start(
    sampling: SamplingParams, width: int = 1, **options: object
) -> tuple[Drafter, DraftSession]:
    target = scripted(TARGET)
    drafter = drafter_for(target)
    hash_ = target.info.tokenizer_hash
    session = drafter.open(
        opening(  # type: ignore[arg-type]
            (5, 6, 2),
            sampling=sampling,
            plan=DraftPlan(4, width),
            tokenizer_hash=hash_,
            vocab_size=VOCAB,
            **options,
        )
    )
    return drafter, session


def read(tokens: Sequence[int]) -> list[int]:
    """The target's tokens in the draft's ids: symbols that it lacks leave nothing."""
    return [token - SHIFT for token in tokens if token in SHARED]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_trap_8_after_any_history_only_shared_tokens_are_drafted_and_the_cache_is_in_order(
    mode: str, width: int
) -> None:
    for seed in range(8):
        random = Random(seed)
        drafter, session = start(MODES[mode], width)
        for _ in range(8):
            for _ in range(random.randrange(6)):
                for node in step(drafter, session, budget=random.randrange(1, 4)) or ():
                    assert node.token in SHARED
            tokens = random_verdict(session, random)
            commit(drafter, session, *tokens, fresh=random.random() < 0.2)
            context = read([5, 6, 2, *session.tree.committed])
            assert session.model_ids == context
            assert session.sequence.tokens == context[: len(session.sequence.tokens)]
            for node, number in session.numbers.items():
                assert session.tree.node(node.ids[0]) is node
                fed = [session.sequence.nodes[n].token for n in session.sequence.path(number)]
                assert fed == read(path_of(node))
        drafter.close(session)
        assert drafter.model.cells.pinned == 0  # type: ignore[attr-defined]


def test_proposals_are_the_drafts_own_row_on_the_shared_tokens() -> None:
    sampling = SamplingParams(seed=5, mode=AcceptanceMode.REJECTION, top_p=0.9)
    drafter, session = start(sampling, emitted=(7,))
    task = session.task(100)
    assert task is not None
    [chunk] = drafter.step([(session, task)])
    assert isinstance(chunk, Chunk)
    symbols = scripted_logits(ScriptedLaw(vocab=VOCAB + SHIFT, order=1, seed=3), [[7]])[0]
    expected = warp(symbols[list(SHARED)], sampling)
    [row] = chunk.rows
    got = torch.zeros(len(SHARED), dtype=torch.float64)
    got[[token - SHIFT for token in row.ids]] = torch.tensor(row.probs, dtype=torch.float64)
    assert torch.allclose(got, expected, atol=1e-6)


def test_a_token_that_the_draft_cannot_write_stops_it_until_the_next() -> None:
    drafter, session = start(GREEDY)
    run(drafter, session)
    foreign = 0
    commit(drafter, session, foreign)
    if not session.task(100):
        commit(drafter, session, 7)
    nodes = run(drafter, session)
    assert nodes
    assert session.model_ids == read([5, 6, 2, foreign, *session.tree.committed[1:]])


def test_the_context_is_counted_in_the_drafts_own_tokens() -> None:
    drafter, session = start(GREEDY)
    commit(drafter, session, *[0] * 60, 7)
    assert session.done_reason == ""
    assert run(drafter, session), "what it cannot write takes no room"
    commit(drafter, session, *[7] * 40)
    assert "context is 40" in session.done_reason
    assert run(drafter, session) == []


def test_a_session_that_is_opened_again_goes_on_as_the_first() -> None:
    drafter, session = start(GREEDY)
    commit(drafter, session, 7, 0, 9)
    run(drafter, session)
    again = start(GREEDY, emitted=(7, 0, 9))
    run(*again)
    assert drafted(again[1]) == drafted(session)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("mode", ["greedy", "coupled"])
def test_the_text_is_the_targets_own(mode: str, width: int) -> None:
    target = scripted(TARGET)
    drafter = drafter_for(target)
    for seed in range(4):
        sampling = SamplingParams(MODES[mode].temperature, seed=seed)
        alone = answer(target, (5, 6, 2), 24, sampling)
        helped = answer(target, (5, 6, 2), 24, sampling, drafter, DraftPlan(4, width))
        assert helped.tokens[:24] == alone.tokens[:24]
        assert helped.accepted > 0
        assert helped.passes < alone.passes


Law = dict[tuple[int, ...], float]
SMALL = ScriptedLaw(vocab=4, order=1, seed=3)
SMALL_OTHERS = ["vocab=4,order=1,seed=3,shift=2,drift=0.5", "vocab=5,order=1,seed=8,shift=1"]


def round_law(draft: str, sampling: SamplingParams, width: int) -> Law:
    """The law of the first two tokens: one round of the real draft and the real rules, every random
    outcome; what a round does not emit is the target's own."""
    target = scripted("vocab=4,order=1,seed=3")
    plan = DraftPlan(2, width, proposal_top_k=2)

    def one(noise: ForkingNoise) -> tuple[int, ...]:
        drafter = drafter_for(target, draft)
        session = drafter.open(
            opening(
                (3,),
                sampling=sampling,
                plan=plan,
                tokenizer_hash=target.info.tokenizer_hash,
                vocab_size=4,
            )
        )
        session.noise = noise  # type: ignore[assignment]
        tree = TokenTree()
        while (task := session.task(100)) is not None:
            [chunk] = drafter.step([(session, task)])
            if isinstance(chunk, Chunk):
                tree.grow(chunk)
        subtree = tree.select(8)
        prefixes: list[list[int]] = [[3]]
        for node, parent in zip(subtree.nodes, subtree.parents, strict=True):
            prefixes.append([*prefixes[parent], node.token])
        verdict = accept(subtree, scripted_logits(SMALL, prefixes), sampling, noise, 1)
        return (*(subtree.nodes[row - 1].token for row in verdict.path), verdict.token)

    law: Law = {}
    for chance, tokens in outcomes(one):
        for rest, p in target_law(sampling, (3, *tokens), max(2 - len(tokens), 0)).items():
            text = (*tokens, *rest)[:2]
            law[text] = law.get(text, 0.0) + chance * p
    return law


def target_law(sampling: SamplingParams, context: tuple[int, ...], count: int) -> Law:
    """The law of the target's next `count` tokens."""
    if count == 0:
        return {(): 1.0}
    p = warp(scripted_logits(SMALL, [context])[0], sampling).tolist()
    return {
        (token, *rest): chance * more
        for token, chance in enumerate(p)
        for rest, more in target_law(sampling, (*context, token), count - 1).items()
    }


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("mode", [AcceptanceMode.REJECTION, AcceptanceMode.BLOCK])
@pytest.mark.parametrize("draft", SMALL_OTHERS)
def test_trap_8_the_law_is_the_targets_with_a_draft_of_another_vocabulary(
    draft: str, mode: AcceptanceMode, width: int
) -> None:
    sampling = SamplingParams(seed=0, mode=mode, temperature=0.8)
    law = round_law(draft, sampling, width)
    expected = target_law(sampling, (3,), 2)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert {text: law.get(text, 0.0) for text in expected} == pytest.approx(expected, abs=1e-6)
