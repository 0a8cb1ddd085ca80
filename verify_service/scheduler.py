"""The verifier clocks itself: whatever is ready goes into the next pass, drafts or no drafts.

Knows sessions and the verifier; knows no gRPC.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from outrider.errors import (
    AbortedError,
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutriderError,
    UnavailableError,
)
from outrider.models.thread import ModelThread, finished, wait_set
from outrider.models.workers import Workers
from outrider.prompt_share import equal_shares, prompt_tokens
from outrider.selection import Selection
from outrider.telemetry.logs import get_logger
from outrider.telemetry.metrics import Occupancy
from outrider.tree import TokenTree
from outrider.types import VerifyOpening
from verify_service.metrics import VerifyMetrics
from verify_service.sessions import Session, reached_end
from verify_service.settings import VerifySettings
from verify_service.settled import Batch
from verify_service.trees import Trees
from verify_service.verifier import Outcome, Verifier, Work

PROMPT_SHARE = 0.25
"""Share of a pass's tokens that waiting prompts get however many sessions decode."""

EXPIRY_CHECK_S = 1.0

Passed = tuple[Batch, list[Work], list[Outcome | OutriderError]]


class Scheduler:
    """Owns the sessions, the model's one thread, and the workers that compile grammars."""

    def __init__(self, verifier: Verifier, settings: VerifySettings) -> None:
        self.verifier = verifier
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._promised: list[VerifyOpening] = []
        self._thread = ModelThread("target")
        self._workers = Workers("compile")
        self._trees = Trees()
        self._next_look_at = math.inf
        self._untold_gap_us = 0
        self._left_out = 0
        self._passed: list[Passed] = []
        self.metrics = VerifyMetrics(self.occupancy)
        self._changed = asyncio.Event()
        self._is_draining = False
        self._is_stopped = False
        self._ended = asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._watch())]

    async def open(self, opening: VerifyOpening) -> Session:
        """A new session; an open one of the same name is overtaken (a resumed stream).

        A caller that is cancelled keeps its place for as long as its grammar is being compiled.
        """
        self._refuse(opening)
        self._overtake(opening.session_id)
        opening = self._admitted(opening)
        self._promised.append(opening)
        job = None
        if opening.sampling.grammar is not None:
            job = self._workers.start(lambda: self.verifier.history(opening))
        try:
            history = self.verifier.history(opening) if job is None else await job.result()
            at_end = reached_end(opening, history, self.verifier.model.info)
            sequence = await self._thread.open(
                lambda: self.verifier.open((*opening.prompt_ids, *opening.emitted_ids)),
                self.verifier.close,
            )
        finally:
            if job is None:
                self._leave(opening)
            else:
                job.when_over(lambda: self._leave(opening))
        session = Session(
            opening,
            sequence,
            history,
            self._answer(opening) - len(opening.prompt_ids),
            TokenTree(opening.emitted_ids, capacity=self._settings.max_tree_nodes),
            time.monotonic(),
            at_end=at_end,
        )
        self._overtake(opening.session_id)  # another one may have been opened at the same time
        self._sessions[opening.session_id] = session
        self.metrics.note_opened()
        self.wake()
        return session

    async def close(self, session: Session) -> None:
        """Ends a session, whatever it is doing; returns when its KV is free."""
        await finished(self._end(session))

    def wake(self) -> None:
        """Something changed that may make a session ready."""
        self._changed.set()

    def hear(self, session: Session) -> None:
        """A session was told something. While the model runs a tree can grow, for the target stands
        idle where that is left to be done between two passes; and while nothing is to be run, the
        model's thread is left alone until something is.
        """
        with self._trees.if_free() as is_free:
            if is_free:
                session.take_news()
                at = session.ready_at()
                if session.error is None and (at is None or at >= self._next_look_at):
                    return
        self.wake()

    def occupancy(self) -> Occupancy:
        """How full it is now; may be asked in any thread."""
        sessions = list(self._sessions.values())
        promised = self._promised
        return Occupancy(
            len(sessions),
            len(promised) + self._left_out,
            {
                "used": sum(session.sequence.held for session in sessions),
                "promised": self._promised_to([s.opening for s in sessions] + promised),
                "limit": self._settings.kv_tokens,
            },
        )

    async def drain(self) -> None:
        """Refuses new sessions and returns when the open ones have ended."""
        self._is_draining = True
        while self._sessions or self._promised:
            self._ended.clear()
            await self._ended.wait()

    async def stop(self) -> None:
        """Ends the loop and the threads; a grammar that is being compiled is not waited for."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._workers.stop()
        self._thread.stop()

    def _leave(self, opening: VerifyOpening) -> None:
        """Its place is free, or its session has it now."""
        # By identity: two callers may open the same.
        self._promised = [other for other in self._promised if other is not opening]
        self._ended.set()

    async def _run(self) -> None:
        """Rounds in the model's thread for as long as one follows the other; then waits."""
        while True:
            self._changed.clear()
            try:
                next_at = await self._thread.call(self._rounds)
            except Exception as error:
                get_logger().error("round_failed", exc_info=error)
                for session in list(self._sessions.values()):
                    session.fail(InternalError("a round failed; the service's log says why"))
                next_at = None
            if next_at is not None:
                self._next_look_at = next_at
                await wait_set(self._changed, next_at - time.monotonic())
                self._next_look_at = math.inf

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            self._expire(time.monotonic())

    def _rounds(self) -> float | None:
        """Pass after pass while a session is ready and nobody else wants the thread: what lies
        between two passes is idle time of the target. Verdicts leave while the next pass runs.

        Returns when to look again, None: at once.
        """
        with self._trees.held():
            return self._rounds_with_trees()

    def _rounds_with_trees(self) -> float | None:
        while True:
            sessions = list(self._sessions.values())
            for session in sessions:
                session.take_news()
            now = time.monotonic()
            waits = {s: at for s in sessions if (at := s.ready_at()) is not None}
            ready = [session for session, at in waits.items() if at <= now]
            if not ready or self._thread.is_wanted or self._is_stopped:
                self._left_out = len(ready)
                self._send(sessions)
                return None if ready else min(waits.values(), default=now + EXPIRY_CHECK_S)
            try:
                self._pass(ready)
            except Exception as error:
                get_logger().error("pass_failed", exc_info=error)
                for session in ready:
                    session.error = session.error or InternalError(
                        "the target pass failed; the service's log says why"
                    )

    def _send(self, sessions: Sequence[Session]) -> None:
        """Lets the loop tell the callers of `sessions` what is new, and count what has passed."""
        passed, self._passed = self._passed, []

        def tell() -> None:
            for session in sessions:
                if session.unread_since is not None or session.error is not None:
                    session.changed.set()
            if passed:
                # Behind those that now wake up: no verdict waits for it.
                self._event_loop.call_soon(self._count, passed)

        self._event_loop.call_soon_threadsafe(tell)

    def _count(self, passed: Sequence[Passed]) -> None:
        for batch, works, outcomes in passed:
            self.metrics.note_pass(batch, works, outcomes)

    def _pass(self, ready: Sequence[Session]) -> None:
        """One target pass over the ready sessions."""
        works = self._share(ready)
        self._left_out = len(ready) - len(works)
        self._send(list(self._sessions.values()))
        could_start_at = max(self.verifier.ended_at, min(s.ready_since() for s in works))
        outcomes = self._step(list(works.values()))
        now = time.monotonic()
        started_at = self.verifier.started_at
        decided = [o.acceptance for o in outcomes if isinstance(o, Outcome) and o.acceptance]
        batch = Batch(
            sessions=len(works),
            rows=sum(work.num_tokens for work in works.values()),
            tokens=sum(len(acceptance.path) + 1 for acceptance in decided),
            started_at=started_at,
            ended_at=self.verifier.ended_at,
            gap_us=max(0, int((started_at - could_start_at) * 1e6)),
            untold_gap_us=self._untold_gap_us,
        )
        self._untold_gap_us = 0 if decided else self._untold_gap_us + batch.gap_us
        self._passed.append((batch, list(works.values()), outcomes))
        for (session, work), outcome in zip(works.items(), outcomes, strict=True):
            if isinstance(outcome, Outcome):
                session.settle(work, outcome, batch, now)
            else:
                session.error = session.error or outcome

    def _share(self, ready: Sequence[Session]) -> dict[Session, Work]:
        """Every decoding session gets its tip verified, in the order of waiting, and together the
        most promising drafted nodes of all of them. Prompts get their share of the pass, which
        takes no longer than the others while there are any, and each the same of it.
        """
        in_order = sorted(ready, key=lambda s: s.last_verdict_at)
        prompts = [session for session in in_order if session.is_prefilling]
        decoding = [session for session in in_order if not session.is_prefilling]
        most = self._settings.max_pass_tokens
        left = most - max(1, int(most * PROMPT_SHARE)) if prompts else most
        pending = {session: session.pending(left) for session in decoding[:left]}
        selection = Selection()
        for session in pending:
            session.offer(selection)
        subtrees = selection.take(left - len(pending))
        works = {
            session: session.work(tokens, subtree)
            for (session, tokens), subtree in zip(pending.items(), subtrees, strict=True)
        }
        rows = sum(work.num_tokens for work in works.values())
        left = prompt_tokens(self.verifier.times, rows, most - rows)
        shares = equal_shares([session.missing for session in prompts], left)
        left -= sum(shares)
        for session, share in zip(prompts, shares, strict=True):
            if share:
                works[session] = session.part(share + left)
                left -= works[session].num_tokens - share
        return works

    def _step(self, works: list[Work]) -> list[Outcome | OutriderError]:
        """One pass; where it cannot be run whole, each session tries alone and fails alone."""
        try:
            return self.verifier.step(works, self._trees.lent())
        except OutriderError as error:
            if len(works) == 1:
                return [error]
            return [outcome for work in works for outcome in self._step([work])]

    def _refuse(self, opening: VerifyOpening) -> None:
        info = self.verifier.model.info
        if self._is_draining:
            raise UnavailableError("the verifier is shutting down; try another one")
        length = len(opening.prompt_ids)
        if length >= info.context_tokens:
            raise InvalidArgumentError(
                f"the prompt has {length} tokens and the model's context is "
                f"{info.context_tokens}; shorten the prompt to leave room for an answer"
            )
        if length + len(opening.emitted_ids) > info.context_tokens:
            raise InvalidArgumentError(
                f"the prompt has {length} tokens, {len(opening.emitted_ids)} are emitted and the "
                f"model's context is {info.context_tokens}; give those of this session"
            )
        for token in (*opening.prompt_ids, *opening.emitted_ids):
            if token >= info.vocab_size:
                raise InvalidArgumentError(
                    f"the prompt has token id {token}; the model knows 0 to {info.vocab_size - 1}"
                )

    def _admitted(self, opening: VerifyOpening) -> VerifyOpening:
        """Room for the whole answer is promised at the start, so that none is cut short for lack of
        it. Drafted rows only take what is left: they may cost speed, never the answer.
        """
        openings = [s.opening for s in self._sessions.values()] + self._promised
        if len(openings) >= self._settings.max_sessions:
            raise CapacityError(
                f"all {self._settings.max_sessions} sessions of the verifier are in use; "
                "try again later, or raise --max-sessions",
                retry_after_s=1.0,
            )
        promised = self._promised_to(openings)
        demand = self._answer(opening)
        left = self._settings.kv_tokens - promised - demand
        if left < 0:
            raise CapacityError(
                f"prompt and max_tokens need up to {demand} tokens of KV cache; {promised} of "
                f"{self._settings.kv_tokens} are promised to {len(openings)} open sessions; "
                "lower max_tokens, try again later, or raise --kv-tokens",
                retry_after_s=1.0 if openings else None,
            )
        rows = min(opening.policy.max_rows, self._settings.max_pass_tokens - 1, left)
        return replace(opening, policy=replace(opening.policy, max_rows=rows))

    def _promised_to(self, openings: Sequence[VerifyOpening]) -> int:
        """Tokens of KV that they keep room for."""
        return sum(self._answer(o) + o.policy.max_rows for o in openings)

    def _answer(self, opening: VerifyOpening) -> int:
        whole = len(opening.prompt_ids) + opening.stop.max_tokens
        return min(whole, self.verifier.model.info.context_tokens)

    def _expire(self, now: float) -> None:
        idle_s = self._settings.idle_timeout_s
        for session in list(self._sessions.values()):
            if session.unread_since is not None and now - session.unread_since > idle_s:
                session.fail(DeadlineError(f"no verdict was read for {idle_s:.0f} s"))
                # Its stream may be stuck for as long as the caller likes; its place is not.
                self._end(session)

    def _overtake(self, name: str) -> None:
        overtaken = self._sessions.get(name)
        if overtaken is not None:
            overtaken.fail(AbortedError(f"session {name} was opened again"))
            self._end(overtaken)

    def _end(self, session: Session) -> "Future[None] | None":
        """A caller that is cancelled while it waits for the outcome does not keep the KV."""
        if self._sessions.get(session.opening.session_id) is session:
            del self._sessions[session.opening.session_id]
        self._ended.set()
        self.wake()
        if session.is_closed:
            return None
        session.is_closed = True
        self.metrics.note_ended(session.dropped_nodes)
        return self._thread.later(lambda: self.verifier.close(session.sequence))
