"""Trees grow while the model runs; between two passes nothing else may touch them."""

import threading
from collections.abc import AsyncIterator

import pytest
from draft.gated import GatedModel
from support.models import alone
from support.waiting import until

from outrider.errors import InvalidArgumentError
from outrider.models.scripted import ScriptedLaw
from outrider.plans import ReadinessPolicy
from outrider.types import Chunk, Node, NodeKind, SamplingParams, StopConditions, VerifyOpening
from verify_service.scheduler import Scheduler
from verify_service.sessions import Session
from verify_service.settings import VerifySettings
from verify_service.trees import Trees
from verify_service.verifier import Verifier

PROMPT = (1, 2)
AT_ONCE = ReadinessPolicy(max_rows=8)
WAITS_FOR_TWO = ReadinessPolicy(min_depth=2, max_wait_us=60_000_000, max_rows=8)
TEXT = alone(ScriptedLaw(vocab=8), PROMPT, 6)


def drafted(tokens: list[int], base: int = 0) -> Chunk:
    """A path below the token that was committed last."""
    ids = [base, *(1 << 24 | base + i for i in range(len(tokens)))]
    return Chunk(
        tuple(
            Node(ids[i + 1], ids[i], token, 0.9, NodeKind.LISTED) for i, token in enumerate(tokens)
        )
    )


@pytest.fixture
async def model() -> GatedModel:
    return GatedModel("vocab=8", 4096)


@pytest.fixture
async def scheduler(model: GatedModel) -> AsyncIterator[Scheduler]:
    made = Scheduler(Verifier(model), VerifySettings(kv_tokens=4096))
    yield made
    model.release()
    await made.stop()


def opening(policy: ReadinessPolicy = AT_ONCE) -> VerifyOpening:
    return VerifyOpening(
        "s",
        PROMPT,
        (),
        SamplingParams(temperature=0, seed=0),
        StopConditions(len(TEXT), ignore_eos=True),
        policy,
    )


async def waiting_for_two(scheduler: Scheduler) -> Session:
    """A session that has its first token and waits for two nodes."""
    session = await scheduler.open(opening(WAITS_FOR_TWO))

    def is_waiting() -> bool:
        return session.last_verdict_at + 60 == scheduler._next_look_at

    await until(is_waiting, "nothing to run")
    [verdict] = session.read()
    assert verdict.tokens == (TEXT[0],)
    session.changed.clear()
    return session


async def test_what_arrives_during_a_pass_is_in_the_tree_before_it_ends(
    scheduler: Scheduler, model: GatedModel
) -> None:
    model.hold("forward")
    session = await scheduler.open(opening())
    await model.wait_held()
    session.tell(drafted(TEXT[:4]), 0.0)
    scheduler.hear(session)
    assert session.tree.pending == 4
    model.release()
    tokens: list[int] = []

    def is_over() -> bool:
        tokens.extend(token for verdict in session.read() for token in verdict.tokens)
        return session.finish_reason is not None

    await until(is_over, "the end of the answer")
    assert tokens == TEXT
    assert model.passes[1] == {0: tuple(TEXT[:4])}  # the committed token and what stands below it


async def test_a_node_that_makes_nothing_ready_leaves_the_model_alone(
    scheduler: Scheduler, model: GatedModel
) -> None:
    session = await waiting_for_two(scheduler)
    first, second = drafted(TEXT[1:3], base=1).nodes
    session.tell(Chunk((first,)), 0.0)
    scheduler.hear(session)
    assert session.tree.pending == 1
    assert not scheduler._changed.is_set()
    session.tell(Chunk((second,)), 0.0)
    scheduler.hear(session)
    await until(lambda: session.unread_since is not None, "the verdict")
    assert [verdict.tokens for verdict in session.read()] == [tuple(TEXT[1:4])]


@pytest.mark.parametrize("policy", [AT_ONCE, ReadinessPolicy(2, 1, 8)])
async def test_a_policy_that_waits_for_less_is_in_effect_at_once(
    scheduler: Scheduler, policy: ReadinessPolicy
) -> None:
    session = await waiting_for_two(scheduler)
    session.tell(policy, 0.0)
    scheduler.hear(session)
    await until(lambda: session.unread_since is not None, "the verdict")


async def test_an_error_in_what_is_told_reaches_the_caller(scheduler: Scheduler) -> None:
    session = await waiting_for_two(scheduler)
    session.tell(Chunk((Node(1 << 24, 1, TEXT[1], 0.9, NodeKind.SAMPLED),)), 0.0)
    scheduler.hear(session)
    await until(session.changed.is_set, "the error")
    assert isinstance(session.error, InvalidArgumentError)


def test_between_passes_only_the_model_has_them() -> None:
    trees = Trees()
    with trees.held():
        with trees.if_free() as has_them:
            assert not has_them
        with trees.lent(), trees.if_free() as has_them:
            assert has_them
        with trees.if_free() as has_them:
            assert not has_them
    with trees.if_free() as has_them:
        assert has_them


def test_a_loop_with_many_messages_lets_the_model_go_first() -> None:
    trees = Trees()
    is_held, may_end = threading.Event(), threading.Event()

    def model() -> None:
        with trees.held():
            is_held.set()
            may_end.wait(20)

    with trees.if_free() as has_them:
        assert has_them
        thread = threading.Thread(target=model)
        thread.start()
        while not trees._is_wanted:
            pass
    with trees.if_free() as has_them:
        assert not has_them
    assert is_held.wait(20)
    may_end.set()
    thread.join()


def test_an_error_of_a_pass_leaves_them_with_the_model() -> None:
    trees = Trees()
    with trees.held():
        with pytest.raises(RuntimeError), trees.lent():
            raise RuntimeError
        with trees.if_free() as has_them:
            assert not has_them
