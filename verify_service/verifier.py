"""The idea of the verify side: one target pass over many sessions, then acceptance for each.

Knows models and rules; knows no gRPC, no clock policy and no queues.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor

from outrider.errors import InvalidArgumentError, OutriderError
from outrider.models.base import CausalModel, Feed, ModelSequence
from outrider.pass_times import PassTimes
from outrider.sampling.accepting import accept
from outrider.sampling.grammar import GrammarCompiler
from outrider.sampling.history import History
from outrider.sampling.logprobs import token_logprobs
from outrider.sampling.noise import Noise
from outrider.sampling.rules import Acceptance
from outrider.sampling.together import Question, accept_together
from outrider.tree import Subtree
from outrider.types import SamplingParams, TokenLogprobs, VerifyOpening


@dataclass(frozen=True, slots=True)
class Work:
    """One session's part of a pass: committed tokens that have no KV yet, then a subtree below
    them.

    `subtree` None makes it a chunk of a prompt: KV is filled, nothing is decided. `position` is the
    absolute position of the first token below the tip, `history` what the tip's row is conditioned
    on. `logprobs` None: none are reported.
    """

    sequence: ModelSequence
    pending: tuple[int, ...]
    subtree: Subtree | None
    sampling: SamplingParams
    noise: Noise
    position: int
    history: History = field(default_factory=History)
    logprobs: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that the pass runs for this session."""
        return len(self.pending) + (len(self.subtree) if self.subtree is not None else 0)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities that were asked for and are yet to be worked out, beside the next pass.

    `rows` [tokens, vocab] are on the CPU: a device is busy with that pass.
    """

    rows: Tensor
    tokens: tuple[int, ...]
    alternatives: int

    def of(self, count: int) -> tuple[TokenLogprobs, ...]:
        """Those of the first `count` tokens."""
        return token_logprobs(self.rows[:count], self.tokens[:count], self.alternatives)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`acceptance` is None for a prompt chunk; times are in microseconds. `logprobs` are those of
    the accepted tokens and of the target's own, where they were asked for. `history` is the one
    after all of these tokens; after `complete_at` of them the grammar was complete, None: not yet.
    """

    acceptance: Acceptance | None
    forward_us: int
    accept_us: int
    logprobs: Logprobs | None = None
    history: History = field(default_factory=History)
    complete_at: int | None = None


