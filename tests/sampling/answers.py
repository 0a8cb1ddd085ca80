"""Whole answers of the real draft and verify sessions, without gRPC, and a ledger of their noise.

The schedule is random, but seeded: drafts run ahead by a few passes, chunks and commits are late, a
draft is opened again with what was emitted, and so is the verifier. Where it `breaks`, the stream
to the user does, too: all begins anew behind what was delivered, the drafts' indices too.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

import draft_service.sessions
import verify_service.sessions
from draft_service.drafter import Drafter
from draft_service.sessions import DraftSession
from outrider.models.options import ModelOptions
from outrider.models.scripted import load
from outrider.plans import DraftPlan, ReadinessPolicy
from outrider.sampling.noise import PhiloxNoise, Stream
from outrider.seeds import resumed_seed
from outrider.tree import TokenTree
from outrider.types import (
    Chunk,
    DraftCommit,
    DraftOpening,
    SamplingParams,
    StopConditions,
    VerifyOpening,
)
from verify_service.sessions import Session
from verify_service.settled import Batch
from verify_service.verifier import Outcome, Verifier

VOCAB = 6
PROMPT = (1, 2, 3)
TARGET = f"vocab={VOCAB},seed=1,sharpness=2"
DRAFTS = (f"{TARGET},drift=0.5", f"{TARGET},drift=0.8")
OPTIONS = ModelOptions(kv_tokens=4096)

Key = tuple[int, Stream, int, int]
"""Seed, stream, position, index."""


@dataclass(slots=True)
class Ledger:
    """Who asked for each random number: a side's name for every time that it did."""

    users: dict[Key, list[str]] = field(default_factory=lambda: defaultdict(list))

    def reused(self) -> dict[Key, list[str]]:
        """The random numbers that were asked for more than once."""
        return {key: users for key, users in self.users.items() if len(users) > 1}

    def streams(self) -> set[Stream]:
        """The streams that were drawn from."""
        return {stream for _, stream, _, _ in self.users}

    def noise(self, user: str) -> Callable[[int], PhiloxNoise]:
        """What a service is to call in the place of PhiloxNoise."""
        return lambda seed: RecordingNoise(seed, user, self)


class RecordingNoise(PhiloxNoise):
    """The noise of a request, entered in the ledger at the one place where bits are made."""

    def __init__(self, seed: int, user: str, ledger: Ledger) -> None:
        super().__init__(seed)
        self._user = user
        self._ledger = ledger

    def _numbers(
        self, stream: Stream, position: int, index: int, count: int
    ) -> NDArray[np.float64]:
        self._ledger.users[self.seed, Stream(stream), position, index].append(self._user)
        return super()._numbers(stream, position, index, count)


@dataclass(slots=True)
class Runner:
    """One draft, what it has made that is still under way, and the commits it has yet to hear."""

    name: str
    drafter: Drafter
    session: DraftSession
    chunks: list[Chunk] = field(default_factory=list)
    commits: list[DraftCommit] = field(default_factory=list)


@dataclass(slots=True)
class Happened:
    """How often something came to pass in an answer; a miss is a round with a node not accepted."""

    rounds: int = 0
    accepted: int = 0
    misses: int = 0
    reopened: int = 0
    resumed: int = 0
    broken: int = 0


