"""One request's state in the orchestrator: its links, its tree, its plan and its counts.

Knows the verify and draft protocols; the order of things is the engine's.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.answer import Answer
from orchestrator.attached import Attached
from orchestrator.joining import alive
from orchestrator.peers import DraftPeer, VerifyPeer
from orchestrator.placement import Share, shares
from orchestrator.planner import Limits, Observations, Plan, plan
from orchestrator.requests import (
    DraftStats,
    Finished,
    GenerationRequest,
    Started,
    Stats,
    Tokens,
)
from outrider.errors import InternalError, InvalidArgumentError
from outrider.nodes import TreeNode
from outrider.pass_times import PassTimes
from outrider.plans import MAX_DRAFT_INDEX, DraftPart
from outrider.seeds import choice_seed
from outrider.tree import TokenTree
from outrider.types import (
    DRAFT_INDEX_SHIFT,
    DraftCommit,
    DraftOpening,
    FinishReason,
    ModelInfo,
    SamplingParams,
    Verdict,
    VerifyOpening,
)
from outrider.vocabulary import Vocabulary
from outrider.wire.convert import chunk_to
from outrider.wire.draft_client import Done, Opened, RelayedChunk
from outrider.wire.links import Arrival, Link
from outrider.wire.verify_client import VerifyStream

INBOX_ARRIVALS = 256

MOST_JOINS = 3
"""A draft that failed a session so often is not asked again in it."""

PLACEMENT_S = 0.25
"""How often it is looked at which drafts a session should have."""

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
        self.prompt_ids = prompt_ids
        self.sampling = sampling_of(request)
        self.target = target
        self.limits = limits
        self.inbox: asyncio.Queue[Arrival] = asyncio.Queue(INBOX_ARRIVALS)
        self.tree = TokenTree()
        self.stats = Stats(prompt_tokens=len(prompt_ids))
        self.notices: list[str] = []
        self.finish_reason: FinishReason | None = None
        self.verify: VerifyStream | None = None
        self.drafts: dict[int, Attached] = {}
        self._answer = Answer(request, vocabulary, self._author)
        self._names: dict[int, DraftStats] = {}
        self._shares: dict[int, Share] = {}
        self._ended: Counter[str] = Counter()
        self._placed_at = time.monotonic()
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
            self.request.request_id,
            self.prompt_ids,
            tuple(self.tree.committed),
            self.sampling,
            self.request.stop,
            self._plan.policy,
            self.request.logprobs,
        )
        self.verify = peer.client.verify(peer.name, opening, self.inbox)

    def attach(self, peer: DraftPeer) -> None:
        """Lets a draft take part from here on; it needs no answer to begin with."""
        index = len(self._names) + 1
        if index > MAX_DRAFT_INDEX:
            return
        draft_plan = plan(self._seen, self.limits, True, self._plan).draft
        if self.sampling.draws_proposals:
            draft_plan = replace(draft_plan, part=DraftPart.CHAIN)
        opening = DraftOpening(
            self.request.request_id,
            index,
            self.prompt_ids,
            tuple(self.tree.committed),
            self.sampling,
            draft_plan,
            self.target.tokenizer_hash,
            self.target.vocab_size,
            self.request.stop.ends(self.target.eos_token_ids),
            self.request.stop.min_tokens,
        )
        known = next((s for s in self.stats.drafts if s.name == peer.name), None)
        stats = known or DraftStats(peer.name)
        if known is None:
            self.stats.drafts.append(stats)
        link = peer.client.draft(peer.name, opening, self.inbox)
        self._names[index] = stats
        self.drafts[index] = Attached(
            peer, index, link, stats, opening.plan, returns=known is not None
        )
        peer.sessions += 1
        self._seen = self._seen.with_round_trip(peer.round_trip_us)
        self._tell_what_is_alive(self.drafts[index])
        self._divide()

    def _tell_what_is_alive(self, draft: Attached) -> None:
        """Its part of the tree may hang off what others made before it joined."""
        if self.sampling.draws_proposals:
            return
        alike = {
            i for i, d in self.drafts.items() if d is not draft and d.peer.law == draft.peer.law
        }
        known = alive(self.tree, alike)
        if known is not None:
            draft.link.branches(RelayedChunk(known, chunk_to(known)))

    def may_have(self, peer: DraftPeer) -> bool:
        """Whether a draft may stay or join, again perhaps: not one that is done, nor one that keeps
        failing, nor any when all indices are used up."""
        if any(draft.peer is peer for draft in self.drafts.values()):
            return True
        return len(self._names) < MAX_DRAFT_INDEX and self._ended[peer.name] < MOST_JOINS

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

    def detach(self, draft: Attached, problem: str | None, *, may_return: bool = True) -> None:
        """Goes on without a draft. `problem` None: it did nothing wrong."""
        self._leave(draft)
        if problem is not None:
            self._ended[draft.peer.name] += 1 if may_return else MOST_JOINS
            draft.stats.lost = True
            self.notice(f"draft {draft.stats.name} was lost: {problem}")
            self._wait_for_nobody_gone()

    def retire(self, draft: Attached, done: Done) -> None:
        """Goes on without a draft that has nothing more to say; it is not lost."""
        self._leave(draft)
        self._ended[draft.peer.name] = MOST_JOINS
        self.notice(f"draft {draft.stats.name} stopped helping: {done.reason}")
        self._wait_for_nobody_gone()

    def note_opened(self, opened: Opened) -> None:
        """How much of the prompt the target had cached; a resumed session reuses more."""
        if not self.stats.resumes:
            self.stats.cached_tokens = opened.cached_tokens

    def attached(self, link: AnyLink) -> Attached | None:
        """The draft behind a link, if it still takes part."""
        return next((d for d in self.drafts.values() if d.link is link), None)

    def relay(self, draft: Attached, relayed: RelayedChunk) -> None:
        """Passes a draft's chunk on, to the drafts that share the tree with it too, unless nothing
        of it is alive. Drafts that draw share nothing: none may go by what another one drew.

        Raises InvalidArgumentError where the chunk breaks the protocol.
        """
        draft.count(relayed)
        growth = self.tree.grow(relayed.chunk)
        if growth.duplicate:
            raise InvalidArgumentError("it sent a node id twice")
        self._seen = self._seen.with_step(relayed.chunk.step_us)
        if self.verify is None or growth.dropped == len(relayed.chunk.nodes):
            return
        self.verify.extend(relayed)
        if self.sampling.draws_proposals:
            return
        for other in self.drafts.values():
            if other is not draft and other.peer.law == draft.peer.law:
                other.link.branches(relayed)

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
        self._judge(verdict.tokens)
        self.tree.commit(verdict.tokens, fresh=verdict.fresh)
        has_waited = self._plan.policy.min_depth > 0
        self._seen = self._seen.with_verdict(verdict, has_waited=has_waited)
        self.finish_reason = verdict.finish_reason
        self._count(verdict)
        if self.finish_reason is None:
            self._replan(verdict)
        else:
            # The verifier knows nothing of stop strings: it would go on.
            self.close()
        self.stats.reconcile_us += (time.perf_counter_ns() - started_ns) // 1000
        return Tokens(tokens)

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
        )

    def finished(self) -> Finished:
        """The last event; its notices are those that the first one could not know yet."""
        if self.finish_reason is None:
            raise InternalError("the generation has not ended")
        self.close()
        self.stats.messages, self.stats.wire_bytes = self._wire
        self.stats.total_us = self._elapsed_us()
        new_notices = tuple(self.notices[self._notices_given :])
        return Finished(self.finish_reason, self.stats, new_notices, self._answer.stop_string)

    def close(self) -> None:
        """Ends every link; the services free what they held."""
        for draft in list(self.drafts.values()):
            self.detach(draft, None)
        if self.verify is not None:
            self._let_go(self.verify)
            self.verify = None

    def _judge(self, tokens: Sequence[int]) -> None:
        """Tells what became of each draft's guesses, before `tokens` are committed. Which drafts a
        session has must come of nothing that is undecided (exactness, trap 2).
        """
        node: TreeNode | None = self.tree.root
        for token in tokens:
            if node is None:
                return
            guessed = {i >> DRAFT_INDEX_SHIFT for c in node.children.values() for i in c.ids}
            node = node.children.get(token)
            right = {i >> DRAFT_INDEX_SHIFT for i in node.ids} if node is not None else set()
            for index in guessed & self.drafts.keys():
                self.drafts[index].peer.judge(index in right)

    def _replan(self, verdict: Verdict) -> None:
        new_plan = plan(self._seen, self.limits, bool(self.drafts), self._plan)
        commit = DraftCommit(verdict.base, verdict.tokens, None, verdict.fresh)
        for index, draft in self.drafts.items():
            share = self._shares[index]
            draft.commit(
                commit,
                replace(new_plan.draft, part=share.part, share=share.share, shares=share.shares),
            )
        self._set_policy(new_plan)

    def _divide(self) -> None:
        """Gives each draft its part of the tree; it is told with the next verdict."""
        laws = {index: draft.peer.law for index, draft in self.drafts.items()}
        self._shares = shares(laws, draws=self.sampling.draws_proposals)

    def _leave(self, draft: Attached) -> None:
        if self.drafts.pop(draft.index, None) is not None:
            draft.peer.sessions -= 1
        self._let_go(draft.link)
        self._divide()

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


def sampling_of(request: GenerationRequest) -> SamplingParams:
    """What verifier and drafts sample by: each choice with its own seed."""
    sampling = request.sampling
    if sampling.seed is None or request.mode is None:
        raise InternalError("a session needs a seed and a mode; the engine has to settle them")
    return replace(
        sampling, seed=choice_seed(sampling.seed, request.choice_index), mode=request.mode
    )
