"""What a distribution is conditioned on besides the model's context: the tokens so far, as far as
the request's penalties, its shortest length and its grammar ask.

A history never changes; `after` gives the one of a longer text. So every node of a token tree has
its own (exactness, trap 5).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from outrider.sampling.grammar import GrammarState
from outrider.types import SamplingParams

NO_TOKENS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class History:
    """`prompt` holds its distinct tokens, int64 in ascending order, `counts` how often the answer
    has each; both are empty where no penalty asks. `ends` are the tokens that end the text.
    """

    prompt: Tensor = field(default=NO_TOKENS, compare=False)
    counts: Mapping[int, int] = field(default_factory=dict)
    length: int = 0
    ends: frozenset[int] = frozenset()
    min_tokens: int = 0
    grammar: GrammarState | None = None
    has_penalties: bool = False

    @classmethod
    def of(
        cls,
        sampling: SamplingParams,
        prompt_ids: Iterable[int],
        *,
        ends: Iterable[int] = (),
        min_tokens: int = 0,
        grammar: GrammarState | None = None,
    ) -> "History":
        """Before the first token of the answer."""
        has_penalties = (
            sampling.repetition_penalty != 1
            or sampling.frequency_penalty != 0
            or sampling.presence_penalty != 0
        )
        prompt = NO_TOKENS
        if sampling.repetition_penalty != 1:
            prompt = torch.tensor(sorted(set(prompt_ids)), dtype=torch.int64)
        return cls(
            prompt=prompt,
            ends=frozenset(ends),
            min_tokens=min_tokens,
            grammar=grammar,
            has_penalties=has_penalties,
        )

    def after(self, tokens: Sequence[int]) -> "History":
        """With `tokens` at the end of the answer."""
        if not tokens:
            return self
        counts = self.counts
        if self.has_penalties:
            counts = Counter(counts)
            counts.update(tokens)
        grammar = None if self.grammar is None else self.grammar.after_all(tokens)
        return replace(self, counts=counts, length=self.length + len(tokens), grammar=grammar)


NO_HISTORY = History()
"""Of a request that asks for nothing of it."""
