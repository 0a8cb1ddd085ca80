"""Drafts never stop: whoever has room to run ahead goes into the next draft pass.

Knows sessions and the drafter; knows no gRPC.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from draft_service.drafter import Drafter
from draft_service.growth import MOST_SPOTS
from draft_service.metrics import DraftMetrics
from draft_service.rhythm import Rhythm
from draft_service.sessions import DraftSession, Task
from draft_service.settings import DraftSettings
from draft_service.translation import SameIds
from draft_service.vocabularies import Target
from outrider.errors import (
    CapacityError,
    DeadlineError,
    InternalError,
    OutriderError,
    UnavailableError,
)
from outrider.models.thread import ModelThread, finished, wait_set
from outrider.models.workers import Workers
from outrider.pass_times import most_per_time
from outrider.prompt_share import equal_shares, prompt_tokens
from outrider.telemetry.logs import get_logger
from outrider.telemetry.metrics import Occupancy
from outrider.types import Chunk, DraftCommit, DraftOpening

Pass = list[tuple[DraftSession, Task]]


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more can follow in a session; `reason` is for the user."""

    reason: str


@dataclass(frozen=True, slots=True)
class Made:
    """Nodes for a session's caller, which `can_wait` for others to travel with: more may follow,
    and the verifier does not wait for them."""

    chunk: Chunk
    can_wait: bool


Result = Made | OutriderError | Done

MAX_UNREAD_CHUNKS = 256
"""A session whose caller leaves so many unread is not drafted for until they are taken."""

MAX_UNAPPLIED_NEWS = 1024
"""A caller that sends commits and branches faster than they can be applied loses its session."""

IDLE_CHECK_S = 1.0

BURST_S = 0.001
"""Passes that are quicker than this go on in the model's thread without a visit to the loop."""


@dataclass(slots=True, eq=False)
class Seat:
    """A session with its inbox of commits and branches, and its outbox of chunks; the plan's nodes
    and bytes bound both. `held` are chunks that wait for others to travel with: see `Rhythm`.
    """

    session: DraftSession
    target: Target
    heard_at: float
    committed_at: float
    known_tokens: int
    news: deque[DraftCommit | Chunk] = field(default_factory=deque)
    chunks: list[Chunk] = field(default_factory=list)
    held: list[Chunk] = field(default_factory=list)
    rhythm: Rhythm = field(default_factory=Rhythm)
    error: OutriderError | None = None
    done: Done | None = None
    is_closed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_draftable(self) -> bool:
        """Whether a pass could do something for it that its caller still wants."""
        is_live = self.error is None and self.done is None and not self.is_closed
        return is_live and len(self.chunks) + len(self.held) < MAX_UNREAD_CHUNKS

    def dated(self, chunk: Chunk) -> Chunk:
        """The chunk with what the caller needs to tell the time on the wire from the time here."""
        held_us = int((time.monotonic() - self.committed_at) * 1e6)
        return replace(chunk, known_tokens=self.known_tokens, held_us=min(held_us, 2**32 - 1))

    def release(self) -> None:
        """Gives its caller what was held back."""
        self.chunks += self.held
        self.held.clear()
        self.changed.set()

    def fail(self, error: OutriderError) -> None:
        """Ends the session with an error for its caller."""
        self.error = self.error or error
        self.changed.set()


