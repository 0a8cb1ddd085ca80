"""One session of the verify side: its tree, what the target has to run next, and where it ends.

Knows no gRPC and no model; time comes in as an argument.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace

from outrider.errors import CapacityError, InvalidArgumentError, OutriderError
from outrider.models.base import ModelSequence
from outrider.plans import ReadinessPolicy
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise
from outrider.selection import Selection
from outrider.tree import Subtree, TokenTree
from outrider.types import Chunk, FinishReason, ModelInfo, Verdict, VerifyOpening
from verify_service.settled import Batch, Settled
from verify_service.verifier import Outcome, Work

MAX_UNREAD_VERDICTS = 64

MAX_NEWS = 4096


@dataclass(slots=True, eq=False)
class Session:
    """State of one session. `changed` is set whenever there is something to tell the caller.

    Two threads share it: the model's has the tree, the policy and all that passes change, which it
    lends (`Trees`) while the model runs; the event loop leaves what arrives in `_news`, reads
    verdicts, and may end it. `history` is the one at the committed tip; passes bring its next one
    (`Outcome.history`). Of what it was opened with `cached_tokens` had KV before any pass; `at_end`
    tells why nothing follows it, where that is so.
    """

    opening: VerifyOpening
    sequence: ModelSequence
    history: History
    limit: int
    tree: TokenTree
    opened_at: float
    policy: ReadinessPolicy = field(init=False)
    cached_tokens: int = field(init=False)
    noise: PhiloxNoise = field(init=False)
    at_end: FinishReason | None = None
    error: OutriderError | None = None
    finish_reason: FinishReason | None = None
    round_index: int = 0
    last_verdict_at: float = field(init=False)
    enough_since: float | None = None
    is_closed: bool = False
    dropped_nodes: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _unread: deque[Settled] = field(default_factory=deque)
    _news: deque[tuple[float, Chunk | ReadinessPolicy]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.policy = self.opening.policy
        self.cached_tokens = len(self.sequence.tokens)
        self.noise = PhiloxNoise(self.opening.sampling.seed or 0)
        self.last_verdict_at = self.opened_at
        self.finish_reason = self.at_end

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.opening.prompt_ids) + len(self.tree.committed)

    @property
    def is_live(self) -> bool:
        """Whether a pass could still do something for it."""
        return not (self.is_closed or self.finish_reason or self.error)

    @property
    def missing(self) -> int:
        """How many committed tokens still need KV."""
        return self.length - len(self.sequence.tokens)

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the tip's own token still needs KV."""
        return self.missing > 1

    def ready_at(self) -> float | None:
        """When the session may be verified: now, later by policy, or None: not before something
        changes.
        """
        if not self.is_live or len(self._unread) >= MAX_UNREAD_VERDICTS:
            return None
        if self.is_prefilling or self._has_enough():
            return 0.0
        return self.last_verdict_at + self.policy.max_wait_us / 1e6

    def _has_enough(self) -> bool:
        """Whether the candidates that the policy waits for are there.

        Where drafts draw, only those right below the tip count: whether more follow a sampled token
        depends on that token, and a pass must not be timed by it. Elsewhere a draft has nothing to
        add to a path that ends the text.
        """
        wanted = min(self.policy.min_depth, self._room() - 1)
        if wanted <= 0:
            return True
        if self.opening.sampling.draws_proposals:
            return self.tree.pending_at_tip >= 1
        is_full = self.tree.pending >= self.tree.capacity
        return is_full or self.tree.depth >= wanted or self.tree.is_pending(self.history.ends)

    @property
    def verdicts(self) -> list[Verdict]:
        """Those that wait for the caller."""
        return [settled.verdict for settled in self._unread]

    @property
    def unread_since(self) -> float | None:
        """When the oldest of them fell."""
        return self._unread[0].at if self._unread else None

    def tell(self, news: Chunk | ReadinessPolicy, now: float) -> None:
        """Nodes for the tree, or a new policy; in effect from the next look at the session on.

        Raises CapacityError where so much waits already that the caller must be misbehaving.
        """
        if len(self._news) >= MAX_NEWS:
            raise CapacityError(f"{MAX_NEWS} messages wait to be looked at; slow down")
        self._news.append((now, news))

    def take_news(self) -> None:
        """The tree grows with whatever is alive of the chunks that have come; the last policy
        counts. Rows beyond those that room was promised for when it opened are cut.
        """
        while self._news:
            at, news = self._news.popleft()
            try:
                if isinstance(news, Chunk):
                    self.dropped_nodes += self.tree.grow(news).dropped
                else:
                    promised = self.opening.policy.max_rows
                    self.policy = replace(news, max_rows=min(news.max_rows, promised))
            except OutriderError as error:
                self.error = self.error or error
            self._note_candidates(at)

    def offer(self, selection: Selection) -> None:
        """Its tree takes part in what a pass verifies."""
        selection.add(
            self.tree.root,
            most=self.policy.max_rows,
            deepest=self.tree.root.position + self._room() - 1,
            min_chance=self.policy.min_chance,
        )

    def pending(self, most: int) -> tuple[int, ...]:
        """The first `most` committed tokens that have no KV."""
        prompt = self.opening.prompt_ids
        start = len(self.sequence.tokens)
        end = start + most
        tokens = prompt[start:end]
        if end <= len(prompt):
            return tokens
        committed = self.tree.committed
        return (*tokens, *committed[max(0, start - len(prompt)) : end - len(prompt)])

    def work(self, pending: tuple[int, ...], subtree: Subtree | None) -> Work:
        """Its part of a pass; `subtree` None: a chunk of the prompt."""
        sampling, position = self.opening.sampling, self.length
        if subtree is None:
            return Work(self.sequence, pending, None, sampling, self.noise, position)
        return Work(
            self.sequence,
            pending,
            subtree,
            sampling,
            self.noise,
            position,
            self.history,
            self.opening.logprobs,
        )

    def part(self, budget: int) -> Work:
        """Its part of a pass that shares nothing with others, at most `budget` tokens."""
        pending = self.pending(budget)
        if self.missing > budget:
            return self.work(pending, None)
        selection = Selection()
        self.offer(selection)
        return self.work(pending, selection.take(budget - len(pending))[0])

    def settle(self, work: Work, outcome: Outcome, batch: Batch, now: float) -> None:
        """Commits the outcome of a pass and leaves its verdict to be read."""
        if outcome.acceptance is None or work.subtree is None or not self.is_live:
            return
        path = outcome.acceptance.path
        tokens = [work.subtree.nodes[row - 1].token for row in path] + [outcome.acceptance.token]
        base = len(self.tree.committed)
        tokens, self.finish_reason = self._cut(tokens, outcome.complete_at)
        ids = self.tree.commit(tokens, fresh=outcome.acceptance.fresh)
        self.history = outcome.history  # of the whole run; where that was cut, nothing follows
        settled = Settled(
            at=now,
            round_index=self.round_index,
            base=base,
            tokens=tuple(tokens),
            ids=tuple(ids),
            accepted=len(path),
            finish_reason=self.finish_reason,
            drafted=len(work.subtree),
            missed=len(tokens) > len(path) and work.subtree.has_children(path[-1] if path else 0),
            rows=work.num_tokens,
            outcome=outcome,
            batch=batch,
            wait_us=max(0, int((batch.started_at - self.last_verdict_at) * 1e6)),
            # The first pass ends with the prompt, which is no waiting.
            queue_us=batch.queued_us(self._due_since()) if self.round_index else 0,
        )
        self.round_index += 1
        self.last_verdict_at = now
        self.enough_since = None
        self._note_candidates(batch.ended_at)
        self._unread.append(settled)

    def read(self) -> list[Verdict]:
        """Takes the verdicts that wait for the caller."""
        verdicts = []
        while self._unread:
            verdicts.append(self._unread.popleft().verdict)
        return verdicts

    def fail(self, error: OutriderError) -> None:
        """Ends the session with an error for its caller; only in the event loop's thread."""
        self.error = self.error or error
        self.changed.set()

    def ready_since(self) -> float:
        """Since when it could have been verified; a prompt could be read from the opening on."""
        return self.opened_at if self.is_prefilling else self._due_since()

    def _due_since(self) -> float:
        """Since when a verdict was due, once its prompt was read."""
        waited = self.last_verdict_at + self.policy.max_wait_us / 1e6
        return waited if self.enough_since is None else min(waited, self.enough_since)

    def _note_candidates(self, now: float) -> None:
        """Remembers since when those that the policy waits for are there."""
        if not self._has_enough():
            self.enough_since = None
        elif self.enough_since is None:
            self.enough_since = now

    def _room(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.tree.committed)

    def _cut(
        self, tokens: list[int], complete_at: int | None
    ) -> tuple[list[int], FinishReason | None]:
        """Ends an accepted run at the first stop token, where the grammar is complete, or at the
        length limit.
        """
        room = self._room()
        for count, token in enumerate(tokens[:room], start=1):
            if token in self.history.ends or count == complete_at:
                return tokens[:count], FinishReason.STOP
        if len(tokens) >= room:
            return tokens[:room], FinishReason.LENGTH
        return tokens, None


def reached_end(opening: VerifyOpening, history: History, target: ModelInfo) -> FinishReason | None:
    """Why nothing follows the emitted tokens: whoever lost a stream with them cannot know. None:
    more does.

    Raises InvalidArgumentError where they break the grammar.
    """
    emitted, grammar = opening.emitted_ids, history.grammar
    room = target.context_tokens - len(opening.prompt_ids)
    reached = opening.stop.reached(emitted, target.eos_token_ids, room)
    if reached is FinishReason.STOP or not emitted or grammar is None:
        return reached
    if grammar.is_finished:
        return FinishReason.STOP
    if grammar.problem:
        raise InvalidArgumentError(
            f"after {len(emitted)} tokens the grammar became too much to follow: "
            f"{grammar.problem}; give a simpler one"
        )
    if grammar.is_over:
        raise InvalidArgumentError(
            f"the {len(emitted)} tokens emitted before do not match the grammar; give those "
            "of this request"
        )
    return reached
