"""The verifier clocks itself: whatever is ready goes into the next pass, drafts or no drafts.

Knows sessions and the verifier; knows no gRPC.
"""

import asyncio
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
from outrider.telemetry.logs import get_logger
from outrider.tree import TokenTree
from outrider.types import VerifyOpening
from verify_service.sessions import Session
from verify_service.settings import VerifySettings
from verify_service.verifier import Outcome, Verifier, Work

PROMPT_SHARE = 0.25
"""Share of a pass that waiting prompts get however many sessions decode."""


class Scheduler:
    """Owns the sessions, the model's one thread, and the workers that compile grammars."""

    def __init__(self, verifier: Verifier, settings: VerifySettings) -> None:
        self.verifier = verifier
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._promised: list[VerifyOpening] = []
        self._thread = ModelThread("target")
        self._workers = Workers("compile")
        self._changed = asyncio.Event()
        self._is_draining = False
        self._ended = asyncio.Event()
        self._loop = asyncio.create_task(self._run())

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
            sequence = await self._thread.open(
                lambda: self.verifier.open((*opening.prompt_ids, *opening.emitted_ids)),
                self.verifier.close,
            )
        finally:
            if job is None:
                self._leave(opening)
            else:
                job.when_over(lambda: self._leave(opening))
        context_tokens = self.verifier.model.info.context_tokens
        session = Session(
            opening,
            sequence,
            history,
            min(opening.stop.max_tokens, context_tokens - len(opening.prompt_ids)),
            TokenTree(opening.emitted_ids, capacity=self._settings.max_tree_nodes),
            time.monotonic(),
        )
        self._overtake(opening.session_id)  # another one may have been opened at the same time
        self._sessions[opening.session_id] = session
        self.wake()
        return session

    async def close(self, session: Session) -> None:
        """Ends a session, whatever it is doing; returns when its KV is free."""
        await finished(self._end(session))

    def wake(self) -> None:
        """Something changed that may make a session ready."""
        self._changed.set()

    async def drain(self) -> None:
        """Refuses new sessions and returns when the open ones have ended."""
        self._is_draining = True
        while self._sessions or self._promised:
            self._ended.clear()
            await self._ended.wait()

    async def stop(self) -> None:
        """Ends the loop and the threads; a grammar that is being compiled is not waited for."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        self._workers.stop()
        self._thread.stop()

    def _leave(self, opening: VerifyOpening) -> None:
        """Its place is free, or its session has it now."""
        # By identity: two callers may open the same.
        self._promised = [other for other in self._promised if other is not opening]
        self._ended.set()

    async def _run(self) -> None:
        while True:
            now = time.monotonic()
            self._expire(now)
            waits = {s: at for s in self._sessions.values() if (at := s.ready_at()) is not None}
            ready = [session for session, at in waits.items() if at <= now]
            if ready:
                try:
                    await self._pass(ready)
                except Exception as error:
                    get_logger().error("pass_failed", exc_info=error)
                    for session in ready:
                        session.is_running = False
                        session.fail(
                            InternalError("the target pass failed; the service's log says why")
                        )
            else:
                self._changed.clear()
                await wait_set(self._changed, min(waits.values(), default=now + 1.0) - now)

    async def _pass(self, ready: Sequence[Session]) -> None:
        """One target pass over the ready sessions; prompts share what decoding leaves of the
        budget.
        """
        started = time.monotonic()
        works = self._share(ready)
        for session in works:
            session.is_running = True
        outcomes = await self._thread.call(lambda: self._step(list(works.values())))
        now = time.monotonic()
        for (session, work), outcome in zip(works.items(), outcomes, strict=True):
            session.is_running = False
            if session.is_closed:
                continue
            if isinstance(outcome, Outcome):
                session.settle(work, outcome, started, now, len(works))
            else:
                session.fail(outcome)

    def _share(self, ready: Sequence[Session]) -> dict[Session, Work]:
        """Decoding first, but prompts always get their share; each in the order of waiting."""
        prompts = [session for session in ready if session.is_prefilling]
        decoding = [session for session in ready if not session.is_prefilling]
        left = self._settings.max_pass_tokens
        reserved = max(1, int(left * PROMPT_SHARE)) if prompts else 0
        works: dict[Session, Work] = {}
        for sessions, kept_back in ((decoding, reserved), (prompts, 0)):
            for session in sorted(sessions, key=lambda s: s.last_verdict_at):
                if left - kept_back > 0:
                    works[session] = session.work(left - kept_back)
                    left -= works[session].num_tokens
        return works

    def _step(self, works: list[Work]) -> list[Outcome | OutriderError]:
        """One pass; where it cannot be run whole, each session tries alone and fails alone."""
        try:
            return self.verifier.step(works)
        except OutriderError as error:
            if len(works) == 1:
                return [error]
            return [outcome for work in works for outcome in self._step([work])]

    def _refuse(self, opening: VerifyOpening) -> None:
        info = self.verifier.model.info
        if self._is_draining:
            raise UnavailableError("the verifier is shutting down; try another one")
        length = len(opening.prompt_ids) + len(opening.emitted_ids)
        if length >= info.context_tokens:
            raise InvalidArgumentError(
                f"the prompt has {length} tokens and the model's context is "
                f"{info.context_tokens}; shorten the prompt to leave room for an answer"
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
        promised = sum(self._answer(o) + o.policy.max_rows for o in openings)
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
        return self._thread.later(lambda: self.verifier.close(session.sequence))
