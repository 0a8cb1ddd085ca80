"""Backend `scripted`: logits that are a hash of the last few tokens. For tests and benchmarks.

It has no weights and needs no download, its law is known exactly (`scripted_logits`), and its step
time can be set.
"""

import hashlib
import os
import string
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.models.arguments import Arguments
from outrider.models.base import Feed, ModelSequence, Tokenizer, check_feeds
from outrider.models.cells import CellLedger
from outrider.models.options import ModelOptions, lowered_context, refuse_options
from outrider.types import ModelInfo
from outrider.vocabulary import PieceMatcher, Vocabulary

_WORD = np.uint64
_GOLDEN = 0x9E3779B97F4A7C15
_OTHER_LAW = 0xD1B54A32D192ED03


@dataclass(frozen=True, slots=True)
class ScriptedLaw:
    """What decides a row, besides the tokens.

    `drift` 0 is the law of `seed`, 1 an independent one; in between their log-probabilities mix.
    Laws of other `drift_seed`s drift towards other laws: drafts that err independently.
    """

    vocab: int = 16
    seed: int = 0
    order: int = 2
    drift: float = 0.0
    sharpness: float = 1.0
    drift_seed: int = 0


def scripted_logits(law: ScriptedLaw, contexts: Sequence[Sequence[int]]) -> Tensor:
    """Logits of the token after each context, float32 [len(contexts), vocab].

    Only the last `order` tokens of a context matter. Only operations that IEEE 754 rounds exactly
    are used, so that a row has the same bits on every machine and in every batch. Before drift
    every logit is `sharpness` times a number of mean 0 and variance 1 within +-3.

    >>> law = ScriptedLaw(vocab=4, order=1)
    >>> bool((scripted_logits(law, [[1, 2]]) == scripted_logits(law, [[3, 2]])).all())
    True
    """
    logits = _noise(law, contexts, law.seed)
    if law.drift > 0:
        other = _noise(law, contexts, (law.seed ^ _OTHER_LAW) + law.drift_seed * _GOLDEN)
        logits = (1 - law.drift) * logits + law.drift * other
    return torch.from_numpy((logits * law.sharpness).astype(np.float32))


def _noise(
    law: ScriptedLaw, contexts: Sequence[Sequence[int]], seed: int
) -> npt.NDArray[np.float64]:
    """[len(contexts), vocab]: sums of three uniform numbers, which look normal enough."""
    keys = np.full(len(contexts), seed % 2**64, dtype=_WORD)
    for back in range(law.order):
        tokens = [context[-1 - back] + 1 if back < len(context) else 0 for context in contexts]
        keys = _mixed(keys ^ np.array(tokens, dtype=_WORD))
    columns = np.arange(1, law.vocab + 1, dtype=_WORD) * _WORD(_GOLDEN)
    words = _mixed(keys[:, None] + columns[None, :])
    piece = _WORD(2**21 - 1)
    total = (words & piece) + ((words >> _WORD(21)) & piece) + (words >> _WORD(43))
    noise: npt.NDArray[np.float64] = (total.astype(np.float64) / 2**21 - 1.5) * 2
    return noise


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), element by element."""
    words = words + _WORD(_GOLDEN)
    words = (words ^ (words >> _WORD(30))) * _WORD(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _WORD(27))) * _WORD(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = words ^ (words >> _WORD(31))
    return mixed


class ScriptedTokenizer:
    """Byte b of a text is the id b % vocab; every id has a printable piece of its own.

    `symbols` says which one: symbol 0 is `a`, 1 is `b`, and so on; without it id i is symbol i.
    """

    bos_token_id: int | None = None

    def __init__(self, vocab: int, eos: int | None, symbols: Sequence[int] = ()) -> None:
        alphabet = string.ascii_letters + string.digits
        self.vocabulary = Vocabulary(
            tuple(
                (alphabet[i] if i < len(alphabet) else f"<{i}>").encode()
                for i in symbols or range(vocab)
            ),
            tuple(i == eos for i in range(vocab)),
        )
        self._matcher = PieceMatcher(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """One id for each byte of the text; there is no begin-of-sequence token."""
        return [byte % len(self.vocabulary) for byte in text.encode()]

    def encode_within(self, text: str) -> list[int]:
        """Ids of the pieces that the text is made of; what is no piece is left out."""
        return self._matcher.ids(text.encode())

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of `role: content` lines and a last `assistant:`."""
        if not messages:
            raise InvalidArgumentError("there are no messages; give at least one")
        lines = [f"{role}: {content}\n" for role, content in messages]
        return self.encode("".join([*lines, "assistant:"]))


