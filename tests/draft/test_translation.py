"""Translation between two vocabularies, whatever is in them (exactness, trap 8)."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from draft_service.translation import SameIds, TokenIntersection
from outrider.errors import TokenizerMismatchError
from outrider.sampling.warping import warp
from outrider.types import SamplingParams
from outrider.vocabulary import PieceMatcher, Vocabulary

BYTES = tuple(bytes([byte]) for byte in range(256))
PIECES = [b"", b"a", b"b", b"ab", b"ba", b" a", b"\xc3", b"\xa9", b"\xc3\xa9", b"\xff", b"<s>"]


class PieceTokenizer:
    """Reads text piece by piece; begins it with `bos` where there is one."""

    def __init__(self, vocabulary: Vocabulary, bos: int | None = None) -> None:
        self.vocabulary = vocabulary
        self.bos_token_id = bos
        self._matcher = PieceMatcher(vocabulary)

    def encode(self, text: str) -> list[int]:
        start = [] if self.bos_token_id is None else [self.bos_token_id]
        return [*start, *self.encode_within(text)]

    def encode_within(self, text: str) -> list[int]:
        return self._matcher.ids(text.encode())

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        raise NotImplementedError


def vocabulary(*pieces: bytes, control: Sequence[int] = ()) -> Vocabulary:
    return Vocabulary(pieces, tuple(i in control for i in range(len(pieces))))


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
    control = draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        at = draw(st.integers(0, len(pieces)))
        pieces[at:at], control[at:at] = BYTES, [False] * 256
    return Vocabulary(tuple(pieces), tuple(control))


def translated(
    target: Vocabulary, draft: Vocabulary, bos: int | None = None, padding: int = 0
) -> TokenIntersection:
    """Pairs that are refused are no examples."""
    try:
        return TokenIntersection(target, PieceTokenizer(draft, bos), len(draft) + padding)
    except TokenizerMismatchError:
        assume(False)
        raise


def key(of: Vocabulary, token: int) -> tuple[bytes, bool]:
    return of.pieces[token], of.control[token]


def is_fallback(of: Vocabulary, token: int) -> bool:
    """Whether the 256 bytes stand around it, each at its place."""
    start = token - of.pieces[token][0]
    return start >= 0 and of.pieces[start : start + 256] == BYTES


def written(of: Vocabulary) -> dict[tuple[bytes, bool], int]:
    """The id that a model writes for each piece."""
    tokens = [token for token in range(len(of)) if of.pieces[token]]
    best_last = sorted(tokens, key=lambda token: (is_fallback(of, token), token), reverse=True)
    return {key(of, token): token for token in best_last}


@given(vocabularies(), vocabularies(), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_trap_8_the_draft_says_only_what_both_have_renormalised(
    target: Vocabulary, draft: Vocabulary, padding: int
) -> None:
    translation = translated(target, draft, padding=padding)
    torch.manual_seed(hash((target.pieces, draft.pieces)) % 2**31)
    logits = torch.randn(len(draft) + padding)
    rows = translation.rows(logits)
    assert rows.shape == (len(target),)
    said = rows.isfinite().nonzero().flatten().tolist()
    keys = [key(target, token) for token in said]
    assert len(set(keys)) == len(keys) == translation.shared_tokens, "each piece once"
    own, its = written(draft), written(target)
    assert set(keys) == own.keys() & its.keys()
    assert said == sorted(its[k] for k in keys)
    own_ids = [own[k] for k in keys]
    assert rows[said].tolist() == logits[own_ids].tolist()
    assert [translation.token(token) for token in said] == [(i,) for i in own_ids]
    q = warp(rows, SamplingParams())
    assert torch.allclose(q[said], logits[own_ids].double().softmax(-1))
    assert float(q.sum()) == pytest.approx(1)


@given(vocabularies(), vocabularies())
@settings(deadline=None, max_examples=60)
def test_every_target_id_can_be_read(target: Vocabulary, draft: Vocabulary) -> None:
    translation = translated(target, draft)
    own = {key(draft, token) for token in range(len(draft)) if draft.pieces[token]}
    for token in range(len(target) + 2):
        ids = translation.token(token)
        assert all(0 <= i < len(draft) for i in ids)
        if token >= len(target):
            assert ids == ()
        elif key(target, token) in own:
            assert [key(draft, i) for i in ids] == [key(target, token)]
        else:
            spelled = b"".join(draft.pieces[i] for i in ids)
            left = Counter(target.pieces[token])
            left.subtract(spelled)
            assert min(left.values(), default=0) >= 0, "nothing is written that was not said"
            assert not any(draft.control[i] for i in ids)


@given(vocabularies(), vocabularies(), st.lists(st.integers(0, 15), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_a_prompt_is_read_with_the_drafts_own_start_once(
    target: Vocabulary, draft: Vocabulary, ids: list[int]
) -> None:
    bos = next((i for i in range(len(draft)) if draft.control[i] and draft.pieces[i]), None)
    got = translated(target, draft, bos).prompt(ids)
    assert all(0 <= i < len(draft) for i in got)
    if bos is not None:
        assert got[0] == bos


SIDES = {
    "none": vocabulary(b"5", b"5", b"a"),
    "in front": vocabulary(*BYTES, b"5", b"5", b"a"),
    "behind": vocabulary(b"5", b"5", b"a", *BYTES),
    "on both ends": vocabulary(*BYTES, b"5", b"5", b"a", *BYTES),
    "after control": vocabulary(b"<s>", *BYTES, b"5", b"5", b"a", control=[0]),
}
FIRST_FIVE = {"none": 0, "in front": 256, "behind": 0, "on both ends": 256, "after control": 257}


@pytest.mark.parametrize("target", SIDES)
@pytest.mark.parametrize("draft", SIDES)
def test_byte_fallback_gives_way_to_a_token_of_the_same_byte(target: str, draft: str) -> None:
    own = Vocabulary((*SIDES[draft].pieces, b"more"), (*SIDES[draft].control, False))
    translation = translated(SIDES[target], own)
    rows = translation.rows(torch.arange(len(own), dtype=torch.float64))
    assert rows[FIRST_FIVE[target]] == FIRST_FIVE[draft]
    fives = [i for i, piece in enumerate(SIDES[target].pieces) if piece == b"5"]
    assert [translation.token(i) for i in fives] == [(FIRST_FIVE[draft],)] * len(fives)
    assert rows[fives].isfinite().sum() == 1
    if "none" not in (target, draft):
        assert translation.shared_tokens >= 256, "bytes that no token has stay what they are"
        its_ff = SIDES[target].pieces.index(b"\xff")
        assert translation.token(its_ff) == (own.pieces.index(b"\xff"),)
        assert rows[its_ff].isfinite()


@pytest.mark.parametrize(
    "single",
    [
        (*BYTES[33:127], *BYTES[161:173], *BYTES[174:], *BYTES[:33], *BYTES[127:161], b"\xad"),
        BYTES[:255],
        BYTES[1:],
        (*BYTES[:100], b"", *BYTES[100:]),
    ],
    ids=["GPT-2's order", "without the last", "without the first", "interrupted"],
)
def test_single_bytes_that_are_no_fallback_are_tokens_like_others(
    single: tuple[bytes, ...],
) -> None:
    both = vocabulary(*single, b"5", b"a")
    five, a = single.index(b"5"), single.index(b"a")
    assert (both.ids()[(b"5", False)], both.ids()[(b"a", False)]) == (five, a)
    assert PieceMatcher(both).ids(b"5a") == [five, a]


LETTERS = vocabulary(b"<bos>", b"h", b"i", b"hi", b" ", b"<turn>", b"\xc3", b"\xa9", control=[0, 5])


def test_text_is_read_anew_by_the_drafts_tokenizer() -> None:
    draft = vocabulary(b"hi hi", b"h", b"i", b" ", b"hi")
    assert translated(LETTERS, draft).prompt([0, 1, 2, 4, 1, 2]) == [0]


def test_control_tokens_that_both_have_stay_and_others_become_text() -> None:
    draft = vocabulary(b"h", b"i", b"<turn>", b"<", b"b", b"o", b"s", b">", control=[2])
    translation = translated(LETTERS, draft)
    assert translation.prompt([1, 5, 2]) == [0, 2, 1]
    assert translation.prompt([1, 0, 2]) == [0, 3, 4, 5, 6, 7, 1], "in the middle it is text"
    assert translation.prompt([0, 1]) == [0], "at the start it begins the target's text only"
    assert translation.prompt([0, 1, 0])[0] == 3, "what comes again belongs to a template"


def test_a_start_that_both_have_is_not_doubled() -> None:
    draft = vocabulary(b"<bos>", b"h", b"i", control=[0])
    assert translated(LETTERS, draft, bos=0).prompt([0, 3]) == [0, 1, 2]
    assert translated(LETTERS, draft, bos=0).prompt([3]) == [0, 1, 2]


def test_half_a_character_is_read_byte_by_byte() -> None:
    bytewise = vocabulary(b"h", b"\xc3", b"\xa9")
    assert translated(LETTERS, bytewise).prompt([1, 6]) == [0, 1]
    whole = vocabulary(b"h", "é".encode())
    assert translated(LETTERS, whole).prompt([1, 6, 7]) == [0, 1], "together they are one"
    assert translated(LETTERS, whole).token(6) == (), "alone the draft cannot write it"


def test_ids_beyond_the_drafts_logits_are_never_used() -> None:
    draft = vocabulary(b"h", b"i", b"hi")
    translation = TokenIntersection(LETTERS, PieceTokenizer(draft), 2)
    assert translation.rows(torch.zeros(2)).isfinite().sum() == 2
    assert translation.token(3) == (0, 1)
    assert translation.prompt([3, 4, 1]) == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_keep_their_precision(dtype: torch.dtype) -> None:
    assert translated(LETTERS, vocabulary(b"h")).rows(torch.zeros(1, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    "draft",
    [vocabulary(b"b", b"a", b"c"), vocabulary(b"a", b"", b"b", b"c"), vocabulary(b"c", b"a", b"b")],
)
def test_one_vocabulary_in_two_orders_is_refused(draft: Vocabulary) -> None:
    with pytest.raises(TokenizerMismatchError, match=r"same pieces in another order .*damaged"):
        TokenIntersection(vocabulary(b"a", b"b", b"c"), PieceTokenizer(draft), len(draft))


def test_a_vocabulary_with_more_padding_is_the_same_one() -> None:
    padded = vocabulary(b"a", b"b", b"", b"")
    translation = TokenIntersection(vocabulary(b"a", b"b"), PieceTokenizer(padded), 4)
    assert translation.shared_tokens == 2


def test_vocabularies_without_common_text_are_refused() -> None:
    draft = vocabulary(b"x", b"<bos>", control=[1])
    with pytest.raises(TokenizerMismatchError, match="no piece of text in common"):
        TokenIntersection(LETTERS, PieceTokenizer(draft), 2)


def test_equal_tokenizers_need_no_translation() -> None:
    logits = torch.randn(3)
    same = SameIds()
    assert same.rows(logits) is logits
    assert (same.prompt([2, 1]), same.token(9)) == ([2, 1], (9,))
