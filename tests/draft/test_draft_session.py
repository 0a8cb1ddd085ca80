"""A draft session against a slow, obvious model: what is alive below the tip after any commits.

Greedy proposals are a function of the context, so whether a branch was carried over or drafted
anew cannot be told from its content: the obvious model just walks down from the tip.
"""

from collections.abc import Sequence

import pytest
from draft.drafted import FirstGuesses
from hypothesis import given, settings
from hypothesis import strategies as st

from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.errors import StateMismatchError
from outrider.models.registry import load_model
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.plans import DraftPlan
from outrider.tree import TokenTree, TreeNode
from outrider.types import Chunk, DraftCommit, DraftOpening, SamplingParams

VOCAB = 8
EOS = 3
CONTEXT = 24
LAW = ScriptedLaw(vocab=VOCAB, seed=2)
PROMPT = (1, 2)


class Bench:
    """A session on the scripted model; every chunk also grows a tree as the engine has it."""

    def __init__(self, depth: int, width: int, prompt: Sequence[int] = PROMPT, eos: int = EOS):
        self.model = load_model(f"scripted:vocab={VOCAB},seed=2,context={CONTEXT}")
        self.drafter = Drafter(self.model)
        self.drafter.chances = FirstGuesses()
        opening = DraftOpening(
            "s",
            1,
            tuple(prompt),
            (),
            SamplingParams(temperature=0, seed=0),
            DraftPlan(depth, width),
            self.model.info.tokenizer_hash,
            VOCAB,
            frozenset([eos]),
        )
        self.session: DraftSession = self.drafter.open(opening)
        self.tree = TokenTree()
        self.seen_ids: set[int] = set()

    def step(self, budget: int = 512) -> bool:
        """One draft pass; False where there is nothing to do."""
        task = self.session.task(budget)
        if task is None:
            return False
        [chunk] = self.drafter.step([(self.session, task)])
        if isinstance(chunk, Chunk):
            ids = {node.id for node in chunk.nodes}
            assert len(ids) == len(chunk.nodes)
            assert not ids & self.seen_ids, "an id was used twice"
            self.seen_ids |= ids
            growth = self.tree.grow(chunk)
            assert growth.added == len(chunk.nodes), "a draft in step sends nothing in vain"
        else:
            assert chunk is None, chunk
        return True

    def run(self, passes: int = 100) -> None:
        for _ in range(passes):
            if not self.step():
                return

    def commit(self, tokens: Sequence[int], depth: int | None = None) -> None:
        plan = None if depth is None else DraftPlan(depth, self.session.plan.width)
        base = len(self.tree.committed)
        self.drafter.commit(self.session, DraftCommit(base, tuple(tokens), plan))
        self.tree.commit(tokens)

    @property
    def context(self) -> list[int]:
        return [*self.session.opening.prompt_ids, *self.tree.committed]

    def alive(self) -> list[list[int]]:
        """The tokens of each level below the tip, most likely first; only chains go on."""
        return alive(self.tree.root)


def alive(root: TreeNode) -> list[list[int]]:
    levels = []
    children = list(root.children.values())
    while children:
        levels.append([child.token for child in sorted(children, key=lambda c: -c.chance)])
        going_on = [child for child in children if child.children]
        assert len(going_on) <= 1
        children = list(going_on[0].children.values()) if going_on else []
    return levels


def obvious(context: Sequence[int], depth: int, width: int, eos: int = EOS) -> list[list[int]]:
    """What should be alive: walk down along the most likely tokens, as deep as allowed."""
    levels: list[list[int]] = []
    walked = list(context)
    while len(levels) < depth and len(walked) < CONTEXT:
        top = scripted_logits(LAW, [walked])[0].topk(width).indices.tolist()
        levels.append(top)
        if top[0] == eos:
            break
        walked.append(top[0])
    return levels


@st.composite
def commits(draw: st.DrawFn) -> tuple[int, int, int, int | None, int]:
    """How many drafted tokens to follow, then which child (or a foreign token), and the plan."""
    return (
        draw(st.integers(0, 4)),
        draw(st.integers(0, 3)),
        draw(st.integers(0, VOCAB - 1)),
        draw(st.none() | st.integers(0, 5)),
        draw(st.integers(0, 4)),
    )


@settings(max_examples=150, deadline=None)
@given(
    depth=st.integers(0, 5),
    width=st.integers(1, 3),
    story=st.lists(commits(), max_size=8),
    budget=st.sampled_from([1, 2, 512]),
)
def test_what_is_alive_depends_on_the_context_and_the_plan_alone(
    depth: int, width: int, story: list[tuple[int, int, int, int | None, int]], budget: int
) -> None:
    bench = Bench(depth, width)
    carried = 0
    for follow, child, foreign, new_depth, passes in story:
        for _ in range(passes):
            bench.step(budget)
        levels = bench.alive()
        tokens = [level[0] for level in levels[:follow]]
        next_level = levels[len(tokens)] if len(tokens) < len(levels) else []
        tokens.append(next_level[child] if child < len(next_level) else foreign)
        if len(bench.context) + len(tokens) >= CONTEXT:
            break
        bench.commit(tokens, new_depth)
        depth = depth if new_depth is None else new_depth
        carried = len(bench.alive())
    bench.run()
    expected = obvious(bench.context, max(depth, carried), width)
    got = bench.alive()
    if carried > depth:
        # More than a smaller plan would draft is kept, and not added to.
        assert got == expected[: len(got)]
        assert len(got) == min(carried, len(expected))
    else:
        assert got == expected
    assert bench.session.sequence.tokens == bench.context[: len(bench.session.sequence.tokens)]
    bench.drafter.close(bench.session)
    assert bench.model.cells.pinned == 0  # type: ignore[attr-defined]