class Scheduler:
    """Owns the sessions, the one thread in which the model runs, and those that prepare openings.

    `slow` has the work of seconds: grammars and vocabularies. What an opening without a grammar
    needs takes milliseconds, and does not wait behind it.
    """

    def __init__(self, drafter: Drafter, settings: DraftSettings) -> None:
        self.drafter = drafter
        self._settings = settings
        self._seats: list[Seat] = []
        self._opening = 0
        self._thread = ModelThread("draft")
        self._quick = Workers("prepare")
        self.slow = Workers("compile")
        self._passed: list[tuple[int, int]] = []
        self.metrics = DraftMetrics(self.occupancy, self._resting)
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_draining = False
        self._loop = asyncio.create_task(self._run())

    async def open(self, opening: DraftOpening) -> Seat:
        """A new session. Raises before the model is asked where it cannot work.

        A caller that is cancelled keeps its place for as long as a thread prepares its opening.
        """
        self._refuse()
        target = self.drafter.vocabularies.hold(opening.tokenizer_hash)
        self._opening += 1
        workers = self._quick if opening.sampling.grammar is None else self.slow
        job = workers.start(lambda: self.drafter.prepare(opening, target))
        try:
            prepared = await job.result()
            session = await self._thread.open(
                lambda: self.drafter.start(prepared), self.drafter.close
            )
        except BaseException:
            job.when_over(lambda: self.drafter.vocabularies.release(target))
            raise
        finally:
            job.when_over(self._leave)
        now = time.monotonic()
        seat = Seat(session, target, now, now, len(opening.emitted_ids))
        if session.done_reason:
            seat.done = Done(session.done_reason)
        self._seats.append(seat)
        self.metrics.note_opened()
        self._changed.set()
        return seat

    def commit(self, seat: Seat, commit: DraftCommit) -> None:
        """Takes a verdict in; it is applied before the session's next pass."""
        self._tell(seat, commit)
        seat.committed_at = seat.heard_at
        seat.rhythm = seat.rhythm.heard(seat.heard_at)
        seat.known_tokens = commit.base + len(commit.tokens)
        self.metrics.note_commit()

    def adopt(self, seat: Seat, branches: Chunk) -> None:
        """Takes in what other drafts of the session made; it may go without where so much waits
        already, behind a long prompt perhaps, that commits could find no room.
        """
        if len(seat.news) < MAX_UNAPPLIED_NEWS // 2:
            self._tell(seat, branches)

    def _tell(self, seat: Seat, news: DraftCommit | Chunk) -> None:
        if len(seat.news) >= MAX_UNAPPLIED_NEWS:
            raise CapacityError(f"{MAX_UNAPPLIED_NEWS} messages wait to be applied; slow down")
        seat.heard_at = time.monotonic()
        seat.news.append(news)
        self._changed.set()

    def take(self, seat: Seat, count: int) -> list[Chunk]:
        """The first `count` chunks that wait for the caller; makes room for more."""
        taken, seat.chunks = seat.chunks[:count], seat.chunks[count:]
        self._changed.set()
        return taken

    async def close(self, seat: Seat) -> None:
        """Ends a session, whatever it is doing; returns when its KV is free."""
        await finished(self._end(seat))

    def occupancy(self) -> Occupancy:
        """How full it is now; may be asked in any thread."""
        seats = list(self._seats)
        used = sum(seat.session.sequence.held for seat in seats)
        kv_tokens = {"used": used, "limit": self._settings.kv_tokens}
        return Occupancy(len(seats), self._opening, kv_tokens)

    def _resting(self) -> int:
        return sum(1 for seat in list(self._seats) if not seat.session.plan.depth)

    async def drain(self) -> None:
        """Refuses new sessions and returns when the open ones have ended."""
        self._is_draining = True
        while self._seats or self._opening:
            self._ended.clear()
            await self._ended.wait()

    async def stop(self) -> None:
        """Ends the loop and the threads; a grammar that is being compiled is not waited for."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        self._quick.stop()
        self.slow.stop()
        self._thread.stop()

    def _leave(self) -> None:
        """An opening is over: its place is free, or its session has it now."""
        self._opening -= 1
        self._ended.set()

    async def _run(self) -> None:
        while True:
            self._expire(time.monotonic())
            self._changed.clear()
            try:
                results, has_more = await self._thread.call(self._work)
            except Exception as error:
                get_logger().error("pass_failed", exc_info=error)
                bug = InternalError("the draft pass failed; the service's log says why")
                results, has_more = [(seat, bug) for seat in self._seats], False
            for seat, result in results:
                if isinstance(result, OutriderError):
                    seat.fail(result)
                elif isinstance(result, Done):
                    seat.done = result
                    seat.release()
                else:
                    self._deliver(seat, result)
            # Later, while the model runs again.
            asyncio.get_running_loop().call_soon(self._count, self._passed, results)
            self._passed = []
            if not results and not has_more:
                await wait_set(self._changed, IDLE_CHECK_S)

    def _count(
        self, passed: Sequence[tuple[int, int]], results: Sequence[tuple[Seat, Result]]
    ) -> None:
        self.metrics.note_passes(passed)
        for seat, result in results:
            if isinstance(result, Made):
                is_translated = not isinstance(seat.session.translation, SameIds)
                self.metrics.note_nodes(len(result.chunk.nodes), are_translated=is_translated)

    def _deliver(self, seat: Seat, made: Made) -> None:
        """To its caller at once, or with what the next passes make, where a message for each node
        would keep many sessions from their turn. The only session never waits.
        """
        seat.held.append(made.chunk)
        quiet_s = seat.rhythm.quiet_until - time.monotonic()
        if quiet_s <= 0 or not made.can_wait or len(self._seats) == 1:
            seat.release()
        elif len(seat.held) == 1:
            asyncio.get_running_loop().call_later(quiet_s, seat.release)

    def _work(self) -> tuple[list[tuple[Seat, Result]], bool]:
        """Commits, then passes; quick passes share one visit to the model's thread.

        Also tells whether there may be more to do.
        """
        results: list[tuple[Seat, Result]] = []
        ends_at = time.perf_counter() + BURST_S
        while True:
            results += self._commit_all()
            seats, tasks = self._share()
            if not tasks:
                return results, False
            awaited = [session.is_awaited for session, _ in tasks]
            for seat, result, is_awaited in zip(seats, self._step(tasks), awaited, strict=True):
                if isinstance(result, Chunk):
                    can_wait = not is_awaited and seat.session.may_grow
                    results.append((seat, Made(result, can_wait)))
                elif result is not None:
                    seat.error = result
                    results.append((seat, result))
            # Drawn nodes leave before the next pass: whether there is one may depend on a token.
            is_drawn = any(s.session.opening.sampling.draws_proposals for s in seats)
            if is_drawn or time.perf_counter() >= ends_at:
                return results, True

    def _commit_all(self) -> list[tuple[Seat, Result]]:
        """Applies the commits that have come, each session's in order; returns the sessions that
        end with one."""
        ends: list[tuple[Seat, Result]] = []
        for seat in list(self._seats):
            try:
                while seat.news and seat.error is None:
                    news = seat.news.popleft()
                    if isinstance(news, Chunk):
                        seat.session.adopt(news)
                        continue
                    self.drafter.commit(seat.session, news)
                    if seat.session.done_reason:
                        ends.append((seat, Done(seat.session.done_reason)))
            except OutriderError as error:
                seat.error = error
                ends.append((seat, error))
        return ends

    def _share(self) -> tuple[list[Seat], Pass]:
        """The most promising nodes of all sessions, as many as bring the most for their time; then
        prompts, which take no longer than the others do while there are any, each the same.
        """
        live = [seat for seat in list(self._seats) if seat.is_draftable]
        counts = self._counts([seat for seat in live if not seat.session.is_prefilling])
        left = self._settings.max_pass_tokens
        seats: list[Seat] = []
        tasks: Pass = []

        def take(seat: Seat, budget: int, count: int) -> int:
            task = seat.session.task(budget, count) if budget > 0 else None
            if task is None:
                return 0
            seats.append(seat)
            tasks.append((seat.session, task))
            return len(task.tokens)

        for seat, count in counts.items():
            left -= take(seat, left, count)
        drafted = self._settings.max_pass_tokens - left
        left = prompt_tokens(self.drafter.times, drafted, left)
        prompts = [seat for seat in live if seat.session.is_prefilling]
        shares = equal_shares([seat.session.missing for seat in prompts], left)
        for seat, share in zip(prompts, shares, strict=True):
            take(seat, share, 1)
        return seats, tasks

    def _counts(self, seats: Sequence[Seat]) -> dict[Seat, int]:
        """Below how many nodes each session goes on in the next pass."""
        wishes = [(chance, s) for s in seats for chance in s.session.wishes(MOST_SPOTS)]
        wishes.sort(key=lambda wish: -wish[0])
        best = most_per_time([chance for chance, _ in wishes], self.drafter.times)
        counts: dict[Seat, int] = {}
        for _, seat in wishes[:best]:
            counts[seat] = counts.get(seat, 0) + 1
        return counts

    def _step(self, tasks: Pass) -> list[Chunk | OutriderError | None]:
        """One pass; where it cannot be run whole, each session tries alone and fails alone."""
        try:
            chunks = self.drafter.step(tasks)
        except OutriderError as error:
            if len(tasks) == 1:
                return [error]
            return [chunk for task in tasks for chunk in self._step([task])]
        self._passed.append(self.drafter.last_pass)
        return chunks

    def _refuse(self) -> None:
        if self._is_draining:
            raise UnavailableError("the draft is shutting down; use another one")
        if len(self._seats) + self._opening >= self._settings.max_sessions:
            raise CapacityError(
                f"all {self._settings.max_sessions} sessions of the draft are in use; "
                "try again later, or raise --max-sessions",
                retry_after_s=1.0,
            )

    def _expire(self, now: float) -> None:
        for seat in list(self._seats):
            if now - seat.heard_at > self._settings.idle_timeout_s:
                seat.fail(
                    DeadlineError(
                        f"nothing was committed for {self._settings.idle_timeout_s:.0f} s; "
                        "open the session again to go on"
                    )
                )
                # Its stream may be stuck for as long as the caller likes; its place is not.
                self._end(seat)

    def _end(self, seat: Seat) -> "Future[None] | None":
        """A caller that is cancelled while it waits for the outcome does not keep the KV."""
        if seat.is_closed:
            return None
        seat.is_closed = True
        self._seats.remove(seat)
        self.drafter.vocabularies.release(seat.target)
        self._ended.set()
        return self._thread.later(lambda: self.drafter.close(seat.session))
