"""Decisions of many sessions after one pass of the target, a step of all of them at a time.

One by one they decide the same (`outrider.sampling.accepting`); most of what a decision costs is
calls of libraries, and the target stands idle meanwhile.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.errors import InternalError
from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import Noise, Stream, choose_all
from outrider.sampling.processing import changes_rows
from outrider.sampling.rules import Acceptance
from outrider.sampling.warping import warp
from outrider.tree import Subtree
from outrider.types import AcceptanceMode, SamplingParams

_MOST_NUMBERS = 2**18
"""So many of a step are worked on at once on a CPU: more would not fit its caches."""

_STREAMS = {AcceptanceMode.COUPLED: Stream.COUPLED, AcceptanceMode.MATCH: Stream.MATCH}


@dataclass(frozen=True, slots=True)
class Question:
    """What `accept` is asked for one session."""

    subtree: Subtree
    logits: Tensor
    sampling: SamplingParams
    noise: Noise
    position: int
    history: History = NO_HISTORY


def accept_together(questions: Sequence[Question]) -> list[Acceptance | None]:
    """What `accept` returns for each, None: `accept` has to be asked.

    That is so where a decision looks at drafts or a request changes rows, and where something is
    wrong with the logits.
    """
    answers: list[Acceptance | None] = [None] * len(questions)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, question in enumerate(questions):
        key = _kind(question)
        if key is not None:
            groups[key].append(index)
    for (is_greedy, *_), members in groups.items():
        together = [questions[index] for index in members]
        decided = _most_likely(together) if is_greedy else _drawn(together)
        for index, acceptance in zip(members, decided, strict=True):
            answers[index] = acceptance
    return answers


def _kind(question: Question) -> tuple[object, ...] | None:
    """Sessions with the same one are decided together, None: by itself."""
    sampling, logits = question.sampling, question.logits
    if changes_rows(sampling, question.history):
        return None
    rows = logits.device, logits.dtype, logits.shape[-1]
    if sampling.is_greedy:
        return True, *rows
    if sampling.mode not in _STREAMS:
        return None
    warping = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
    return False, sampling.mode, *warping, *rows


def _most_likely(together: Sequence[Question]) -> list[Acceptance | None]:
    """Greedy ones: the most likely token of every row, in as few calls as the caches allow."""
    logits = [question.logits for question in together]
    if sum(rows.numel() for rows in logits) <= _MOST_NUMBERS:
        logits = [torch.cat(logits)]
    best = [rows.argmax(dim=-1, keepdim=True) for rows in logits]
    values = [rows.gather(-1, ids) for rows, ids in zip(logits, best, strict=True)]
    if not bool(torch.isfinite(torch.cat(values)).all()):
        return [None] * len(together)
    tokens: list[int] = torch.cat(best).flatten().tolist()
    answers: list[Acceptance | None] = []
    first = 0
    for question in together:
        walk = _Walk(question, ends=frozenset())
        while not walk.is_over:
            walk.go(tokens[first + walk.row])
        answers.append(walk.acceptance)
        first += len(question.logits)
    return answers


def _drawn(together: Sequence[Question]) -> list[Acceptance | None]:
    """Coupled or match, with equal warping: all at the tip, then all one token below it, and on."""
    walks = [_Walk(question, question.history.ends) for question in together]
    vocab, device = together[0].logits.shape[-1], together[0].logits.device
    size = max(1, _MOST_NUMBERS // vocab) if device.type == "cpu" else len(walks)
    stream = _STREAMS[together[0].sampling.mode]
    while walks_on := [walk for walk in walks if not walk.is_over]:
        for start in range(0, len(walks_on), size):
            part = walks_on[start : start + size]
            try:
                tokens = choose_all(
                    warp(torch.stack([walk.logits for walk in part]), together[0].sampling),
                    [walk.question.noise for walk in part],
                    [walk.position for walk in part],
                    stream,
                )
            except InternalError:
                for walk in part:
                    walk.is_over, walk.is_wrong = True, True
                continue
            for walk, token in zip(part, tokens, strict=True):
                walk.go(token)
    return [None if walk.is_wrong else walk.acceptance for walk in walks]


class _Walk:
    """A way down the tree of one session, as the target decides."""

    def __init__(self, question: Question, ends: frozenset[int]) -> None:
        """What follows one of `ends` repeats it."""
        self.question = question
        self._ends = ends
        self.row = 0
        self.is_over = self.is_wrong = False
        self._path: list[int] = []
        self._token = -1

    @property
    def logits(self) -> Tensor:
        """Those of the row that it is at, [vocab]."""
        return self.question.logits[self.row]

    @property
    def position(self) -> int:
        """The absolute one of the token that is decided next."""
        return self.question.position + len(self._path)

    @property
    def acceptance(self) -> Acceptance:
        """What was decided."""
        return Acceptance(tuple(self._path), self._token)

    def go(self, token: int) -> None:
        """The target's token at the row that it is at."""
        children = self.question.subtree.children
        while True:
            self._token = token
            child = children[self.row].get(token)
            if child is None:
                self.is_over = True
                return
            self._path.append(child)
            self.row = child
            if token not in self._ends:
                return
