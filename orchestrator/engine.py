"""One session's life on one screen: open, feed, reconcile, emit.

Text in, tokens out. Knows the peers; knows no Ray, no HTTP and no model library.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from orchestrator.admission import check_room, check_target
from orchestrator.attached import Attached
from orchestrator.diagnosing import diagnose
from orchestrator.load import Load
from orchestrator.peers import DraftPeer, Peers
from orchestrator.placement import Candidate, place
from orchestrator.planner import Limits
from orchestrator.requests import ClusterView, Event, GenerationRequest, Prompt
from orchestrator.rounds import RoundSpans
from orchestrator.session import Session
from orchestrator.settings import OrchestratorSettings
from outrider.diagnosis import Diagnosis
from outrider.errors import (
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutriderError,
    StateMismatchError,
    UnavailableError,
)
from outrider.telemetry.logs import get_logger
from outrider.types import ModelInfo, Verdict
from outrider.vocabulary import Vocabulary
from outrider.wire.draft_client import Done, Opened, RelayedChunk
from outrider.wire.links import Arrival

RESUME_BACKOFF_S = 0.2
MOST_BACKOFF_S = 5.0
SILENCE_S = 3.0


class Engine:
    """Drives many sessions at once over gRPC; everything runs in one event loop."""

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._peers = Peers(settings.verify, settings.draft, settings.tls_to)
        self._requests = 0
        self._load = Load()

    async def start(self) -> None:
        """Looks for the verifier and the drafts."""
        await self._peers.start()

    async def stop(self) -> None:
        """Closes the channels."""
        await self._peers.stop()

    async def model_info(self) -> ModelInfo:
        """The target's facts."""
        return await self._peers.verify.ready()

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token of the target."""
        return await self._peers.verify.vocabulary()

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt."""
        if len(prompt) == 0:
            raise InvalidArgumentError("the prompt is empty; give some text or at least one token")
        await self._peers.verify.ready()
        if isinstance(prompt, str):
            return await self._peers.verify.client.tokenize(prompt)
        messages = [part for part in prompt if isinstance(part, tuple)]
        if messages:
            return await self._peers.verify.client.tokenize(messages)
        return tuple(part for part in prompt if isinstance(part, int))

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts, asked just now."""
        await self._peers.probe()
        return self._peers.view()

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        return await diagnose(self._peers, self._settings.limits(), with_bandwidth=with_bandwidth)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        rounds = RoundSpans(request.traceparent)
        session = await self._open(request)
        try:
            yield session.started()
            while session.finish_reason is None:
                arrival = await self._next(session)
                draft = session.attached(arrival.link)
                if arrival.link is session.verify:
                    if arrival.error is not None:
                        await self._resume(session, arrival.error)
                    elif isinstance(arrival.message, Opened):
                        session.note_opened(arrival.message)
                    elif isinstance(arrival.message, Verdict):
                        self._lose_silent(session)
                        self._rebalance(session)
                        tokens = session.reconcile(arrival.message)
                        if tokens is not None:
                            rounds.note(arrival.message, len(tokens.tokens))
                            paused_at = time.monotonic()
                            yield tokens
                            session.forgive(time.monotonic() - paused_at)
                elif draft is not None and arrival.error is not None:
                    self._lose(session, draft, arrival.error)
                elif draft is not None and isinstance(arrival.message, Opened):
                    draft.note_opened(arrival.message)
                elif draft is not None and isinstance(arrival.message, Done):
                    session.retire(draft, arrival.message)
                elif draft is not None and isinstance(arrival.message, RelayedChunk):
                    try:
                        session.relay(draft, arrival.message)
                    except InvalidArgumentError as error:
                        self._lose(session, draft, error)
            yield session.finished()
        finally:
            if session.stats.target_passes:
                self._peers.verify.learn(session.target, session.passes)
            session.close()
            self._requests -= 1

    async def _open(self, request: GenerationRequest) -> Session:
        """Everything that can be refused is refused here, before a service has done anything."""
        if self._requests >= self._settings.max_requests:
            raise CapacityError(
                f"all {self._settings.max_requests} requests are in use; try again later",
                retry_after_s=1.0,
            )
        self._requests += 1
        try:
            target = await self._peers.verify.ready()
            check_target(request, target)
            prompt_ids = await self.tokenize(request.prompt)
            check_room(prompt_ids, request, target)
            session = Session(
                self._settled(request),
                prompt_ids,
                target,
                await self._peers.verify.vocabulary(),
                self._limits(request),
                self._peers.verify.passes,
            )
            try:
                await self._admit(session)
            except BaseException:
                session.close()
                raise
            return session
        except BaseException:
            self._requests -= 1
            raise

    async def _admit(self, session: Session) -> None:
        """Drafts are asked once the verifier has taken the session: a refused one costs nothing."""
        if session.finish_reason is not None:
            return  # the caller had the whole answer, and lost only its end
        session.open_verify(self._peers.verify, has_drafts=bool(self._wanted(session)))
        arrival = await self._next(session)
        if arrival.error is not None:
            raise arrival.error
        if not isinstance(arrival.message, Opened):
            raise InternalError("the verifier's first message was not that the session is open")
        session.note_opened(arrival.message)
        if session.finish_reason is None:
            self._attach_all(session)

    def _settled(self, request: GenerationRequest) -> GenerationRequest:
        """With a seed and a mode: drawn, and the deployment's, where the request has none."""
        seed = request.sampling.seed
        if seed is None:
            seed = secrets.randbits(63)
        return replace(
            request,
            sampling=replace(request.sampling, seed=seed),
            mode=request.mode or self._settings.acceptance_mode,
        )

    def _wanted(self, session: Session) -> list[DraftPeer]:
        """The drafts that should help a session now, the best first."""
        attached = [draft.peer.name for draft in session.drafts.values()]
        usable = {
            d.name: d
            for d in self._peers.drafts
            if d.is_usable and session.may_have(d) and (d.name in attached or not d.is_full)
        }
        candidates = [
            Candidate(
                d.name,
                d.law,
                d.sessions - attached.count(d.name),
                d.step_us,
                d.acceptance,
                d.name in attached,
                d.is_lookup,
            )
            for d in usable.values()
        ]
        most = session.request.max_drafts
        names = place(
            candidates,
            self._load.sharing(self._requests, time.monotonic()),
            session.pass_us,
            len(usable) if most is None else most,
            self._settings.drafts_per_session,
            divide=session.can_divide,
        )
        return [usable[name] for name in names]

    def _attach(self, session: Session, draft: DraftPeer) -> None:
        session.attach(draft)
        if draft.shared_tokens and not _has_tokenizer_of(draft, session.target):
            session.notice(
                f"draft {draft.name} has another tokenizer: it drafts the "
                f"{draft.shared_tokens} tokens that both have"
            )

    def _rebalance(self, session: Session) -> None:
        """Drafts come, sessions come and go: each has the drafts that it should have now. One is
        exchanged for a better one seldom, for that costs a prefill. One that hangs counts as none,
        and is lost, not left: its user is told.
        """
        if not session.is_due_for_placement():
            return
        wanted = self._wanted(session)
        attached = {d.peer.name: d for d in session.drafts.values() if d.peer.is_usable}
        names = [draft.name for draft in wanted]
        missing = [draft for draft in wanted if draft.name not in attached]
        spare = [draft for name, draft in attached.items() if name not in names]
        if missing and spare and not session.is_due_for_swap():
            more = len(wanted) - len(attached)
            missing, spare = missing[: max(0, more)], spare[: max(0, -more)]
        for peer in missing:
            self._attach(session, peer)
        for draft in spare:
            session.detach(draft, None)

    def _attach_all(self, session: Session) -> None:
        for draft in self._wanted(session):
            self._attach(session, draft)
        if session.request.max_drafts == 0:
            return
        for draft in self._peers.drafts:
            if not draft.is_usable:
                session.notice(f"draft {draft.name} is not used: {draft.problem}")
        if not session.drafts:
            session.notice("no draft takes part; the target answers at its own speed")

    def _lose(self, session: Session, draft: Attached, error: OutriderError) -> None:
        """A draft that failed slows the session down at most; a dead one is not asked again, a full
        one when it may have room.
        """
        if isinstance(error, CapacityError) and error.retry_after_s is not None:
            draft.peer.fill(error.retry_after_s)
            session.spare(draft, error.message)
            return
        is_gone = isinstance(error, UnavailableError)
        session.detach(draft, error.message, may_return=is_gone)
        if is_gone:
            draft.peer.fail(error.message)

    def _lose_silent(self, session: Session) -> None:
        """A draft that hangs keeps its stream open; that it answers no probe and sends nothing
        tells. One that is only busy still sends."""
        for draft in list(session.drafts.values()):
            silent_s = time.monotonic() - draft.link.heard_at
            if not draft.peer.is_usable and silent_s > SILENCE_S:
                session.detach(draft, draft.peer.problem)

    async def _next(self, session: Session) -> Arrival:
        """What comes next. No task is made to wait for it: that costs more than most arrivals."""
        inbox = session.inbox
        if self._silence_left_s(session) <= 0:
            await asyncio.sleep(0)  # its link may have something that it had no time to look at
            if self._silence_left_s(session) <= 0:
                raise self._silence(session)
        if not inbox.empty():
            return inbox.get_nowait()

        def give_up() -> None:
            if session.verify is not None and inbox.empty():
                inbox.put_nowait(Arrival(session.verify, error=self._silence(session)))

        # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with an arrival.
        timer = asyncio.get_running_loop().call_later(self._silence_left_s(session), give_up)
        try:
            return await inbox.get()
        finally:
            timer.cancel()

    def _silence(self, session: Session) -> DeadlineError:
        return DeadlineError(
            f"the verifier was silent for {self._settings.verdict_timeout_s:.0f} s after "
            f"{session.stats.emitted_tokens} tokens"
        )

    def _silence_left_s(self, session: Session) -> float:
        """How long the verifier may still say nothing; drafts that chatter do not extend it."""
        heard_at = session.verify.heard_at if session.verify is not None else time.monotonic()
        return max(0.0, heard_at + self._settings.verdict_timeout_s - time.monotonic())

    async def _resume(self, session: Session, error: OutriderError) -> None:
        """Reopens a broken verify stream from the committed ids; the drafts start there too."""
        stats, verify = session.stats, self._peers.verify
        while isinstance(error, UnavailableError) and stats.resumes < self._settings.max_resumes:
            get_logger().warning(
                "verify_stream_broken", request_id=session.request.request_id, problem=error.message
            )
            verify.fail(error.message)
            stats.resumes += 1
            await asyncio.sleep(min(RESUME_BACKOFF_S * 2**stats.resumes, MOST_BACKOFF_S))
            try:
                target = await verify.ready()
            except UnavailableError as still:
                error = still
                continue
            if target != session.target:
                raise StateMismatchError(
                    f"the verifier came back with another model ({target.model_name}, it was "
                    f"{session.target.model_name}); ask again to be answered by that one"
                )
            for draft in list(session.drafts.values()):
                session.detach(draft, None)
            self._attach_all(session)
            session.open_verify(verify, has_drafts=bool(session.drafts))
            return
        if isinstance(error, UnavailableError):
            verify.fail(error.message)
        raise error

    def _limits(self, request: GenerationRequest) -> Limits:
        limits = self._settings.limits()
        most = request.num_speculative_tokens or limits.num_speculative_tokens
        if request.max_drafts == 0 or not self._peers.drafts:
            most = 0  # no room is promised to rows that cannot come
        return replace(
            limits,
            num_speculative_tokens=most,
            width=request.width or limits.width,
        )


def _has_tokenizer_of(draft: DraftPeer, target: ModelInfo) -> bool:
    return draft.info is not None and draft.info.tokenizer_hash in ("", target.tokenizer_hash)