class Verifier:
    """The target model's owner. All but `history` runs in one thread, the caller's.

    `started_at` and `ended_at` are when the last pass was with the model, by the monotonic clock.
    """

    def __init__(self, model: CausalModel) -> None:
        """Reads the model's vocabulary for grammars, a second or two for a large one: reading
        blocks all of the process, so it is done before anybody is served.
        """
        self.model = model
        self.times = PassTimes()
        self.started_at = self.ended_at = 0.0
        self._compiler: GrammarCompiler | None = None
        if model.tokenizer is not None:
            self._compiler = GrammarCompiler(model.tokenizer.vocabulary, model.info.eos_token_ids)

    def history(self, opening: VerifyOpening) -> History:
        """What the first row of a session is conditioned on; may be called in any thread.

        Takes seconds where there is a grammar. Raises InvalidArgumentError for a grammar that is
        none, or a model without a tokenizer.
        """
        grammar = opening.sampling.grammar
        if grammar is not None and self._compiler is None:
            raise InvalidArgumentError(
                f"the model {self.model.info.model_name} has no tokenizer, so a grammar means "
                "nothing to it; leave it out"
            )
        state = None
        if grammar is not None and self._compiler is not None:
            state = self._compiler.compile(grammar)
        return History.of(
            opening.sampling,
            opening.prompt_ids,
            ends=opening.stop.ends(self.model.info.eos_token_ids),
            min_tokens=opening.stop.min_tokens,
            grammar=state,
        ).after(opening.emitted_ids)

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A sequence with whatever prefix of `token_ids` is cached."""
        return self.model.open(token_ids)

    def close(self, sequence: ModelSequence) -> None:
        """Frees the sequence."""
        self.model.close(sequence)

    def step(
        self, works: Sequence[Work], beside: AbstractContextManager[None] | None = None
    ) -> list[Outcome | OutriderError]:
        """One target pass. An error of one session stands in its place and leaves the others alone.

        `beside` is entered while the model runs: what others may touch meanwhile.
        Raises CapacityError, with nothing changed, where the KV cache cannot hold the pass.
        """
        feeds = [_feed(work) for work in works]
        started = time.perf_counter_ns()
        self.started_at = time.monotonic()
        with beside or nullcontext():
            logits = self.model.forward(feeds)
        self.ended_at = time.monotonic()
        forward_us = (time.perf_counter_ns() - started) // 1000
        self.times = self.times.add(sum(work.num_tokens for work in works), forward_us)
        decided = _decided(works, logits)
        share_us = (time.monotonic() - self.ended_at) * 1e6 / len(works)
        outcomes: list[Outcome | OutriderError] = []
        for work, rows, acceptance in zip(works, logits, decided, strict=True):
            try:
                outcomes.append(self._settle(work, rows, acceptance, forward_us, share_us))
            except OutriderError as error:
                outcomes.append(error)
        return outcomes

    def _settle(
        self,
        work: Work,
        rows: Tensor,
        acceptance: Acceptance | None,
        forward_us: int,
        share_us: float,
    ) -> Outcome:
        """Decides what is not decided, then commits to the KV cache exactly what stands."""
        started = time.perf_counter_ns()
        end = work.sequence.next_node - (len(work.subtree) if work.subtree is not None else 0)
        first = end - len(work.pending)
        path = list(range(first, end))
        logprobs = None
        history, complete_at = work.history, None
        if work.subtree is not None:
            if acceptance is None:
                acceptance = accept(
                    work.subtree, rows, work.sampling, work.noise, work.position, work.history
                )
            path += [end + row - 1 for row in acceptance.path]
            tokens = [work.subtree.nodes[row - 1].token for row in acceptance.path]
            tokens.append(acceptance.token)
            if work.logprobs is not None:
                decided = rows[[0, *acceptance.path]].cpu()
                logprobs = Logprobs(decided, tuple(tokens), work.logprobs)
            history, complete_at = _followed(work.history, tokens)
        self.model.keep(work.sequence, path)
        accept_us = int(share_us) + (time.perf_counter_ns() - started) // 1000
        return Outcome(acceptance, forward_us, accept_us, logprobs, history, complete_at)


def _decided(works: Sequence[Work], logits: Sequence[Tensor]) -> list[Acceptance | None]:
    """What can be decided together; None: has to be decided by itself, or nothing is to be."""
    asked = [index for index, work in enumerate(works) if work.subtree is not None]
    questions = [
        Question(work.subtree, rows, work.sampling, work.noise, work.position, work.history)
        for work, rows in zip(works, logits, strict=True)
        if work.subtree is not None
    ]
    decided: list[Acceptance | None] = [None] * len(works)
    for index, acceptance in zip(asked, accept_together(questions), strict=True):
        decided[index] = acceptance
    return decided


def _followed(history: History, tokens: Sequence[int]) -> tuple[History, int | None]:
    """The history after `tokens`, and how many of them completed its grammar, if any did."""
    whole = history.after(tokens)
    if history.grammar is None or whole.grammar is None:
        return whole, None
    if whole.grammar.is_finished:
        return whole, len(tokens)
    if not whole.grammar.is_over:
        return whole, None  # complete nowhere: what is complete has no longer text
    state = history.grammar
    for count, token in enumerate(tokens, start=1):
        state = state.after(token)
        if state.is_finished:
            return whole, count
    return whole, None


def _feed(work: Work) -> Feed:
    """Pending tokens as a chain, the subtree below its end; logits of the end and of every node."""
    chain = Feed.chain(work.sequence, work.pending, ())
    if work.subtree is None:
        return chain
    tip = work.sequence.next_node + len(work.pending) - 1
    return Feed(
        work.sequence,
        chain.tokens + tuple(node.token for node in work.subtree.nodes),
        chain.parents + tuple(tip + row for row in work.subtree.parents),
        tuple(range(len(work.pending) - 1, work.num_tokens)),
    )
