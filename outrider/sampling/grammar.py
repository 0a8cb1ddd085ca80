"""Grammar-constrained output: which tokens may follow, given the text so far (llguidance).

Knows the bytes of a vocabulary; knows no logits. The only module that imports llguidance.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.types import Grammar
from outrider.vocabulary import Vocabulary


class GrammarCompiler:
    """Compiles grammars for one vocabulary; reading the vocabulary takes up to a second, once."""

    def __init__(self, vocabulary: Vocabulary, end_token_ids: Iterable[int]) -> None:
        self._size = len(vocabulary)
        ends = sorted(end for end in end_token_ids if end < self._size)
        # The library wants an end token; where the model has none, the mask never shows one.
        self._ends = ends or [0]
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Pieces(vocabulary, self._ends[0])),
            eos_token=self._ends,
            slices=LLTokenizer.json_slices(),
        )

    def compile(self, grammar: Grammar) -> "GrammarState":
        """The state before the first token.

        Raises InvalidArgumentError, with the library's reason, for a grammar that is none.
        """
        source = _source(grammar)
        is_wrong, messages = LLMatcher.validate_grammar_with_warnings(source, self._tokenizer)
        matcher = None if is_wrong else LLMatcher(self._tokenizer, source, log_level=0)
        if matcher is None or matcher.is_error():
            problem = messages[0] if matcher is None else matcher.get_error()
            raise InvalidArgumentError(f"the grammar cannot be used: {_first_lines(problem)}")
        return GrammarState(matcher, frozenset(self._ends), self._size)


@dataclass(frozen=True, slots=True)
class GrammarState:
    """What may follow a text. `after` returns a new state and leaves this one as it is."""

    matcher: LLMatcher
    ends: frozenset[int]
    size: int

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        return self.matcher.is_accepting()

    @property
    def is_finished(self) -> bool:
        """Whether nothing can follow: the text is complete, or it broke the grammar."""
        return self.matcher.is_stopped()

    def after(self, token: int) -> "GrammarState":
        """The state after one more token; after one that breaks the grammar nothing is allowed."""
        matcher = self.matcher.deep_copy()
        matcher.consume_token(token)
        return GrammarState(matcher, self.ends, self.size)

    def allowed(self, width: int, ends: Iterable[int]) -> Tensor:
        """Which of `width` ids may follow, bool [width]; `ends` may where the text may end."""
        allowed = torch.zeros(width, dtype=torch.bool)
        if self.matcher.is_error():
            return allowed
        bits = np.unpackbits(
            np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8), bitorder="little"
        )
        size = min(width, self.size)
        allowed[:size] = torch.from_numpy(bits[:size].astype(np.bool_))
        allowed[[end for end in self.ends if end < width]] = False
        if self.is_accepting:
            allowed[[end for end in ends if end < width]] = True
        return allowed


class _Pieces:
    """A vocabulary as llguidance reads it; nothing here needs it to tokenize text."""

    def __init__(self, vocabulary: Vocabulary, end: int) -> None:
        self.tokens = list(vocabulary.pieces)
        self.special_token_ids = [
            i for i, is_control in enumerate(vocabulary.control) if is_control
        ]
        self.eos_token_id = end
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        return []


def _source(grammar: Grammar) -> str:
    if grammar.json_schema:
        try:
            return LLMatcher.grammar_from_json_schema(grammar.json_schema)
        except ValueError as error:
            raise InvalidArgumentError(
                f"the grammar cannot be used: the JSON schema is no JSON object ({error})"
            ) from error
    if grammar.regex:
        return LLMatcher.grammar_from_regex(grammar.regex)
    return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, grammar.choice)))


def _first_lines(text: str) -> str:
    return " ".join(text.split("<state>")[0].split())[:400]