class Answer:
    """One answer: a verify session and its drafts, driven by hand."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        sampling: SamplingParams,
        *,
        drafts: int,
        width: int,
        length: int = 40,
        breaks: bool = False,
        seed_behind: Callable[[int, int], int] = resumed_seed,
    ) -> None:
        """`seed_behind` a seed and a number of delivered tokens is that of what follows them."""
        self.ledger = Ledger()
        self.happened = Happened()
        self._patch = patch
        self._request = self._sampling = sampling
        self._breaks = breaks
        self._seed_behind = seed_behind
        self._plan = DraftPlan(depth=4, width=width)
        self._stop = StopConditions(length)
        self._random = Random(sampling.seed)
        self._indices = 0
        self._verifier = Verifier(load(TARGET, OPTIONS))
        self._verify = self._verify_session(())
        self._runners: list[Runner] = []
        for number, model in enumerate(DRAFTS[:drafts]):
            drafter, name = Drafter(load(model, OPTIONS)), f"draft {number}"
            self._runners.append(Runner(name, drafter, self._draft_session(drafter, name)))

    def run(self) -> "Answer":
        """Rounds until the answer ends."""
        while self._verify.finish_reason is None:
            for runner in self._runners:
                self._run_ahead(runner)
                self._deliver(runner)
            self._verify_once()
            for runner in self._runners:
                if self._random.random() < 0.1:
                    self._reopen(runner)
                elif self._random.random() < 0.7:
                    self._hear(runner)
            if self._random.random() < 0.1 and self._verify.finish_reason is None:
                self._resume()
            if self._breaks and self._random.random() < 0.2 and self._verify.finish_reason is None:
                self._begin_anew()
        return self

    @property
    def _emitted(self) -> tuple[int, ...]:
        return tuple(self._verify.tree.committed)

    def _run_ahead(self, runner: Runner) -> None:
        """A few passes; now and then one of them fills a part of the prompt only."""
        for _ in range(self._random.randint(0, 5)):
            task = runner.session.task(self._random.choice((1, 100)))
            if task is None:
                return
            (made,) = runner.drafter.step([(runner.session, task)])
            if made is not None:
                assert isinstance(made, Chunk)
                runner.chunks.append(made)

    def _deliver(self, runner: Runner) -> None:
        count = max(self._random.choices(range(len(runner.chunks) + 1), k=2))
        for chunk in runner.chunks[:count]:
            self._verify.tell(chunk, 0.0)
        del runner.chunks[:count]

    def _verify_once(self) -> None:
        self._verify.take_news()
        work = self._verify.part(self._random.choice((2, 4, 100)))
        (outcome,) = self._verifier.step([work])
        assert isinstance(outcome, Outcome)
        self._verify.settle(work, outcome, Batch(1, 1, 1, 0.0, 0.0, 0), 0.0)
        for verdict in self._verify.read():
            accepted = sum(node_id > 0 for node_id in verdict.node_ids)
            self.happened.rounds += 1
            self.happened.accepted += accepted
            self.happened.misses += verdict.drafted > accepted
            for runner in self._runners:
                runner.commits.append(
                    DraftCommit(verdict.base, verdict.tokens, fresh=verdict.fresh)
                )

    def _hear(self, runner: Runner) -> None:
        for commit in runner.commits:
            runner.drafter.commit(runner.session, commit)
        runner.commits.clear()

    def _reopen(self, runner: Runner) -> None:
        """As the orchestrator does it: under a new index, with what was emitted so far."""
        runner.drafter.close(runner.session)
        runner.session = self._draft_session(runner.drafter, runner.name)
        runner.commits.clear()
        self.happened.reopened += 1

    def _resume(self) -> None:
        """The stream to the verifier broke when all verdicts were read."""
        self._verifier.close(self._verify.sequence)
        self._verify = self._verify_session(self._emitted)
        self.happened.resumed += 1

    def _begin_anew(self) -> None:
        """As the orchestrator does it for a user who has what was emitted and lost the stream."""
        seed = self._seed_behind(self._request.seed or 0, len(self._emitted))
        self._sampling = replace(self._request, seed=seed)
        self._indices = 0
        self._resume()
        for runner in self._runners:
            runner.chunks.clear()
            self._reopen(runner)
        self.happened.broken += 1

    def _draft_session(self, drafter: Drafter, name: str) -> DraftSession:
        self._indices += 1
        self._patch.setattr(draft_service.sessions, "PhiloxNoise", self.ledger.noise(name))
        return drafter.open(
            DraftOpening(
                "s",
                self._indices,
                PROMPT,
                self._emitted,
                self._sampling,
                self._plan,
                drafter.model.info.tokenizer_hash,
                VOCAB,
            )
        )

    def _verify_session(self, emitted: tuple[int, ...]) -> Session:
        self._patch.setattr(verify_service.sessions, "PhiloxNoise", self.ledger.noise("target"))
        policy = ReadinessPolicy(max_rows=3)
        opening = VerifyOpening("s", PROMPT, emitted, self._sampling, self._stop, policy)
        return Session(
            opening,
            self._verifier.open((*PROMPT, *emitted)),
            self._verifier.history(opening),
            self._stop.max_tokens,
            TokenTree(emitted),
            0.0,
        )


def answer(
    patch: pytest.MonkeyPatch,
    sampling: SamplingParams,
    seed: int,
    *,
    drafts: int,
    width: int,
    breaks: bool = False,
    seed_behind: Callable[[int, int], int] = resumed_seed,
) -> Answer:
    """The finished answer to a seed."""
    run = Answer(
        patch,
        replace(sampling, seed=seed),
        drafts=drafts,
        width=width,
        breaks=breaks,
        seed_behind=seed_behind,
    )
    return run.run()
