"""The idea of the draft side: one draft pass over many sessions, each gets its next proposal.

Knows models and proposals; knows no gRPC and no queues.
"""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draft_service.chances import Chances
from draft_service.sessions import DraftSession, Task
from draft_service.translation import SameIds, Translation
from draft_service.vocabularies import Target, Vocabularies
from outrider.errors import InvalidArgumentError, OutriderError
from outrider.models.base import CausalModel
from outrider.pass_times import PassTimes
from outrider.sampling.history import History
from outrider.sampling.noise import DraftNoise
from outrider.sampling.proposing import Proposal, propose, propose_listed
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
        self.last_pass = (0, 0)
        """Its rows, and the microseconds that it took."""

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
        started_ns = time.perf_counter_ns()
        logits = self.model.forward([task.feed for _, task in tasks])
        proposals = self._propose(tasks, logits)
        step_us = (time.perf_counter_ns() - started_ns) // 1000
        chunks: list[Chunk | OutriderError | None] = []
        for (session, task), found in zip(tasks, proposals, strict=True):
            if isinstance(found, OutriderError):
                chunks.append(found)
                continue
            chunks.append(session.grow(list(zip(task.targets, found, strict=True)), step_us))
        # All that a row costs here counts, or rows look free where the model is quick.
        step_us = (time.perf_counter_ns() - started_ns) // 1000
        self.last_pass = (sum(len(task.tokens) for _, task in tasks), step_us)
        self.times = self.times.add(*self.last_pass)
        return chunks

    def _propose(
        self, tasks: Sequence[tuple[DraftSession, Task]], logits: Sequence[Tensor]
    ) -> list[list[Proposal] | OutriderError]:
        """For each task its proposals in the order of its targets, or what went wrong for it. Rows
        of sessions that ask for the same are worked out together.
        """
        proposals: list[list[Proposal] | OutriderError] = []
        alike: dict[Hashable, list[_Rows]] = {}
        for (session, task), rows in zip(tasks, logits, strict=True):
            found: list[Proposal] = []
            proposals.append(found)
            try:
                self._keep(session, task)
                rows = session.translation.rows(rows)[..., : session.opening.vocab_size]
                if session.is_plain and task.targets:
                    key = (session.law, session.plan.width, rows.shape[-1], rows.dtype, rows.device)
                    alike.setdefault(key, []).append(_Rows(session, task, rows, found))
                else:
                    found += _one_by_one(session, task, rows)
            except OutriderError as error:
                proposals[-1] = error
        for group in alike.values():
            _propose_together(group)
        return proposals

    def _keep(self, session: DraftSession, task: Task) -> None:
        """What the pass ran has KV now; committed tokens are no longer nodes."""
        session.fed(task)
        if task.committed:
            first = session.sequence.next_node - len(task.tokens)
            committed = range(first, first + task.committed)
            self.model.keep(session.sequence, committed, session.numbers.values())


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one task, [targets, vocab] in the target's ids; `found` takes its proposals."""

    session: DraftSession
    task: Task
    rows: Tensor
    found: list[Proposal]


def _propose_together(group: Sequence[_Rows]) -> None:
    """Proposals for sessions that differ in their seeds only."""
    first = group[0].session
    noises: list[DraftNoise] = []
    positions: list[int] = []
    for one in group:
        before = len(one.session.opening.prompt_ids)
        noises += [one.session.noise] * len(one.task.targets)
        positions += [before + node.position for node in one.task.targets]
    logits = torch.cat([one.rows for one in group]) if len(group) > 1 else group[0].rows
    found = propose_listed(logits, first.law, noises, positions=positions, width=first.plan.width)
    start = 0
    for one in group:
        end = start + len(one.task.targets)
        one.found.extend(found[start:end])
        start = end


def _one_by_one(session: DraftSession, task: Task, rows: Tensor) -> list[Proposal]:
    """Proposals that need their histories, or numbers of their own for what they draw."""
    opening, plan = session.opening, session.plan
    found: list[Proposal] = []
    for node, row in zip(task.targets, rows, strict=True):
        found.append(
            propose(
                row,
                opening.sampling,
                session.noise,
                position=len(opening.prompt_ids) + node.position,
                width=plan.width,
                top_k=plan.proposal_top_k,
                draw_index=session.next_id() + sum(len(p.candidates) for p in found),
                history=session.history_at(node),
            )
        )
    return found