class Device:
    """What several scripted models, of other processes too, compute on one at a time: a file that
    is locked meanwhile. It stands for an accelerator that draft and target share.
    """

    def __init__(self, path: str) -> None:
        """Makes the file where there is none. Raises InvalidArgumentError where it cannot be opened
        and where the system has no such locks.
        """
        try:
            # Not every system has it, and only this option needs it.
            import fcntl
        except ImportError as error:
            raise InvalidArgumentError(
                f"device={path}: this system cannot lock files between processes; leave it out"
            ) from error
        try:
            # Each model has an opening of its own, so models of one process take turns, too.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InvalidArgumentError(
                f"device={path} cannot be opened ({error.strerror}); give the path of a file that "
                "may be written"
            ) from error
        weakref.finalize(self, os.close, self._file)
        self._lock = fcntl.flock
        self._taken, self._free = fcntl.LOCK_EX, fcntl.LOCK_UN

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the device and has it for as long as the context is entered."""
        self._lock(self._file, self._taken)
        try:
            yield
        finally:
            self._lock(self._file, self._free)


class ScriptedModel:
    """The scripted law behind the model protocol, with the KV bookkeeping of a real backend."""

    tokenizer: Tokenizer | None

    def __init__(
        self,
        law: ScriptedLaw,
        info: ModelInfo,
        tokenizer: Tokenizer | None,
        kv_tokens: int,
        step_s: float = 0.0,
        row_s: float = 0.0,
        symbols: Sequence[int] = (),
        device: Device | None = None,
    ) -> None:
        """`law` is one of symbols; id i is symbol `symbols[i]`, without it symbol i. Passes take
        their time on `device`, one of several models at a time."""
        self.law = law
        self._symbols = symbols
        self.info = info
        self.tokenizer = tokenizer
        self.cells = CellLedger(kv_tokens)
        self._step_s = step_s
        self._row_s = row_s
        self._device = device

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A new sequence with the longest cached prefix of `token_ids`, less than all."""
        return self.cells.open(token_ids)

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        """Float32 [len(rows), vocab] per feed; takes `step_ms` and `row_ms` for each token, its own
        arithmetic included, with its device held where it has one.
        """
        if not feeds:
            return []
        check_feeds(feeds, self.info.vocab_size, self.info.context_tokens)
        first = [feed.sequence.next_node for feed in feeds]
        self.cells.record(feeds, self.cells.reserve(feeds))
        contexts = [
            feed.sequence.context(start + row, self.law.order)
            for feed, start in zip(feeds, first, strict=True)
            for row in feed.rows
        ]
        if self._symbols:
            contexts = [[self._symbols[token] for token in context] for context in contexts]
        with self._device.held() if self._device is not None else nullcontext():
            ends_at = time.perf_counter() + self._step_s
            ends_at += self._row_s * sum(len(feed.tokens) for feed in feeds)
            logits = scripted_logits(self.law, contexts)
            if self._symbols:
                logits = logits[:, list(self._symbols)]
            left_s = ends_at - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
        return list(torch.split(logits, [len(feed.rows) for feed in feeds]))

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        """Commits the nodes of `path`, keeps `surviving` below it and drops all other nodes."""
        self.cells.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence; its committed prefix stays cached until the room is needed."""
        self.cells.close(sequence)


def load(argument: str, options: ModelOptions) -> ScriptedModel:
    """Builds the model from `key=value,...`; raises InvalidArgumentError naming the known keys."""
    refuse_options("scripted", options)
    arguments = Arguments.parse("scripted", argument)
    law = ScriptedLaw(
        vocab=arguments.whole("vocab", 16, 2, 2**20),
        seed=arguments.whole("seed", 0, 0, 2**64 - 1),
        order=arguments.whole("order", 2, 0, 64),
        drift=arguments.number("drift", 0.0, 0.0, 1.0),
        sharpness=arguments.number("sharpness", 1.0, 0.0, 1000.0),
        drift_seed=arguments.whole("drift_seed", 0, 0, 2**32),
    )
    eos = arguments.optional_whole("eos", 0, law.vocab - 1)
    step_ms = arguments.number("step_ms", 0.0, 0.0, 60_000.0)
    row_ms = arguments.number("row_ms", 0.0, 0.0, 60_000.0)
    context = arguments.whole("context", 8192, 1, 2**31)
    shift = arguments.whole("shift", 0, 0, 2**20)
    rotate = arguments.whole("rotate", 0, 0, law.vocab - 1)
    fits_all = arguments.choice("tokenizer", ("own", "any")) == "any"
    salt = arguments.text("hash_salt")
    device = arguments.text("device")
    arguments.finish()
    # With `shift` some pieces are others than the default's, with `rotate` their ids are.
    symbols = (
        [shift + (i + rotate) % law.vocab for i in range(law.vocab)] if shift or rotate else []
    )
    tokenizer = ScriptedTokenizer(law.vocab, eos, symbols)
    tokenizer_hash = "" if fits_all else tokenizer.vocabulary.hash
    if salt and not fits_all:
        tokenizer_hash = hashlib.sha256((tokenizer_hash + salt).encode()).hexdigest()
    info = ModelInfo(
        model_name=f"scripted:{argument}" if argument else "scripted",
        backend="scripted",
        tokenizer_hash=tokenizer_hash,
        vocab_size=0 if fits_all else law.vocab,
        context_tokens=lowered_context(context, options.context_tokens),
        eos_token_ids=() if eos is None else (eos,),
    )
    return ScriptedModel(
        replace(law, vocab=law.vocab + shift),
        info,
        None if fits_all else tokenizer,
        options.kv_tokens,
        step_ms / 1000,
        row_ms / 1000,
        symbols,
        Device(device) if device else None,
    )
