"""One request's state in the orchestrator: its links, its tree, its plan and its counts.

Knows the verify and draft protocols; the order of things is the engine's.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from orchestrator.answer import Answer
from orchestrator.attached import Attached
from orchestrator.peers import DraftPeer, VerifyPeer
from orchestrator.planner import Limits, Observations, Plan, draft_at, plan
from orchestrator.requests import (
    DraftStats,
    Finished,
    GenerationRequest,
    Started,
    Stats,
    Tokens,
)
from orchestrator.team import Team
from outrider.errors import InternalError, InvalidArgumentError
from outrider.pass_times import PassTimes
from outrider.plans import MAX_DRAFT_INDEX
from outrider.tree import TokenTree
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    DraftCommit,
    DraftOpening,
    FinishReason,
    ModelInfo,
    Verdict,
    VerifyOpening,
)
from outrider.vocabulary import Vocabulary
from outrider.wire.draft_client import Done, Opened, RelayedChunk
from outrider.wire.links import Arrival, Link
from outrider.wire.verify_client import VerifyStream

INBOX_ARRIVALS = 256

MOST_JOINS = 3
"""A draft that failed a session so often is not asked again in it."""

MOST_SPARED_S = 60.0
"""A draft that had no room for a session is asked again by it after so long at most."""

PLACEMENT_S = 0.25
"""How often it is looked at which drafts a session should have."""

SWAP_S = 5.0
"""How often it may leave one for a better one."""

AnyLink = Link[Any]


class Session:
    """Opened by the engine, for a request with a seed and a mode; `attach` and `open_verify` may be
    called again after a failure.
    """

    def __init__(
        self,
        request: GenerationRequest,
        prompt_ids: tuple[int, ...],
        target: ModelInfo,
        vocabulary: Vocabulary,
        limits: Limits,
        passes: PassTimes | None = None,
    ) -> None:
        """`passes` are what is known of the target's from other requests."""
        self.request = request
        # Whoever asks may give two requests one id; a session's name overtakes its namesake.
        self.name = f"{request.request_id[:64]}.{secrets.token_hex(8)}"
        self.prompt_ids = prompt_ids
        self.sampling = request.settled_sampling()
        self.target = target
        self.limits = limits
        self.inbox: asyncio.Queue[Arrival] = asyncio.Queue(INBOX_ARRIVALS)
        self.tree = TokenTree(request.delivered_ids)
        self.stats = Stats(prompt_tokens=len(prompt_ids))
        self.notices: list[str] = []
        self.verify: VerifyStream | None = None
        self.team = Team(draws=self.sampling.draws_proposals)
        self._answer = Answer(request, vocabulary, self._author)
        self.finish_reason: FinishReason | None = None
        if self._answer.is_complete:
            self.finish_reason = FinishReason.STOP
        elif request.sampling.grammar is None:  # else the verifier knows
            room = target.context_tokens - len(prompt_ids)
            self.finish_reason = request.stop.reached(
                request.delivered_ids, target.eos_token_ids, room
            )
        self._names: dict[int, DraftStats] = {}
        self._ended: Counter[str] = Counter()
        self._spared: Counter[str] = Counter()
        self._away_until: dict[str, float] = {}
        self._placed_at = self._swapped_at = time.monotonic()
        self._seen = Observations(passes=passes or PassTimes())
        self._plan = plan(self._seen, limits, has_drafts=False)
        self._started_ns = time.perf_counter_ns()
        self._wire = [0, 0]
        self._notices_given = 0

    def open_verify(self, peer: VerifyPeer, *, has_drafts: bool) -> None:
        """Opens, or resumes from what was emitted; the first plan counts on drafts or does not."""
        if self.verify is not None:
            self._let_go(self.verify)
        self._plan = plan(self._seen, self.limits, has_drafts, self._plan)
        opening = VerifyOpening(
            self.name,
            self.prompt_ids,
            tuple(self.tree.committed),
            self.sampling,
            self.request.stop,
            self._plan.policy,
            self.request.logprobs,
        )
        traceparent = self.request.traceparent
        self.verify = peer.client.verify(peer.name, opening, self.inbox, traceparent)

    def attach(self, peer: DraftPeer) -> None:
        """Lets a draft take part from here on; it needs no answer to begin with."""
        index = len(self._names) + 1
        if index > MAX_DRAFT_INDEX:
            return
        made = plan(self._seen, self.limits, True, self._plan)
        draft_plan = draft_at(made, self._seen, self.limits, peer.round_trip_us)
        share = self.team.share_of_next(index, peer.law)
        opening = DraftOpening(
            self.name,
            index,
            self.prompt_ids,
            tuple(self.tree.committed),
            self.sampling,
            share.of(draft_plan),
            self.target.tokenizer_hash,
            self.target.vocab_size,
            self.request.stop.ends(self.target.eos_token_ids),
            self.request.stop.min_tokens,
        )
        known = next((s for s in self.stats.drafts if s.name == peer.name), None)
        stats = known or DraftStats(peer.name)
        if known is None:
            self.stats.drafts.append(stats)
        link = peer.client.draft(peer.name, opening, self.inbox, self.request.traceparent)
        self._names[index] = stats
        draft = Attached(peer, index, link, stats, opening.plan, returns=known is not None)
        peer.sessions += 1
        self.team.join(draft, self.tree)

    @property
    def drafts(self) -> Mapping[int, Attached]:
        """Those that take part, by their index."""
        return self.team.members

    def may_have(self, peer: DraftPeer) -> bool:
        """Whether a draft may stay or join, again perhaps: not one that is done, nor one that keeps
        failing or had no room a moment ago, nor any when all indices are used up."""
        if any(draft.peer is peer for draft in self.team):
            return True
        if time.monotonic() < self._away_until.get(peer.name, 0.0):
            return False
        return len(self._names) < MAX_DRAFT_INDEX and self._ended[peer.name] < MOST_JOINS

    @property
    def can_divide(self) -> bool:
        """Whether drafts of one model have different things to say: branches, or draws."""
        return self.limits.width > 1 or self.sampling.draws_proposals

    @property
    def passes(self) -> PassTimes:
        """What is known of the target's passes by now."""
        return self._seen.passes

    @property
    def pass_us(self) -> float:
        """What a target pass takes, with this session's drafted nodes; 0: not known yet."""
        return self._seen.passes.predict(1 + self.limits.num_speculative_tokens)

    def is_due_for_placement(self) -> bool:
        """Whether it is time to look again which drafts it should have."""
        now = time.monotonic()
        if now < self._placed_at + PLACEMENT_S:
            return False
        self._placed_at = now
        return True

    def is_due_for_swap(self) -> bool:
        """Whether it may leave a draft for a better one now; asked when there is one."""
        now = time.monotonic()
        if now < self._swapped_at + SWAP_S:
            return False
        self._swapped_at = now
        return True

    def detach(self, draft: Attached, problem: str | None, *, may_return: bool = True) -> None:
        """Goes on without a draft. `problem` None: it did nothing wrong."""
        self._leave(draft)
        if problem is not None:
            self._ended[draft.peer.name] += 1 if may_return else MOST_JOINS
            draft.stats.lost = True
            self.notice(f"draft {draft.stats.name} was lost: {problem}")
            self._wait_for_nobody_gone()

    def spare(self, draft: Attached, problem: str) -> None:
        """Goes on without a draft that has no room for it now; it may come back, each time later:
        every time takes an index.
        """
        name = draft.peer.name
        self._spared[name] += 1
        wait_s = min(2.0 ** self._spared[name], MOST_SPARED_S)
        self._away_until[name] = time.monotonic() + wait_s
        self._leave(draft)
        self.notice(f"draft {draft.stats.name} has no room for now: {problem}")
        self._wait_for_nobody_gone()

    def retire(self, draft: Attached, done: Done) -> None:
        """Goes on without a draft that has nothing more to say; it is not lost."""
        self._leave(draft)
        self._ended[draft.peer.name] = MOST_JOINS
        self.notice(f"draft {draft.stats.name} stopped helping: {done.reason}")
        self._wait_for_nobody_gone()

    def note_opened(self, opened: Opened) -> None:
        """How much of the prompt the target had cached; a resumed session reuses more. And whether
        what was delivered to the caller is the whole answer.
        """
        self.finish_reason = self.finish_reason or opened.finish_reason
        if not self.stats.resumes:
            self.stats.cached_tokens = min(opened.cached_tokens, len(self.prompt_ids))

    def forgive(self, paused_s: float) -> None:
        """For so long nobody asked for more, and nothing was listened to."""
        now = time.monotonic()
        for link in (self.verify, *(draft.link for draft in self.team)):
            if link is not None:
                link.heard_at = min(now, link.heard_at + paused_s)

    def attached(self, link: AnyLink) -> Attached | None:
        """The draft behind a link, if it still takes part."""
        return next((draft for draft in self.team if draft.link is link), None)

    def relay(self, draft: Attached, relayed: RelayedChunk) -> None:
        """Passes a draft's chunk on, to the drafts that share the tree with it too, unless nothing
        of it is alive.

        Raises InvalidArgumentError where the chunk breaks the protocol.
        """
        draft.count(relayed)
        growth = self.tree.grow(relayed.chunk)
        if growth.duplicate:
            raise InvalidArgumentError("it sent a node id twice")
        if self.verify is None or growth.dropped == len(relayed.chunk.nodes):
            return
        self.verify.extend(relayed)
        self.team.tell(draft, relayed)

    def reconcile(self, verdict: Verdict) -> Tokens | None:
        """Commits a verdict everywhere; returns the tokens, None where they are known already.

        Nothing behind a stop string is committed, emitted or counted.
        """
        known = len(self.tree.committed)
        if verdict.base + len(verdict.tokens) <= known:
            return None
        if verdict.base != known:
            raise InternalError(
                f"the verifier's verdict starts at token {verdict.base}, {known} are committed"
            )
        started_ns = time.perf_counter_ns()
        verdict, tokens = self._answer.take(verdict)
        self.stats.guesses.note(self.tree.root, verdict.tokens)
        self.team.judge(self.tree.root, verdict.tokens)
        self.tree.commit(verdict.tokens, fresh=verdict.fresh)
        has_waited = self._plan.has_waited(verdict.timing)
        seen = self._seen.with_drafts(self.team.paces)
        self._seen = seen.with_verdict(verdict, has_waited=has_waited)
        self.finish_reason = verdict.finish_reason
        self._count(verdict)
        if self.finish_reason is None:
            self._replan(verdict)
        else:
            # The verifier knows nothing of stop strings: it would go on.
            self.close()
        self.stats.reconcile_us += (time.perf_counter_ns() - started_ns) // 1000
        return Tokens(tokens, verdict.drafted, verdict.timing)

    def notice(self, text: str) -> None:
        """Something the user should know; told once, however often it happens."""
        if text not in self.notices:
            self.notices.append(text)

    def started(self) -> Started:
        """The first event."""
        self._notices_given = len(self.notices)
        return Started(
            self.request.request_id,
            self.request.sampling.seed or 0,
            len(self.prompt_ids),
            tuple(draft.stats.name for draft in self.drafts.values()),
            tuple(self.notices),
            self.sampling.mode,
            self.target.model_name,
            len(self.request.delivered_ids),
        )

    def finished(self) -> Finished:
        """The last event; its notices are those that the first one could not know yet."""
        if self.finish_reason is None:
            raise InternalError("the generation has not ended")
        self.close()
        self.stats.messages, self.stats.wire_bytes = self._wire
        self.stats.total_us = self._elapsed_us()
        new_notices = tuple(self.notices[self._notices_given :])
        named = self.request.stop.named(self.tree.committed[-1:], self.target.eos_token_ids)
        return Finished(
            self.finish_reason, self.stats, new_notices, self._answer.stop_string, named
        )

    def close(self) -> None:
        """Ends every link; the services free what they held."""
        for draft in list(self.drafts.values()):
            self.detach(draft, None)
        if self.verify is not None:
            self._let_go(self.verify)
            self.verify = None

    def _replan(self, verdict: Verdict) -> None:
        new_plan = plan(self._seen, self.limits, bool(self.drafts), self._plan)
        commit = DraftCommit(verdict.base, verdict.tokens, None, verdict.fresh)
        self.team.divide()
        for draft in self.team:
            away_us = draft.pace.round_trip_us
            planned = draft_at(new_plan, self._seen, self.limits, away_us, draft.plan)
            draft.commit(commit, self.team.plan_of(draft, planned))
        self._set_policy(new_plan)

    def _leave(self, draft: Attached) -> None:
        if self.team.leave(draft):
            draft.peer.sessions -= 1
        self._let_go(draft.link)

    def _wait_for_nobody_gone(self) -> None:
        """Where the last draft has left, the next pass waits for none."""
        if not self.drafts and self.verify is not None:
            self._set_policy(plan(self._seen, self.limits, False, self._plan))

    def _set_policy(self, new_plan: Plan) -> None:
        if self.verify is not None and new_plan.policy != self._plan.policy:
            self.verify.set_policy(new_plan.policy)
        self._plan = new_plan

    def _count(self, verdict: Verdict) -> None:
        stats = self.stats
        if not stats.emitted_tokens:
            stats.first_token_us = self._elapsed_us()
        stats.emitted_tokens += len(verdict.tokens)
        stats.target_passes += 1
        stats.verified_tokens += verdict.drafted
        stats.drafted_passes += 1 if verdict.drafted else 0
        timing = verdict.timing
        stats.wait_us.append(min(timing.wait_us, 2**32 - 1))
        stats.pass_rows.append(timing.rows)
        stats.forward_us.append(min(timing.forward_us, 2**32 - 1))
        stats.queue_us += timing.queue_us
        stats.gap_us.append(min(timing.gap_us, 2**32 - 1))
        stats.batch_rows.append(timing.batch_rows)
        stats.accept_us += timing.accept_us
        per_position = stats.accepted_per_position
        for position, node_id in enumerate(verdict.node_ids):
            if node_id:
                stats.accepted_tokens += 1
                per_position.extend([0] * (position + 1 - len(per_position)))
                per_position[position] += 1
                author = self._names.get(node_id >> DRAFT_INDEX_SHIFT)
                if author is not None:
                    author.accepted_tokens += 1

    def _author(self, node_id: int) -> str:
        author = self._names.get(node_id >> DRAFT_INDEX_SHIFT) if node_id else None
        return author.name if author is not None else ""

    def _let_go(self, link: AnyLink) -> None:
        self._wire[0] += link.messages
        self._wire[1] += link.wire_bytes
        link.close()

    def _elapsed_us(self) -> int:
        return (time.perf_counter_ns() - self._started_ns) // 1000
