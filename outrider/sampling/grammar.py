"""Grammar-constrained output: which tokens may follow, given the text so far (llguidance).

Knows the bytes of a vocabulary; knows no logits. The only module that imports llguidance.

The library only says which tokens keep the text a prefix of a match; how likely they are stays the
model's affair. Its fast-forwarding of forced text is off: it would allow only one way to cut that
text into tokens, and needs a tokenizer that the law must not depend on.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark
from torch import Tensor

from outrider.sampling.schema import MAX_REGEX_BYTES, OPTIONS, read_schema, refusal
from outrider.types import MAX_GRAMMAR_BYTES, Grammar
from outrider.vocabulary import Vocabulary

WHITESPACE = r"( |\n {0,32})"
"""At most once where JSON allows whitespace: one space, or a line break and an indentation. Free
whitespace would let a small model emit blanks until its tokens are spent."""

_LIMITS = LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=20_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
"""The library's own, but fewer lexer states (1 to 2 kB each): one mask costs at most some tens of
milliseconds, one session at most some tens of megabytes. What needs more ends with `problem`."""

_DEAD_END = "NoExtension"
"""How the library's error begins where no token can follow; every other one is a limit."""

_HEAD = '%llguidance {"no_forcing": true}\nstart: '


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """What the ids of a vocabulary are for: `size` of them have bytes or are silent, `model_ends`
    end the model's text and are never part of it, `silent` add nothing to it.
    """

    size: int
    model_ends: frozenset[int]
    silent: frozenset[int]


class GrammarCompiler:
    """Compiles grammars for one vocabulary. Threads may share it.

    Reading a vocabulary of 262144 tokens takes a second or two and keeps every other thread of the
    process from running meanwhile (the library holds the interpreter's lock), so it has to be done
    before anybody is served; compiling does not.
    """

    def __init__(self, vocabulary: Vocabulary, end_token_ids: Iterable[int]) -> None:
        """`end_token_ids` are the model's own; they are never text, whatever their bytes are."""
        size = len(vocabulary)
        ends = frozenset(end for end in end_token_ids if end < size)
        silent = frozenset(token for token in range(size) if not vocabulary.piece(token))
        self._kinds = TokenKinds(size, ends, silent | ends)
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Pieces(vocabulary)),
            eos_token=size,
            slices=LLTokenizer.json_slices(),
        )

    def compile(self, grammar: Grammar) -> "GrammarState":
        """The state before the first token. Takes seconds at worst, and for a deep schema of the
        largest size some tens of megabytes of stack: for a worker, not for an event loop.

        JSON may have one space or line break between its parts (`WHITESPACE`). Raises
        InvalidArgumentError, with the reason, for a grammar that is none, one that is too big, and
        one that no text of this vocabulary can begin.
        """
        source = LLMatcher.grammar_from_lark(_HEAD + _source(grammar))
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=_LIMITS)
        state = GrammarState(matcher, self._kinds)
        can_begin = bool(state.text_mask().any()) or state.is_accepting
        if state.problem or not can_begin:
            raise refusal(state.problem or "no token of the model's vocabulary can begin it")
        return state


@dataclass(frozen=True, slots=True)
class GrammarState:
    """What may follow a text. `after` returns a new state and leaves this one as it is.

    One thread at a time may use the states of one request. `is_over` holds after an end token, and
    after a token that the grammar does not allow: then nothing may follow.
    """

    matcher: LLMatcher
    kinds: TokenKinds
    is_over: bool = False

    @property
    def problem(self) -> str:
        """Why the library gave up: a limit that the grammar ran into at this text. Empty: it did
        not.
        """
        error = self.matcher.get_error()
        return "" if error.startswith(_DEAD_END) else _reason(error)

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        return not self.is_over and self.matcher.is_accepting()

    @property
    def is_finished(self) -> bool:
        """Whether the text is complete: it matches, and no longer text would."""
        return self.is_accepting and self.matcher.is_stopped()

    def after(self, token: int) -> "GrammarState":
        """The state after one more token; after one that breaks the grammar nothing is allowed."""
        return self.after_all((token,))

    def after_all(self, tokens: Sequence[int]) -> "GrammarState":
        """`after` for each of the tokens, at the price of one."""
        if self.is_over or not tokens:
            return self
        kinds = self.kinds
        is_text = all(0 <= token < kinds.size and token not in kinds.silent for token in tokens)
        matcher = self.matcher.deep_copy()
        is_taken = is_text and matcher.try_consume_tokens(list(tokens)) == len(tokens)
        return GrammarState(matcher, kinds, is_over=not is_taken)

    def allowed(self, width: int, ends: Iterable[int]) -> Tensor:
        """Which of `width` ids may follow, bool [width].

        A token of `ends` that adds nothing to the text is allowed where the text may end; one with
        bytes is allowed where its bytes are, for they become part of the text. Nothing is allowed
        after a `problem`.
        """
        allowed = torch.zeros(width, dtype=torch.bool)
        if self.is_over:
            return allowed
        size = min(width, self.kinds.size)
        allowed[:size] = self.text_mask()[:size]
        if self.is_accepting:
            allowed[[end for end in ends if 0 <= end < width and self._adds_nothing(end)]] = True
        return allowed

    def text_mask(self) -> Tensor:
        """Which ids continue the text, bool [size]; none that ends it or adds nothing does."""
        bits = np.unpackbits(
            np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8), bitorder="little"
        )
        mask = torch.from_numpy(bits[: self.kinds.size].view(np.bool_))
        mask[list(self.kinds.model_ends)] = False
        return mask

    def _adds_nothing(self, token: int) -> bool:
        return token >= self.kinds.size or token in self.kinds.silent


class _Pieces:
    """A vocabulary as llguidance reads it, with one id more, its end token: ours differ between
    requests, so they never reach it. Nothing here needs it to tokenize text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = len(vocabulary)
        self.tokens = [*vocabulary.pieces, b"</s>"]
        self.special_token_ids = [
            *(token for token, is_control in enumerate(vocabulary.control) if is_control),
            self.eos_token_id,
        ]
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        return []


def _source(grammar: Grammar) -> str:
    """The right side of the start rule, in the library's Lark dialect."""
    size = len((grammar.json_schema or grammar.regex or "".join(grammar.choice)).encode())
    limit = MAX_REGEX_BYTES if grammar.regex else MAX_GRAMMAR_BYTES
    if size > limit:
        raise refusal(f"it has {size} bytes; give at most {limit}")
    if grammar.json_schema:
        options = {"whitespace_pattern": WHITESPACE}
        return f"%json {json.dumps({**read_schema(grammar.json_schema), OPTIONS: options})}"
    if grammar.regex:
        return f"/{regex_to_lark(grammar.regex)}/"
    return f"/{'|'.join(map(_literal, grammar.choice))}/"


def _literal(text: str) -> str:
    """A regex that matches `text` only. One lexeme for all choices: as rules, two thousand of them
    would fill a row of the parser.
    """
    return "".join(
        char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text
    )


def _reason(message: str) -> str:
    """The library's message without its state, its source lines and the place in our source."""
    text = re.split(r"\n<|\n +1 \| ", message)[0]
    return re.sub(r"^at \d+\(\d+\): ", "", " ".join(text.split()))[:400]
