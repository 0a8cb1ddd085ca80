"""One session of the verify side: its tree, what the target has to run next, and where it ends.

Knows no gRPC and no model; time comes in as an argument.
"""

import asyncio
from dataclasses import dataclass, field, replace

from outrider.errors import OutriderError
from outrider.models.base import ModelSequence
from outrider.sampling.history import History
from outrider.sampling.noise import PhiloxNoise
from outrider.tree import TokenTree
from outrider.types import (
    AcceptanceMode,
    Chunk,
    FinishReason,
    ReadinessPolicy,
    StepTiming,
    Verdict,
    VerifyOpening,
)
from verify_service.verifier import Outcome, Work

MAX_UNREAD_VERDICTS = 64


@dataclass(slots=True, eq=False)
class Session:
    """State of one session. `changed` is set whenever there is something to tell the caller.

    `history` is the one at the committed tip; passes bring its next one (`Outcome.history`), for
    following a grammar is no work for an event loop.
    """

    opening: VerifyOpening
    sequence: ModelSequence
    history: History
    limit: int
    tree: TokenTree
    opened_at: float
    policy: ReadinessPolicy = field(init=False)
    noise: PhiloxNoise = field(init=False)
    verdicts: list[Verdict] = field(default_factory=list)
    error: OutriderError | None = None
    finish_reason: FinishReason | None = None
    round_index: int = 0
    last_verdict_at: float = field(init=False)
    unread_since: float | None = None
    enough_since: float | None = None
    is_running: bool = False
    is_closed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.policy = self.opening.policy
        self.noise = PhiloxNoise(self.opening.sampling.seed or 0)
        self.last_verdict_at = self.opened_at

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.opening.prompt_ids) + len(self.tree.committed)

    @property
    def is_live(self) -> bool:
        """Whether a pass could still do something for it."""
        return not (self.is_closed or self.finish_reason or self.error)

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the tip's own token still needs KV."""
        return self.length - len(self.sequence.tokens) > 1

    def ready_at(self) -> float | None:
        """When the session may be verified: now, later by policy, or None: not before something
        changes.
        """
        if not self.is_live or self.is_running or len(self.verdicts) >= MAX_UNREAD_VERDICTS:
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
        wanted = min(self.policy.min_nodes, self._room() - 1, self.tree.capacity)
        if self.opening.sampling.draws_proposals:
            return self.tree.pending_at_tip >= min(wanted, 1)
        return self.tree.pending >= wanted or self.tree.is_pending(self.history.ends)

    def extend(self, chunk: Chunk) -> None:
        """The tree grows with whatever of the chunk is alive."""
        self.tree.grow(chunk)

    def note_candidates(self, now: float) -> None:
        """Remembers since when those that the policy waits for are there."""
        if not self._has_enough():
            self.enough_since = None
        elif self.enough_since is None:
            self.enough_since = now

    def work(self, budget: int) -> Work:
        """What the next pass runs, at most `budget` tokens (at least one)."""
        position = self.length
        tokens = (*self.opening.prompt_ids, *self.tree.committed)
        pending = tokens[len(self.sequence.tokens) :]
        sampling = self.opening.sampling
        if len(pending) > budget:
            return Work(self.sequence, pending[:budget], None, sampling, self.noise, position)
        subtree = self.tree.select(
            min(budget - len(pending), self.policy.max_rows),
            max_depth=self._room() - 1,
            by_rank=not sampling.is_greedy and sampling.mode is AcceptanceMode.COUPLED,
        )
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

    def settle(self, work: Work, outcome: Outcome, started: float, now: float, batch: int) -> None:
        """Commits the outcome of a pass and leaves its verdict to be read."""
        if outcome.acceptance is None or work.subtree is None or not self.is_live:
            return
        path = outcome.acceptance.path
        tokens = [work.subtree.nodes[row - 1].token for row in path] + [outcome.acceptance.token]
        base = len(self.tree.committed)
        tokens, self.finish_reason = self._cut(tokens, outcome.complete_at)
        ids = self.tree.commit(tokens, fresh=outcome.acceptance.fresh)
        self.history = outcome.history  # of the whole run; where that was cut, nothing follows
        accepted = min(len(path), len(tokens))
        verdict = Verdict(
            round_index=self.round_index,
            base=base,
            tokens=tuple(tokens),
            node_ids=tuple(ids[i][0] if i < accepted and ids[i] else 0 for i in range(len(tokens))),
            drafted=len(work.subtree),
            finish_reason=self.finish_reason,
            timing=StepTiming(
                wait_us=max(0, int((started - self.last_verdict_at) * 1e6)),
                forward_us=outcome.forward_us,
                accept_us=outcome.accept_us,
                rows=work.num_tokens,
                batch_sessions=batch,
                queue_us=int((started - self._ready_since(started)) * 1e6),
            ),
            logprobs=outcome.logprobs[: len(tokens)],
            fresh=outcome.acceptance.fresh,
        )
        self.round_index += 1
        self.last_verdict_at = now
        self.enough_since = None
        self.note_candidates(now)
        self.verdicts.append(verdict)
        self.unread_since = self.unread_since or now
        self.changed.set()

    def set_policy(self, policy: ReadinessPolicy) -> None:
        """From now on; rows beyond those that room was promised for when it opened are cut."""
        promised = self.opening.policy.max_rows
        self.policy = replace(policy, max_rows=min(policy.max_rows, promised))

    def read(self) -> list[Verdict]:
        """Takes the verdicts that wait for the caller."""
        verdicts, self.verdicts, self.unread_since = self.verdicts, [], None
        return verdicts

    def fail(self, error: OutriderError) -> None:
        """Ends the session with an error for its caller."""
        self.error = self.error or error
        self.changed.set()

    def _ready_since(self, started: float) -> float:
        """Since when it could have been verified, before a pass that `started` then. The first pass
        ends with the prompt, which is no waiting.
        """
        if self.round_index == 0:
            return started
        waited = self.last_verdict_at + self.policy.max_wait_us / 1e6
        since = waited if self.enough_since is None else min(waited, self.enough_since)
        return min(max(since, self.last_verdict_at), started)

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
