"""The idea of the verify side: one target pass over many sessions, then acceptance for each.

Knows models and rules; knows no gRPC, no clock policy and no queues.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from outrider.errors import InvalidArgumentError, OutriderError
from outrider.models.base import CausalModel, Feed, ModelSequence
from outrider.sampling.accepting import accept
from outrider.sampling.grammar import GrammarCompiler, GrammarState
from outrider.sampling.history import History
from outrider.sampling.logprobs import token_logprobs
from outrider.sampling.noise import Noise
from outrider.sampling.rules import Acceptance
from outrider.tree import Subtree
from outrider.types import Grammar, SamplingParams, TokenLogprobs


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
class Outcome:
    """`acceptance` is None for a prompt chunk; times are in microseconds. `logprobs` are those of
    the accepted tokens and of the target's own, where they were asked for.
    """

    acceptance: Acceptance | None
    forward_us: int
    accept_us: int
    logprobs: tuple[TokenLogprobs, ...] = ()


class Verifier:
    """The target model's owner. All but `compile` runs in one thread, the caller's."""

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self._compiler: GrammarCompiler | None = None
        self._compiling = threading.Lock()

    def compile(self, grammar: Grammar) -> GrammarState:
        """The state of a grammar before the first token; may be called in any thread.

        Raises InvalidArgumentError for a grammar that is none, or a model without a tokenizer.
        """
        if self.model.tokenizer is None:
            raise InvalidArgumentError(
                f"the model {self.model.info.model_name} has no tokenizer, so a grammar means "
                "nothing to it; leave it out"
            )
        with self._compiling:
            if self._compiler is None:
                info = self.model.info
                vocabulary = self.model.tokenizer.vocabulary
                self._compiler = GrammarCompiler(vocabulary, info.eos_token_ids)
        return self._compiler.compile(grammar)

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A sequence with whatever prefix of `token_ids` is cached."""
        return self.model.open(token_ids)

    def close(self, sequence: ModelSequence) -> None:
        """Frees the sequence."""
        self.model.close(sequence)

    def step(self, works: Sequence[Work]) -> list[Outcome | OutriderError]:
        """One target pass. An error of one session stands in its place and leaves the others alone.

        Raises CapacityError, with nothing changed, where the KV cache cannot hold the pass.
        """
        started = time.perf_counter_ns()
        logits = self.model.forward([_feed(work) for work in works])
        forward_us = (time.perf_counter_ns() - started) // 1000
        outcomes: list[Outcome | OutriderError] = []
        for work, rows in zip(works, logits, strict=True):
            try:
                outcomes.append(self._settle(work, rows, forward_us))
            except OutriderError as error:
                outcomes.append(error)
        return outcomes

    def _settle(self, work: Work, rows: Tensor, forward_us: int) -> Outcome:
        """Decides, then commits to the KV cache exactly what stands."""
        started = time.perf_counter_ns()
        end = work.sequence.next_node - (len(work.subtree) if work.subtree is not None else 0)
        first = end - len(work.pending)
        path = list(range(first, end))
        acceptance = None
        logprobs: tuple[TokenLogprobs, ...] = ()
        if work.subtree is not None:
            acceptance = accept(
                work.subtree, rows, work.sampling, work.noise, work.position, work.history
            )
            path += [end + row - 1 for row in acceptance.path]
            if work.logprobs is not None:
                tokens = [work.subtree.nodes[row - 1].token for row in acceptance.path]
                decided = rows[[0, *acceptance.path]]
                logprobs = token_logprobs(decided, (*tokens, acceptance.token), work.logprobs)
        self.model.keep(work.sequence, path)
        accept_us = (time.perf_counter_ns() - started) // 1000
        return Outcome(acceptance, forward_us, accept_us, logprobs)


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
