"""The idea of the draft side: one draft pass over many sessions, each gets its next proposal.

Knows models and proposals; knows no gRPC and no queues.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from draft_service.chances import Chances
from draft_service.sessions import DraftSession, Task
from draft_service.translation import SameIds, Translation
from draft_service.vocabularies import Target, Vocabularies
from outrider.errors import InvalidArgumentError, OutriderError
from outrider.models.base import CausalModel
from outrider.nodes import TreeNode
from outrider.pass_times import PassTimes
from outrider.sampling.history import History
from outrider.sampling.proposing import Proposal, propose
from outrider.types import Chunk, DraftCommit, DraftOpening


@dataclass(frozen=True, slots=True)
class Prepared:
    """A session to be opened: its tokens in the model's ids, the number of the target's ids that
    it may meet, and what its first proposal is conditioned on.
    """

    opening: DraftOpening
    translation: Translation
    model_ids: list[int]
    vocab_size: int
    history: History


class Drafter:
    """The draft model's owner. One thread, the caller's, does everything but `prepare`, which
    touches neither the model nor a session and may run beside it.
    """

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self.vocabularies = Vocabularies(model)
        self.chances = Chances()
        self.times = PassTimes()

    def prepare(self, opening: DraftOpening, target: Target) -> Prepared:
        """What takes time and no model: the tokens as the draft reads them, and the grammar. May
        be called in any thread.

        Raises InvalidArgumentError for a token outside the vocabulary, and for a grammar that is
        none.
        """
        tokens = (*opening.prompt_ids, *opening.emitted_ids)
        vocab_size = opening.vocab_size
        if isinstance(target.translation, SameIds):
            vocab_size = min(vocab_size, self.model.info.vocab_size or vocab_size)
        if max(tokens) >= vocab_size:
            raise InvalidArgumentError(
                f"token id {max(tokens)} is outside the draft's vocabulary of {vocab_size} ids"
            )
        model_ids = target.translation.prompt(opening.prompt_ids)
        for token in opening.emitted_ids:
            model_ids += target.translation.token(token)
        history = History.of(
            opening.sampling,
            opening.prompt_ids,
            ends=opening.end_token_ids,
            min_tokens=opening.min_tokens,
            grammar=target.compile(opening.sampling.grammar),
        ).after(opening.emitted_ids)
        return Prepared(opening, target.translation, model_ids, vocab_size, history)

    def open(self, opening: DraftOpening) -> DraftSession:
        """`prepare` and `start` in one, for whoever has nothing to keep free meanwhile."""
        return self.start(self.prepare(opening, self.vocabularies.find(opening.tokenizer_hash)))

    def start(self, prepared: Prepared) -> DraftSession:
        """A session with whatever prefix of its tokens is cached."""
        return DraftSession(
            prepared.opening,
            self.model.open(prepared.model_ids),
            prepared.translation,
            prepared.model_ids,
            prepared.vocab_size,
            self.model.info.context_tokens,
            prepared.history,
            self.chances,
        )

    def close(self, session: DraftSession) -> None:
        """Frees the session's sequence."""
        self.model.close(session.sequence)

    def commit(self, session: DraftSession, commit: DraftCommit) -> None:
        """Keeps the surviving branch and its KV, drops the rest."""
        path, surviving = session.commit(commit)
        self.model.keep(session.sequence, path, surviving)

    def step(
        self, tasks: Sequence[tuple[DraftSession, Task]]
    ) -> list[Chunk | OutriderError | None]:
        """One draft pass; per session the new nodes, None (a prompt chunk, nothing to propose), or
        what went wrong for it.

        Raises CapacityError, with nothing changed, where the KV cache cannot hold the pass.
        """
        started = time.perf_counter_ns()
        logits = self.model.forward([task.feed for _, task in tasks])
        step_us = (time.perf_counter_ns() - started) // 1000
        self.times = self.times.add(sum(len(task.tokens) for _, task in tasks), step_us)
        chunks: list[Chunk | OutriderError | None] = []
        for (session, task), rows in zip(tasks, logits, strict=True):
            try:
                chunks.append(self._grow(session, task, rows, step_us))
            except OutriderError as error:
                chunks.append(error)
        return chunks

    def _grow(self, session: DraftSession, task: Task, rows: Tensor, step_us: int) -> Chunk | None:
        session.fed(task)
        if task.committed:
            first = session.sequence.next_node - len(task.tokens)
            committed = range(first, first + task.committed)
            self.model.keep(session.sequence, committed, session.numbers.values())
        opening, plan = session.opening, session.plan
        proposals: list[tuple[TreeNode, Proposal]] = []
        for node, row in zip(task.targets, rows, strict=True):
            proposal = propose(
                session.translation.rows(row)[: opening.vocab_size],
                opening.sampling,
                session.noise,
                position=len(opening.prompt_ids) + node.position,
                width=plan.width,
                top_k=plan.proposal_top_k,
                draw_index=session.next_id() + sum(len(p.candidates) for _, p in proposals),
                history=session.history_at(node),
            )
            proposals.append((node, proposal))
        return session.grow(proposals, step_us)
