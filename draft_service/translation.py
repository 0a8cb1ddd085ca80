"""A target's tokens in the ids of a draft model that has another tokenizer, and back.

Token-level intersection (TLI; Timor et al., ICML 2025, arXiv 2502.05202): a draft
proposes only tokens that both vocabularies have, drawn from its distribution renormalised on them.
Which text they stand for is what two tokens have in common: the bytes of their pieces and whether
they are control tokens. Knows vocabularies and logits; knows no session and no model.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from outrider.errors import TokenizerMismatchError
from outrider.models.base import Tokenizer
from outrider.vocabulary import PieceMatcher, Vocabulary


class Translation(Protocol):
    """Between the ids of a target and those of a draft model. Any thread may use it."""

    def rows(self, logits: Tensor) -> Tensor:
        """Logits [..., draft ids] as logits [..., target ids], -inf where the draft has no such
        token: warping them renormalises on what is left, and that is what is sampled from.
        """
        ...

    def prompt(self, ids: Sequence[int]) -> list[int]:
        """A whole prompt in draft ids."""
        ...

    def token(self, token: int) -> tuple[int, ...]:
        """One emitted token in draft ids; a token that the draft may propose is exactly one."""
        ...


class SameIds:
    """Draft and target have one tokenizer, or the draft works on the ids of any."""

    def rows(self, logits: Tensor) -> Tensor:
        """The rows as they are."""
        return logits

    def prompt(self, ids: Sequence[int]) -> list[int]:
        """The ids as they are."""
        return list(ids)

    def token(self, token: int) -> tuple[int, ...]:
        """The id as it is."""
        return (token,)


class TokenIntersection:
    """Two tokenizers. `shared_tokens` is how many tokens both have: what the draft can propose.

    Where several ids have the same piece, `Vocabulary.ids` says which one the model writes, on both
    sides. The end of the text is proposed only where both have the same token for it: a target that
    ends draws that in the pass that verifies the last token, drafted or not.
    """

    def __init__(self, target: Vocabulary, draft: Tokenizer, draft_width: int) -> None:
        """`draft_width` is the number of logits of the draft model.

        Raises TokenizerMismatchError where the vocabularies are one in two orders (one of them is
        damaged), or have no text in common.
        """
        _refuse_permuted(target, draft.vocabulary)
        pieces, control = draft.vocabulary.pieces, draft.vocabulary.control
        own = Vocabulary(pieces[:draft_width], control[:draft_width])
        self._target = target
        self._draft = draft
        self._width = draft_width
        self._ids = own.ids()
        shared = {key: token for key, token in target.ids().items() if key in self._ids}
        self.shared_tokens = len(shared)
        if all(is_control for _, is_control in shared):
            raise TokenizerMismatchError(
                "the tokenizers of draft and target have no piece of text in common; use a draft "
                "that writes the same script, or ngram:"
            )
        self._target_ids = torch.tensor(list(shared.values()))
        self._draft_ids = torch.tensor([self._ids[key] for key in shared])
        self._matcher = PieceMatcher(own)
        self._spelled: dict[int, tuple[int, ...]] = {}

    def rows(self, logits: Tensor) -> Tensor:
        """See Translation."""
        shape = (*logits.shape[:-1], len(self._target))
        rows = torch.full(shape, -torch.inf, dtype=logits.dtype, device=logits.device)
        rows[..., self._target_ids] = logits[..., self._draft_ids]
        return rows

    def prompt(self, ids: Sequence[int]) -> list[int]:
        """The prompt's text as the draft's own tokenizer reads it, with the draft's own
        begin-of-sequence token once. Control tokens that the draft has too stay what they are;
        others are read as text, but for the target's begin-of-sequence token.
        """
        found: list[int] = []
        text = bytearray()
        for token in ids[1:] if self._begins_with_foreign_bos(ids) else ids:
            if token >= len(self._target):
                continue
            piece, is_control = self._target.pieces[token], self._target.control[token]
            own = self._ids.get((piece, True)) if is_control else None
            if own is None:
                text += piece
                continue
            found += self._read(bytes(text))
            found.append(own)
            text.clear()
        found += self._read(bytes(text))
        bos = self._draft.bos_token_id
        return found if bos is None or found[:1] == [bos] else [bos, *found]

    def token(self, token: int) -> tuple[int, ...]:
        """The draft's token of the same piece, else the longest pieces of its bytes; none for an
        id in the padding, and for bytes that the draft cannot write.
        """
        if token >= len(self._target):
            return ()
        if token not in self._spelled:
            piece, is_control = self._target.pieces[token], self._target.control[token]
            own = self._ids.get((piece, is_control))
            ids = (own,) if own is not None else tuple(self._matcher.ids(piece))
            self._spelled[token] = ids
        return self._spelled[token]

    def _begins_with_foreign_bos(self, ids: Sequence[int]) -> bool:
        """A vocabulary does not say which token begins a sequence: it is a control token at the
        start and nowhere else. Tokens of a chat template come again.
        """
        first = ids[0]
        is_control = first < len(self._target) and self._target.control[first]
        return (
            is_control
            and first not in ids[1:]
            and (self._target.pieces[first], True) not in (self._ids)
        )

    def _read(self, text: bytes) -> list[int]:
        if not text:
            return []
        try:
            whole = text.decode()
        except UnicodeDecodeError:
            return self._matcher.ids(text)
        return [token for token in self._draft.encode_within(whole) if token < self._width]


def _refuse_permuted(target: Vocabulary, draft: Vocabulary) -> None:
    """Padding, that is empty pieces, makes no difference."""
    if sorted(filter(None, target.pieces)) != sorted(filter(None, draft.pieces)):
        return
    pairs = zip(target.pieces, draft.pieces, strict=False)
    different = next((i for i, (its, own) in enumerate(pairs) if its != own), None)
    if different is not None:
        raise TokenizerMismatchError(
            f"the tokenizers of draft and target have the same pieces in another order of ids (the "
            f"first is id {different}); one of them is damaged: load both from the same release"
        )
