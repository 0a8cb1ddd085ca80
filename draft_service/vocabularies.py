"""The vocabularies a draft can work for: its own, and those of targets that it was told.

Knows vocabularies, translations and grammars; knows no session and no gRPC.
"""

from dataclasses import dataclass, replace

from draft_service.translation import SameIds, TokenIntersection, Translation
from outrider.errors import CapacityError, InvalidArgumentError, TokenizerMismatchError
from outrider.models.base import CausalModel
from outrider.sampling.grammar import GrammarCompiler, GrammarState
from outrider.types import Grammar, ModelInfo
from outrider.vocabulary import Vocabulary

MAX_VOCABULARIES = 4
"""Vocabularies of other tokenizers that are kept; the one used longest ago goes first."""


@dataclass(slots=True, eq=False)
class Target:
    """Targets of one tokenizer, as the draft reads their tokens.

    `compiler` is None where the draft works on any ids and was not told what they mean. It knows
    the end tokens of the draft's own model; a target's are control tokens, which are never text
    either.
    """

    compiler: GrammarCompiler | None
    translation: Translation
    shared_tokens: int
    sessions: int = 0

    def compile(self, grammar: Grammar | None) -> GrammarState | None:
        """The grammar's first state; None where there is no grammar, or no vocabulary to read it
        with: then the draft proposes without it, and the target alone follows it.

        May take seconds. Raises InvalidArgumentError for a grammar that is none.
        """
        if grammar is None or self.compiler is None:
            return None
        return self.compiler.compile(grammar)


class Vocabularies:
    """What the draft model was told. One thread calls it, but for `read`."""

    def __init__(self, model: CausalModel) -> None:
        """Reads the model's own vocabulary for grammars, before anybody is served: see there."""
        self._model = model
        compiler, size = None, 0
        if model.tokenizer is not None:
            vocabulary = model.tokenizer.vocabulary
            compiler = GrammarCompiler(vocabulary, model.info.eos_token_ids)
            size = len(vocabulary)
        self._own = Target(compiler, SameIds(), size)
        self._told: dict[str, Target] = {}

    @property
    def info(self) -> ModelInfo:
        """The model's facts, with what it was told."""
        info = self._model.info
        return replace(
            info,
            takes_vocabulary=not info.tokenizer_hash or self._model.tokenizer is not None,
            known_vocabularies=tuple((name, t.shared_tokens) for name, t in self._told.items()),
        )

    def hold(self, tokenizer_hash: str) -> Target:
        """`find`, kept until `release`."""
        target = self.find(tokenizer_hash)
        target.sessions += 1
        return target

    def find(self, tokenizer_hash: str) -> Target:
        """The targets with this tokenizer.

        Raises TokenizerMismatchError where the draft has another one and was not told theirs.
        """
        info = self._model.info
        if tokenizer_hash in self._told:
            self._told[tokenizer_hash] = self._told.pop(tokenizer_hash)  # used last
            return self._told[tokenizer_hash]
        if info.tokenizer_hash in ("", tokenizer_hash):
            return self._own
        raise TokenizerMismatchError(
            f"the draft {info.model_name} and the target have different tokenizers, and the draft "
            "was not told the target's vocabulary; send it first, use a draft of the target's "
            "family, or ngram:"
        )

    def release(self, target: Target) -> None:
        """A session that held it has ended."""
        target.sessions -= 1

    def read(self, tokenizer_hash: str, vocabulary: Vocabulary) -> Target:
        """How the draft reads a target's vocabulary; takes seconds, and changes nothing. For one
        of them or two, where the vocabulary is large, nothing else of the process runs.

        Raises InvalidArgumentError where the vocabulary is not the one that the hash names, and
        TokenizerMismatchError where the draft cannot work for it.
        """
        if vocabulary.hash != tokenizer_hash:
            raise InvalidArgumentError(
                f"the vocabulary has the hash {vocabulary.hash[:12]} and was announced as "
                f"{tokenizer_hash[:12]}; send the target's own, complete and in order"
            )
        info, tokenizer = self._model.info, self._model.tokenizer
        if info.tokenizer_hash in ("", tokenizer_hash):
            return Target(GrammarCompiler(vocabulary, ()), SameIds(), len(vocabulary))
        if tokenizer is None:
            raise TokenizerMismatchError(
                f"the draft {info.model_name} has no tokenizer of its own to translate with; use a "
                "draft of the target's family, or ngram:"
            )
        translation = TokenIntersection(vocabulary, tokenizer, info.vocab_size)
        return Target(GrammarCompiler(vocabulary, ()), translation, translation.shared_tokens)

    def keep(self, tokenizer_hash: str, target: Target) -> int:
        """Remembers what was read; returns how many tokens both have.

        Raises CapacityError where sessions use all that there is room for.
        """
        if tokenizer_hash in self._told:
            return self._told[tokenizer_hash].shared_tokens
        if len(self._told) >= MAX_VOCABULARIES:
            idle = next((name for name, t in self._told.items() if not t.sessions), None)
            if idle is None:
                raise CapacityError(
                    f"sessions with {MAX_VOCABULARIES} other tokenizers are open, the draft keeps "
                    "no more; try again when one has ended",
                    retry_after_s=1.0,
                )
            del self._told[idle]
        self._told[tokenizer_hash] = target
        return target.shared_tokens