def test_a_path_that_was_fed_needs_no_pass_again() -> None:
    bench = Bench(depth=4, width=1, eos=7)
    bench.run()
    chain = [level[0] for level in bench.alive()]
    bench.commit(chain[:2])
    assert bench.session.sequence.tokens == [*PROMPT, *chain[:2]]
    task = bench.session.task(512)
    assert task is not None
    assert (task.committed, task.tokens) == (0, (chain[3],))


def test_a_path_that_ends_at_the_unfed_leaf_is_fed_from_the_tip() -> None:
    bench = Bench(depth=3, width=1, eos=7)
    bench.run()
    chain = [level[0] for level in bench.alive()]
    bench.commit(chain)
    task = bench.session.task(512)
    assert task is not None
    assert task.tokens == (chain[-1],)
    assert task.committed == 1
    bench.run()
    assert bench.alive() == obvious(bench.context, 3, 1, eos=7)


def test_nothing_is_done_after_a_drafted_end_of_sequence() -> None:
    context = next(
        [a, b] for a in range(VOCAB) for b in range(VOCAB) if obvious([a, b], 1, 1)[0][0] == EOS
    )
    bench = Bench(depth=5, width=2, prompt=context)
    bench.run()
    assert len(bench.alive()) == 1
    assert bench.session.task(512) is None
    bench.commit([EOS])
    bench.run()
    assert bench.alive() == obvious([*context, EOS], 5, 2)


def test_nothing_is_drafted_beyond_the_context() -> None:
    prompt = [5] * (CONTEXT - 2)
    bench = Bench(depth=5, width=1, prompt=prompt, eos=0)
    bench.run()
    assert len(bench.alive()) == 2
    bench.commit([level[0] for level in bench.alive()])
    bench.run()
    assert bench.alive() == []


def test_depth_zero_stops_and_a_new_plan_starts_again() -> None:
    bench = Bench(depth=0, width=1, eos=7)
    assert bench.session.task(512) is None
    bench.commit([4], depth=2)
    bench.run()
    assert len(bench.alive()) == 2


def test_a_draft_that_has_nothing_to_propose_waits_for_the_next_commit() -> None:
    model = load_model("ngram:")
    drafter = Drafter(model)
    sampling = SamplingParams(temperature=0, seed=0)
    session = drafter.open(DraftOpening("s", 1, (1, 2, 3), (), sampling, DraftPlan(3), "", 16))
    task = session.task(512)
    assert task is not None
    assert drafter.step([(session, task)]) == [None]
    assert session.task(512) is None
    drafter.commit(session, DraftCommit(0, (1, 2)))
    task = session.task(512)
    assert task is not None
    [chunk] = drafter.step([(session, task)])
    assert isinstance(chunk, Chunk)
    assert [node.token for node in chunk.nodes] == [3]


def test_a_prompt_is_fed_in_pieces_that_fit_the_budget() -> None:
    bench = Bench(depth=2, width=1, prompt=[1, 2, 3, 4, 5, 6, 7], eos=0)
    sizes = []
    while (task := bench.session.task(3)) is not None and not bench.alive():
        sizes.append(len(task.tokens))
        bench.step(3)
    assert sizes == [3, 3, 1]


def test_a_commit_out_of_step_is_refused_with_the_position() -> None:
    bench = Bench(depth=2, width=1)
    bench.commit([1, 2, 3])
    with pytest.raises(StateMismatchError) as failure:
        bench.drafter.commit(bench.session, DraftCommit(1, (2,)))
    assert failure.value.metadata == {"position": "3"}


@pytest.mark.parametrize(("depth", "width"), [(256, 32), (256, 1), (130, 32)])
def test_the_largest_plan_is_drafted_whole(depth: int, width: int) -> None:
    model = load_model("scripted:vocab=64")
    drafter = Drafter(model)
    sampling = SamplingParams(temperature=0, seed=0)
    hash_ = model.info.tokenizer_hash
    session = drafter.open(
        DraftOpening("s", 1, (1,), (), sampling, DraftPlan(depth, width), hash_, 64)
    )
    nodes = 0
    while (task := session.task(512)) is not None:
        [chunk] = drafter.step([(session, task)])
        assert isinstance(chunk, Chunk)
        nodes += len(chunk.nodes)
    assert nodes == depth * width
    assert session.tree.pending == depth * width
